"""Every pair of a batch meets exactly once, under any sequence of heavy-key plans: planned ones and any others.

Plans are drawn blindly: any grid for any key, any owners, ranges that may be empty, another number of tasks in each
batch. Rows go through the share of each task as on Spark, but lie in memory.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.cube_helpers import Shelf, Stream
from watersmeet.engine.task import join_share
from watersmeet.kernel.rows import Sorted
from watersmeet.local.join import LocalJoin
from watersmeet.model.facts import KEY_SPACE, BatchId, KeyRange, Manifest, Plan, Run
from watersmeet.model.limits import Limits
from watersmeet.model.signature import Layout
from watersmeet.model.tally import Tally
from watersmeet.schemes.biclique import BicliquePlan, layout_of, plan_biclique, units_of_task
from watersmeet.schemes.hypercube.facts import Bounds, CubePlan, HeavyKey, boxes_of
from watersmeet.schemes.hypercube.scheme import Hypercube
from watersmeet.schemes.scheme import RowPart, Slice

MANY = settings(max_examples=max(200, settings().max_examples))

# The ends of the key space, and a few keys in between.
KEYS = [0, 1, 5, 1 << 32, 1 << 63, (1 << 63) + 1, KEY_SPACE - 2, KEY_SPACE - 1]

SCHEMA = pa.schema({"k": pa.int64(), "id": pa.int64()})

# Every key of a run is listed, however few rows it has.
LIST_ALL = Limits(least_listed_rows=1)


def spec_of(tasks: int, **how):
    """A join whose rows carry numbers; its order keys are given to it, so what `k` holds does not matter."""
    join = LocalJoin(
        {"l": SCHEMA, "r": SCHEMA},
        on="l.k = r.k",
        select=["l.id AS a", "r.id AS b"],
        state="-",
        tasks=tasks,
        **how,
    )
    return join.operator.spec


@dataclass
class Memory:
    """Runs in memory, read as `RunReader` reads files."""

    runs: dict[str, dict[int, Sorted]] = field(default_factory=dict)

    def expect(self, runs: object) -> None:
        """Nothing is fetched."""

    def store(
        self, name: str, batch: int, keys: list[int], ids: list[int], sections: list[int] | None = None
    ) -> Run:
        order = np.argsort(np.array(keys, np.uint64), kind="stable")
        sorted_keys, numbers = np.array(keys, np.uint64)[order], np.array(ids, np.int64)[order]
        places = np.zeros(len(keys), int) if sections is None else np.array(sections)[order]
        parts = {
            int(place): Sorted(
                sorted_keys[places == place],
                pa.RecordBatch.from_pydict({"k": numbers[places == place], "id": numbers[places == place]}),
            )
            for place in np.unique(places)
        }
        path = f"{name}-{len(self.runs)}"
        self.runs[path] = parts
        return Run(
            *(name, path, path, batch, len(keys), 1, int(sorted_keys[0]), int(sorted_keys[-1])),
            checksum=xxhash.xxh3_64_hexdigest(path.encode()),
        )

    def read(self, run, range_, columns, sections=None):
        found = {}
        for number, part in self.runs[run.path].items():
            if sections is None or any(number in wanted for wanted in sections):
                kept = part.between(range_)
                if len(kept):
                    found[number] = Sorted(kept.keys, kept.rows.select(list(columns)))
        return found

    def slices(self, run, range_, columns, sections=None, *, sort=True):
        yield from self.read(run, range_, columns, sections).values()


def share_results(memory: Any, spec, plan: Plan, history, fresh) -> Counter:
    manifest = Manifest(BatchId("q", "r", 0), 0, "", None, spec.signature, history, fresh, (), plan)
    found: Counter = Counter()
    for task in range(spec.settings.tasks):
        for batch in join_share(memory, manifest, spec, task, Tally()):
            found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return found


@st.composite
def cube_plans(draw, tasks: int) -> Plan:
    bounds = sorted(
        draw(st.lists(st.sampled_from([0, *KEYS, KEY_SPACE]), min_size=tasks - 1, max_size=tasks - 1))
    )
    ends = [0, *bounds, KEY_SPACE]
    heavy = []
    for key in sorted(draw(st.sets(st.sampled_from(KEYS), max_size=5))):
        shape = (draw(st.integers(1, 6)), draw(st.integers(1, 6)))
        owners = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, tasks, math.prod(shape))
        heavy.append(HeavyKey(key, "", (Bounds(0, 0),) * 2, shape, tuple(owners.tolist())))
    ranges = tuple(KeyRange(low, high) for low, high in itertools.pairwise(ends))
    return Plan(CubePlan(("l", "r"), ranges, tuple(heavy)))


runs_of_keys = st.lists(st.lists(st.sampled_from(KEYS), min_size=1, max_size=12), max_size=2)
arrivals = st.lists(st.tuples(runs_of_keys, runs_of_keys), min_size=1, max_size=4)

CUBES = {tasks: spec_of(tasks, strategy="hypercube") for tasks in (1, 2, 3, 7)}


@MANY
@given(st.data(), arrivals)
def test_each_pair_meets_once_under_any_sequence_of_plans(data, batches):
    memory, history = Memory(), []
    seen: dict[str, list[tuple[int, int]]] = {"l": [], "r": []}
    results: Counter = Counter()
    number = 0
    for batch, sides in enumerate(batches):
        fresh = []
        for name, runs in zip("lr", sides, strict=True):
            for keys in runs:
                ids = list(range(number, number + len(keys)))
                number += len(keys)
                seen[name] += zip(keys, ids, strict=True)
                fresh.append(memory.store(name, batch, keys, ids))
        tasks = data.draw(st.sampled_from(list(CUBES)))
        plan = data.draw(cube_plans(tasks))
        results += share_results(memory, CUBES[tasks], plan, tuple(history), tuple(fresh))
        history += fresh
    assert results == Counter((a, b) for k, a in seen["l"] for m, b in seen["r"] if k == m)


@dataclass
class Combinations:
    """A stream that is only planned, and how often each combination of its rows was met; rows are (path, place)."""

    stream: Stream
    met: Counter = field(default_factory=Counter)

    def add(self, *arriving: list[int]) -> None:
        self.stream.add(*(np.array(keys, np.uint64) for keys in arriving))
        new = {run.path for run in self.stream.fresh}
        for task in range(self.stream.tasks):
            shares = Hypercube().shares(self.stream.cube, self.stream.inputs, task, self.stream.tasks)
            for share in shares:
                sides = [
                    [
                        *self.rows(one.input, one.fresh, lambda run: run.path in new),
                        *self.rows(one.input, one.history, lambda run: run.path not in new),
                    ]
                    for one in share
                ]
                self.met.update(self.combined(sides, lambda rows: any(path in new for _, path, _ in rows)))

    def rows(self, name: str, wanted: Slice | None, of: Callable[[Run], bool]) -> list[tuple[int, str, int]]:
        """Keys, runs and places of the rows of a slice, as engine/task.py reads it."""
        found = []
        for run in filter(of, self.stream.runs[name] if wanted else ()):
            assert wanted is not None and wanted.sections is None
            keys = self.stream.shelf.of(run).tolist()
            places = [n for n, key in enumerate(keys) if wanted.range.low <= key < wanted.range.high]
            if wanted.part is not None:
                places = places[slice(*wanted.part.positions(run, len(places)))]
            found += [(keys[n], run.path, n) for n in places if keys[n] not in wanted.without]
        return found

    @staticmethod
    def combined(sides: list[list[tuple[int, str, int]]], owed: Callable[[Any], bool]) -> Iterator[Any]:
        for rows in itertools.product(*sides):
            if len({key for key, _, _ in rows}) == 1 and owed(rows):
                yield rows

    def all(self) -> Counter:
        sides = [self.rows(name, Slice(), lambda run: True) for name in self.stream.inputs]
        return Counter(self.combined(sides, lambda rows: True))


@st.composite
def planned_scripts(draw) -> tuple[int, list[tuple[list[int], ...]]]:
    """Inputs, and what each batch brings of them: a hot key, which changes, and a few others."""
    inputs = draw(st.integers(2, 3))
    others = st.lists(st.sampled_from(KEYS), max_size=3)
    script = []
    for number in range(draw(st.integers(1, 4))):
        hot = [KEYS[number // 2 + 2]]
        script.append(tuple(hot * draw(st.integers(0, 5)) + draw(others) for _ in range(inputs)))
    return inputs, script


@MANY
@given(planned_scripts(), st.sampled_from([1, 2, 3, 5]), st.integers(1, 2))
def test_planned_shares_hold_every_combination_with_a_fresh_row_once(planned, tasks, partitions):
    """Two and three inputs, by going through all combinations. Runs list every key, so that few rows are heavy."""
    inputs, script = planned
    names, shelf = ("l", "r", "s")[:inputs], Shelf(LIST_ALL)
    life = Combinations(Stream(tasks, partitions=partitions, inputs=names, shelf=shelf))
    for arriving in script:
        life.add(*arriving)
    assert life.met == life.all()


@pytest.mark.parametrize("inputs", [2, 3])
def test_a_hot_key_of_several_inputs_is_cut_along_all_of_them(inputs):
    """So that the scripts above are about heavy keys."""
    life = Combinations(Stream(3, inputs=("l", "r", "s")[:inputs], shelf=Shelf(LIST_ALL)))
    for _ in range(2):
        life.add(*[[5] * 5 + [1]] * inputs)
    [heavy] = [one for one in life.stream.cube.heavy if one.key == 5]
    assert min(heavy.shape) > 1 and set(heavy.tasks) == {0, 1, 2}
    assert life.met == life.all()


@MANY
@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple), st.integers(1, 12))
def test_the_boxes_of_all_tasks_are_the_cells_each_once(data, shape, tasks):
    owners = np.random.default_rng(data.draw(st.integers(0, 2**32))).integers(0, tasks, shape)
    heavy = HeavyKey(3, "", (Bounds(0, 0),) * len(shape), shape, tuple(owners.reshape(-1).tolist()))
    covered = np.full(shape, -1)
    for task in range(tasks):
        for box in boxes_of(heavy, task):
            assert (box.key, box.shape) == (3, shape)
            inside = tuple(map(slice, box.low, box.high))
            assert covered[inside].size and np.all(covered[inside] == -1)
            covered[inside] = task
    assert covered.tolist() == owners.tolist()


def test_cells_of_a_task_that_lie_together_are_one_box():
    owners = (0, 0, 1, 0, 0, 1, 1, 1, 1)
    heavy = HeavyKey(3, "", (Bounds(0, 0),) * 2, (3, 3), owners)
    assert [(b.low, b.high) for b in boxes_of(heavy, 0)] == [((0, 0), (2, 2))]
    assert [(b.low, b.high) for b in boxes_of(heavy, 1)] == [((0, 2), (2, 3)), ((2, 0), (3, 3))]


def test_a_task_that_has_all_cells_of_three_inputs_has_one_box():
    heavy = HeavyKey(3, "", (Bounds(0, 0),) * 3, (2, 4, 3), (1,) * 24)
    assert [(b.low, b.high) for b in boxes_of(heavy, 1)] == [((0, 0, 0), (2, 4, 3))]
    assert boxes_of(heavy, 0) == []


def run_with(checksum: int, rows: int = 1) -> Run:
    return Run("l", "p", "p", 0, rows, 1, 0, 9, f"{checksum:016x}")


words = st.integers(0, KEY_SPACE - 1) | st.sampled_from([0, KEY_SPACE - 1, 1 << 63])


@MANY
@given(words, st.integers(0, 10**12) | st.integers(0, 40), st.integers(1, 5000), st.data())
def test_parts_cover_a_stretch_once_are_equal_to_one_row_and_split_in_two(checksum, count, of, data):
    run = run_with(checksum)
    part = data.draw(st.integers(0, of - 1))
    low, high = RowPart(part, part + 1, of).positions(run, count)
    assert abs((high - low) - count / of) < 1
    assert RowPart(0, of, of).positions(run, count) == (0, count)
    if part + 1 < of:
        assert RowPart(part + 1, part + 2, of).positions(run, count)[0] == high
    first, second = (
        RowPart(2 * part + half, 2 * part + half + 1, 2 * of).positions(run, count) for half in (0, 1)
    )
    assert (first[0], first[1], second[1]) == (low, second[0], high)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("of", [2, 4, 5])
def test_odd_rows_fall_to_no_part_more_often_than_to_another(count, of):
    """Over many runs each part has an equal share, also of stretches that are shorter than the parts are many."""
    runs = [run_with(xxhash.xxh3_64_intdigest(bytes([n % 256, n >> 8]))) for n in range(4000)]
    sizes = np.array(
        [
            [high - low for low, high in (RowPart(x, x + 1, of).positions(r, count) for x in range(of))]
            for r in runs
        ]
    )
    share = count / of
    # Four standard deviations of a mean of 4000, of sizes that differ by one row at most.
    assert np.all(np.abs(sizes.mean(axis=0) - share) < 4 * 0.5 / np.sqrt(4000))


@MANY
@given(st.lists(st.sampled_from(KEYS), max_size=30), st.sets(st.sampled_from(KEYS)))
def test_what_is_left_without_some_keys(keys, left_out):
    ascending = np.sort(np.array(keys, np.uint64))
    numbers = np.arange(len(keys))
    pieces = Sorted(ascending, pa.RecordBatch.from_pydict({"id": numbers})).without(sorted(left_out))
    assert all(len(piece) for piece in pieces)
    found = [pair for p in pieces for pair in zip(p.keys.tolist(), p.rows["id"].to_pylist(), strict=True)]
    assert found == [
        (k, n) for k, n in zip(ascending.tolist(), numbers.tolist(), strict=True) if k not in left_out
    ]


# The biclique


def biclique_spec(tasks: int, groups: int):
    return spec_of(tasks, strategy="biclique", groups=groups)


BICLIQUES = {
    (tasks, groups): biclique_spec(tasks, groups) for tasks in (1, 2, 3, 6, 7) for groups in (1, 2, 3)
}


@MANY
@given(st.sampled_from(list(BICLIQUES)), arrivals, st.integers(0, 2**32))
def test_each_pair_meets_once_in_a_biclique(which, batches, seed):
    spec = BICLIQUES[which]
    layout = spec.signature.layout
    generator = np.random.default_rng(seed)
    memory, history = Memory(), []
    seen: dict[str, list[tuple[int, int]]] = {"l": [], "r": []}
    results: Counter = Counter()
    number = 0
    for batch, sides in enumerate(batches):
        fresh = []
        for name, runs in zip("lr", sides, strict=True):
            for keys in runs:
                ids = list(range(number, number + len(keys)))
                number += len(keys)
                seen[name] += zip(keys, ids, strict=True)
                sections = generator.integers(0, layout.parts, len(keys)).tolist() if layout else None
                fresh.append(memory.store(name, batch, keys, ids, sections))
        plan = Plan(spec.scheme.units)
        results += share_results(memory, spec, plan, tuple(history), tuple(fresh))
        history += fresh
    assert results == Counter((a, b) for k, a in seen["l"] for m, b in seen["r"] if k == m)


@MANY
@given(st.integers(1, 60), st.none() | st.integers(1, 30))
def test_units_of_a_group_see_the_same_keys_and_store_each_row_once(tasks, groups):
    plan = plan_biclique(tasks, groups)
    assert plan.units >= tasks and plan.units % (2 * plan.groups) == 0
    assert plan.units < tasks + 2 * plan.groups
    layout = layout_of(plan)
    parts = layout.parts if layout else 1
    units = [unit for task in range(tasks) for unit in units_of_task(plan, layout, tasks, task)]
    assert len(units) == plan.units
    ranges = sorted({(unit.range.low, unit.range.high) for unit in units})
    assert len(ranges) == plan.groups
    assert [low for low, _ in ranges] == [0, *(high for _, high in ranges[:-1])] and ranges[-1][
        1
    ] == KEY_SPACE
    for range_ in ranges:
        for stores_left in (True, False):
            mine = [
                u for u in units if (u.range.low, u.range.high) == range_ and u.stores_left is stores_left
            ]
            assert len(mine) == plan.members
            stored = Counter(s for u in mine for part in u.sections for s in range(part.low, part.high))
            assert stored == Counter(range(parts))
            sizes = [sum(part.high - part.low for part in u.sections) for u in mine]
            # The parts are many for each unit where they do not divide evenly.
            assert max(sizes) <= 1.25 * min(sizes)


def test_layouts_of_bicliques():
    assert layout_of(BicliquePlan(units=48, groups=24)) is None
    assert layout_of(BicliquePlan(units=48, groups=6)) == Layout((1,), 4)
    assert layout_of(BicliquePlan(units=12, groups=2)) == Layout((1,), 32)
