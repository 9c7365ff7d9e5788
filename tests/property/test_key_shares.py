"""Shares of the keys of a walk: the best sides of all, what a task reads under them, and cells that cover all keys once."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.model.facts import KEY_SPACE, Run
from watersmeet.model.limits import Limits
from watersmeet.model.walks import Arc, KeyCut, WalkGraph
from watersmeet.schemes.delta.scheme import Delta, DeltaPlan
from watersmeet.schemes.delta.shares import (
    KeyShares,
    ReadBytes,
    best_sides,
    check_cells,
    choose_shares,
    divisors,
    key_range,
    read_bytes,
)

key = st.integers(0, KEY_SPACE - 1)
stored = st.tuples(key, key, st.integers(1, 1000)).map(
    lambda one: Run("a", "p", "p", 0, 1, one[2], min(one[:2]), max(one[:2]), "0")
)


@given(st.lists(stored, max_size=8), st.integers(1, 12))
def test_a_task_fetches_every_run_with_a_key_of_its_place(runs, side):
    by_place = [
        sum(run.bytes for run in runs if key_range(place, side).overlaps(run)) for place in range(side)
    ]
    assert read_bytes(runs, side) == max(by_place)


@given(st.data(), st.integers(1, 24), st.integers(1, 4))
def test_no_sides_let_a_task_read_less_than_the_best(data, tasks, edges):
    """Of all factorisations, one by one; and none that reads as much has fewer cells."""
    amounts = st.integers(0, 50)
    reading = ReadBytes(
        tuple({side: data.draw(amounts) for side in divisors(tasks)} for _ in range(edges)),
        data.draw(amounts),
    )
    best = best_sides(reading, tasks)
    every = (
        sides for sides in itertools.product(divisors(tasks), repeat=edges) if tasks % math.prod(sides) == 0
    )
    assert (reading.under(best), math.prod(best)) == min(
        (reading.under(sides), math.prod(sides)) for sides in every
    )


def reading(*sorted_bytes: int, tasks: int, rest: int = 0) -> ReadBytes:
    return ReadBytes(tuple({side: size // side for side in divisors(tasks)} for size in sorted_bytes), rest)


MB = 1 << 20
CUT = KeyShares((4, 2), 3, 200 * MB, 37 * MB)


@pytest.mark.parametrize(
    ("before", "now", "tasks", "sides"),
    [
        pytest.param(None, reading(100 * MB, 50 * MB, tasks=8), 8, (4, 2), id="much to save"),
        pytest.param(None, reading(50 * MB, 10 * MB, tasks=8), 8, None, id="too little to save"),
        pytest.param(
            None, reading(90 * MB, tasks=8, rest=900 * MB), 8, None, id="most is not sorted by a key"
        ),
        pytest.param(None, reading(100 * MB, 50 * MB, tasks=1), 1, None, id="one task reads all"),
        pytest.param(CUT, reading(500 * MB, 500 * MB, tasks=8), 8, (4, 2), id="others are as good"),
        pytest.param(CUT, reading(100 * MB, 900 * MB, tasks=8), 8, (1, 8), id="another edge has the bytes"),
        pytest.param(CUT, reading(800 * MB, 1000 * MB, tasks=8), 8, (4, 2), id="others are a little better"),
        pytest.param(
            CUT, reading(400 * MB, 1200 * MB, tasks=8), 8, (2, 4), id="others are better by a fifth"
        ),
        pytest.param(
            None, reading(600 * MB, tasks=2, rest=650 * MB), 2, None, id="a fifth is too little to begin"
        ),
        pytest.param(CUT, reading(10 * MB, 10 * MB, tasks=8), 8, (4, 2), id="what is decided stays"),
        pytest.param(CUT, reading(10 * MB, 10 * MB, tasks=4), 4, None, id="fewer tasks than cells"),
        pytest.param(CUT, reading(240 * MB, 200 * MB, tasks=12), 12, (4, 3), id="other tasks, chosen anew"),
    ],
)
def test_shares_are_taken_where_they_save_much(before, now, tasks, sides):
    found = choose_shares(before, now, tasks, 7, Limits())
    assert (found and found.sides) == sides
    if found is not None and found is not before:
        assert (found.batch, found.whole_bytes, found.task_bytes) == (7, now.whole, now.under(sides))


PATH = Delta(
    (("a", ("a",)), ("b", ("b", "b.1")), ("c", ("c",))),
    WalkGraph(
        (("a", "b"), ("b", "c")),
        (Arc("a", 0), Arc("b", 0), Arc("b", 1), Arc("c", 1)),
        (("a", 0), ("b", 0), ("b.1", 1), ("c", 1)),
    ),
)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_all_tasks_together_have_every_combination_of_keys_once(one, other, hands):
    shares = KeyShares((one, other), 0, 0, 0)
    tasks = one * other * hands
    PATH.check(DeltaPlan(("a", "b", "c"), shares=shares), tasks)
    # A task reads of each arrangement only the keys of its place.
    for task in range(tasks):
        ranges = {cut.edge: cut.range for cut in shares.place(task)[0]}
        for share in PATH.shares(DeltaPlan(("a", "b", "c"), shares=shares), (), task, tasks):
            edges = {"a": 0, "b": 0, "b.1": 1, "c": 1}
            for mine in share:
                for slice_ in filter(None, (mine.fresh, mine.history)):
                    assert slice_.range == ranges.get(edges[mine.input], key_range(0, 1))


def test_a_plan_that_leaves_keys_out_is_found():
    shares = KeyShares((2, 2), 0, 0, 0)
    plan = DeltaPlan(("a", "b", "c"), shares=shares)
    with pytest.raises(AssertionError):
        PATH.check(plan, 3)
    with pytest.raises(AssertionError, match="sides"):
        PATH.check(replace(plan, shares=KeyShares((2, 2, 2), 0, 0, 0)), 8)
    cells = [shares.place(task)[0] for task in range(4)]
    check_cells(shares, cells, 2)
    with pytest.raises(AssertionError, match="in no cell, or in two"):
        check_cells(shares, [*cells[:3], cells[0]], 2)
    middle = KeyCut(0, replace(key_range(0, 2), high=key_range(0, 2).high + 1))
    with pytest.raises(AssertionError, match="3 ranges for 2"):
        check_cells(shares, [(middle, cells[0][1]), *cells[1:]], 2)
