"""Random lives of a hub on the local driver: queries come and go, the process crashes, batches are replayed."""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.life import LIVES, TINY, Crash, crash_at
from tests.property.hub_helpers import (
    STORED,
    STREAMS,
    Asked,
    all_rows,
    ask_duckdb,
    queries,
    read_answers,
    record_batch,
    rows_from,
)
from watersmeet.engine import operator as engine
from watersmeet.engine.spec import Settings
from watersmeet.errors import StateMismatch, UsageError
from watersmeet.hubs.catalogue import ADD, REMOVE
from watersmeet.hubs.stored import COMMANDS
from watersmeet.local.hub import COMMAND_SCHEMA, LocalHub
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.status import read_status
from watersmeet.model.facts import BatchId, Manifest
from watersmeet.schemes.hub import HubPlan

R = pa.schema({"k": pa.int64(), "x": pa.int64()})
S = pa.schema({"k": pa.int64()})
TEXT = "SELECT R.x FROM R, S WHERE R.k = S.k"
# Places that every batch comes by, and some that only merges and clean-ups do.
PLACES = [
    *("run-before-write", "run-half-written", "run-unnamed", "run-written", "start-written"),
    *("manifest-before-write", "manifest-written", "merge-part", "merge-written", "receipt-linked"),
    *("clean-manifest-removed", "clean-half-done", "clean-run-removed", "result-emitted"),
]


def at(batch: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(2 * batch, datetime.timezone.utc)


def commands(*rows: tuple[str, str, str | None]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 3
    texts = [pa.array(column, pa.string()) for column in columns]
    return pa.table([*texts, pa.nulls(len(rows), pa.int64())], schema=COMMAND_SCHEMA)


def restarted(hub: LocalHub, **changes) -> LocalHub:
    """The hub after a restart of its query, in another process."""
    engine._KEPT.clear()
    return replace(hub, run=f"{hub.run}x", **changes)


def newest(hub: LocalHub) -> Manifest:
    files = engine._kept(hub.operator.spec, BatchId(hub.query, hub.run, 0), hub.clock).files
    return read_manifest(files, list_manifests(files)[-1])


@settings(LIVES, max_examples=LIVES.max_examples // 2)
@given(
    st.lists(queries(3), min_size=2, max_size=4),
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), max_size=2), st.none() | st.sampled_from(PLACES), st.integers(0, 3)
        ),
        min_size=3,
        max_size=6,
    ),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(0, 1 << 32).map(Random),
)
def test_answers_are_those_of_duckdb_whatever_comes_goes_and_crashes(
    texts, script, tasks, partitions, random
):
    stored: dict[str, list[pa.RecordBatch]] = {name: [] for name in STREAMS}
    asked: list[Asked] = []
    live = dict.fromkeys(range(len(texts) - 1), -1)
    given_ = {f"q{query}": texts[query] for query in live}
    found: Counter = Counter()
    ids = 0
    with tempfile.TemporaryDirectory() as state:
        chosen = Settings(state=state, tasks=tasks, limits=TINY, retain_batches=2, grace_s=-1.0)
        hub = LocalHub(
            dict.fromkeys(STREAMS, STORED),
            state,
            given_,
            tasks=tasks,
            partitions=partitions,
            settings=chosen,
        )
        for number, (toggled, place, passed) in enumerate(script):
            rows = {}
            for name, part in rows_from(random).items():
                rows[name] = record_batch(part, ids, [2_000_000 * number] * len(part))
                ids += len(part)
                stored[name].append(rows[name])
            told = []
            for query in dict.fromkeys(which % len(texts) for which in toggled):
                told.append((REMOVE if query in live else ADD, f"q{query}", texts[query]))
                if query in live:
                    asked.append(Asked(f"q{query}", texts[query], live.pop(query), number))
                else:
                    live[query] = number
            try:
                with crash_at(place, passed):
                    answers = hub.batch(commands(*told), at(number), **rows)
            except Crash:
                hub = restarted(hub)
                answers = hub.batch(commands(*told), at(number), **rows)
            found += read_answers(answers.to_batches())
            assert Counter(
                row["event"] for row in answers.to_pylist() if row["event"] != "answer"
            ) == Counter({"added": len(given_) if number == 0 else 0}) + Counter(
                "added" if op == ADD else "removed" for op, *_ in told
            )
    asked += [Asked(f"q{query}", texts[query], start, len(script)) for query, start in live.items()]
    tables = {name: all_rows(parts) for name, parts in stored.items()}
    assert found == ask_duckdb([one for one in asked if one.end > one.start], tables)


def test_a_query_counts_rows_of_batches_after_its_command_and_none_after_its_removal(tmp_path):
    hub = LocalHub({"R": R, "S": S}, str(tmp_path))
    r, s = pa.table({"k": [1], "x": [7]}), pa.table({"k": [1]})
    assert hub.batch(commands((ADD, "q", TEXT)), R=r).column("event").to_pylist() == ["added"]
    assert hub.batch(S=s).num_rows == 0
    assert hub.batch(R=r).column("answer").to_pylist() == ['{"x":7}']
    last = hub.batch(commands((REMOVE, "q", None)), S=s)
    assert sorted(last.column("event").to_pylist()) == ["answer", "removed"]
    assert hub.batch(R=r, S=s).num_rows == 0


def test_commands_take_effect_in_the_order_of_their_times_across_partitions(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path))
    texts = {3: "SELECT R.k FROM R", 2: None, 1: TEXT, None: "SELECT R.x FROM R"}
    batch = BatchId(hub.query, hub.run, 0)
    told = []
    for number, (time, sql) in enumerate(texts.items()):
        row = pa.RecordBatch.from_pylist(
            [{"op": ADD if sql else REMOVE, "id": "q", "sql": sql, "at": time}], COMMAND_SCHEMA
        )
        told.append(hub.operator.ingest(batch, COMMANDS, number, [row]))
    found = [
        row for task in range(hub.tasks) for rows in hub.join(batch, task, told) for row in rows.to_pylist()
    ]
    # Without a time first; the text of 1 is another one than that of the live query.
    assert [row["event"] for row in found] == ["added", "refused", "removed", "added"]
    hub.number = 1
    assert hub.batch(R=pa.table({"k": [1], "x": [7]})).column("answer").to_pylist() == ['{"k":1}']


def test_what_no_live_query_needs_leaves_the_state(tmp_path):
    hub = LocalHub({"R": R, "S": S}, str(tmp_path))
    r, s = pa.table({"k": [1], "x": [7]}), pa.table({"k": [1]})
    hub.batch(R=r, S=s)
    assert {run.input for run in newest(hub).live} == {"~catalogue"}
    hub.batch(commands((ADD, "q", TEXT), (ADD, "alone", "SELECT R.x FROM R")), R=r)
    hub.batch(R=r, S=s)
    assert {run.input for run in newest(hub).live} == {"~catalogue", "R", "R.0", "S", "S.0"}
    hub.batch(commands((REMOVE, "q", None)), R=r)
    hub.batch(R=r, S=s)
    assert {run.input for run in newest(hub).live} == {"~catalogue", "R"}


def test_given_queries_are_in_force_from_the_first_batch_and_act_as_commands_at_a_restart(tmp_path):
    first = {"q": TEXT, "r": "SELECT R.x FROM R"}
    hub = LocalHub({"R": R, "S": S}, str(tmp_path), first)
    r = pa.table({"k": [1], "x": [7]})
    assert Counter(hub.batch(R=r).column("event").to_pylist()) == {"added": 2, "answer": 1}
    hub.batch(commands((REMOVE, "r", None)))
    hub = restarted(hub, queries={**first, "s": "SELECT S.k FROM S", "q": "SELECT R.k FROM R"})
    rows = hub.batch(S=pa.table({"k": [1]})).to_pylist()
    assert {(row["query"], row["event"]) for row in rows} == {
        ("s", "added"),
        ("q", "refused"),
        ("q", "answer"),
    }
    assert [row["answer"] for row in hub.batch(S=pa.table({"k": [2]})).to_pylist()] == ['{"k":2}']
    # The removed query stays removed, and a command may bring it back.
    assert hub.batch(commands((ADD, "r", "SELECT R.x FROM R"))).column("event").to_pylist() == ["added"]


def test_a_replay_has_the_catalogue_of_the_attempt_whatever_is_given_then(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path), {"q": "SELECT R.x FROM R"}, tasks=1)
    r = pa.table({"k": [1], "x": [7]})
    with pytest.raises(Crash), crash_at("result-emitted"):
        hub.batch(at=at(0), R=r)
    hub = restarted(hub, queries={"other": "SELECT R.k FROM R"})
    rows = hub.batch(at=at(0), R=r).to_pylist()
    assert {(row["query"], row["event"]) for row in rows} == {("q", "added"), ("q", "answer")}
    rows = hub.batch(at=at(1), R=r).to_pylist()
    assert {(row["query"], row["event"]) for row in rows} == {("other", "added"), ("q", "answer")}


def test_a_catalogue_without_commands_is_written_once(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path), {"q": "SELECT R.x FROM R"})
    paths = set()
    for _ in range(4):
        hub.batch(R=pa.table({"k": [1], "x": [7]}))
        plan = newest(hub).plan.scheme
        assert isinstance(plan, HubPlan)
        paths |= {plan.in_force, plan.after}
    assert len(paths) == 1


def test_a_status_of_a_state_with_a_hub_counts_its_rows(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path), {"q": "SELECT R.x FROM R"})
    hub.batch(R=pa.table({"k": [1, 2], "x": [7, 8]}))
    (found,) = read_status(tmp_path).joins
    assert (found.name, found.strategy, found.damage) == ("hub", "hub", ())
    assert found.shown is not None and "many queries" in found.shown.summary
    assert {one.name: one.rows for one in found.inputs}["R"] == 2


def test_times_are_those_of_the_column_and_rows_without_one_are_dropped(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    text = "SELECT a.k FROM R AS a, R AS b WHERE a.k = b.k WINDOW 5 SECONDS"
    hub = LocalHub({"R": schema}, str(tmp_path), {"q": text}, time={"R": "t"})
    rows = pa.table([[1, 1, 1, 1], [at(0), at(2), at(5), None]], schema=schema)
    found = [row for row in hub.batch(R=rows).to_pylist() if row["event"] == "answer"]
    spans = Counter((row["newest"] - row["oldest"]).total_seconds() for row in found)
    # Each row with itself, and the first two with each other, in both orders.
    assert spans == {0.0: 3, 4.0: 2}
    assert newest(hub).totals["R"].null_rows == 1
    with pytest.raises(UsageError, match=r"R\.k is bigint: a hub needs a timestamp"):
        LocalHub({"R": schema}, str(tmp_path), time={"R": "k"})


def test_a_stream_with_other_columns_is_refused(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path), {"q": "SELECT R.x FROM R"})
    hub.batch(R=pa.table({"k": [1], "x": [7]}))
    other = restarted(hub, schemas={"R": R.append(pa.field("y", pa.int64()))})
    with pytest.raises(StateMismatch, match="stream R has not the columns"):
        other.batch(R=pa.table({"k": [1], "x": [7], "y": [0]}))
