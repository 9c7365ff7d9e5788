"""Delta tables: the rows of one version, whatever the files still hold; or a clear refusal."""

from __future__ import annotations

import datetime
import decimal
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.unit.lake_helpers import (
    Asking,
    deletion_vector,
    delta_field,
    mapped_field,
    numbers,
    stored_deletion_vector,
    write_log,
    write_v2_checkpoint,
)
from tests.unit.table_helpers import all_rows, check_table, same_rows, travelled
from watersmeet import TableError, table
from watersmeet.log.files import open_files
from watersmeet.tables import prepare as preparing
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import Address


def opened(folder: Path, key: str | Sequence[str] = "id", **options):
    source = prepare(table(folder, key, **options), open_files(folder.parent / "state"))
    return travelled(source).open()


def live_rows(folder: Path) -> pa.Table:
    """The rows of the newest version by the log itself: files that were added and not removed, read by DuckDB."""
    added: dict[str, None] = {}
    for entry in sorted((folder / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                added.pop(action["remove"]["path"])
        added |= {action["add"]["path"]: None for action in actions if "add" in action}
    files = [str(folder / path) for path in added]
    query = "SELECT id, v FROM read_parquet($1, union_by_name = true)"
    return duckdb.sql(query, params=[files]).to_arrow_table()


def test_deleted_and_updated_rows_do_not_come_back(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1, 2, 3, 4))
    DeltaTable(folder).delete("id IN (2, 3)")
    check_table(opened(folder), numbers(1, 4))
    DeltaTable(folder).update(predicate="id = 4", updates={"v": "'new'"})
    write_deltalake(folder, numbers(9), mode="append")
    expected = pa.table({"id": [1, 4, 9], "v": ["v1", "new", "v9"]})
    check_table(opened(folder), expected)
    assert same_rows(expected, live_rows(folder))
    DeltaTable(folder).restore(0)
    check_table(opened(folder), numbers(1, 2, 3, 4))


def test_an_overwritten_and_compacted_table_has_each_row_once(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1, 2))
    write_deltalake(folder, numbers(5, 6), mode="overwrite")
    write_deltalake(folder, numbers(7), mode="append")
    DeltaTable(folder).optimize.compact()
    DeltaTable(folder).create_checkpoint()
    check_table(opened(folder), numbers(5, 6, 7))


def test_partition_columns_have_their_values_and_types(tmp_path):
    folder = tmp_path / "t"
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "day": pa.array([datetime.date(2024, 1, 1), datetime.date(1600, 2, 29), None, None]),
            "text": ["a b", "é/x=1", None, "07"],
            "price": pa.array(
                [decimal.Decimal("1.50"), None, decimal.Decimal("7.25"), None], pa.decimal128(9, 2)
            ),
        }
    )
    write_deltalake(folder, rows, partition_by=["day", "text", "price"])
    check_table(opened(folder), rows)
    check_table(opened(folder, key=["day", "id"]), rows)


def test_a_negative_decimal_in_a_partition_is_read_as_spark_writes_it(tmp_path):
    folder = tmp_path / "t"
    fields = [delta_field("id", "long"), delta_field("price", "decimal(9,2)")]
    adds = {"partitionValues": {"price": "-7.25"}}
    write_log(folder, fields, {"a.parquet": pa.table({"id": [1]})}, partitions=["price"], adds=adds)
    price = pa.array([decimal.Decimal("-7.25")], pa.decimal128(9, 2))
    check_table(opened(folder), pa.table({"id": [1], "price": price}))


def partitioned_by_time(folder: Path, kind: str, *values: str | None) -> None:
    """A table with one row and one file for each value, as its log has it."""
    fields = [delta_field("id", "long"), delta_field("at", kind)]
    features = ["timestampNtz"] if kind == "timestamp_ntz" else []
    files = {f"{number}.parquet": pa.table({"id": [number]}) for number in range(len(values))}
    write_log(folder, fields, files, features=features, partitions=["at"])
    entry = folder / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]
    for add, value in zip(adds, values, strict=True):
        add["partitionValues"] = {"at": value}
    entry.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("checkpoint", [False, True], ids=["log", "checkpoint"])
def test_timestamps_of_partitions_without_a_zone_are_refused(tmp_path, checkpoint):
    """Spark writes them in the zone of its session, and the log does not say which one that was."""
    folder = tmp_path / "t"
    partitioned_by_time(folder, "timestamp", "2024-01-01T10:00:00.000000Z", None, "2024-01-01 10:00:00")
    if checkpoint:
        DeltaTable(folder).create_checkpoint()
        (folder / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(TableError, match="at, a timestamp.*'2024-01-01 10:00:00'") as caught:
        opened(folder)
    assert 'spark.read.format("delta")' in str(caught.value)


def test_timestamps_of_partitions_with_a_zone_are_moments(tmp_path):
    folder = tmp_path / "t"
    partitioned_by_time(
        folder, "timestamp", "2024-01-01T10:00:00.000000Z", None, "", "2024-01-01 10:00:00+02:00"
    )
    moments = [datetime.datetime(2024, 1, 1, 10), None, None, datetime.datetime(2024, 1, 1, 8)]
    at = pa.array(moments, pa.timestamp("us", "UTC"))
    check_table(opened(folder), pa.table({"id": [0, 1, 2, 3], "at": at}))


def test_local_times_of_partitions_need_no_zone(tmp_path):
    folder = tmp_path / "t"
    partitioned_by_time(folder, "timestamp_ntz", "2024-01-01 10:00:00.123", None)
    moments = [datetime.datetime(2024, 1, 1, 10, 0, 0, 123_000), None]
    check_table(opened(folder), pa.table({"id": [0, 1], "at": pa.array(moments, pa.timestamp("us"))}))


def test_every_type_arrives_as_spark_would_give_it(tmp_path):
    folder = tmp_path / "t"
    moment = datetime.datetime(1500, 1, 2, 3, 4, 5, 6)
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "tiny": pa.array([1, None], pa.int8()),
            "single": pa.array([1.5, None], pa.float32()),
            "flag": [True, None],
            "bytes": [b"\x00", None],
            "instant": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "local": pa.array([moment, None], pa.timestamp("us")),
            "list": pa.array([["a", None], None], pa.list_(pa.string())),
            "struct": pa.array(
                [{"a": 1, "b": ["x"]}, None], pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})
            ),
            "map": pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    write_deltalake(folder, rows)
    check_table(opened(folder), rows)


def test_files_older_than_a_column_have_nulls_in_it(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1))
    write_deltalake(folder, pa.table({"id": [2], "extra": [5]}), mode="append", schema_mode="merge")
    check_table(opened(folder), pa.table({"id": [1, 2], "v": ["v1", None], "extra": [None, 5]}))


def test_deletion_vectors_are_honoured(tmp_path):
    folder = tmp_path / "t"
    fields = [delta_field("id", "long"), delta_field("v", "string")]
    adds = {"deletionVector": deletion_vector([1, 3])}
    write_log(folder, fields, {"a.parquet": numbers(0, 1, 2, 3, 4)}, features=["deletionVectors"], adds=adds)
    check_table(opened(folder), numbers(0, 2, 4))


def test_deletion_vectors_in_files_of_their_own_are_honoured(tmp_path):
    folder = tmp_path / "t"
    fields = [delta_field("id", "long"), delta_field("v", "string")]
    adds = {"deletionVector": stored_deletion_vector(folder, [1, 3])}
    write_log(folder, fields, {"a.parquet": numbers(0, 1, 2, 3, 4)}, features=["deletionVectors"], adds=adds)
    check_table(opened(folder), numbers(0, 2, 4))


def test_a_checkpoint_with_sidecars_is_read(tmp_path):
    folder = tmp_path / "t"
    fields = [delta_field("id", "long"), delta_field("v", "string")]
    files = {"a.parquet": numbers(1), "b.parquet": numbers(2)}
    policy = {"delta.checkpointPolicy": "v2"}
    write_log(folder, fields, files, features=["v2Checkpoint"], config=policy)
    pq.write_table(numbers(9), folder / "c.parquet")
    write_v2_checkpoint(folder)
    check_table(opened(folder), numbers(1, 2))


def test_columns_mapped_by_name_are_honoured_also_in_structs_and_partitions(tmp_path):
    folder = tmp_path / "t"
    inner = {"type": "struct", "fields": [mapped_field("inner", "long", 4)]}
    fields = [mapped_field("id", "long", 1), mapped_field("day", "date", 2), mapped_field("s", inner, 3)]
    rows = pa.table({"col-1": [7], "col-3": [{"col-4": 8}]})
    write_log(
        folder,
        fields,
        {"a.parquet": rows},
        features=["columnMapping"],
        config={"delta.columnMapping.mode": "name"},
        partitions=["day"],
        adds={"partitionValues": {"col-2": "2024-05-06"}},
    )
    day = datetime.date(2024, 5, 6)
    check_table(opened(folder), pa.table({"id": [7], "day": [day], "s": [{"inner": 8}]}))


def test_old_timestamps_far_from_today_are_right(tmp_path):
    moments = [datetime.datetime(1500, 1, 1, 1, 2, 3, 4), datetime.datetime(9999, 12, 31)]
    folder = tmp_path / "t"
    rows = pa.table({"id": [1, 2], "at": pa.array(moments, pa.timestamp("us"))})
    write_log(
        folder, [delta_field("id", "long"), delta_field("at", "timestamp")], {"a.parquet": rows}, int96=True
    )
    check_table(opened(folder), pa.table({"id": [1, 2], "at": pa.array(moments, pa.timestamp("us", "UTC"))}))


@pytest.mark.parametrize(
    "features, config, reason",
    [
        (["columnMapping"], {"delta.columnMapping.mode": "id"}, "maps columns by id"),
        (["typeWidening"], {}, "typeWidening"),
        (["variantType"], {}, "variantType"),
        (["somethingNew"], {}, "somethingNew"),
        (["catalogManaged"], {}, "catalog"),
        (["vacuumProtocolCheck"], {}, "with vacuumProtocolCheck, which is not supported here"),
    ],
    ids=["mapping by id", "type widening", "variant", "unknown", "catalogue", "vacuum"],
)
def test_features_that_are_not_read_correctly_are_refused(tmp_path, features, config, reason):
    folder = tmp_path / "t"
    write_log(
        folder, [mapped_field("id", "long", 1)], {"a.parquet": numbers(1)}, features=features, config=config
    )
    with pytest.raises(TableError, match=reason) as caught:
        opened(folder)
    assert 'spark.read.format("delta")' in str(caught.value)


def test_a_table_is_read_as_one_version_and_refresh_goes_to_the_next(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1, 2))
    join = Asking(folder, tmp_path)
    assert join.answers(1, 2, 3) == [(1, "v1"), (2, "v2")]
    DeltaTable(folder).delete("id = 1")
    write_deltalake(folder, numbers(3), mode="append")
    assert join.answers(1, 2, 3) == [(1, "v1"), (2, "v2")], "a version does not change while it is in use"
    join.refresh()
    assert join.answers(1, 2, 3) == [(2, "v2"), (3, "v3")]
    DeltaTable(folder).restore(0)
    join.refresh()
    assert join.answers(1, 2, 3) == [(1, "v1"), (2, "v2")]


def test_a_commit_while_a_version_is_read_is_not_part_of_it(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1, 2))
    found = preparing.find_table(Address(str(folder)))
    before = found.fingerprint
    DeltaTable(folder).delete("id = 1")
    write_deltalake(folder, numbers(3), mode="append")
    rows = pa.Table.from_batches(found.batches("t"), found.schema)
    assert found.fingerprint == before and same_rows(rows, numbers(1, 2))


def test_a_version_that_cannot_be_read_ends_the_query(tmp_path):
    """To go on with the version before would break the promise of `refresh`, without anybody seeing it."""
    folder = tmp_path / "t"
    fields = [delta_field("id", "long"), delta_field("v", "string")]
    write_log(folder, fields, {"a.parquet": numbers(1)})
    join = Asking(folder, tmp_path)
    assert len(join.answers(1)) == 1
    features = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {name: ["variantType"] for name in ("readerFeatures", "writerFeatures")}
    (folder / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": features}))
    join.clock.now += 11
    with pytest.raises(TableError, match="variantType"):
        join.answers(1)


def test_a_second_start_finds_the_version_that_the_first_prepared(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1))
    first, again = opened(folder), opened(folder)
    assert first.source == again.source
    # Files that no version names are no change.
    pq.write_table(numbers(8), folder / "stray.parquet")
    assert again.newest() is None
    write_deltalake(folder, numbers(2), mode="append")
    newer = again.newest()
    assert newer is not None and newer.folder != again.source.folder
    check_table(newer.open(), numbers(1, 2))


def test_a_table_made_anew_at_the_same_version_is_another(tmp_path):
    import shutil

    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1))
    before = opened(folder)
    shutil.rmtree(folder)
    write_deltalake(folder, numbers(2))
    assert before.newest() is not None
    check_table(opened(folder), numbers(2))


def test_an_empty_version_matches_nothing(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1, 2))
    DeltaTable(folder).delete()
    assert all_rows(opened(folder), ["id"]).num_rows == 0


def test_in_place_is_refused(tmp_path):
    write_deltalake(tmp_path / "t", numbers(1))
    with pytest.raises(TableError, match="cannot be used in place.*deleted rows"):
        opened(tmp_path / "t", in_place=True)


def test_a_vacuumed_file_is_a_clear_error(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1))
    next(folder.glob("*.parquet")).unlink()
    with pytest.raises(TableError, match="cannot be read as a Delta table.*VACUUM"):
        opened(folder)


def test_a_log_without_a_version_is_a_clear_error(tmp_path):
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    pq.write_table(numbers(1), tmp_path / "t" / "a.parquet")
    with pytest.raises(TableError, match="cannot be read as a Delta table"):
        opened(tmp_path / "t")


def test_without_the_package_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    write_deltalake(tmp_path / "t", numbers(1))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(TableError, match=r"pip install 'watersmeet\[delta\]'"):
        opened(tmp_path / "t")


def test_a_directory_that_contains_a_table_is_refused(tmp_path):
    write_deltalake(tmp_path / "lake" / "shop" / "products", numbers(1, 2))
    DeltaTable(tmp_path / "lake" / "shop" / "products").delete("id = 1")
    for above in (tmp_path / "lake" / "shop", tmp_path / "lake"):
        with pytest.raises(
            TableError, match="contains the Delta table .*products: pass the path of that table"
        ):
            opened(above)


@pytest.mark.parametrize("hidden", [".trash/old", "_backup/day=1/t", "day=1/_old"])
def test_a_table_in_a_hidden_folder_is_no_part_of_the_one_around_it(tmp_path, hidden):
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(numbers(1, 2), folder / "a.parquet")
    write_deltalake(folder / hidden, numbers(8, 9))
    check_table(opened(folder), numbers(1, 2))


def test_a_link_into_a_table_is_refused(tmp_path):
    folder, link = tmp_path / "t", tmp_path / "link"
    write_deltalake(folder, pa.table({"id": [1, 2], "day": ["a", "a"]}), partition_by=["day"])
    DeltaTable(folder).delete("id = 1")
    link.symlink_to(folder / "day=a")
    with pytest.raises(TableError, match=f"inside the Delta table {folder}"):
        opened(link)


def test_a_path_to_a_table_may_be_a_link_or_go_back_and_forth(tmp_path):
    folder, link = tmp_path / "t", tmp_path / "link"
    write_deltalake(folder, numbers(1, 2))
    DeltaTable(folder).delete("id = 1")
    link.symlink_to(folder)
    (folder / "sub").mkdir()
    for source in (link, f"{folder}/sub/..", f"file://{folder}/sub/.."):
        found = prepare(table(source, "id"), open_files(tmp_path / "state")).open()
        check_table(found, numbers(2))


def test_a_path_inside_a_table_is_refused(tmp_path):
    folder = tmp_path / "t"
    write_deltalake(folder, pa.table({"id": [1, 2], "day": ["a", "b"]}), partition_by=["day"])
    for inside in (folder / "day=a", next((folder / "day=a").glob("*.parquet"))):
        with pytest.raises(TableError, match=f"inside the Delta table {folder}"):
            opened(inside)


def test_a_file_uri_is_a_path(tmp_path):
    folder = tmp_path / "with space"
    write_deltalake(folder, numbers(1, 2))
    DeltaTable(folder).delete("id = 1")
    for source in (f"file://{quote(str(folder))}", f"file:{folder}"):
        found = prepare(table(source, "id"), open_files(tmp_path / "state")).open()
        check_table(found, numbers(2))


@pytest.mark.parametrize("as_uri", [False, True], ids=["path", "URI"])
def test_a_path_with_a_percent_escape_is_refused(tmp_path, as_uri):
    """deltalake would read the log of the directory beside it."""
    folder = tmp_path / "a%20b" / "t"
    write_log(folder, [delta_field("id", "long")], {"a.parquet": pa.table({"id": [1]})})
    write_log(tmp_path / "a b" / "t", [delta_field("id", "long")], {"a.parquet": pa.table({"id": [2]})})
    source = folder.as_uri() if as_uri else folder
    with pytest.raises(TableError, match="percent escape.*a b/t.*Rename the directory"):
        prepare(table(source, "id"), open_files(tmp_path / "state"))


@pytest.mark.parametrize("below", ["", "shop/"], ids=["itself", "contained"])
def test_hudi_is_refused_with_the_workaround(tmp_path, below):
    folder = tmp_path / "t" / below
    (folder / ".hoodie").mkdir(parents=True)
    (folder / ".hoodie" / "hoodie.properties").write_text("x")
    pq.write_table(numbers(1), folder / "a.parquet")
    with pytest.raises(
        TableError, match="Hudi table.*DataFrame" if not below else "contains the Hudi table shop"
    ):
        opened(tmp_path / "t")


def test_a_store_that_was_not_tried_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "t"
    write_deltalake(folder, numbers(1))
    here = preparing.place_of(Address(str(folder)))
    monkeypatch.setattr(preparing, "place_of", lambda address: here)
    with pytest.raises(TableError, match="a Delta table on abfss://.*DataFrame"):
        preparing.find_table(Address("abfss://box@account.dfs.core.windows.net/t"))
