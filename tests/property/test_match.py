"""Equal keys of two sorted sequences, also where one is a part of the other's range: all are found, and few looked up."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from watersmeet.kernel import match
from watersmeet.kernel.keys import prefix_ranges
from watersmeet.kernel.match import Matches, is_shorter, matches_of, matches_of_prefixes

KEY_BITS = 64
# Few different keys, at both ends and in the middle, so that many are equal and parts do not overlap.
some_keys = st.one_of(
    st.integers(0, 20),
    st.integers(2**63, 2**63 + 20),
    st.integers(2**64 - 20, 2**64 - 1),
    st.integers(0, 9).map(lambda number: number << 33 | 7),
)
sorted_keys = st.lists(some_keys, max_size=40).map(lambda keys: np.array(sorted(keys), np.uint64))


def found_in(matches: Matches) -> dict[int, tuple[int, int]]:
    return {
        int(needle): (int(start), int(start + rows)) for needle, start, rows in zip(*matches, strict=True)
    }


@given(sorted_keys, sorted_keys, st.sampled_from([1, 4096]))
def test_each_key_is_found_where_it_is(needles, hay, least_cut):
    with mock.patch.object(match, "LEAST_CUT", least_cut):
        found = found_in(matches_of(needles, hay))
    places = {at: np.flatnonzero(hay == needle) for at, needle in enumerate(needles)}
    assert found == {at: (one[0], one[-1] + 1) for at, one in places.items() if len(one)}


@example(np.array([10], np.uint64), np.array([0, 20], np.uint64), 1)
@given(sorted_keys, sorted_keys, st.sampled_from([1, 4096]))
def test_each_prefix_is_found_where_keys_begin_with_it(prefixes, hay, least_cut):
    with mock.patch.object(match, "LEAST_CUT", least_cut):
        found = found_in(matches_of_prefixes(prefixes, hay))
    bounds = zip(*prefix_ranges(prefixes), strict=True)
    places = {at: np.flatnonzero((hay >= low) & (hay <= high)) for at, (low, high) in enumerate(bounds)}
    assert found == {at: (one[0], one[-1] + 1) for at, one in places.items() if len(one)}


@pytest.mark.parametrize("part", range(8))
def test_in_a_part_of_a_sequence_only_keys_of_its_range_are_looked_up(part, monkeypatch):
    """A large sequence is many files: else a batch would look at all its rows for each of them."""
    rng = np.random.default_rng(part)
    keys = np.sort(rng.integers(0, 2**KEY_BITS, 80_000, np.uint64))
    fresh = np.sort(rng.integers(0, 2**KEY_BITS, 10_000, np.uint64))
    file = keys[part * 10_000 : (part + 1) * 10_000][: 9_900 + 200 * (part % 2)]
    looked_up = []
    search = match._likely

    def likely(needles, hay, *more):
        looked_up.append((len(needles), len(hay)))
        return search(needles, hay, *more)

    monkeypatch.setattr(match, "_likely", likely)
    # The file has fewer keys than the batch, or more; in its range it has more.
    assert is_shorter(fresh, file)
    assert not is_shorter(file, fresh)
    matches_of(fresh, file)
    ((needles, hay),) = looked_up
    assert needles < 1_500 and hay > 9_800


def test_keys_of_a_part_are_told_apart_by_the_bits_in_which_they_differ():
    rng = np.random.default_rng(0)
    fresh, file = (np.sort(rng.integers(2**60, 2**60 + 2**50, 5_000, np.uint64)) for _ in range(2))
    assert len(match._likely(fresh, file)) < len(fresh) / 8
