"""Every pair of a batch meets exactly once, under any sequence of heavy-key plans: planned ones and any others.

Plans are drawn blindly: any grid for any key, any owners, ranges that may be empty, another number of tasks in each
batch. Rows go through the share of each task as on Spark, but lie in memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.engine.task import Tally, join_share
from watersmeet.kernel.rows import Sorted
from watersmeet.local.join import LocalJoin
from watersmeet.model.cube import BicliquePlan, Bounds, CubePlan, HeavyKey
from watersmeet.model.facts import KEY_SPACE, BatchId, KeyRange, Layout, Manifest, Plan, Run
from watersmeet.model.grid import GridShape
from watersmeet.plan.biclique import layout_of, plan_biclique, shares_of_biclique
from watersmeet.plan.parts import positions, rectangles_of

MANY = settings(max_examples=max(200, settings().max_examples))

# The ends of the key space, and a few keys in between.
KEYS = [0, 1, 5, 1 << 32, 1 << 63, (1 << 63) + 1, KEY_SPACE - 2, KEY_SPACE - 1]

SCHEMA = pa.schema({"k": pa.int64(), "id": pa.int64()})


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


def share_results(memory: Any, spec, plan: Plan, history, fresh) -> Counter:
    manifest = Manifest(BatchId("q", "r", 0), 0, "", None, spec.signature, history, fresh, (), plan)
    found: Counter = Counter()
    for task in range(spec.settings.tasks):
        for batch in join_share(memory, manifest, spec, task, Tally(), None):
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
        shape = GridShape(draw(st.integers(1, 6)), draw(st.integers(1, 6)))
        owners = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, tasks, shape.cells).tolist()
        heavy.append(HeavyKey(key, "", Bounds(0, 0), Bounds(0, 0), shape, tuple(owners)))
    ranges = tuple(KeyRange(low, high) for low, high in itertools.pairwise(ends))
    return Plan(ranges, cube=CubePlan(tuple(heavy)))


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


@MANY
@given(st.data(), st.integers(1, 9), st.integers(1, 9), st.integers(1, 12))
def test_the_rectangles_of_all_tasks_are_the_cells_each_once(data, rows, cols, tasks):
    owners = data.draw(st.lists(st.integers(0, tasks - 1), min_size=rows * cols, max_size=rows * cols))
    heavy = HeavyKey(3, "", Bounds(0, 0), Bounds(0, 0), GridShape(rows, cols), tuple(owners))
    covered = np.full((rows, cols), -1)
    for task in range(tasks):
        for one in rectangles_of([heavy], task):
            assert (one.key, one.rows, one.cols) == (3, rows, cols)
            block = covered[slice(*one.left), slice(*one.right)]
            assert block.size and np.all(block == -1)
            covered[slice(*one.left), slice(*one.right)] = task
    assert covered.reshape(-1).tolist() == owners


def test_cells_of_a_task_that_lie_together_are_one_rectangle():
    owners = (0, 0, 1, 0, 0, 1, 1, 1, 1)
    heavy = HeavyKey(3, "", Bounds(0, 0), Bounds(0, 0), GridShape(3, 3), owners)
    assert [(r.left, r.right) for r in rectangles_of([heavy], 0)] == [((0, 2), (0, 2))]
    assert [(r.left, r.right) for r in rectangles_of([heavy], 1)] == [((0, 2), (2, 3)), ((2, 3), (0, 3))]


def run_with(checksum: int, rows: int = 1) -> Run:
    return Run("l", "p", "p", 0, rows, 1, 0, 9, f"{checksum:016x}")


words = st.integers(0, KEY_SPACE - 1) | st.sampled_from([0, KEY_SPACE - 1, 1 << 63])


@MANY
@given(words, st.integers(0, 10**12) | st.integers(0, 40), st.integers(1, 5000), st.data())
def test_parts_cover_a_stretch_once_are_equal_to_one_row_and_split_in_two(checksum, count, of, data):
    run = run_with(checksum)
    part = data.draw(st.integers(0, of - 1))
    low, high = positions(run, count, (part, part + 1), of)
    assert abs((high - low) - count / of) < 1
    assert positions(run, count, (0, of), of) == (0, count)
    if part + 1 < of:
        assert positions(run, count, (part + 1, part + 2), of)[0] == high
    first, second = (positions(run, count, (2 * part + half, 2 * part + half + 1), 2 * of) for half in (0, 1))
    assert (first[0], first[1], second[1]) == (low, second[0], high)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("of", [2, 4, 5])
def test_odd_rows_fall_to_no_part_more_often_than_to_another(count, of):
    """Over many runs each part has an equal share, also of stretches that are shorter than the parts are many."""
    runs = [run_with(xxhash.xxh3_64_intdigest(bytes([n % 256, n >> 8]))) for n in range(4000)]
    sizes = np.array(
        [[high - low for low, high in (positions(r, count, (x, x + 1), of) for x in range(of))] for r in runs]
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
    biclique = spec.strategy.plan
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
        plan = Plan((), biclique=biclique)
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
    units = [unit for task in range(tasks) for unit in shares_of_biclique(plan, layout, tasks, task)]
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
