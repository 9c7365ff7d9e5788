"""Rows that wait for pages of a table over very many batches, and tables that change meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import life
from tests.life import Clock
from watersmeet import TableError, UsageError, table
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.model.limits import Limits
from watersmeet.schemes.table.facts import PagePlan, TableVersion
from watersmeet.tables.parquet import OpenParquet
from watersmeet.tables.prepare import prepare
from watersmeet.tables.sorted_copy import OpenSortedCopy
from watersmeet.tables.source import PreparedTable
from watersmeet.tables.spec import Table

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])
DELAY_S = 5.0


def start(folder: Path, products: Table, **how) -> LocalJoin:
    how = {"select": ["s.x", "t.x AS y"], **how}
    return life.start({"s": SCHEMA, "t": products}, folder / "state", "s.k = t.k", **how)


def answered(join: LocalJoin, tasks: Iterable[int]) -> int:
    """The results of the next batch if tasks come to it in this order; it has a row for each of two files."""
    batch, rows = life.batch_of(join), pa.table([[5, 105], [join.number] * 2], schema=SCHEMA)
    descriptor = life.ingest(join, batch, "s", rows)
    found = sum(len(life.task_rows(join, batch, task, [descriptor])) for task in tasks)
    join.number += 1
    return found


def test_the_manifest_does_not_grow_while_something_always_waits(tmp_path):
    """Each batch brings a row for another page, a second apart: at any time some five wait."""
    keys = np.arange(100)
    pq.write_table(pa.table([keys, keys], schema=SCHEMA), tmp_path / "table.parquet")
    clock = Clock()
    join = start(
        tmp_path,
        table(tmp_path / "table.parquet", key="k", page_rows=1, in_place=False),
        tasks=1,
        settings={"grace_s": 0.0, "limits": Limits(clean_every_batches=4)},
        max_delay=DELAY_S,
        clock=clock,
    )
    files, found = life.files_of(tmp_path / "state", join.operator.spec.name), []
    for number in range(60):
        clock.now += 1
        rows = pa.table([[number % 100], [number]], schema=SCHEMA)
        found += join.batch(s=rows).column("x").to_pylist()
        manifest = life.newest(files)
        pages = manifest.plan.scheme
        assert isinstance(pages, PagePlan) and pages.waiting_rows == min(number + 1, DELAY_S)
        assert {one.batch for one in pages.arrivals} == {run.batch for run in manifest.live}
        assert len(pages.arrivals) <= DELAY_S + 1
    assert found == list(range(60 - int(DELAY_S)))


def test_pages_that_were_cut_anew_are_not_taken_for_the_old_ones(tmp_path):
    """Rows that wait were located by page number: those of another version mean other keys."""
    keys = np.arange(100)
    pq.write_table(pa.table([keys, keys], schema=SCHEMA), tmp_path / "table.parquet")
    source = prepare(
        table(tmp_path / "table.parquet", key="k", in_place=False), open_files(tmp_path / "state")
    )
    other = TableVersion(source.folder, "another", 3)
    with pytest.raises(TableError, match="version another of the table, in whose pages rows wait, is gone"):
        source.at(other.folder, other.version)
    assert source.at(source.folder, source.version) == source


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "sorted copy"])
def test_a_change_is_seen_whichever_task_plans_the_batch(tmp_path, in_place):
    """One task brings a changed table into order. Another may plan the batch before that is done; the next batch
    uses what was made, without waiting for another refresh.
    """
    folder, clock = tmp_path / "table", Clock()
    folder.mkdir()
    products = table(folder_of(folder, 0), key="k", page_rows=10, in_place=in_place, refresh=60)
    join = start(tmp_path, products, clock=clock)
    last_first = (1, 0)
    assert answered(join, last_first) == 1
    folder_of(folder, 100)
    clock.now += 30
    assert [answered(join, last_first) for _ in range(3)] == [1, 1, 1]
    clock.now += 31
    # Found by one task, planned with by the other, used.
    assert [answered(join, last_first) for _ in range(3)] == [1, 1, 2]


def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One for each time that a table is looked at again: whether it may be sorted."""
    made: list[bool] = []
    newest = OpenSortedCopy.newest

    def noted(self: OpenSortedCopy, *, make: bool = True) -> PreparedTable | None:
        made.append(make)
        return newest(self, make=make)

    monkeypatch.setattr(OpenSortedCopy, "newest", noted)
    return made


@pytest.mark.parametrize("tasks", [(0, 1), (1, 0)], ids=["planned by the first", "planned by the last"])
def test_a_table_is_looked_at_once_a_batch_if_nothing_may_be_old(tmp_path, monkeypatch, tasks):
    folder, clock, seen = tmp_path / "table", Clock(), looks(monkeypatch)
    folder.mkdir()
    join = start(tmp_path, table(folder_of(folder, 0), key="k", in_place=False, refresh=0), clock=clock)

    def three_seconds() -> list[int]:
        found = []
        for _ in range(3):
            clock.now += 1
            found.append(answered(join, tasks))
        return found

    assert three_seconds() == [1, 1, 1]
    assert seen == 3 * [tasks[0] == 0]
    folder_of(folder, 100)
    # Whoever may bring it into order does so in the first batch, where another has found it in vain.
    assert three_seconds()[-1] == 2
    assert seen[3:5] == ([True, True] if tasks[0] == 0 else [False, True])


@pytest.mark.parametrize("delay_s", [0.0, DELAY_S])
def test_files_are_brought_into_the_state_where_rows_may_wait(tmp_path, delay_s):
    """They could change meanwhile, and a start would look for what is gone, for ever."""
    keys = np.arange(1_000)
    pq.write_table(pa.table([keys, keys], schema=SCHEMA), tmp_path / "table.parquet", row_group_size=500)

    def kind(in_place: bool | None) -> type:
        products = table(tmp_path / "table.parquet", key="k", in_place=in_place)
        join = start(tmp_path, products, select=None, max_delay=delay_s)
        assert join.operator.spec.table is not None
        return type(join.operator.spec.table.source.open())

    assert kind(False) is OpenSortedCopy
    assert kind(None) is (OpenSortedCopy if delay_s else OpenParquet)
    if not delay_s:
        assert kind(True) is OpenParquet
        return
    with pytest.raises(UsageError, match="in_place=True cannot be combined with max_delay"):
        kind(True)


def folder_of(folder: Path, first: int) -> Path:
    """A directory with one more file, of a hundred keys."""
    keys = np.arange(first, first + 100)
    pq.write_table(pa.table([keys, keys], schema=SCHEMA), folder / f"{first}.parquet")
    return folder
