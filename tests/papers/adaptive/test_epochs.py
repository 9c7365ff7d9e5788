"""Algorithm 3 under any order of messages: each pair once, nothing missing, the state of the last mapping."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from papers.adaptive.sim.epochs import Finished, run_epochs
from papers.adaptive.sim.messages import LEFT, RIGHT, Row
from papers.adaptive.sim.reshuffler import Adaptive
from papers.shared.reads import cells_of
from watersmeet.schemes.grid.facts import GridGroup, GridPlan, GridShape
from watersmeet.schemes.grid.policy import dynamic, start_grid

MANY = settings(max_examples=max(100, settings().max_examples))


class Scripted:
    """Any mapping at any time: changes as soon as the controller has seen enough rows and may decide."""

    def __init__(self, group: GridGroup, script: list[tuple[int, GridShape]]) -> None:
        self._group = group
        self._script = sorted(script, key=lambda step: step[0])

    def decide(self, left_rows: int, right_rows: int) -> GridGroup | None:
        if self._script and left_rows + right_rows >= self._script[0][0]:
            self._group = self._group.reshaped(self._script.pop(0)[1])
            return self._group
        return None


@st.composite
def delays(draw):
    """Few drawn numbers in turn, which shrink well; or many from a seed, most short and some very long."""
    if draw(st.booleans()):
        return itertools.cycle(draw(st.lists(st.integers(0, 50), min_size=1, max_size=40))).__next__
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([1, 10, 100]))
    return lambda: int(generator.exponential(scale) ** 1.5)


@st.composite
def streams(draw, parts: int, reshufflers: int):
    """Rows of both inputs in any order, each with a part and a reshuffler.

    From a seed: what the protocol must survive happens among many rows that are under way together, and drawn
    lists are mostly short.
    """
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(0, 80))
    share = draw(st.floats(0.1, 0.9))
    numbers = {LEFT: itertools.count(), RIGHT: itertools.count()}
    sides = np.where(generator.random(count) < share, LEFT, RIGHT)
    places = generator.integers(0, parts, count)
    ways = generator.integers(0, reshufflers, count)
    return [
        (Row(str(side), next(numbers[str(side)]), int(part)), int(way))
        for side, part, way in zip(sides, places, ways, strict=True)
    ]


def check(rows: list[tuple[Row, int]], finished: Finished) -> None:
    lefts = [row for row, _ in rows if row.side == LEFT]
    rights = [row for row, _ in rows if row.side == RIGHT]
    owed = Counter((left.number, right.number) for left in lefts for right in rights)
    assert Counter(finished.pairs) == owed
    assert set(finished.epochs) == {finished.plan.epoch}
    assert len(finished.migrations) == finished.plan.epoch
    for share, stored in zip(cells_of(finished.plan), finished.stored, strict=True):
        [left], [right] = share.left_stored, share.right_stored
        expected = [row for row in lefts if left.low <= row.part < left.high]
        expected += [row for row in rights if right.low <= row.part < right.high]
        assert Counter(stored) == Counter(expected)


@MANY
@given(st.data(), st.integers(0, 4), st.integers(1, 5), delays(), st.integers(0, 3))
def test_any_mappings_in_any_order_of_messages(data, exponent, reshufflers, delay, gap):
    plan = start_grid(1 << exponent, dynamic())
    rows = data.draw(streams(plan.parts, reshufflers))
    shape = st.integers(0, exponent).map(lambda bits: GridShape(1 << bits, 1 << (exponent - bits)))
    script = data.draw(st.lists(st.tuples(st.integers(0, len(rows)), shape), min_size=1, max_size=6))
    decider = Scripted(plan.groups[0], script)
    check(rows, run_epochs(rows, plan, decider, reshufflers=reshufflers, delay=delay, gap=lambda: gap))


@MANY
@given(st.data(), st.integers(0, 4), st.integers(1, 4), delays(), st.integers(0, 3), st.integers(1, 40))
def test_the_adaptive_controller_in_any_order_of_messages(data, exponent, reshufflers, delay, gap, window):
    policy = dynamic(epsilon=data.draw(st.sampled_from([0.25, 1.0])), min_rows=data.draw(st.integers(0, 20)))
    plan = start_grid(1 << exponent, policy)
    rows = data.draw(streams(plan.parts, reshufflers))
    decider = Adaptive(plan, policy)
    check(
        rows,
        run_epochs(rows, plan, decider, reshufflers=reshufflers, delay=delay, gap=lambda: gap, window=window),
    )


def even_stream(segments: list[tuple[str, int]], plan: GridPlan) -> list[tuple[Row, int]]:
    """Rows whose parts are spread as evenly as can be, so that counts in expectation are counts."""
    order = [int(f"{part:0{plan.parts.bit_length() - 1}b}"[::-1], 2) for part in range(plan.parts)]
    numbers = {LEFT: itertools.count(), RIGHT: itertools.count()}
    return [
        (Row(side, number, order[number % plan.parts]), 0)
        for side, count in segments
        for number in itertools.islice(numbers[side], count)
    ]


@settings(max_examples=max(60, settings().max_examples // 4))
@given(
    st.sampled_from([4, 16]),
    st.lists(st.tuples(st.sampled_from([LEFT, RIGHT]), st.integers(1, 150)), min_size=2, max_size=5),
)
@example(4, [(LEFT, 126), (RIGHT, 279)])
def test_theorem_4_4_a_migration_is_over_before_an_input_has_grown_by_half(cells, segments):
    """With migrated rows at twice the rate of new ones, at most half of what was there arrives meanwhile.

    The theorem says "no more than what was there", for a migrated row that takes two units of time, one to send and
    one to receive. Here it takes one. A joiner that goes from (n, m) to (n/2, 2m) receives R/n, so R/2n new ones pass
    it: R/4 or mR/n rows of the stream, and mR/n <= S/2, as (n/2, 2m) is better.

    One reshuffler, so that the controller knows the true counts; enough rows under way to keep the joiners
    busy. Those that were under way at the decision count as arriving during the migration, and each joiner may round
    up to the next row.
    """
    policy = dynamic(min_rows=8 * cells)
    plan = start_grid(cells, policy)
    rows = even_stream(segments, plan)
    under_way = cells // 2
    finished = run_epochs(
        rows, plan, Adaptive(plan, policy), reshufflers=1, delay=lambda: 0, gap=lambda: 0, window=under_way
    )
    check(rows, finished)
    for migration in finished.migrations:
        left, right = migration.left_rows, migration.right_rows
        if max(left, right) <= cells * min(left, right):
            assert migration.left_during <= left / 2 + under_way + cells
            assert migration.right_during <= right / 2 + under_way + cells


class Watching:
    """Changes nothing; keeps the estimates that it is asked about."""

    def __init__(self) -> None:
        self.estimates: list[tuple[int, int]] = []

    def decide(self, left_rows: int, right_rows: int) -> GridGroup | None:
        self.estimates.append((left_rows, right_rows))
        return None


@given(st.lists(st.sampled_from([LEFT, RIGHT]), max_size=60), st.integers(1, 6))
def test_algorithm_1_the_controller_scales_what_it_sees_to_all_that_arrives(sides, reshufflers):
    """It sees one row in `reshufflers`. Dealt out in turn, its estimate is off by less than one round."""
    numbers = {LEFT: itertools.count(), RIGHT: itertools.count()}
    numbered = [(side, next(numbers[side])) for side in sides]
    rows = [(Row(side, number, 0), number % reshufflers) for side, number in numbered]
    watching = Watching()
    run_epochs(
        rows,
        start_grid(1, dynamic()),
        watching,
        reshufflers=reshufflers,
        delay=lambda: 0,
        gap=lambda: 1,
    )
    arrived, seen = {LEFT: 0, RIGHT: 0}, []
    for row, way in rows:
        arrived[row.side] += 1
        if way == 0:
            seen.append((arrived[LEFT], arrived[RIGHT]))
    assert len(watching.estimates) == len(seen)
    for estimate, truth in zip(watching.estimates, seen, strict=True):
        assert all(abs(e - t) < reshufflers for e, t in zip(estimate, truth, strict=True))
