"""The protocol of schemes: a new one is a file and a line in the register, and every check refuses broken plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests import life
from watersmeet.errors import CorruptFile, UsageError
from watersmeet.kernel.band import BandFacing
from watersmeet.local.join import LocalJoin
from watersmeet.log.codec import from_plain, to_plain
from watersmeet.model.facts import KEY_SPACE, KeyRange, RunStats, SchemePlan
from watersmeet.model.limits import Limits
from watersmeet.model.types import SqlType
from watersmeet.schemes.balance import even_ranges
from watersmeet.schemes.biclique import Biclique, BicliquePlan, UnitShare, plan_biclique, units_of_task
from watersmeet.schemes.grid.cells import CellShare, shares_of_task
from watersmeet.schemes.grid.facts import GridPlan
from watersmeet.schemes.grid.policy import dynamic, start_grid
from watersmeet.schemes.grid.scheme import Grid
from watersmeet.schemes.hash import Hash, HashPlan
from watersmeet.schemes.hypercube.facts import Bounds, CubePlan, HeavyKey, boxes_of
from watersmeet.schemes.hypercube.scheme import Hypercube
from watersmeet.schemes.range.facts import RangePlan, SharedRange, TaskBox
from watersmeet.schemes.range.plan import Range
from watersmeet.schemes.register import SCHEMES
from watersmeet.schemes.scheme import BatchFacts, NewRun, Scheme, Share, Slice, share_of
from watersmeet.schemes.table.facts import PagePlan, Stretch, TableVersion
from watersmeet.schemes.table.plan import TableScheme

# A new scheme


@dataclass(frozen=True, slots=True)
class RowCount(RunStats):
    kind: ClassVar[str] = "row count"
    rows: int


@dataclass(frozen=True, slots=True)
class TurnPlan(SchemePlan):
    """The task whose turn it is, and the rows of all live runs."""

    kind: ClassVar[str] = "turn"
    task: int
    rows: int


@dataclass(frozen=True, slots=True)
class InTurn(Scheme[TurnPlan]):
    """One task joins all rows of a batch, and in the next batch the next one."""

    name: ClassVar[str] = "turn"
    plan_type = TurnPlan
    stats_type = RowCount

    def describe(self, run: NewRun, tasks: int) -> RowCount:
        return RowCount(len(run.keys))

    def plan(self, facts: BatchFacts) -> TurnPlan:
        before = facts.plan_before(TurnPlan)
        counts = [run.stats for run in (*facts.history, *facts.fresh)]
        rows = sum(found.rows for found in counts if isinstance(found, RowCount))
        return TurnPlan((before.task + 1) % facts.tasks if before else 0, rows)

    def shares(self, plan: TurnPlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        if task == plan.task:
            yield tuple(share_of(name, Slice()) for name in inputs)

    def check(self, plan: TurnPlan, tasks: int) -> None:
        assert 0 <= plan.task < tasks


SCHEMA = pa.schema({"k": pa.int64(), "id": pa.int64()})
TASKS = 3


def rows(seed: int, count: int = 20) -> pa.Table:
    keys = np.random.default_rng(seed).integers(0, 8, count)
    return pa.table([keys, np.arange(count) + 1000 * seed], schema=SCHEMA)


def start(state, strategy: str) -> LocalJoin:
    select, limits = ["l.id AS a", "r.id AS b"], Limits(fan_in=2)
    return life.start(
        SCHEMA, state, select=select, tasks=TASKS, strategy=strategy, settings={"limits": limits}
    )


def expected(left: Sequence[pa.Table], right: Sequence[pa.Table]) -> Counter[tuple[int, int]]:
    query = "SELECT l.id, r.id FROM l JOIN r ON l.k = r.k"
    return life.ask_duckdb(query, l=pa.concat_tables(left), r=pa.concat_tables(right))


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(SCHEMES, InTurn.name, InTurn)


@pytest.mark.usefixtures("registered")
def test_a_new_scheme_needs_its_file_and_a_line_in_the_register(tmp_path):
    """Batches, merges and restarts; then the query goes on under a scheme that knows nothing of it."""
    join = start(tmp_path, "turn")
    left, right, found = [], [], Counter()
    for number in range(8):
        if number in (3, 6):
            join = life.restarted(join)
        left.append(rows(2 * number))
        right.append(rows(2 * number + 1))
        found += life.multiset(join.batch(l=left[-1], r=right[-1]))
        assert [bool(task.emitted) for task in join.work] == [task == number % TASKS for task in range(TASKS)]
    assert found == expected(left, right)
    made = life.manifests(tmp_path)
    assert [one.plan.scheme for one in made] == [TurnPlan(n % TASKS, 40 * (n + 1)) for n in range(8)]
    assert any("-m0" in run.path for run in made[-1].live), "nothing was merged"
    (status,) = wm.status(str(tmp_path)).joins
    assert status.strategy == "turn" and status.shown is not None
    assert status.shown.summary == "strategy turn"

    join = life.restarted(join, strategy="hypercube")
    left.append(rows(100))
    found += life.multiset(join.batch(l=left[-1]))
    assert found == expected(left, right)


def test_a_state_whose_scheme_is_not_registered_is_refused(tmp_path, registered, monkeypatch):
    join = start(tmp_path, "turn")
    join.batch(l=rows(1), r=rows(2))
    monkeypatch.delitem(SCHEMES, "turn")
    # Another process: this one has the manifest in memory.
    life.forget()
    with pytest.raises(CorruptFile, match="unknown kind 'row count'|unknown kind 'turn'"):
        replace(join, strategy="hash", run="next").batch(l=rows(3))
    with pytest.raises(UsageError, match="unknown strategy='turn': use one of auto, hash, hypercube"):
        start(tmp_path, "turn")


def test_the_scheme_of_tables_is_not_for_two_streams(tmp_path):
    with pytest.raises(UsageError, match="unknown strategy='table'"):
        start(tmp_path, "table")


# Broken plans

HALF = KEY_SPACE // 2
BROKEN_RANGES: dict[str, tuple[KeyRange, ...]] = {
    "gap": (KeyRange(0, 5), KeyRange(9, KEY_SPACE)),
    "overlap": (KeyRange(0, 9), KeyRange(5, KEY_SPACE)),
    "short": (KeyRange(0, 5), KeyRange(5, HALF)),
    "late": (KeyRange(1, 5), KeyRange(5, KEY_SPACE)),
    "turned": (KeyRange(0, HALF), KeyRange(HALF, 5)),
    "one of two tasks has none": (KeyRange(0, KEY_SPACE),),
}

VERSION = TableVersion("folder", "version", 4)
PAGES = PagePlan(
    even_ranges(2), VERSION, VERSION, before=(Stretch(5, 0),), after=(Stretch(2, 0), Stretch(3, 1))
)


def heavy(key: int, shape: tuple[int, ...], tasks: tuple[int, ...]) -> HeavyKey:
    return HeavyKey(key, f"key {key}", (Bounds(1, 1),) * len(shape), shape, tasks)


CUBE = CubePlan(("l", "r"), even_ranges(2), (heavy(3, (2, 2), (0, 1, 1, 0)), heavy(HALF + 1, (1, 2), (1, 0))))
CUBE_OF_THREE = CubePlan(
    ("l", "r", "s"), even_ranges(2), (heavy(3, (2, 1, 2), (0, 1, 1, 0)), heavy(9, (1, 1, 1), (1,)))
)


FACING = BandFacing(SqlType("bigint"), -1, 1)
SHARED = RangePlan(
    even_ranges(2),
    (
        SharedRange(
            KeyRange(3, 4), 4, 2, (TaskBox(0, 0, 4, 0, 1), TaskBox(0, 0, 1, 1, 2), TaskBox(1, 1, 4, 1, 2))
        ),
        SharedRange(KeyRange(HALF - 5, HALF + 5), 8, 1, (TaskBox(0, 0, 3, 0, 1), TaskBox(1, 3, 8, 0, 1))),
    ),
)
TABLE = TableScheme(0, 1 << 20)
# Whole plans for two tasks.
WHOLE: list[tuple[Scheme[Any], SchemePlan]] = [
    (Hash(), HashPlan(even_ranges(2))),
    (Range(FACING), RangePlan(even_ranges(2))),
    (Range(FACING), SHARED),
    (Hypercube(), CUBE),
    (Hypercube(), CUBE_OF_THREE),
    (TABLE, PAGES),
    *((Biclique(plan), plan) for plan in (plan_biclique(2, 1), plan_biclique(12, 2), plan_biclique(5, 1))),
    *((Grid(cells, dynamic()), start_grid(cells, dynamic())) for cells in (1, 4, 6, 12)),
]


@pytest.mark.parametrize(("scheme", "plan"), WHOLE)
def test_a_whole_plan_passes(scheme, plan):
    scheme.check(plan, 2)


@pytest.mark.parametrize("ranges", BROKEN_RANGES.values(), ids=BROKEN_RANGES)
@pytest.mark.parametrize(
    ("scheme", "plan"),
    [one for one in WHOLE if hasattr(one[1], "ranges")],
    ids=lambda one: type(one).__name__,
)
def test_ranges_that_do_not_cover_the_keys_once_are_refused(scheme, plan, ranges):
    with pytest.raises(AssertionError, match="range"):
        scheme.check(replace(plan, ranges=ranges), 2)


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize(
    ("scheme", "plan"),
    [one for one in WHOLE if hasattr(one[1], "ranges")],
    ids=lambda one: type(one).__name__,
)
def test_a_plan_for_another_number_of_tasks_is_refused(scheme, plan, tasks):
    with pytest.raises(AssertionError, match=f"2 ranges for {tasks} tasks"):
        scheme.check(plan, tasks)


BROKEN_CUBES = {
    "a cell whose task is not there": (CUBE, heavy(3, (2, 2), (0, 1, 2, 0)), "has no task"),
    "a cell of nobody": (CUBE, heavy(3, (2, 2), (0, 1, -1, 0)), "has no task"),
    "a cell without an owner": (CUBE, heavy(3, (2, 2), (0, 1, 1)), "3 owners"),
    "a cell with two owners": (CUBE, heavy(3, (2, 2), (0, 1, 1, 0, 1)), "5 owners"),
    "a side for an input that is not there": (CUBE, heavy(3, (2, 2, 1), (0, 1, 1, 0)), "3 sides"),
    "an input without a side": (CUBE_OF_THREE, heavy(3, (2, 2), (0, 1, 1, 0)), "2 sides"),
    "a key that is heavy twice": (CUBE, heavy(HALF + 1, (1, 1), (0,)), "ascend"),
    "a cell of three inputs without an owner": (CUBE_OF_THREE, heavy(3, (2, 1, 2), (0, 1, 1)), "3 owners"),
}


@pytest.mark.parametrize(("plan", "broken", "words"), BROKEN_CUBES.values(), ids=BROKEN_CUBES)
def test_a_hypercube_with_a_broken_grid_is_refused(plan, broken, words):
    with pytest.raises(AssertionError, match=words):
        Hypercube().check(replace(plan, heavy=(broken, *plan.heavy[1:])), 2)


@pytest.mark.parametrize(
    "broken", [lambda boxes: boxes[1:], lambda boxes: boxes * 2], ids=["missed", "twice"]
)
def test_boxes_that_miss_or_repeat_a_cell_are_refused(monkeypatch, broken):
    monkeypatch.setattr("watersmeet.schemes.hypercube.scheme.boxes_of", lambda *of: broken(boxes_of(*of)))
    with pytest.raises(AssertionError, match="in no box, or in two"):
        Hypercube().check(CUBE, 2)


def boxes(*of: TaskBox) -> tuple[SharedRange, ...]:
    return (replace(SHARED.shared[0], boxes=of), SHARED.shared[1])


WHOLE_LEFT, PART, REST = SHARED.shared[0].boxes
BROKEN_SHARED = {
    "a box whose task is not there": (boxes(WHOLE_LEFT, PART, replace(REST, task=2)), "has no task"),
    "a box of nobody": (boxes(WHOLE_LEFT, replace(PART, task=-1), REST), "has no task"),
    "a box is missing": (boxes(WHOLE_LEFT, REST), "in no box, or in two"),
    "a box twice": (boxes(WHOLE_LEFT, PART, REST, PART), "in no box, or in two"),
    "a cell twice and another not at all": (
        boxes(WHOLE_LEFT, replace(PART, right_low=0, right_high=1), REST),
        "in no box, or in two",
    ),
    "no boxes": (boxes(), "in no box, or in two"),
    "left parts that are not there": (boxes(WHOLE_LEFT, PART, replace(REST, left_high=5)), "outside"),
    "right parts that are not there": (boxes(WHOLE_LEFT, PART, replace(REST, right_high=3)), "outside"),
    "an empty box": (boxes(WHOLE_LEFT, PART, replace(REST, left_low=4)), "outside"),
    "shared ranges that overlap": (
        (SHARED.shared[0], replace(SHARED.shared[1], range=KeyRange(3, 9))),
        "ascend and not overlap",
    ),
    "shared ranges out of order": (SHARED.shared[::-1], "ascend and not overlap"),
    "an empty shared range": ((replace(SHARED.shared[0], range=KeyRange(3, 3)),), "ascend and not overlap"),
    "a shared range beyond the keys": (
        (replace(SHARED.shared[0], range=KeyRange(3, KEY_SPACE + 1)),),
        "ascend and not overlap",
    ),
}


@pytest.mark.parametrize(("shared", "words"), BROKEN_SHARED.values(), ids=BROKEN_SHARED)
def test_a_range_that_is_not_shared_once_is_refused(shared, words):
    with pytest.raises(AssertionError, match=words):
        Range(FACING).check(replace(SHARED, shared=shared), 2)


def test_a_plan_with_shared_ranges_is_read_back_as_written():
    assert from_plain(SchemePlan, to_plain(SHARED)) == SHARED


def test_a_plan_from_before_ranges_were_shared_is_read():
    plain = {"kind": "range", "ranges": [{"low": 0, "high": KEY_SPACE}]}
    assert from_plain(SchemePlan, plain) == RangePlan((KeyRange(0, KEY_SPACE),))


def test_a_range_plan_shows_how_many_values_are_hot():
    assert (
        Range.show(RangePlan(even_ranges(2)), ("l", "r")).summary == "range: no hot values, planned balance -"
    )
    shown = Range.show(replace(SHARED, load=130, mean=100), ("l", "r"))
    assert shown.summary == "range: 2 hot values shared by 2 tasks, planned balance 1.30 (busiest / mean)"
    one = Range.show(replace(SHARED, shared=SHARED.shared[:1]), ("l", "r"))
    assert one.summary.startswith("range: 1 hot value shared by 2 tasks")
    void = SharedRange(KeyRange(40, 50), 1, 1, (TaskBox(0, 0, 1, 0, 1),))
    assert Range.show(replace(SHARED, shared=(void,)), ("l", "r")).summary.startswith("range: no hot values,")


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(replace(PAGES, after=(Stretch(4, 0),)), id="keys in no page are forgotten"),
        pytest.param(replace(PAGES, before=(Stretch(6, 0),)), id="a page too many"),
    ],
)
def test_a_table_with_a_page_that_nobody_has_read_or_not_is_refused(plan):
    with pytest.raises(AssertionError, match="a page has no record"):
        TABLE.check(plan, 2)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(BicliquePlan(units=6, groups=2), id="units that belong to no group"),
        pytest.param(BicliquePlan(units=2, groups=2), id="groups without units"),
    ],
)
def test_a_biclique_whose_groups_do_not_fit_is_refused(plan):
    with pytest.raises(AssertionError, match="do not fit the groups"):
        Biclique(plan).check(plan, 2)


UNITS = plan_biclique(12, 2)


def without_the_first(units: list[UnitShare]) -> list[UnitShare]:
    return units[1:]


def with_the_first_twice(units: list[UnitShare]) -> list[UnitShare]:
    return units[:1] * 2 + units[1:]


def with_the_second_as_the_first(units: list[UnitShare]) -> list[UnitShare]:
    return [replace(units[0], sections=units[1].sections, stores_left=units[1].stores_left), *units[1:]]


@pytest.mark.parametrize("broken", [without_the_first, with_the_first_twice, with_the_second_as_the_first])
def test_a_biclique_whose_parts_are_not_stored_once_is_refused(monkeypatch, broken):
    monkeypatch.setattr("watersmeet.schemes.biclique.units_of_task", lambda *of: broken(units_of_task(*of)))
    with pytest.raises(AssertionError):
        Biclique(UNITS).check(UNITS, 2)


def lacking(cells: tuple[CellShare, ...]) -> tuple[CellShare, ...]:
    return cells[1:]


def twice(cells: tuple[CellShare, ...]) -> tuple[CellShare, ...]:
    return cells[:1] + cells


def in_their_own_group(cells: tuple[CellShare, ...]) -> tuple[CellShare, ...]:
    """Fresh left rows meet stored right ones of their own group only."""
    return tuple(replace(cell, left_all=cell.left_stored) for cell in cells)


@pytest.mark.parametrize("broken", [lacking, twice, in_their_own_group])
def test_a_grid_whose_cells_are_not_each_at_one_task_is_refused(monkeypatch, broken):
    grid = Grid(6, dynamic())
    monkeypatch.setattr(
        "watersmeet.schemes.grid.scheme.shares_of_task", lambda *of: broken(shares_of_task(*of))
    )
    with pytest.raises(AssertionError, match="meet in no cell, or in two"):
        grid.check(start_grid(6, dynamic()), 2)


def test_a_grid_with_more_rows_than_parts_is_refused():
    plan: GridPlan = start_grid(16, dynamic())
    with pytest.raises(AssertionError, match="meet in no cell, or in two"):
        Grid(16, dynamic()).check(replace(plan, parts=2), 2)
