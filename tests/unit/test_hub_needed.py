"""Down to which publication time live queries need the rows of their streams."""

from __future__ import annotations

import pytest

from watersmeet.hubs.catalogue import ADD, Command, HubCatalogue, apply_commands
from watersmeet.hubs.needed import Needed, needed_of
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.templates import TemplateReader
from watersmeet.hubs.watermarks import next_watermarks
from watersmeet.model.types import INT

SCHEMAS = {"R": {"a": INT, "b": INT}, "S": {"a": INT}, "P": {"a": INT}}
SECOND = 1_000_000
RS, SELF = "SELECT R.b FROM R, S WHERE R.a = S.a", "SELECT x.b FROM R AS x, R AS y WHERE x.b = y.b"
ALONE = "SELECT R.b FROM R WHERE R.a > 5"


def needed(*texts: str) -> Needed:
    commands = [Command(ADD, f"q{at}", text) for at, text in enumerate(texts)]
    changed = apply_commands(HubCatalogue(), commands, 3, TemplateReader(SCHEMAS))
    assert len(changed.catalogue) == len(texts)
    return needed_of(changed.catalogue, Attributes.of(SCHEMAS))


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


@pytest.mark.parametrize("window", ["", " WINDOW 1 SECOND"])
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
