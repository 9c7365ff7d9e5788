"""The job file of a hub: what is taken, and what is refused by name."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import pytest

from watersmeet.cli.hub import run
from watersmeet.engine.hub import HubOptions
from watersmeet.errors import ConfigError
from watersmeet.jobs import hub_file, parts
from watersmeet.jobs.hub_file import parse_hub_job
from watersmeet.jobs.model import Delivery, Every, HubJob, Sink
from watersmeet.jobs.secrets import secrets_of

INPUT = '[inputs.R]\nformat = "json"\npath = "r"\nschema = "k INT"\n'
JOB = '[job]\ncheckpoint = "cp"\n'
DELIVER = '[deliver]\npath = "out"\n'
LEAST = INPUT + DELIVER + JOB
FULL = (
    INPUT
    + """
[hub]
state = "state"
name = "alerts"
tasks = 3
time = { R = "at" }
lateness = "1 minute"
retain = "1 hour"
commands = "mine"
[queries]
q = "SELECT R.k FROM R"
"the second" = "SELECT R.k FROM R WHERE R.k > 1"
[deliver]
path = "out"
format = "json"
[job]
checkpoint = "cp"
trigger = "5 seconds"
name = "all"
[spark]
spark.master = "local[2]"
"""
)


def parse(text: str, **env: str) -> HubJob:
    return parse_hub_job(text, Path("/jobs/hub.toml"), env)


def test_a_full_file_is_taken_word_by_word():
    job = parse(FULL)
    queries = {"q": "SELECT R.k FROM R", "the second": "SELECT R.k FROM R WHERE R.k > 1"}
    assert job.hub == HubOptions(
        queries, "/jobs/state", "alerts", 3, {"R": "at"}, lateness="1 minute", retain="1 hour"
    )
    assert (job.name, job.checkpoint, job.state, job.commands) == (
        "all",
        "/jobs/cp",
        "/jobs/state",
        "/jobs/mine",
    )
    assert (job.sink, job.trigger) == (Delivery("/jobs/out", "json"), Every("5 seconds"))
    assert job.spark == {"spark.master": "local[2]"}


def test_a_short_file_has_its_state_in_the_checkpoint_and_no_queries_yet():
    job = parse(LEAST)
    assert (job.name, job.state, job.commands) == ("hub", "/jobs/cp/watersmeet", None)
    assert (job.hub.queries, job.sink) == ({}, Delivery("/jobs/out"))
    assert parse(INPUT + '[sink]\nformat = "console"\n' + JOB).sink == Sink("console")


def test_credentials_of_a_hub_are_known_as_such():
    sink = '[sink]\nformat = "kafka"\noptions = { "kafka.sasl.jaas.config" = "${JAAS}" }\n'
    assert "hunter22" in secrets_of(parse(INPUT + sink + JOB, JAAS="hunter22"), {"JAAS": "hunter22"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DELIVER + JOB, r"hub.toml needs streams, each in a table such as \[inputs.R\]"),
        (INPUT + JOB, r"hub.toml needs one of the tables \[deliver\]"),
        (LEAST + '[sink]\nformat = "console"\n', r"needs one of the tables \[deliver\]"),
        (INPUT + "[deliver]\n" + JOB, r"\[deliver\] lacks the key 'path'"),
        (INPUT + DELIVER, r"hub.toml lacks the table \[job\]"),
        (LEAST + "[hub]\nwithin = 1\n", r"\[hub\] has no key 'within'"),
        (LEAST + '[hub]\nretain = "soon"\n', r"\[hub\]: retain='soon': .* or retain=\"all\""),
        (LEAST + '[hub]\nlateness = "1 minute"\n', r"\[hub\]: lateness is of streams with a time column"),
        (LEAST + "[hub]\ntasks = 0\n", r"\[hub\]: tasks must be an integer of at least 1"),
        (LEAST + '[hub]\nname = "a/b"\n', r"\[hub\]: name='a/b' cannot be a folder name"),
        (LEAST + '[hub]\nname = "queries/b"\n', r"\[hub\]: name='queries/b' cannot be a folder name"),
        (LEAST + "[queries]\nq = 5\n", r"\[queries\]: queries are texts by id, got 'q': 5"),
        (LEAST + '[join]\non = "true"\n', r"hub.toml has a table \[join\]: it is a job of `watersmeet run`"),
        (LEAST + '[querys]\nq = ""\n', r"has no key 'querys'; did you mean 'queries'"),
        (
            LEAST.replace('path = "r"', 'path = "r"\nnative = true'),
            r"\[inputs.R\]: a hub has no native inputs",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(text, message):
    with pytest.raises(ConfigError, match=message):
        parse(text)


def test_the_help_names_every_key_of_a_hubs_job_file():
    text = inspect.cleandoc(run.__doc__ or "").partition("All keys of a job file:\n")[2]
    text = textwrap.dedent(text.partition("The SQL in where")[0])
    assert set(parts.tomllib.loads(text)) == set(hub_file._TABLES)
    keys = {
        "hub": hub_file._HUB_KEYS,
        "deliver": hub_file._DELIVER_KEYS,
        "job": hub_file._JOB_KEYS,
        "inputs": [key for key in parts._INPUT_KEYS if key != "native"],
    }
    for table, known in keys.items():
        sections = re.findall(rf"^\[{table}\b.*?(?=^\[(?!{table})|\Z)", text, re.MULTILINE | re.DOTALL)
        assert set(known) <= set(re.findall(r"\w+", "".join(sections))), table
