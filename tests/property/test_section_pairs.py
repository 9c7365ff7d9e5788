"""Joins of runs that are cut into sections, against nested loops: merged by key, or compared as they lie."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_kernel import A, B
from watersmeet.kernel.band import BandJoin
from watersmeet.kernel.equal import EquiJoin
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Keyed, Sections, Sorted, merge_sections
from watersmeet.kernel.theta import ThetaJoin
from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.types import BIGINT

SECTIONS = 5
# A run: rows of a key in a section.
cut_runs = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, SECTIONS - 1)), max_size=30), max_size=3
)
wanted_sections = st.sets(st.integers(0, SECTIONS - 1), min_size=1)


def cut_run(rows: list[tuple[int, int]], start: int) -> Sections:
    """Sections of rows that carry a unique id, each sorted by key."""
    by_section = sorted(range(len(rows)), key=lambda place: (rows[place][1], rows[place][0]))
    keys = np.array([rows[place][0] for place in by_section], np.uint64)
    sizes = tuple(sum(section == number for _, section in rows) for number in range(SECTIONS))
    ids = np.array([start + place for place in by_section], np.int64)
    return Sections(keys, pa.record_batch({"id": ids}), sizes)


def stretches_of(run: Sections, wanted: set[int], *, together: bool) -> list[tuple[int, int]]:
    """Each wanted section with rows; or neighbours together."""
    found: list[tuple[int, int]] = []
    for number in sorted(wanted):
        start, stop = run.starts[number : number + 2]
        if together and found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        elif start < stop:
            found.append((start, stop))
    return found


def sections_side(name: str, old: list, new: list, slices_of) -> Side:
    starts = np.cumsum([0, *map(len, old + new)])
    runs = [cut_run(rows, int(start)) for rows, start in zip(old + new, starts, strict=False)]
    made = [slices_of(run) for run in runs]
    fresh, history = made[len(old) :], made[: len(old)]
    return Side(name, list(itertools.chain(*fresh)), list(itertools.chain(*history)))


def owed_of_sections(old_left, new_left, old_right, new_right, wanted, match_) -> Counter:
    def numbered(old, new):
        flat = [(row, False) for run in old for row in run] + [(row, True) for run in new for row in run]
        return [(i, key, fresh) for i, ((key, section), fresh) in enumerate(flat) if section in wanted]

    return Counter(
        (i, j)
        for i, x, fresh_x in numbered(old_left, new_left)
        for j, y, fresh_y in numbered(old_right, new_right)
        if (fresh_x or fresh_y) and match_(x, y)
    )


def pairs_found(join, left: Side, right: Side, limits: Limits) -> Counter:
    batches = list(join.results((left, right), None, limits))
    return Counter(pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True))


@given(
    *(cut_runs, cut_runs, cut_runs, cut_runs, wanted_sections),
    st.integers(0, 13),
    st.integers(0, 13),
    st.integers(1, 50),
    st.sampled_from([1, 5, DEFAULT_LIMITS.heavy_pairs]),
)
def test_merged_sections_are_joined_as_one_sorted_slice(
    old_left, new_left, old_right, new_right, wanted, low, high, piece, block
):
    """With any of the sections, and of their keys; each pair of rows that is wanted comes out once."""
    range_ = KeyRange(min(low, high), KEY_SPACE if high == 13 else max(low, high))

    def merged(run: Sections) -> list[Keyed]:
        found = stretches_of(run, wanted, together=False)
        return [merge_sections(run.keys, found).over(run.rows).between(range_)] if found else []

    arrivals = old_left, new_left, old_right, new_right
    left = sections_side("l", old_left, new_left, merged)
    right = sections_side("r", old_right, new_right, merged)
    for slice_ in (*left.fresh, *left.history, *right.fresh, *right.history):
        assert (np.diff(slice_.keys.astype(np.int64)) >= 0).all()
    limits = Limits(piece_rows=piece, output_rows=7, heavy_pairs=block, least_crossed_rows=2)

    def inside(key: int) -> bool:
        return range_.low <= key < range_.high

    assert pairs_found(EquiJoin((), None, (A, B)), left, right, limits) == owed_of_sections(
        *arrivals, wanted, lambda x, y: x == y and inside(x)
    )
    band = BandJoin(BIGINT, -1, 2, None, (A, B))
    assert pairs_found(band, left, right, limits) == owed_of_sections(
        *arrivals, wanted, lambda x, y: -1 <= x - y <= 2 and inside(x) and inside(y)
    )


@given(cut_runs, cut_runs, cut_runs, cut_runs, wanted_sections, st.integers(1, 50))
def test_neighbouring_sections_are_compared_as_they_lie(
    old_left, new_left, old_right, new_right, wanted, piece
):
    """All pairs are compared, so nothing is sorted."""

    def lying(run: Sections) -> list[Keyed]:
        found = stretches_of(run, wanted, together=True)
        return [Sorted(run.keys[start:stop], run.rows.slice(start, stop - start)) for start, stop in found]

    left, right = (
        sections_side("l", old_left, new_left, lying),
        sections_side("r", old_right, new_right, lying),
    )
    limits = Limits(piece_rows=piece, output_rows=7, least_crossed_rows=2)
    found = pairs_found(ThetaJoin(None, (A, B)), left, right, limits)
    assert found == owed_of_sections(old_left, new_left, old_right, new_right, wanted, lambda x, y: True)


# A hash of which only this much is left: different keys share an order key.
