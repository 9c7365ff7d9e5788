"""The numbers of a hub's rows: each is given once, and they ascend."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import UsageError
from watersmeet.hubs.lookups import CopyRoom, Lookups
from watersmeet.hubs.rows import StreamRows, first_row, row_numbers
from watersmeet.kernel.keys import mix
from watersmeet.kernel.rows import Sorted
from watersmeet.model.signature import LOCATOR

# The last place of a partition of either kind: none of them may reach into the next one.
LAST = {0: (1 << 24) - 2, 1023: (1 << 24) - 2, 1024: (1 << 18) - 2, 66_559: (1 << 18) - 2}


def test_a_number_is_never_given_twice_and_ascends_by_batch_partition_and_place():
    numbers = np.concatenate(
        [
            row_numbers(batch, partition, first, 2)
            for batch, (partition, last) in itertools.product((0, 1, (1 << 28) - 1), LAST.items())
            for first in (0, last)
        ]
    )
    assert (np.diff(numbers.astype(object)) > 0).all()


@given(st.integers(0, (1 << 28) - 2), st.sampled_from(sorted(LAST)), st.integers(0, 1 << 17))
def test_a_row_lies_between_the_first_rows_of_its_batch_and_the_next(batch, partition, place):
    (number,) = row_numbers(batch, partition, place, 1)
    first, end = first_row(np.array([batch, batch + 1]))
    assert first <= number < end


@pytest.mark.parametrize(
    ("batch", "partition", "first"),
    [(1 << 28, 0, 0), (0, 1024 + 65_536, 0), (0, 0, 1 << 24), (0, 1024, 1 << 18)],
)
def test_more_than_can_be_numbered_is_refused(batch, partition, first):
    with pytest.raises(UsageError, match="Read less in a batch"):
        row_numbers(batch, partition, first, 1)


@given(st.lists(st.lists(st.integers(0, 60), max_size=8), max_size=4), st.lists(st.integers(0, 60)))
def test_a_row_is_found_by_its_number_whether_or_not_numbers_of_runs_mix(runs, sought):
    left = set(range(61))
    stored = []
    for run in runs:
        mine = sorted(left & set(run))
        left -= set(mine)
        stored.append(Sorted(np.array(mine, np.uint64), pa.RecordBatch.from_pydict({"x": mine})))
    rows = StreamRows.of(stored)
    place = {number: at for at, number in enumerate(number for run in stored for number in run.keys.tolist())}
    found = rows.positions(np.array(sought, np.uint64))
    assert found.tolist() == [place.get(one, -1) for one in sought]


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=3),
    st.lists(st.lists(st.integers(0, 12), max_size=20), max_size=4),
    st.sampled_from([0, 100, 1 << 20]),
    st.sampled_from([1, 3, 1000]),
)
def test_keys_are_found_in_a_copy_of_an_index_as_in_its_runs(runs, batches, room_bytes, limit):
    numbers = itertools.count()
    stored = []
    for run in runs:
        keys = np.sort(mix(np.array(run, np.uint64)))
        located = [next(numbers) for _ in run]
        stored.append(Sorted(keys, pa.RecordBatch.from_pydict({LOCATOR: pa.array(located, pa.int64())})))
    entries = [
        (key, number)
        for run in stored
        for key, number in zip(run.keys.tolist(), run.rows.column(LOCATOR).to_pylist(), strict=True)
    ]
    lookups = Lookups(stored, CopyRoom(room_bytes))
    for batch in batches:
        sought = mix(np.array(batch, np.uint64))
        parts = list(lookups.find(sought, limit))
        assert all(0 < len(place) <= limit for place, _ in parts)
        found = sorted(pair for place, at in parts for pair in zip(place.tolist(), at.tolist(), strict=True))
        assert found == sorted(
            (place, number)
            for place, key in enumerate(sought.tolist())
            for other, number in entries
            if key == other
        )
