"""What `within=`, `time=` and `lateness=` may say, what it means, and the sentence that each mistake gets."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.unit.test_job_file import changed, parse
from watersmeet.cli.main import app
from watersmeet.errors import ConfigError, UsageError
from watersmeet.local.join import LocalJoin
from watersmeet.log.status import read_status
from watersmeet.model.facts import InputTotals
from watersmeet.model.types import parse_type
from watersmeet.model.window import Window, WindowKind, explain_window, lateness_text, time_text, width_text
from watersmeet.predicate import parse_window

COLUMNS = {
    "ts": "timestamp",
    "ntz": "timestamp_ntz",
    "day": "date",
    "n": "bigint",
    "small": "smallint",
    "x": "double",
    "s": "string",
}
SCHEMA = {name: parse_type(kind) for name, kind in COLUMNS.items()}
SCHEMAS = {"l": SCHEMA, "r": SCHEMA}


def both(column: str) -> dict[str, str]:
    return {"l": column, "r": column}


def window(within, column: str | None = None, lateness=None, **more) -> Window:
    found = parse_window(within, both(column) if column else None, lateness, SCHEMAS, **more)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("within", "column", "lateness", "meant"),
    [
        ("10 minutes", "ts", None, Window(WindowKind.TIME, 600_000_000, 0, "timestamp")),
        (
            "1 day 12 hours",
            "ntz",
            "1 second",
            Window(WindowKind.TIME, 36 * 3600 * 10**6, 10**6, "timestamp_ntz"),
        ),
        ("1.5 seconds", "ts", "1 millisecond", Window(WindowKind.TIME, 1_500_000, 1000, "timestamp")),
        (
            datetime.timedelta(minutes=1),
            "ts",
            datetime.timedelta(0),
            Window(WindowKind.TIME, 60_000_000, 0, "timestamp"),
        ),
        ("1 week", "day", "24 hours", Window(WindowKind.TIME, 7, 1, "date")),
        (datetime.timedelta(days=2), "day", None, Window(WindowKind.TIME, 2, 0, "date")),
        (3600, "n", 60, Window(WindowKind.TIME, 3600, 60, "integer")),
        (5, "small", 0, Window(WindowKind.TIME, 5, 0, "integer")),
        ("100000 rows", None, None, Window(WindowKind.ROWS, 100_000)),
        ("1 Row", None, None, Window(WindowKind.ROWS, 1)),
        ("10_000 rows", None, None, Window(WindowKind.ROWS, 10_000)),
    ],
)
def test_lengths_in_whole_numbers(within, column, lateness, meant):
    assert window(within, column, lateness) == meant


def test_without_a_window():
    assert parse_window(None, None, None, SCHEMAS) is None


def test_columns_are_found_as_spark_finds_them():
    found = parse_window("1 day", {"l": "TS", "r": "ts"}, None, SCHEMAS)
    assert found is not None
    assert found[1] == both("ts")
    with pytest.raises(UsageError, match="did you mean ts"):
        parse_window("1 day", {"l": "TS", "r": "ts"}, None, SCHEMAS, case_sensitive=True)


def test_integers_of_two_widths_tell_time_the_same_way():
    found = parse_window(5, {"l": "n", "r": "small"}, None, SCHEMAS)
    assert found is not None
    assert found[0].of == "integer"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("10 minutes", None, None), r'needs time=.*time=\{"l": "ts", "r": "ts"\}'),
        ((None, both("ts"), None), "time= belongs to a window: add within="),
        ((None, None, "1 minute"), "lateness= belongs to a window"),
        (("10 minutes", {"l": "ts"}, None), r'no column for input r: write time=\{"l": "ts", "r": "ts"\}'),
        (
            ("10 minutes", {"l": "ts", "r": "ts", "q": "ts"}, None),
            "'q', which is no input; the inputs are l, r",
        ),
        (("10 minutes", "ts", None), "name a column for each input"),
        (("10 minutes", {"l": "ts", "r": 3}, None), "name of a column, not 3"),
        (("10 minutes", {"l": "ts", "r": "tss"}, None), "input r has no column tss; did you mean ts?"),
        (("10 minutes", {"l": "ts", "r": "x"}, None), "r.x is of type double: use"),
        (("10 minutes", {"l": "ts", "r": "s"}, None), "r.s is of type string"),
        (
            ("10 minutes", {"l": "ts", "r": "ntz"}, None),
            "l.ts is of type timestamp, r.ntz of type timestamp_ntz: cast",
        ),
        (("10 days", {"l": "ts", "r": "day"}, None), "of type date: cast"),
        (("0 minutes", both("ts"), None), "must be positive"),
        ((0, both("n"), None), "must be positive"),
        (("-1 minutes", both("ts"), None), "must be positive"),
        ((-1, both("n"), None), "must be positive; write for example within=3600"),
        ((datetime.timedelta(seconds=-1), both("ts"), None), "must be positive"),
        (("soon", both("ts"), None), 'not an interval.*"10 minutes".*rows'),
        (("10 parsecs", both("ts"), None), "parsecs is not a unit of time"),
        (("10", both("ts"), None), "not an interval"),
        (("1 month", both("ts"), None), "months and years differ in length"),
        (("10 minutes", both("day"), None), "dates, so give whole days.*3 days"),
        ((datetime.timedelta(hours=25), both("day"), None), "whole days"),
        (("1 day", both("day"), "1 hour"), "lateness='1 hour': the time columns are dates"),
        ((600, both("ts"), None), "give a unit too"),
        ((True, both("n"), None), "give a whole number"),
        (("10 minutes", both("n"), None), "give a whole number"),
        ((1.5, both("n"), None), "give a whole number"),
        ((5, both("n"), "1 minute"), "lateness='1 minute': the time columns are integers"),
        (("10 minutes", both("ts"), "-1 second"), "lateness='-1 second': it must not be negative"),
        ((1 << 61, both("n"), None), "too long"),
        (("0 rows", None, None), "from 1 up"),
        (("-3 rows", None, None), "from 1 up"),
        (("10 rows", both("ts"), None), "takes no time="),
        (("10 rows", None, "1 minute"), "no row can be late"),
    ],
)
def test_mistakes_are_named(arguments, words):
    with pytest.raises(UsageError, match=words):
        parse_window(*arguments, SCHEMAS)


def test_a_batch_has_no_rows_that_came_before():
    with pytest.raises(UsageError, match="use it for streams"):
        window("10 rows", streaming=False)
    assert window("10 minutes", "ts", streaming=False)


@pytest.mark.parametrize(
    ("found", "width", "late", "words"),
    [
        (
            Window(WindowKind.TIME, 90_000_000, 500, "timestamp"),
            "90 seconds",
            "500 microseconds",
            "at most 90 seconds apart",
        ),
        (
            Window(WindowKind.TIME, 86_400_000_000, 0, "timestamp_ntz"),
            "1 day",
            "0 seconds",
            "at most 1 day apart",
        ),
        (Window(WindowKind.TIME, 7, 1, "date"), "7 days", "1 day", "accepted up to 1 day late"),
        (Window(WindowKind.TIME, 3600, 0, "integer"), "3600", "0", "at most 3600 apart"),
        (
            Window(WindowKind.ROWS, 5),
            "5 rows",
            "0 rows",
            "each row is matched against the last 5 rows of the other input",
        ),
    ],
)
def test_windows_are_shown_as_people_write_them(found, width, late, words):
    assert (width_text(found), lateness_text(found)) == (width, late)
    assert words in explain_window(found)


def test_times_are_shown_as_people_write_them():
    assert time_text(Window(WindowKind.TIME, 1, of="date"), -1) == "1969-12-31"
    assert time_text(Window(WindowKind.TIME, 1, of="timestamp_ntz"), 10**6) == "1970-01-01 00:00:01"
    assert time_text(Window(WindowKind.TIME, 1, of="timestamp"), 10**6) == "1970-01-01 00:00:01+00:00"
    assert time_text(Window(WindowKind.TIME, 1, of="integer"), 5) == "5"
    assert time_text(Window(WindowKind.TIME, 1, of="timestamp"), 1 << 61) == str(1 << 61)


# --- status and job files -------------------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path):
    schema = pa.schema({"k": pa.int64(), "day": pa.date32()})
    join = LocalJoin(
        {"l": schema, "r": schema},
        on="l.k = r.k",
        state=str(tmp_path),
        within="2 days",
        time=both("day"),
        lateness="1 day",
    )

    def days(*numbers: int) -> pa.Table:
        return pa.table({"k": [1] * len(numbers), "day": pa.array(numbers, pa.int32()).cast(pa.date32())})

    join.batch(l=days(10, 20), r=days(30))
    join.batch(l=days(18, 40), r=days(40))
    join.batch(l=days(41))
    return tmp_path


def test_the_status_shows_the_window_and_what_it_dropped(state):
    (join,) = read_status(state).joins
    assert join.window is not None
    assert (join.window.within, join.window.lateness) == ("2 days", "1 day")
    assert join.window.watermark == "1970-02-09"
    assert join.window.newest == {"l": "1970-02-11", "r": "1970-02-10"}
    left, right = join.inputs
    assert left.totals == InputTotals(rows=4, late_rows=1, evicted_rows=2)
    assert right.totals == InputTotals(rows=right.totals.rows, evicted_rows=1)


def test_the_command_shows_the_window(state):
    shown = CliRunner().invoke(app, ["status", str(state)]).stdout
    assert "window of 2 days, lateness 1 day, watermark 1970-02-09" in shown
    assert "evicted" in shown


def test_a_window_over_rows_has_no_watermark(tmp_path):
    schema = pa.schema({"k": pa.int64()})
    join = LocalJoin({"l": schema, "r": schema}, on="l.k = r.k", state=str(tmp_path), within="2 rows")
    join.batch(l=pa.table({"k": [1]}))
    (found,) = read_status(tmp_path).joins
    assert found.window is not None
    assert (found.window.within, found.window.watermark, found.window.lateness) == ("2 rows", None, None)
    assert "window of 2 rows\n" in CliRunner().invoke(app, ["status", str(tmp_path)]).stdout


def test_a_job_file_with_a_window():
    text = changed(
        'on = "l.k = r.value"',
        'on = "l.k = r.value"\nwithin = "10 minutes"\ntime = { l = "ts", r = "timestamp" }\nlateness = "1 minute"',
    )
    join = parse(text).join
    assert (join.within, join.lateness) == ("10 minutes", "1 minute")
    assert join.time == {"l": "ts", "r": "timestamp"}
    assert parse(changed('on = "l.k = r.value"', 'on = "l.k = r.value"\nwithin = 5')).join.within == 5


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("within = true", r"\[join\]: within must be a text, such as \"10 minutes\", or a number, not True"),
        ("within = ''", "within must be a text"),
        ("lateness = [1]", "lateness must be a text"),
        ("time = 'ts'", r"time must be a table of texts, such as \{ o = \"ts\", p = \"ts\" \}, not 'ts'"),
        ("time = { l = 3 }", "time must be a table of texts"),
        ("window = '1 day'", "did you mean 'within'"),
    ],
)
def test_a_job_file_with_a_window_that_makes_no_sense(line, words):
    with pytest.raises(ConfigError, match=words):
        parse(changed('on = "l.k = r.value"', f'on = "l.k = r.value"\n{line}'))


def test_balance_goes_by_what_the_fresh_rows_can_meet(tmp_path):
    """Keys that were hot long ago are still stored, and would hide the one that is hot now."""
    rng = np.random.default_rng(1)
    schema = pa.schema({"k": pa.int64(), "t": pa.int64()})

    def rows(keys, start: int) -> pa.Table:
        return pa.table(
            {"k": rng.permutation(keys), "t": rng.integers(start, start + 50, len(keys))}, schema=schema
        )

    join = LocalJoin(
        {"l": schema, "r": schema},
        on="l.k = r.k",
        select=["l.k"],
        state=str(tmp_path),
        tasks=48,
        strategy="hypercube",
        within=60,
        time={"l": "t", "r": "t"},
        lateness=100_000,
    )
    join.count(l=rows(np.array([99]), 0), r=rows(np.repeat(np.arange(20), 4_000), 0))
    for number in range(1, 4):
        hot, light = np.full(300, 777), np.arange(10_000 * number, 10_000 * number + 500)
        keys = np.concatenate([np.repeat(np.arange(20), 10), hot, light])
        join.count(l=rows(keys, 600 * number), r=rows(keys, 600 * number))
        work = np.array([task.probed + task.emitted for task in join.work])
        assert work.max() <= 1.25 * work.mean()
