"""The source behind `max_delay`: which second it goes on to, and where Spark is too old for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from watersmeet.errors import ConfigError
from watersmeet.jobs import frames
from watersmeet.jobs.file import parse_job
from watersmeet.spark.beats import _Beats, next_second
from watersmeet.spark.heartbeat import beat_source

JOB = """
[job]
checkpoint = "c"
trigger = "once"
[inputs.s]
format = "parquet"
path = "s"
schema = "k int"
[inputs.p]
path = "p"
key = "id"
[join]
on = "s.k = p.id"
max_delay = "5 seconds"
[sink]
format = "parquet"
path = "out"
"""


@pytest.mark.parametrize(
    "start, now_s, last_s, expected",
    [
        ({"second": 70}, 75, None, 75),
        ({"second": 70}, 60, None, 70),
        ({"second": 70}, 75, 72, 72),
        ({"second": 74}, 75, 72, 74),
        (12, 75, None, 75),
        (12, 75, 72, 72),
    ],
    ids=[
        "the clock's second",
        "never back",
        "not beyond the start of a query that ends by itself",
        "which may have begun behind its checkpoint",
        "from an offset of Spark's rate source",
        "and in a query that ends by itself",
    ],
)
def test_the_next_second(start, now_s, last_s, expected):
    assert next_second(start, now_s, last_s) == expected


def test_a_query_that_ends_by_itself_comes_to_an_end():
    beats = _Beats()
    beats.prepareForTriggerAvailableNow()
    first = beats.latestOffset(beats.initialOffset(), cast("Any", None))
    assert first != beats.initialOffset()
    assert beats.latestOffset(first, cast("Any", None)) == first


def test_this_spark_has_our_source():
    assert beat_source() is not None


def test_a_job_that_ends_by_itself_is_refused_where_spark_is_too_old(monkeypatch):
    job = parse_job(JOB, Path("job.toml"), env={})
    monkeypatch.setattr(frames, "beat_source", lambda: None)
    with pytest.raises(
        ConfigError,
        match="job.toml.*max_delay= and pay_within= cannot be combined with availableNow before Spark 4.2",
    ):
        frames.start_query(job, cast("Any", None), {})
