"""A stream joined with Delta and Iceberg tables on a real session, while rows of the tables are deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import Table
from pyspark.sql import DataFrame

import watersmeet as wm
from tests.spark.shop import together
from tests.unit.lake_helpers import sqlite_catalogue
from watersmeet.testing import StreamScript, assert_same_rows


def products(*keys: int) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64()), "v": [f"v{key}" for key in keys]})


def test_deleted_rows_are_not_joined_and_a_refresh_sees_the_next_version(spark, tmp_path):
    delta = tmp_path / "delta"
    write_deltalake(delta, products(*range(6)))
    DeltaTable(delta).delete("id IN (3, 4)")
    made = sqlite_catalogue(tmp_path / "lake").create_table("shop.t", products(1).schema)
    made.append(products(*range(6)))
    made.delete("id IN (3, 4)")
    iceberg = tmp_path / "iceberg"
    publish(made, iceberg, 1)

    def build(s: DataFrame) -> DataFrame:
        return together(
            {
                name: wm.join(
                    {"s": s, "p": wm.table(folder, key="id", refresh=0)},
                    on="s.k = p.id",
                    select=["s.n", "p.v"],
                    state=str(tmp_path / "state"),
                    name=name,
                )
                for name, folder in (("delta", delta), ("iceberg", iceberg))
            }
        )

    def expected(n: int, keys: set[int]) -> list[tuple]:
        return [(n, f"v{key}", name) for name in ("delta", "iceberg") for key in sorted(keys)]

    with StreamScript(spark, tmp_path, s="n int, k bigint") as script:
        script.start(build)
        script.batch(s=[(1, key) for key in range(8)])
        wanted = expected(1, {0, 1, 2, 5})
        assert_same_rows(script.results(), wanted)
        DeltaTable(delta).delete("id = 5")
        write_deltalake(delta, products(7), mode="append")
        made.delete("id = 5")
        made.append(products(7))
        publish(made, iceberg, 2)
        # One batch finds the change and the next uses it, or one more if a task that may not prepare plans the first.
        script.batch(s=[(2, -1)])
        script.batch(s=[(2, -1)])
        script.batch(s=[(3, key) for key in range(8)])
        assert_same_rows(script.results(), wanted + expected(3, {0, 1, 2, 7}))


def publish(made: Table, folder: Path, version: int) -> None:
    """Commit the table's metadata as that of a Hadoop table, in which a number stands for a version."""
    metadata = folder / "metadata"
    metadata.mkdir(parents=True, exist_ok=True)
    current = Path(made.metadata_location.removeprefix("file://"))
    shutil.copy(current, metadata / f"v{version}.metadata.json")
