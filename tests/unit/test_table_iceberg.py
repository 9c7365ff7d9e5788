"""Iceberg tables: the rows of one snapshot, whatever the files still hold; or a clear refusal."""

from __future__ import annotations

import datetime
import decimal
import gzip
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from tests.unit.lake_helpers import Asking, commit_deletes, import_file, numbers, sqlite_catalogue
from tests.unit.table_helpers import check_table, same_rows, travelled
from watersmeet import TableError, table
from watersmeet.log.files import open_files
from watersmeet.tables.prepare import find_table, prepare
from watersmeet.tables.spec import Address

NAMED = "iceberg://lake/shop.products"


@pytest.fixture
def catalogue(tmp_path, monkeypatch) -> SqlCatalog:
    """A catalogue that pyiceberg finds by its name, as a user's."""
    lake = tmp_path / "lake"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{lake}/catalogue.db")
    made = sqlite_catalogue(lake)
    # pyiceberg reads its configuration once, when it is imported.
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    return made


def products(catalogue: SqlCatalog, rows: pa.Table) -> PyIcebergTable:
    made = catalogue.create_table("shop.products", schema=rows.schema)
    made.append(rows)
    return made


def opened(tmp_path: Path, source: object = NAMED, key: str | Sequence[str] = "id", **options):
    return travelled(prepare(table(source, key, **options), open_files(tmp_path / "state"))).open()


def as_hadoop(made: PyIcebergTable, version: int, *, remove: bool = True) -> Path:
    """The table's directory with its current metadata under the name that Hadoop tables have."""
    current = Path(made.metadata_location.removeprefix("file://"))
    content = current.read_text()
    if remove:
        for old in current.parent.glob("0*.metadata.json"):
            old.unlink()
    (current.parent / f"v{version}.metadata.json").write_text(content)
    return current.parent.parent


def test_deleted_and_replaced_rows_do_not_come_back(tmp_path, catalogue):
    made = products(catalogue, numbers(1, 2, 3, 4))
    made.delete("id = 2")
    check_table(opened(tmp_path), numbers(1, 3, 4))
    made.overwrite(pa.table({"id": [3], "v": ["new"]}), "id = 3")
    made.append(numbers(9))
    check_table(opened(tmp_path), pa.table({"id": [1, 3, 4, 9], "v": ["v1", "new", "v4", "v9"]}))


def test_positional_deletes_are_honoured(tmp_path, catalogue):
    made = products(catalogue, numbers(*range(10)))
    path = next(iter(made.scan().plan_files())).file.file_path
    positions = pa.table({"file_path": [path] * 3, "pos": pa.array([0, 4, 9], pa.int64())})
    commit_deletes(made, positions, DataFileContent.POSITION_DELETES)
    check_table(opened(tmp_path), numbers(1, 2, 3, 5, 6, 7, 8))


def test_equality_deletes_are_refused(tmp_path, catalogue):
    made = products(catalogue, numbers(1, 2, 3))
    commit_deletes(made, pa.table({"id": [2]}), DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    with pytest.raises(TableError, match="equality deletes.*wm.table\\(spark.table"):
        opened(tmp_path)


def test_columns_that_were_renamed_added_dropped_and_named_again_are_right(tmp_path, catalogue):
    made = products(catalogue, pa.table({"id": [1], "a": ["x"], "b": [5]}))
    with made.update_schema() as change:
        change.rename_column("a", "c")
        change.delete_column("b")
    with made.update_schema() as change:
        change.add_column("a", LongType())
        change.add_column("b", LongType())
    made.append(pa.table({"id": [2], "c": ["y"], "a": [7], "b": [8]}))
    expected = pa.table({"id": [1, 2], "c": ["x", "y"], "a": [None, 7], "b": [None, 8]})
    check_table(opened(tmp_path), expected)


def test_every_type_and_partition_arrives_as_spark_would_give_it(tmp_path, catalogue):
    moment = datetime.datetime(1500, 1, 2, 3, 4, 5, 6)
    struct = pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "day": pa.array([datetime.date(1600, 2, 29), None]),
            "text": ["é/x=1", None],
            "price": pa.array([decimal.Decimal("-1.50"), None], pa.decimal128(9, 2)),
            "single": pa.array([1.5, None], pa.float32()),
            "bytes": [b"\x00", None],
            "instant": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "local": pa.array([moment, None], pa.timestamp("us")),
            "struct": pa.array([{"a": 1, "b": ["x"]}, None], struct),
            "map": pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    made = catalogue.create_table("shop.products", schema=rows.schema)
    with made.update_spec() as change:
        for name in ("day", "text", "price"):
            change.add_identity(name)
    made.append(rows)
    check_table(opened(tmp_path), rows)


def test_partition_columns_that_files_do_not_have_come_from_the_metadata(tmp_path, catalogue):
    """As after an import of files that Hive wrote."""
    schema = pa.schema({"id": pa.int64(), "v": pa.string(), "day": pa.int32()})
    made = catalogue.create_table("shop.products", schema=schema)
    with made.update_spec() as change:
        change.add_identity("day")
    import_file(made, numbers(1, 2), Record(7))
    import_file(made, numbers(3), Record(None))
    expected = numbers(1, 2, 3).append_column("day", pa.array([7, 7, None], pa.int32()))
    check_table(opened(tmp_path), expected)


def test_old_timestamps_in_imported_files_are_refused(tmp_path, catalogue):
    moments = pa.array([datetime.datetime(1500, 1, 1)], pa.timestamp("us"))
    rows = pa.table({"id": [1], "at": moments})
    made = catalogue.create_table("shop.products", schema=rows.schema)
    import_file(made, rows, Record(), use_deprecated_int96_timestamps=True)
    with pytest.raises(TableError, match="INT96"):
        opened(tmp_path)


def test_refresh_goes_to_the_next_snapshot(tmp_path, catalogue):
    made = products(catalogue, numbers(1, 2))
    join = Asking(NAMED, tmp_path)
    assert join.answers(1, 2, 3) == [(1, "v1"), (2, "v2")]
    first = made.current_snapshot().snapshot_id
    made.delete("id = 1")
    made.append(numbers(3))
    assert join.answers(1, 2, 3) == [(1, "v1"), (2, "v2")], "a snapshot does not change while it is in use"
    join.refresh()
    assert join.answers(1, 2, 3) == [(2, "v2"), (3, "v3")]
    made.manage_snapshots().rollback_to_snapshot(first).commit()
    join.refresh()
    assert join.answers(1, 2, 3) == [(1, "v1"), (2, "v2")]


@pytest.mark.parametrize("damaged", ["data", "metadata"])
def test_a_damaged_file_is_looked_at_again_later(tmp_path, catalogue, damaged):
    made = products(catalogue, numbers(1, 2))
    folder = as_hadoop(made, 1, remove=False)
    for old in (folder / "metadata").glob("0*.metadata.json"):
        old.rename(tmp_path / old.name)
    join = Asking(folder, tmp_path)
    assert join.answers(1, 2, 3) == [(1, "v1"), (2, "v2")]
    before = set((folder / "data").glob("*.parquet"))
    for old in tmp_path.glob("0*.metadata.json"):
        old.rename(folder / "metadata" / old.name)
    made.append(numbers(3))
    as_hadoop(made, 2)
    (new,) = set((folder / "data").glob("*.parquet")) - before
    broken = new if damaged == "data" else folder / "metadata" / "v2.metadata.json"
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    join.refresh()
    assert join.answers(1, 2, 3) == [(1, "v1"), (2, "v2")], "the last whole version stays in use"
    broken.write_bytes(whole)
    join.refresh()
    assert join.answers(1, 2, 3) == [(1, "v1"), (2, "v2"), (3, "v3")]


def test_equality_deletes_that_appear_end_the_query(tmp_path, catalogue):
    made = products(catalogue, numbers(1, 2))
    join = Asking(NAMED, tmp_path)
    assert len(join.answers(1)) == 1
    commit_deletes(made, pa.table({"id": [2]}), DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    join.clock.now += 11
    with pytest.raises(TableError, match="equality deletes"):
        join.answers(1)


def test_a_commit_while_a_snapshot_is_read_is_not_part_of_it(tmp_path, catalogue):
    made = products(catalogue, numbers(1, 2))
    found = find_table(Address(NAMED))
    before = found.fingerprint
    made.delete("id = 1")
    made.append(numbers(3))
    rows = pa.Table.from_batches(found.batches("t"), found.schema)
    assert found.fingerprint == before and same_rows(rows, numbers(1, 2))


def test_a_hadoop_table_is_found_by_its_directory(tmp_path, catalogue):
    made = products(catalogue, numbers(1, 2))
    folder = as_hadoop(made, 9, remove=False)
    made.delete("id = 1")
    as_hadoop(made, 10)
    found = opened(tmp_path, folder)
    check_table(found, numbers(2))
    # Every number that is there was committed, whatever the hint says.
    (folder / "metadata" / "version-hint.text").write_text("9")
    assert found.newest() is None
    check_table(opened(tmp_path, folder / "metadata" / "v9.metadata.json"), numbers(1, 2))


@pytest.mark.parametrize("name", ["v2.gz.metadata.json", "v2.metadata.json.gz"])
def test_a_hadoop_table_may_have_a_version_compressed_and_plain(tmp_path, catalogue, name):
    made = products(catalogue, numbers(1, 2))
    folder = as_hadoop(made, 1, remove=False)
    # Iceberg takes the plain file of a version; the other one is left over.
    (folder / "metadata" / name).write_bytes(
        gzip.compress((folder / "metadata/v1.metadata.json").read_bytes())
    )
    made.delete("id = 1")
    as_hadoop(made, 2)
    check_table(opened(tmp_path, folder), numbers(2))
    (folder / "metadata" / "v2.metadata.json").unlink()
    check_table(opened(tmp_path, folder), numbers(1, 2))


@pytest.mark.parametrize("mixed", [False, True], ids=["numbers with ids", "both"])
def test_a_directory_of_a_catalogue_is_refused_with_the_ways_to_name_it(tmp_path, catalogue, mixed):
    """Its newest metadata may be that of a commit that failed."""
    made = products(catalogue, numbers(1, 2))
    made.delete("id = 1")
    folder = Path(made.location().removeprefix("file://"))
    if mixed:
        as_hadoop(made, 1, remove=False)
    with pytest.raises(TableError, match="only the catalogue knows.*iceberg://catalogue/namespace.table"):
        opened(tmp_path, folder)
    check_table(opened(tmp_path, made.metadata_location), numbers(2))
    with pytest.raises(TableError, match="contains the Iceberg table products"):
        opened(tmp_path, folder.parent)
    with pytest.raises(TableError, match="inside the Iceberg table"):
        opened(tmp_path, folder / "data")


def test_a_folder_that_is_only_called_metadata_is_no_table(tmp_path):
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    (tmp_path / "t" / "metadata" / "notes.json").write_text("{}")
    pq.write_table(numbers(1), tmp_path / "t" / "a.parquet")
    (tmp_path / "t" / "metadata" / "notes.json").unlink()
    check_table(opened(tmp_path, tmp_path / "t"), numbers(1))


def test_a_table_without_a_snapshot_has_no_rows(tmp_path, catalogue):
    catalogue.create_table("shop.products", schema=numbers(1).schema)
    assert len(opened(tmp_path).index) == 0


@pytest.mark.parametrize(
    "source, reason",
    [
        ("iceberg://lake/shop.nothing", "cannot be read as an Iceberg table"),
        (
            "iceberg://elsewhere/shop.products",
            "cannot open the catalogue elsewhere.*pyiceberg.yaml.*PYICEBERG_CATALOG__ELSEWHERE__URI, on the driver",
        ),
        ("iceberg://lake", "write it as"),
        ("iceberg:///shop.products", "write it as"),
    ],
)
def test_a_table_that_the_catalogue_does_not_have_is_a_clear_error(tmp_path, catalogue, source, reason):
    with pytest.raises(TableError, match=reason):
        opened(tmp_path, source)


def test_a_catalogue_of_an_unknown_kind_is_named_without_its_password(tmp_path, catalogue, monkeypatch):
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "oracle://ada:s3cret@db/lake")
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    with pytest.raises(TableError, match="cannot open the catalogue prod: Could not infer") as caught:
        opened(tmp_path, "iceberg://prod/shop.products")
    assert "s3cret" not in str(caught.value)


def test_uuids_and_newer_formats_are_refused(tmp_path, catalogue):
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField, UUIDType

    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "u", UUIDType()))
    made = catalogue.create_table("shop.products", schema=schema)
    with pytest.raises(TableError, match="UUID columns.*: u."):
        opened(tmp_path)
    current = Path(made.metadata_location.removeprefix("file://"))
    text = current.read_text().replace('"format-version":2', '"format-version":3')
    newer = current.with_name("v1.metadata.json")
    newer.write_text(text.replace('"last-updated-ms"', '"next-row-id":0,"last-updated-ms"'))
    with pytest.raises(TableError, match="format 3"):
        opened(tmp_path, newer)


def test_in_place_is_refused(tmp_path, catalogue):
    products(catalogue, numbers(1))
    with pytest.raises(TableError, match="cannot be used in place.*deleted rows"):
        opened(tmp_path, in_place=True)


def test_without_the_package_the_message_says_how_to_install_it(tmp_path, catalogue, monkeypatch):
    folder = as_hadoop(products(catalogue, numbers(1)), 1)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    for source in (NAMED, folder):
        with pytest.raises(TableError, match=r"pip install 'watersmeet\[iceberg\]'"):
            opened(tmp_path, source)
