"""Counts of rows: what they let go is in no window over rows any more, and what is in none goes soon."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from watersmeet.hubs.counted import count_rows, floor_of
from watersmeet.hubs.watermarks import next_watermarks
from watersmeet.model.window import CountedRows

# By batch, how far each row is from the time of the batch.
BATCHES = st.lists(st.lists(st.integers(-6, 3), max_size=5), min_size=1, max_size=40)


def kept_wrongly(batches: Sequence[Sequence[int]], width: int, lateness: int) -> None:
    """After each batch no row of the last `width` is below the floor."""
    counted: dict[str, CountedRows] = {}
    marks: dict[str, int] = {}
    times: list[int] = []
    for number, batch in enumerate(batches):
        arrived = [2 * number + one for one in batch]
        in_time = [one for one in arrived if "R" not in marks or one >= marks["R"]]
        later = next_watermarks(marks, [{"R": max(arrived)}] if arrived else [], ["R"], lateness)
        counted = count_rows(counted, {"R": width}, {"R": len(in_time)}, marks, later)
        marks = later
        times += in_time
        floor = floor_of(counted["R"], width)
        if floor is not None:
            assert min(times[-width:]) >= floor
            assert counted["R"].rows == len(times) >= width
        assert len(counted["R"].milestones) <= 66


@given(BATCHES, st.integers(1, 120), st.integers(0, 4))
def test_no_row_of_a_window_is_below_its_floor(batches, width, lateness):
    kept_wrongly(batches, width, lateness)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=80), st.integers(1, 200))
def test_rows_behind_a_window_are_below_its_floor_soon(sizes, width):
    """With times that ascend by batch: a share of the window and two batches later."""
    counted: dict[str, CountedRows] = {}
    times: list[int] = []
    for number, rows in enumerate(sizes):
        counted = count_rows(counted, {"R": width}, {"R": rows}, {"R": number - 1}, {"R": number})
        times += [number] * rows
        floor = floor_of(counted["R"], width)
        kept = sum(1 for one in times if floor is None or one >= floor)
        assert kept <= width + width // 32 + 3 * 9


def test_the_marks_of_a_stream_with_small_batches_are_few():
    counted: dict[str, CountedRows] = {}
    for number in range(5000):
        counted = count_rows(counted, {"R": 1000}, {"R": 1}, {"R": number - 1}, {"R": number})
        assert len(counted["R"].milestones) <= 35
    assert floor_of(counted["R"], 1000) in range(3960, 4001)
