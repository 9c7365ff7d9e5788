"""Limits that are given with the settings reach the code that they are for."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests import life
from watersmeet.local.join import LocalJoin
from watersmeet.model.limits import Limits
from watersmeet.schemes.hypercube.hot_keys import hot_keys_of
from watersmeet.tables.spec import Table

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})
SMALL = Limits(output_rows=7, fan_in=2, part_rows=10, least_listed_rows=1, clean_every_batches=1)


def rows(count: int = 30) -> pa.Table:
    return pa.table([np.arange(count) % 3, np.arange(count)], schema=SCHEMA)


def start(state: Path, on: str, inputs: dict[str, pa.Schema | Table]) -> LocalJoin:
    return life.start(inputs, state, on, settings={"retain_batches": 1, "grace_s": -1.0, "limits": SMALL})


def test_every_limit_is_read_somewhere():
    package = Path(wm.__file__).parent
    source = "".join(path.read_text() for path in package.rglob("*.py") if path.name != "limits.py")
    read = set(re.findall(r"(?:limits|LIMITS)\.([a-z_]+)", source))
    assert {field.name for field in fields(Limits)} <= read


@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.k - r.k) <= 1", "l.k <> r.k", "l.k = t.k"])
def test_result_batches_of_every_kernel_keep_to_the_limit(tmp_path, on):
    """The operator hands a batch of a kernel on as it is if it is large."""
    inputs: dict[str, pa.Schema | Table] = {"l": SCHEMA, "r": SCHEMA}
    if "t.k" in on:
        pq.write_table(rows().sort_by("k"), tmp_path / "t.parquet")
        inputs = {"l": SCHEMA, "t": wm.table(tmp_path / "t.parquet", key="k", in_place=False)}
    join = start(tmp_path / "state", on, inputs)
    batch = life.batch_of(join)
    arrived = [life.ingest(join, batch, name, rows()) for name, of in inputs.items() if of is SCHEMA]
    sizes = [found.num_rows for task in range(2) for found in join.operator.join(batch, task, arrived)]
    assert sum(sizes) >= 300
    assert max(sizes) <= SMALL.output_rows


def test_merges_listings_and_clean_up_keep_to_the_limits(tmp_path):
    join = start(tmp_path, "l.k = r.k", {"l": SCHEMA, "r": SCHEMA})
    for _ in range(6):
        join.batch(l=rows())
    live = life.newest(tmp_path).live
    merged = [run for run in live if "-m0" in run.path]
    assert merged, "two runs are enough for a merge"
    # Pieces are cut between keys where that is good enough (kernel/bounds.py).
    assert max(run.rows for run in merged) <= 2 * SMALL.part_rows
    assert all(hot_keys_of(run).keys for run in live), "keys of a few rows are listed"
    on_disk = list((tmp_path / "join" / "local" / "manifests").iterdir())
    assert len(on_disk) < 6, "old manifests are removed in every batch"
