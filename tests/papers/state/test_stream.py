"""The paper's stream generator: the join factor grows as published, rates alternate, and all follows from the seed."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from papers.state.stream import (
    Stream,
    Turns,
    count_results,
    distinct_values,
    even,
    mixed,
    partition_of,
)
from watersmeet.kernel.keys import order_keys
from watersmeet.schemes.budget.facts import groups_of

MINUTE_MS = 60_000


def drawn(stream: Stream, input_: int, end_ms: int, step_ms: int = MINUTE_MS) -> np.ndarray:
    starts = range(0, end_ms, step_ms)
    return np.concatenate([stream.draw(input_, start, start + step_ms) for start in starts])


def partners(stored: list[np.ndarray], value: np.ndarray) -> np.ndarray:
    """The results that a new row of the first input has with all rows of the other two."""
    size = max(int(rows.max()) for rows in stored) + 1
    counts = [np.bincount(rows, minlength=size) for rows in stored]
    return counts[0][value] * counts[1][value]


@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_the_join_factor_grows_by_the_ratio_in_every_range(ratio):
    """With ratio 2 a row has 4 results after the first range and 16 after the second, as section 3.4 says."""
    stream = Stream(even(ratio, 30), 30_000, gap_ms=10)
    range_ms = 300_000
    for ranges in (1, 2, 3):
        stored = [drawn(stream, input_, ranges * range_ms, 10_000) for input_ in (1, 2)]
        probes = stream.draw(0, ranges * range_ms, ranges * range_ms + 300_000)
        assert partners(stored, probes).mean() == pytest.approx((ranges * ratio) ** 2, rel=0.06)


def test_a_ratio_belongs_to_a_partition():
    stream = Stream(mixed((4, 2, 1), 30), 30_000, gap_ms=10)
    stored = [drawn(stream, input_, 600_000) for input_ in (1, 2)]
    probes = drawn(stream, 0, 600_000)
    partition = partition_of(probes, 30)
    found = partners(stored, probes)
    for place, ratio in enumerate((4, 2, 1)):
        assert found[partition % 3 == place].mean() == pytest.approx((2 * ratio) ** 2, rel=0.06)
    assert np.bincount(partition, minlength=30).std() < 0.05 * len(probes) / 30


def test_partitions_are_the_operators_groups():
    values = np.arange(1000)
    groups = groups_of(300, [])
    keys = order_keys([pa.array(values)]).tolist()
    assert partition_of(values, 300).tolist() == [
        next(place for place, group in enumerate(groups) if key in group) for key in keys
    ]


def test_every_partition_has_its_join_values_and_no_other():
    ratios = mixed((4, 2, 1), 12)
    stream = Stream(ratios, 1_200, gap_ms=1)
    values = np.unique(drawn(stream, 0, 60_000, 20_000))
    assert np.bincount(partition_of(values, 12)).tolist() == list(distinct_values(ratios, 1_200))


def test_rates_alternate():
    """Ten times as many rows for five minutes, then for ten minutes the others, and so on."""
    turns = Turns(tuple(range(15)), 10, 5 * MINUTE_MS, 10 * MINUTE_MS)
    stream = Stream(even(1, 30), 30_000, gap_ms=10, turns=turns)
    share = [
        (partition_of(stream.draw(0, minute * MINUTE_MS, (minute + 1) * MINUTE_MS), 30) < 15).mean()
        for minute in range(30)
    ]
    runs = [(first, len(list(found))) for first, found in itertools.groupby(one > 0.5 for one in share)]
    assert runs == [(True, 5), (False, 10), (True, 10), (False, 5)]
    assert min(share) == pytest.approx(1 / 11, abs=0.02) and max(share) == pytest.approx(10 / 11, abs=0.02)


def test_the_gap_is_the_mean_time_between_two_rows():
    assert len(drawn(Stream(even(1, 3), 300, gap_ms=20), 0, 60 * MINUTE_MS)) == pytest.approx(
        180_000, rel=0.02
    )


def test_all_follows_from_the_seed():
    stream = Stream(even(2, 10), 1_000, gap_ms=5)
    assert stream.draw(1, 0, 9_000).tolist() == stream.draw(1, 0, 9_000).tolist()
    others = [
        stream.draw(2, 0, 9_000),
        stream.draw(1, 9_000, 18_000),
        replace(stream, seed=1).draw(1, 0, 9_000),
    ]
    assert all(stream.draw(1, 0, 9_000).tolist() != other.tolist() for other in others)


def test_results_are_counted_as_a_nested_loop_counts_them():
    inputs = [np.array(rows) for rows in ([1, 1, 2, 5], [1, 2, 2, 9], [2, 1, 1, 1])]
    assert count_results(inputs) == sum(a == b == c for a, b, c in itertools.product(*inputs))
