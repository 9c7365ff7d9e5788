"""Down to which publication time live queries need the rows of their streams."""

from __future__ import annotations

import pytest

from watersmeet.hubs.catalogue import ADD, Command, HubCatalogue, apply_commands
from watersmeet.hubs.needed import Needed, needed_of
from watersmeet.hubs.past import new_with_since, reached_by
from watersmeet.hubs.retained import RETAIN_ALL
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.stored import ANSWERED
from watersmeet.hubs.templates import TemplateReader
from watersmeet.hubs.watermarks import next_watermarks
from watersmeet.model.types import INT
from watersmeet.model.window import FARTHEST, CountedRows, Milestone

SCHEMAS = {"R": {"a": INT, "b": INT}, "S": {"a": INT}, "P": {"a": INT}}
SECOND = 1_000_000
RS, SELF = "SELECT R.b FROM R, S WHERE R.a = S.a", "SELECT x.b FROM R AS x, R AS y WHERE x.b = y.b"
ALONE = "SELECT R.b FROM R WHERE R.a > 5"


# The streams and indexes of RS.
PAIR = ("R", "R.0", "S", "S.0")


def needed(*texts: str) -> Needed:
    return needed_of(catalogue_of(*texts), Attributes.of(SCHEMAS))


def catalogue_of(*texts: str) -> HubCatalogue:
    commands = [Command(ADD, f"q{at}", text) for at, text in enumerate(texts)]
    changed = apply_commands(HubCatalogue(), commands, 3, TemplateReader(SCHEMAS))
    assert len(changed.catalogue) == len(texts)
    return changed.catalogue


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([f"{RS} WINDOW 2 SECONDS"], {"R": 5, "R.0": 5, "S": 98, "S.0": 98}),
        ([f"{RS} WINDOW TUMBLING 2 SECONDS"], {"R": 5, "R.0": 5, "S": 98, "S.0": 98}),
        (
            [f"{RS} WINDOW 2 SECONDS", f"{RS} WINDOW 3 SECONDS"],
            {"R": 4, "R.0": 4, "S": 97, "S.0": 97},
        ),
        # An unwindowed query keeps the runs that it uses, and only these.
        ([f"{RS} WINDOW 2 SECONDS", SELF], {"R.0": 5, "S": 98, "S.0": 98}),
        ([f"{RS} WINDOW 2 SECONDS", f"{RS} AND R.b = 1"], {}),
        (
            [f"{RS} WINDOW 2 SECONDS", f"{SELF} WINDOW 1 SECOND"],
            {"R": 5, "R.0": 5, "R.1": 99, "S": 98, "S.0": 98},
        ),
        # P has no watermark: rows that meet it are kept. Its own meet R.
        (["SELECT R.b FROM R, P WHERE R.a = P.a WINDOW 2 SECONDS"], {"P": 98, "P.0": 98}),
    ],
)
def test_the_widest_window_behind_the_slowest_other_stream_is_the_floor(texts, expected):
    floors = needed(*texts).floors({"R": 100 * SECOND, "S": 7 * SECOND})
    assert floors == {name: seconds * SECOND for name, seconds in expected.items()}


# R: 100 rows, the last 10 of them from second 8 on and the last 30 from second 4 on. S: not enough rows.
COUNTED = {
    "R": CountedRows(100, (Milestone(70, 4 * SECOND), Milestone(90, 8 * SECOND))),
    "S": CountedRows(9, (Milestone(0, 0),)),
}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([f"{RS} WINDOW 10 ROWS"], {"R": 8, "R.0": 8}),
        ([f"{RS} WINDOW 10 ROWS", f"{RS} WINDOW 11 ROWS"], {"R": 4, "R.0": 4}),
        ([f"{RS} WINDOW 9 ROWS"], {"R": 8, "R.0": 8, "S": 0, "S.0": 0}),
        # Both kinds: what none of them needs.
        ([f"{RS} WINDOW 10 ROWS", f"{RS} WINDOW 2 SECONDS"], {"R": 5, "R.0": 5}),
        ([f"{RS} WINDOW 10 ROWS", f"{SELF} WINDOW 1 SECOND"], {"R": 8, "R.0": 8, "R.1": 99}),
        ([f"{RS} WINDOW 10 ROWS", SELF], {"R.0": 8}),
        ([f"{RS} WINDOW 10 ROWS", RS], {}),
        # Answers leave with the slowest stream. Of one input the rows stay that say which answers are old.
        (
            [f"{RS} WINDOW 9 ROWS".replace("SELECT", "SELECT DISTINCT")],
            {"R": 8, "R.0": 8, "S": 0, "S.0": 0, "~answered": 0},
        ),
        ([f"{ALONE} WINDOW 10 ROWS".replace("SELECT", "SELECT DISTINCT")], {"R": 8, "~answered": 8}),
    ],
)
def test_the_widest_window_over_rows_gives_a_floor_by_the_count_of_its_stream(texts, expected):
    one = needed(*texts)
    floors = one.floors({"R": 100 * SECOND, "S": 7 * SECOND}, COUNTED)
    assert floors == {name: seconds * SECOND for name, seconds in expected.items()}
    rows = max(int(text.split()[-2]) for text in texts if text.endswith("ROWS"))
    # A query of the same template without a window keeps all rows, so that none need be counted.
    both = {"R": rows, "S": rows}
    assert one.counted_streams == ({} if RS in texts else both if " S " in texts[0] else {"R": rows})
    # Late rows are in no window.
    assert one.late == ({"R"} if SELF in texts else {"R", "S"} if RS in texts else set())


SINCE = " SINCE TIMESTAMP '1970-01-01 00:00:0{}Z'"


@pytest.mark.parametrize(
    ("texts", "retain", "expected"),
    [
        # Without a window all rows from SINCE on are needed, by the earliest query.
        ([RS + SINCE.format(3), f"{RS} AND R.b = 1" + SINCE.format(2)], None, dict.fromkeys(PAIR, 2)),
        ([RS + SINCE.format(3), f"{RS} WINDOW 2 SECONDS"], None, {"R": 3, "R.0": 3, "S": 3, "S.0": 3}),
        ([RS + SINCE.format(9), f"{RS} WINDOW 2 SECONDS"], None, {"R": 5, "R.0": 5, "S": 9, "S.0": 9}),
        ([RS, RS + SINCE.format(3)], None, {}),
        # With one, SINCE makes no difference once the past was answered.
        ([f"{RS} WINDOW 2 SECONDS{SINCE.format(1)}"], None, {"R": 5, "R.0": 5, "S": 98, "S.0": 98}),
        # What is retained stays longer than it is needed, or than the stream's own watermark.
        ([f"{RS} WINDOW 2 SECONDS"], 3, {"R": 2, "R.0": 2, "S": 4, "S.0": 4}),
        ([ALONE], 3, {"R": 97, "S": 4}),
        ([RS], 3, {}),
        ([RS + SINCE.format(3)], 3, {"R": 3, "R.0": 3, "S": 3, "S.0": 3}),
        ([f"{RS} WINDOW 2 SECONDS"], RETAIN_ALL // SECOND + 1, {}),
    ],
)
def test_since_and_retain_lower_floors(texts, retain, expected):
    floors = needed(*texts).floors({"R": 100 * SECOND, "S": 7 * SECOND}, retain=retain and retain * SECOND)
    assert {name: floor for name, floor in floors.items() if floor < FARTHEST} == {
        name: seconds * SECOND for name, seconds in expected.items()
    }


def test_rows_of_all_batches_are_needed_by_a_query_with_since():
    assert set(needed(RS).first.values()) == {4}
    assert set(needed(RS, RS + SINCE.format(3)).first.values()) == {0}
    assert needed(RS + SINCE.format(3)).late == {"R", "S"}
    # What came out of a DISTINCT query came out after its command.
    distinct = needed(RS.replace("SELECT", "SELECT DISTINCT") + SINCE.format(3))
    assert (distinct.first[ANSWERED], ANSWERED in distinct.endless) == (4, True)


def test_old_rows_are_read_as_far_as_queries_use_them():
    windowed = needed(f"{RS} WINDOW 2 SECONDS{SINCE.format(1)}", ALONE)
    marks = {"R": 100 * SECOND, "S": 7 * SECOND}
    assert windowed.reads(marks, {}) == {
        "R": 5 * SECOND,
        "R.0": 5 * SECOND,
        "S": 98 * SECOND,
        "S.0": 98 * SECOND,
    }
    assert windowed.reads(marks, {"S": SECOND})["S"] == SECOND
    assert needed(ALONE).reads(marks, {}) == {}
    assert needed(ALONE).reads(marks, {"R": SECOND}) == {"R": SECOND}


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        (RS, {}),
        (RS + SINCE.format(3), dict.fromkeys(PAIR, 3 * SECOND)),
        (ALONE + SINCE.format(3), {"R": 3 * SECOND}),
        (f"{SELF} WINDOW 1 SECOND{SINCE.format(3)}", {"R": 3 * SECOND, "R.1": 3 * SECOND}),
    ],
)
def test_only_new_queries_with_since_reach_into_the_past(text, reached):
    catalogue, attributes = catalogue_of(text), Attributes.of(SCHEMAS)
    assert reached_by(catalogue, attributes, 3) == reached
    for before in (None, 2, 4):
        assert reached_by(catalogue, attributes, before) == {}
        assert not new_with_since(catalogue, before).any()


@pytest.mark.parametrize("window", ["", " WINDOW 1 SECOND", " WINDOW 5 ROWS"])
def test_a_query_of_one_input_needs_no_stored_row(window):
    one = needed(ALONE + window)
    assert set(one.first) == {"R"}
    assert one.floors({})["R"] > 1 << 61
    assert (one.late == {"R"}) == (not window)


def test_a_watermark_never_falls():
    before = next_watermarks({}, [{"R": 100, "S": 100}], ["R"], 10)
    assert before == {"R": 90, "S": 100}
    assert next_watermarks(before, [{"R": 95, "S": 3}, {}], ["R"], 10) == before
    assert next_watermarks(before, [{"R": 101}], ["R"], 50) == before
