"""Generations by segment, and the terms of a payment, against the definitions, row by row."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.engine.payment import owed_terms
from watersmeet.kernel.rows import Sorted
from watersmeet.model.facts import KEY_SPACE, KeyRange, Push, Run
from watersmeet.model.generations import NOT_HELD, generations_of
from watersmeet.model.ranges import complement, intersected, joined, subtracted
from watersmeet.plan.pushes import count_within

# A key space of 16 blocks: the bounds of ranges are theirs.
BLOCK = KEY_SPACE // 16
KEYS = [block * BLOCK + more for block in range(16) for more in (0, 1, BLOCK - 1)]
blocks = st.sets(st.integers(0, 15))


def ranges_of(chosen: set[int]) -> tuple[KeyRange, ...]:
    return joined(KeyRange(block * BLOCK, (block + 1) * BLOCK) for block in chosen)


@given(blocks, blocks)
def test_ranges_are_the_sets_of_their_keys(one, other):
    first, second = ranges_of(one), ranges_of(other)

    def keys(ranges: tuple[KeyRange, ...]) -> set[int]:
        return {key for key in KEYS if any(key in range_ for range_ in ranges)}

    assert keys(intersected(first, second)) == keys(first) & keys(second)
    assert keys(subtracted(first, second)) == keys(first) - keys(second)
    assert keys(complement(first)) == set(KEYS) - keys(first)
    assert count_within(np.array(KEYS, np.uint64), first) == len(keys(first))


pushes = st.lists(st.tuples(blocks.filter(bool), st.sets(st.integers(0, 3), min_size=1)), max_size=4)


@given(pushes, st.lists(st.none() | blocks.filter(bool), min_size=4, max_size=4))
def test_a_row_is_of_the_first_push_that_names_its_run_and_key(given_pushes, held):
    runs = [_run(str(number), ranges_of(mine) if mine else ()) for number, mine in enumerate(held)]
    named = [Push(n, ranges_of(of), tuple(map(str, sorted(who)))) for n, (of, who) in enumerate(given_pushes)]
    found = generations_of(runs, named)
    classes = found.classes()
    assert not found.classes((KeyRange(KEY_SPACE, KEY_SPACE),)), "a task without keys"
    for key in KEYS:
        (segment,) = found.segments_in(KeyRange(key, key + 1)).tolist()
        for place, run in enumerate(runs):
            expected = next(
                (
                    n
                    for n, push in enumerate(named)
                    if run.path in push.runs and any(key in r for r in push.ranges)
                ),
                len(named),
            )
            if not any(key in range_ for range_ in run.held_ranges):
                expected = NOT_HELD
            assert found.of[place, segment] == expected
        (mine,) = (one for one in classes if any(key in range_ for range_ in one.ranges))
        assert [run.path for run in mine.runs] == [
            run.path for place, run in enumerate(runs) if found.of[place, segment] == len(named)
        ]


def _run(path: str, held: tuple[KeyRange, ...]) -> Run:
    bounds = tuple(bound for one in held for bound in (one.low, one.high - 1))
    return Run("l", path, path, 0, 9, 9, 0, KEY_SPACE - 1, "", held=bounds, held_rows=3 if held else 0)


def rows(ids: list[int]) -> list[Any]:
    return (
        [Sorted(np.zeros(len(ids), np.uint64), pa.record_batch({"id": pa.array(ids, pa.int64())}))]
        if ids
        else []
    )


@given(
    st.integers(1, 4).flatmap(
        lambda count: st.lists(
            st.lists(st.integers(0, 2), min_size=count, max_size=count), min_size=2, max_size=4
        )
    )
)
def test_a_payment_has_every_combination_of_two_generations_once_and_none_of_one(sizes):
    """`sizes` has for each input the rows of each generation."""
    number = itertools.count()
    ids = [[[next(number) for _ in range(size)] for size in mine] for mine in sizes]
    generation = {row: place for mine in ids for place, found in enumerate(mine) for row in found}
    paid: Counter[tuple[int, ...]] = Counter()
    for term in owed_terms([[rows(found) for found in mine] for mine in ids]):
        lists = [[row for part in slices for row in part.rows.column("id").to_pylist()] for slices in term]
        paid.update(itertools.product(*lists))
    everything = itertools.product(*([row for found in mine for row in found] for mine in ids))
    assert paid == Counter(one for one in everything if len({generation[row] for row in one}) > 1)
