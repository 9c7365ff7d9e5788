"""What `watersmeet run` reads and says: checkpoints, progress reports, Spark's error texts, lines of figures."""

from __future__ import annotations

import doctest
import inspect
import json
import signal
from types import SimpleNamespace

import pytest

from watersmeet.cli import figures, hub
from watersmeet.cli import help as help_module
from watersmeet.cli.demo.command import demo
from watersmeet.cli.meters import Meters, plain_line
from watersmeet.cli.run import run
from watersmeet.cli.settle import settle
from watersmeet.cli.signals import BrokenOff, StopRequest
from watersmeet.cli.status import status
from watersmeet.errors import PredicateError, StateError
from watersmeet.jobs import progress, secrets
from watersmeet.jobs.failure import QueryError, own_message, plain_message
from watersmeet.jobs.progress import Batches, read_new, read_progress, together
from watersmeet.log.checkpoint import Checkpoint, read_checkpoint
from watersmeet.log.status import JoinStatus
from watersmeet.model import figures as model_figures


@pytest.mark.parametrize(
    "module", [figures, help_module, model_figures, progress, secrets], ids=lambda m: m.__name__
)
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0


COMMANDS = (demo, run, settle, status, hub.add, hub.remove, hub.list_queries, hub.show, hub.run)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_what_help_indents_fits_a_terminal_of_80_characters(command):
    """It is shown as it is written: what is wider is broken anywhere."""
    lines = inspect.cleandoc(command.__doc__).splitlines()
    assert [line for line in lines if line.startswith(" ") and len(line) > 78] == []


@pytest.mark.parametrize(
    "offsets, commits, following",
    [
        ([], [], 0),
        ([0], [], 0),
        ([0], [0], 1),
        ([0, 1, 2], [0, 1], 2),
        ([9, 10], [9, 10], 11),
    ],
    ids=["nothing planned", "first one planned", "first one done", "third one planned", "numbers, not names"],
)
def test_the_next_batch_of_a_checkpoint(tmp_path, offsets, commits, following):
    (tmp_path / "metadata").write_text('{"id":"abc"}')
    for folder, numbers in (("offsets", offsets), ("commits", commits)):
        (tmp_path / folder).mkdir()
        for number in numbers:
            (tmp_path / folder / str(number)).write_text('v1\n{"batchWatermarkMs":0}\n{"a":1}\n-\n')
            (tmp_path / folder / f".{number}.crc").touch()
    assert read_checkpoint(str(tmp_path)) == Checkpoint("abc", following, 2 if offsets else None)


def test_no_checkpoint_and_a_damaged_one(tmp_path):
    assert read_checkpoint(str(tmp_path / "absent")) == Checkpoint(None, 0)
    assert read_checkpoint(str(tmp_path / "absent")).fresh
    (tmp_path / "metadata").write_text("{")
    with pytest.raises(StateError, match="damaged metadata file"):
        read_checkpoint(str(tmp_path))


def report(batch: int, rows_in: int, rows_out: int | None, ms: int, *, idle: bool = False) -> dict:
    return {
        "batchId": batch,
        "numInputRows": rows_in,
        "durationMs": {"triggerExecution": ms} | ({} if idle else {"addBatch": ms - 1}),
        "sink": {"numOutputRows": -1},
        "observedMetrics": {} if rows_out is None else {"watersmeet": {"rows_out": rows_out}},
    }


def test_progress_reports():
    assert read_progress(report(3, 100, 7, 500)) == Batches(3, 3, 100, 7, 500)
    assert read_progress(report(3, 100, None, 500)) == Batches(3, 3, 100, 0, 500)
    assert read_progress(report(4, 0, None, 5, idle=True)) is None
    counted_by_sink = report(3, 100, None, 500) | {"sink": {"numOutputRows": 9}}
    assert read_progress(counted_by_sink) == Batches(3, 3, 100, 9, 500)


def test_only_new_batches_are_read():
    reports = [report(2, 1, 1, 10), report(3, 1, 1, 10), report(3, 0, 0, 10, idle=True), report(4, 1, 1, 10)]
    assert [b.first for b in read_new(reports, after=2)] == [3, 4]


def test_meters_sum_and_remember():
    meters = Meters()
    meters.add([], None)
    meters.add([Batches(0, 0, 10, 1, 100), Batches(1, 1, 20, 2, 300)], None)
    meters.add([Batches(2, 2, 5, 3, 50)], None)
    assert (meters.rows_in, meters.rows_out, meters.batches) == (35, 6, 3)
    assert meters.latest == Batches(2, 2, 5, 3, 50)
    assert together(meters.recent).ms == 450


STATUS = JoinStatus(
    name="j",
    query="q",
    batch=3,
    starts=1,
    predicate=None,
    inputs=(),
    pending_rows=12_000,
    pending_parts=2,
    written_ms=0,
    age_s=0.0,
    live_bytes=1_500_000,
    disk_bytes=0,
    damage=(),
)


@pytest.mark.parametrize(
    "batches, line",
    [
        (
            [Batches(3, 3, 10_000, 500, 2_000)],
            (
                "batch 3: 10,000 rows in (5,000/s), 500 out (250/s), 2.00 s a batch; "
                "state 0 rows, 1.5 MB; merging debt 12,000 rows"
            ),
        ),
        (
            [Batches(3, 3, 10, 0, 100), Batches(4, 4, 30, 2, 300)],
            (
                "batches 3-4: 40 rows in (100/s), 2 out (5/s), 0.20 s a batch; "
                "state 0 rows, 1.5 MB; merging debt 12,000 rows"
            ),
        ),
    ],
    ids=["one batch", "two batches within a second"],
)
def test_plain_lines(batches, line):
    assert plain_line(batches, STATUS) == line


def test_a_state_that_cannot_be_seen():
    assert plain_line([Batches(0, 0, 1, 1, 1)], None).endswith("state not visible from here")


SPARK_TEXT = """\
[STREAM_FAILED] Query [id = efd2, runId = a0f8] terminated with exception: [PYTHON_EXCEPTION] An exception was \
thrown from the Python worker: Traceback (most recent call last):
  File "/x/manifests.py", line 18, in read
    raise
{raised}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: foo [id = efd22668, runId = a0f8dec2]
Current Committed Offsets: {{}}

Logical Plan:
~WriteToMicroBatchDataSourceV1 FileSink[file:/tmp/exp/out]
"""


@pytest.mark.parametrize(
    "raised, message",
    [
        ("watersmeet.errors.StateBehind: the checkpoint is at batch 3", "the checkpoint is at batch 3"),
        (
            "watersmeet.errors.PredicateError: no such column\n  a.x = b\n  ^\ndid you mean y?",
            "no such column\n  a.x = b\n  ^\ndid you mean y?",
        ),
        (
            (
                "watersmeet.errors.StateError: inner\n\nDuring handling of the above exception, another exception "
                "occurred:\n\nTraceback (most recent call last):\n  File x\nwatersmeet.errors.CorruptFile: outer"
            ),
            "outer",
        ),
        ("ValueError: bad literal", "ValueError: bad literal"),
        ("pyarrow.lib.ArrowInvalid: x\nOSError: disk full", "OSError: disk full"),
    ],
    ids=["ours", "ours with a caret", "ours from another of ours", "a user's function", "the last of two"],
)
def test_the_message_in_sparks_text(raised, message):
    assert plain_message(RuntimeError(SPARK_TEXT.format(raised=raised))) == message


def test_other_texts():
    assert own_message("nothing of ours") is None
    path = "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03"
    assert plain_message(RuntimeError(path)) == "Path does not exist: file:/x."
    jvm = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: boom\n\tat org.apache.X.y(Z.scala:1)"
    assert plain_message(RuntimeError(jvm)) == "boom"
    java = "An error occurred while calling o13.load.\n: org.x.NotFound: [NO_SOURCE] No such source.\n\tat org.X.y(Z.scala:1)"
    assert plain_message(RuntimeError(java)) == "No such source."
    assert plain_message(ValueError()) == "ValueError"
    ours = PredicateError("no equality", "a.x < b.y", hint="add one")
    assert plain_message(ours) == str(ours)


def test_the_log_is_named_if_there_is_one(tmp_path):
    from watersmeet.cli.job import with_log

    log = tmp_path / "spark.log"
    assert str(with_log(QueryError("boom"), log)) == "boom"
    log.touch()
    assert str(with_log(QueryError("boom"), log)) == f"boom\nSpark's log: {log}"


def test_the_first_signal_asks_and_the_second_breaks_off():
    before = signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        with pytest.raises(BrokenOff):
            signal.raise_signal(signal.SIGINT)
        stop.arm()
        signal.raise_signal(signal.SIGTERM)
        assert stop.event.is_set()
        with pytest.raises(BrokenOff):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_reports_are_json():
    """The runner hands over what Spark gives: dictionaries that went through JSON."""
    assert read_progress(json.loads(json.dumps(report(1, 2, 3, 4)))) == Batches(1, 1, 2, 3, 4)


@pytest.mark.parametrize("checkpoint", [None, Checkpoint(None, 0), Checkpoint("q", 5)])
def test_the_first_line_of_a_run_shows_no_credentials(checkpoint):
    from watersmeet.cli.job import _first_words

    uri = "s3://AKIA:hunter22@bucket"
    job = SimpleNamespace(name="j", state=f"{uri}/state", checkpoint=f"{uri}/cp")
    said = _first_words(SimpleNamespace(job=job, checkpoint=checkpoint))
    assert "s3://***@bucket/state" in said and "hunter22" not in said
