"""Rows that wait for pages of a table over very many batches: what a batch leaves behind stays bounded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.model.test_tables import Clock
from watersmeet import TableError, table
from watersmeet.engine import operator as engine
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import LocalFiles, open_files
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.model.facts import Manifest
from watersmeet.model.lookup import TableVersion
from watersmeet.tables.prepare import prepare
from watersmeet.tables.versions import source_at

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])
DELAY_S = 5.0


def newest(join: LocalJoin, state: Path) -> Manifest:
    files = LocalFiles(state / join.operator.spec.name / join.query)
    return read_manifest(files, list_manifests(files)[-1])


def test_the_manifest_does_not_grow_while_something_always_waits(tmp_path, monkeypatch):
    """Each batch brings a row for another page, a second apart: at any time some five wait."""
    monkeypatch.setattr(engine, "CLEAN_EVERY_BATCHES", 4)
    keys = np.arange(100)
    pq.write_table(pa.table([keys, keys], schema=SCHEMA), tmp_path / "table.parquet")
    clock, state = Clock(), tmp_path / "state"
    join = LocalJoin(
        {"s": SCHEMA, "t": table(tmp_path / "table.parquet", key="k", page_rows=1, in_place=False)},
        on="s.k = t.k",
        select=["s.x", "t.x AS y"],
        state=str(state),
        tasks=1,
        settings=Settings(state=str(state), tasks=1, grace_s=0.0),
        max_delay_s=DELAY_S,
        clock=clock,
    )
    answered = []
    for number in range(60):
        clock.now += 1
        rows = pa.table([[number % 100], [number]], schema=SCHEMA)
        answered += join.batch(s=rows).column("x").to_pylist()
        manifest = newest(join, state)
        pages = manifest.plan.pages
        assert pages is not None and pages.waiting_rows == min(number + 1, DELAY_S)
        assert {one.batch for one in pages.arrivals} == {run.batch for run in manifest.live}
        assert len(pages.arrivals) <= DELAY_S + 1
    assert answered == list(range(60 - int(DELAY_S)))


def test_pages_that_were_cut_anew_are_not_taken_for_the_old_ones(tmp_path):
    """Rows that wait were located by page number: those of another version mean other keys."""
    keys = np.arange(100)
    pq.write_table(pa.table([keys, keys], schema=SCHEMA), tmp_path / "table.parquet")
    source = prepare(
        table(tmp_path / "table.parquet", key="k", in_place=False), open_files(tmp_path / "state")
    )
    other = TableVersion(source.folder, "another", 3)
    with pytest.raises(
        TableError, match="version another of the table, which waiting rows were located in, is gone"
    ):
        source_at(source, other.folder, other.version)
    assert source_at(source, source.folder, source.version) == source
