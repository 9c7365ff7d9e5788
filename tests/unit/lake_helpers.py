"""Delta and Iceberg tables for tests, as other engines write them."""

from __future__ import annotations

import base64
import json
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyroaring import BitMap

from tests import life
from watersmeet import table

# Python's base 85 and ZeroMQ's, in which Delta writes small deletion vectors, differ in their letters only.
_PYTHONS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_ZEROMQS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC = 1681511377


def numbers(*keys: int) -> pa.Table:
    """A row for each of these keys."""
    return pa.table({"id": pa.array(keys, pa.int64()), "v": [f"v{key}" for key in keys]})


STREAM = pa.schema({"k": pa.int64(), "n": pa.int64()})


class Asking:
    """A join with a table `(id, v)` that is looked at again every ten seconds."""

    def __init__(self, address: str | Path, folder: Path):
        self.clock = life.Clock()
        inputs = {"s": STREAM, "t": table(address, "id", refresh="10 seconds")}
        state, select = folder / "state", ["s.n", "t.v"]
        self._join = life.start(inputs, state, "s.k = t.id", select=select, clock=self.clock)

    def answers(self, *keys: int) -> list[tuple]:
        """What a batch with these keys gets: the keys, and the table's values."""
        return sorted(life.rows_of(self._join.batch(s=pa.table({"k": keys, "n": keys}, schema=STREAM))))

    def refresh(self) -> None:
        """Let the time pass, and a batch that finds a change: the next one uses it."""
        self.clock.now += 11
        self.answers()


def deletion_vector(rows: Sequence[int]) -> dict[str, Any]:
    """An action's entry that deletes rows of a Delta file by their positions."""
    bits = _deleted(rows)
    return {
        "storageType": "i",
        "pathOrInlineDv": _base85(bits + b"\0" * (-len(bits) % 4)),
        "sizeInBytes": len(bits),
        "cardinality": len(rows),
    }


def stored_deletion_vector(folder: Path, rows: Sequence[int]) -> dict[str, Any]:
    """The same with the positions in a file of their own, as Spark writes it."""
    name, bits = uuid.uuid4(), _deleted(rows)
    folder.mkdir(parents=True, exist_ok=True)
    # A version, then for each vector its length, the vector and its checksum.
    content = b"\x01" + struct.pack(">i", len(bits)) + bits + struct.pack(">I", zlib.crc32(bits))
    (folder / f"deletion_vector_{name}.bin").write_bytes(content)
    return {
        "storageType": "u",
        "pathOrInlineDv": _base85(name.bytes),
        "offset": 1,
        "sizeInBytes": len(bits),
        "cardinality": len(rows),
    }


def _deleted(rows: Sequence[int]) -> bytes:
    return struct.pack("<iQI", _MAGIC, 1, 0) + bytes(BitMap(rows).serialize())


def _base85(content: bytes) -> str:
    return base64.b85encode(content).translate(bytes.maketrans(_PYTHONS, _ZEROMQS)).decode()


def write_v2_checkpoint(folder: Path) -> None:
    """Replace the log of a table of version 0 by a checkpoint of the second kind, with its files in a sidecar."""
    log = folder / "_delta_log"
    entry = log / f"{0:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]
    add_type = pa.struct(
        {
            "path": pa.string(),
            "partitionValues": pa.map_(pa.string(), pa.string()),
            "size": pa.int64(),
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
            "stats": pa.string(),
        }
    )
    rows = [{**add, "partitionValues": list(add["partitionValues"].items())} for add in adds]
    remove_type = pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()})
    sidecar = log / "_sidecars" / f"{uuid.uuid4()}.parquet"
    sidecar.parent.mkdir()
    removes = pa.nulls(len(rows), remove_type)
    pq.write_table(pa.table({"add": pa.array(rows, add_type), "remove": removes}), sidecar)
    named = {"path": sidecar.name, "sizeInBytes": sidecar.stat().st_size, "modificationTime": 0}
    top = [{"checkpointMetadata": {"version": 0}}, {"sidecar": named}]
    top += [action for action in actions if "add" not in action]
    (log / f"{0:020}.checkpoint.{uuid.uuid4()}.json").write_text("\n".join(map(json.dumps, top)))
    (log / f"{1:020}.json").write_text(json.dumps({"commitInfo": {"timestamp": 0}}))
    entry.unlink()


def delta_field(name: str, kind: object, **metadata: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def mapped_field(name: str, kind: object, number: int) -> dict[str, Any]:
    """A column that files have under the name `col-<number>`."""
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return delta_field(name, kind, **mapping)


def write_log(
    folder: Path,
    fields: Sequence[Mapping[str, Any]],
    files: Mapping[str, pa.Table],
    *,
    features: Sequence[str] = (),
    adds: Mapping[str, Any] | None = None,
    config: Mapping[str, str] | None = None,
    partitions: Sequence[str] = (),
    int96: bool = False,
) -> None:
    """A Delta table of version 0, its log written by hand; `adds` are more entries for every file."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(features),
        "writerFeatures": list(features),
    }
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partitions),
        "configuration": dict(config or {}),
        "createdTime": 0,
    }
    actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    for name, rows in files.items():
        pq.write_table(rows, folder / name, use_deprecated_int96_timestamps=int96)
        add = {
            "path": name,
            "partitionValues": {},
            "size": (folder / name).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows.num_rows}),
        }
        actions.append({"add": {**add, **(adds or {})}})
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


def sqlite_catalogue(folder: Path, name: str = "lake") -> SqlCatalog:
    folder.mkdir(parents=True, exist_ok=True)
    catalogue = SqlCatalog(name, uri=f"sqlite:///{folder}/catalogue.db", warehouse=f"file://{folder}")
    catalogue.create_namespace_if_not_exists("shop")
    return catalogue


class _Deletes(_FastAppendFiles):
    """A commit of one delete file, which pyiceberg reads but does not write."""

    deleting: DataFile

    def _manifests(self) -> list[ManifestFile]:
        spec = self._transaction.table_metadata.spec()
        path = f"{self._transaction.table_metadata.location}/metadata/{uuid.uuid4()}-deletes.avro"
        output = self._io.new_output(path)
        with _DeleteManifest(
            spec, self._transaction.table_metadata.schema(), output, self._snapshot_id, "deflate"
        ) as w:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=self.deleting
            )
            w.add(entry)
        return [*self._existing_manifests(), w.to_manifest_file()]


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def commit_deletes(table: Table, rows: pa.Table, content: DataFileContent, **entry: Any) -> None:
    """Commit a delete file: positions (`file_path`, `pos`) or values of key columns."""
    with table.transaction() as transaction:
        commit = _Deletes(Operation.OVERWRITE, transaction, table.io)
        commit.deleting = _written(table, rows, content, Record(), **entry)
        commit.commit()


def import_file(table: Table, rows: pa.Table, partition: Record, **how: object) -> None:
    """Commit a file that another engine wrote: without field ids, and with partition values in the metadata only."""
    with table.transaction() as transaction:
        mapping = table.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
        with transaction.update_snapshot().fast_append() as commit:
            commit.append_data_file(_written(table, rows, DataFileContent.DATA, partition, how))


def _written(
    table: Table,
    rows: pa.Table,
    content: DataFileContent,
    partition: Record,
    how: Mapping[str, Any] | None = None,
    **entry: Any,
) -> DataFile:
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    with table.io.new_output(path).create() as sink:
        pq.write_table(rows, sink, **(how or {}))
    made = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        **entry,
    )
    made.spec_id = table.spec().spec_id
    return made
