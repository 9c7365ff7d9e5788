"""Where a warm batch spends its time: what is read from Spark's log and from the workers, and what is concluded."""

from __future__ import annotations

import gc
import importlib
import json
from dataclasses import replace

import pytest

from bench import timeline_daemon
from bench.timeline_facts import Span, python_of, read_batches, shares_of, typical
from bench.timeline_page import Measured, demands, draw, section

BEGAN_S = 1_700_000_000.0
PROGRESS = {
    "runId": "run",
    "batchId": 4,
    "timestamp": "2023-11-14T22:13:20.000Z",
    "durationMs": {
        "latestOffset": 10,
        "walCommit": 5,
        "getBatch": 1,
        "queryPlanning": 4,
        "addBatch": 70,
        "commitOffsets": 6,
        "triggerExecution": 98,
    },
}
STEPS_MS = {"find files": 10, "log of offsets": 5, "plan": 5, "log of commits": 6}


def job(stages: list[int], batch: str | None, run: str = "run") -> str:
    properties = {"streaming.sql.batchId": batch, "spark.jobGroup.id": run}
    return json.dumps({"Event": "SparkListenerJobStart", "Stage IDs": stages, "Properties": properties})


def task(number: int, stage: int, begin_ms: int, end_ms: int) -> str:
    at = int(1000 * BEGAN_S)
    info = {"Task ID": number, "Launch Time": at + begin_ms, "Finish Time": at + end_ms}
    metrics = {"Executor CPU Time": 3_000_000, "Shuffle Write Metrics": {"Shuffle Write Time": 2_000_000}}
    end = {"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Info": info, "Task Metrics": metrics}
    return json.dumps(end)


def note(number: int, *spans: tuple[str, int, int, int]) -> str:
    at = [(label, BEGAN_S + begin / 1e3, BEGAN_S + end / 1e3, cpu / 1e3) for label, begin, end, cpu in spans]
    return json.dumps({"task": number, "spans": at})


EVENTS = [
    job([6, 7], "4"),
    task(20, 6, 30, 50),
    task(21, 6, 32, 55),
    task(22, 7, 60, 80),
    # Of another query, and of no query.
    job([8], "4", run="another"),
    task(23, 8, 0, 90),
    task(24, 9, 0, 90),
]
NOTES = [note(22, ("python", 62, 79, 9), ("join", 65, 75, 6), ("garbage", 77, 78, 1))]


def test_the_parts_of_a_batch_add_up_to_it():
    (batch,) = read_batches([PROGRESS], EVENTS, NOTES)
    assert [(one.stage, one.begin_ms, one.end_ms) for one in batch.tasks] == [
        (0, 30, 50),
        (0, 32, 55),
        (1, 60, 80),
    ]
    shares = shares_of([batch])
    assert {label: shares[label] for label in STEPS_MS} == STEPS_MS
    assert (shares["stage 1"], shares["stage 2"]) == (25, 20)
    assert shares["driver, around the tasks"] == 70 - 25 - 20
    assert sum(shares.values()) == batch.ms == 98


def test_a_moment_of_a_worker_counts_for_the_innermost_call():
    (batch,) = read_batches([PROGRESS], EVENTS, NOTES)
    found = {label: (round(ms, 3), round(cpu, 3)) for label, (ms, cpu) in python_of([batch]).items()}
    assert found == {"python": (6, 2), "join": (10, 6), "garbage": (1, 1)}
    # The worker has told the JVM that it is done before it collects garbage.
    begin, end = batch.tasks[-1].worker_ms
    assert (round(begin, 3), round(end, 3)) == (62, 77)


@pytest.mark.parametrize(
    "floor, ours, files, met",
    [
        ([100, 200, 100], [110, 220, 110], [80, 160, 79], [True, True]),
        ([100, 100, 100], [111, 112, 90], [81, 82, 70], [False, False]),
    ],
    ids=["at the limit, with a slow round", "above it"],
)
def test_batches_are_judged_beside_the_floor_of_their_round(floor, ours, files, met):
    rounds = {"floor": floor, "watersmeet": ours, "watersmeet-files": files}
    found = demands([Measured("small", who, ms) for who, ms in rounds.items()])
    assert [one.met for one in found] == met
    # With many rows the operator does more than the floor, and nothing is demanded of it.
    large = demands([Measured("uniform-2m", who, ms) for who, ms in rounds.items()])
    assert [one.met for one in large] == met[1:]


def test_the_page_has_a_column_for_each_competitor_and_a_picture(tmp_path):
    (batch,) = read_batches([PROGRESS], EVENTS, NOTES)
    slow = replace(batch, ms=120.0)
    measured = [Measured("small", who, [98.0], [slow, batch, batch]) for who in ("floor", "watersmeet")]
    assert typical(measured[0].batches) is batch
    about = {"spark": "4", "java": "17", "python": "3", "cores": "2 of 2"}
    text = section(measured, about, "today", "img/timeline.svg")
    assert "|  | floor, 1,000 | watersmeet, 1,000 |" in text and "(img/timeline.svg)" in text
    draw(measured, tmp_path / "timeline.svg")
    drawn = (tmp_path / "timeline.svg").read_text()
    assert "watersmeet, 1,000 rows: 98 ms" in drawn and "joins and merges" in drawn


def test_all_calls_that_are_noted_are_there():
    """A renamed function would be missing in the picture."""
    found = (*timeline_daemon.CALLS, *timeline_daemon.GENERATORS, *timeline_daemon.SOURCES)
    for _, module, name in found:
        owner = importlib.import_module(module)
        for part in name.split("."):
            owner = getattr(owner, part)
        assert callable(owner)


def test_a_worker_leaves_a_line_for_each_task(tmp_path, monkeypatch):
    monkeypatch.setenv(timeline_daemon.FOLDER, str(tmp_path))
    notes = timeline_daemon.NOTES
    monkeypatch.setattr(gc, "collect", timeline_daemon.noted("garbage", gc.collect))
    elements = timeline_daemon.noted_elements("receive", iter([1, 2]))
    for number in (5, 6):
        notes.begin(number)
        list(elements)
        gc.collect()
        notes.end()
    notes.end()
    (file,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["task"] for line in lines] == [5, 6]
    assert [span[0] for span in lines[0]["spans"]] == ["receive"] * 3 + ["garbage", "python"]
    assert all(begin <= end for line in lines for _, begin, end, _ in line["spans"])


def test_spans_that_begin_together_are_nested_by_their_ends():
    from bench.timeline_facts import innermost

    found = innermost([Span("inner", 0, 4), Span("outer", 0, 10)])
    assert [(one.label, one.ms) for one in found] == [("inner", 4), ("outer", 6)]
