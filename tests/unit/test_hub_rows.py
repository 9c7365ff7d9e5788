"""The numbers of a hub's rows: each is given once, and they ascend."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import UsageError
from watersmeet.hubs.rows import first_row, row_numbers

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
