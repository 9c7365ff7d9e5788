"""Which format a table of files is in: plain Parquet, Delta, Iceberg or Hudi.

A directory with the log of a format (`tables/logs.py`) is read through the library of that format, as one version,
or refused. A directory that contains such a table is refused, and so is a path inside one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from pyarrow import fs

from watersmeet.errors import TableError
from watersmeet.tables.address import Address
from watersmeet.tables.delta import open_delta
from watersmeet.tables.iceberg import CATALOGUE_SCHEME, open_directory, open_named
from watersmeet.tables.logs import DELTA, HUDI, ICEBERG, is_metadata, log_above, log_in
from watersmeet.tables.parquet_files import find_files, place_of, reading
from watersmeet.tables.source import NotSupported

# Where the libraries of the formats name a place as Arrow does.
_SCHEMES = ("", "file", "s3", "s3a", "s3n", "gs", "gcs")


class TableRows(Protocol):
    """All rows of a table at one moment, in any order."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the rows may have changed. Without credentials."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns in canonical types."""
        ...

    def rows(self) -> int | None:
        """The number of rows; None where only reading them would tell."""
        ...

    def batches(self, label: str) -> Iterator[pa.RecordBatch]:
        """All rows in the types of the schema. `label` names the table in messages."""
        ...


def find_table(address: Address) -> TableRows:
    """The table at an address as it is now, or a TableError that says why it cannot be read."""
    if _is_named(address):
        if address.scheme != CATALOGUE_SCHEME:
            _refuse_scheme(address, ICEBERG)
        return open_named(address)
    filesystem, base = place_of(address)
    with reading(address, f"table {address!r}"):
        # A file has no log. To look for one would need the right to list, which reading a file does not.
        is_folder = filesystem.get_file_info(base).type == fs.FileType.Directory
        log = log_in(filesystem, base) if is_folder else None
    if log is None:
        return find_files(address)
    if log.kind != HUDI:
        _refuse_scheme(address, log.kind)
    if log.kind == DELTA:
        return open_delta(address)
    if log.kind == ICEBERG:
        return open_directory(address)
    raise NotSupported(
        f"table {address!r} is a Hudi table, which cannot be read here: its log says which rows are deleted. Pass it "
        'as a DataFrame: wm.table(spark.read.format("hudi").load(path), key=...)'
    )


def refuse_inside(address: Address) -> None:
    """Refuse a path inside a table with a log: its files may hold deleted rows."""
    if _is_named(address):
        return
    filesystem, base = place_of(address)
    if isinstance(filesystem, fs.LocalFileSystem):
        # A link may lead into a table, and `table/day=1/..` is the table itself.
        base = os.path.realpath(base)
    log = log_above(filesystem, [base])
    if log is not None:
        raise TableError(
            f"table {address!r} is inside the {log.kind} table {log.table}, whose log says which files and rows are "
            "deleted: pass that table's own path. If these files do not belong to it, move them elsewhere"
        )


def _refuse_scheme(address: Address, kind: str) -> None:
    if address.scheme not in _SCHEMES:
        other = (
            ""
            if kind == DELTA
            else ', or name it by its catalogue: wm.table("iceberg://catalogue/namespace.table")'
        )
        raise NotSupported(
            f"table {address!r} is {'a' if kind == DELTA else 'an'} {kind} table on {address.scheme}://, and those are "
            f"read here from paths, s3:// and gs://. Pass it as a DataFrame{other}"
        )


def _is_named(address: Address) -> bool:
    """Whether it names an Iceberg table otherwise than by its directory."""
    return address.scheme == CATALOGUE_SCHEME or is_metadata(address.uri)
