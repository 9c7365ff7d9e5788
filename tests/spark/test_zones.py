"""A changed session time zone: refused where what is stored would mean something else, accepted everywhere else."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import watersmeet as wm
from tests.spark.state_helpers import all_files, failure
from tests.unit.test_zone import COLUMNS, DEPENDENT, FREE
from watersmeet.testing import StreamScript, assert_same_rows

ZONES = ("UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu")


@contextmanager
def session_zone(spark: Any, zone: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def values(spark: Any, zone: str) -> dict[str, list[Any]]:
    """What Spark says of all the expressions, over moments around changes to and from summer time."""
    # From 28 March and from 24 October 2026 on, every half hour for two days.
    rows = (
        "SELECT id, timestamp_seconds(if(id < 100, 1774700000, 1792670000) + 1800 * id) AS ts FROM range(200)"
    )
    columns = (
        "ts, ts + INTERVAL 23 HOURS AS at, make_date(2026, 3, int(id % 30) + 1) AS d, "
        "TIMESTAMP_NTZ '2026-03-29 00:30:00' + make_dt_interval(0, int(id % 24)) AS ntz, "
        "concat('2026-03-', lpad(id % 30 + 1, 2, '0'), ' 02:30:00', if(id % 2 = 0, 'Z', '+05:00')) AS s, "
        "id * 3600000000 AS n, struct(ts AS t, 1 AS i) AS st"
    )
    with session_zone(spark, zone):
        frame = spark.sql(f"SELECT {columns} FROM ({rows})")
        # The moment itself is read as a number: a timestamp comes to Python in the session's zone.
        shown = [e.replace("l.", "") for e in (*FREE, *DEPENDENT)]
        typed = frame.selectExpr(*(f"{e} AS c{n}" for n, e in enumerate(shown)))
        numbers = [
            f"unix_micros(c{n})" if kind == "timestamp" else f"CAST(c{n} AS string)"
            for n, (_, kind) in enumerate(typed.dtypes)
        ]
        found = typed.selectExpr(*(f"{e} AS c{n}" for n, e in enumerate(numbers))).collect()
    return {e: [row[n] for row in found] for n, e in enumerate((*FREE, *DEPENDENT))}


def test_spark_agrees_on_what_depends_on_the_zone(spark):
    """An expression that records no zone has one value in all of them; one that does has two at least."""
    assert set(COLUMNS) >= {"ts", "at", "ntz", "d", "s", "n", "st"}
    by_zone = [values(spark, zone) for zone in ZONES]
    changing = {e for e in by_zone[0] if any(found[e] != by_zone[0][e] for found in by_zone)}
    assert changing == set(DEPENDENT)


SCHEMAS = {"l": "id int, ts timestamp", "r": "id int, d date, ts timestamp"}


def moment(hour: int) -> datetime.datetime:
    return datetime.datetime(2026, 5, 1, hour, tzinfo=datetime.timezone.utc)


def test_a_key_that_depends_on_the_zone_refuses_another_one(spark, tmp_path):
    """23:00 UTC is the next day in Berlin: old rows would be sought under another date than they are stored by."""
    state = str(tmp_path / "state")

    def build(l, r):
        return wm.join(
            {"l": l, "r": r}, on="to_date(l.ts) = r.d", select=["l.id", "r.id AS other"], state=state
        )

    with StreamScript(spark, tmp_path, **SCHEMAS) as script:
        script.start(build).batch(l=[(1, moment(23))])
        script.stop()
        script.add(r=[(7, datetime.date(2026, 5, 1), moment(1))])
        before = all_files(tmp_path / "state")
        with session_zone(spark, "Europe/Berlin"):
            script.start(build)
            message = failure(script.process)
        assert "StateMismatch" in message
        assert "written under UTC, now it is Europe/Berlin" in message
        assert all_files(tmp_path / "state") == before
        script.start(build).process()
        assert_same_rows(script.results(), [(1, 7)])


def test_a_key_that_is_free_of_the_zone_goes_on_under_another_one(spark, tmp_path):
    """The residual is decided when a pair comes out: 23:00 UTC is 1:00 in Berlin."""
    state = str(tmp_path / "state")

    def build(l, r):
        on = "l.id = r.id AND hour(l.ts) + 1 < hour(r.ts)"
        return wm.join({"l": l, "r": r}, on=on, select=["l.id"], state=state)

    with StreamScript(spark, tmp_path, **SCHEMAS) as script:
        script.start(build).batch(l=[(1, moment(23)), (2, moment(8))])
        script.stop()
        day = datetime.date(2026, 5, 1)
        script.add(r=[(1, day, moment(12)), (2, day, moment(12))])
        with session_zone(spark, "Europe/Berlin"):
            script.start(build).process()
            script.stop()
        assert_same_rows(script.results(), [(1,), (2,)])
