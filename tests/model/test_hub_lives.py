"""Random lives of a hub on the local driver: queries come and go, the process crashes, batches are replayed."""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.life import LIVES, TINY, Crash, crash_at
from tests.property.hub_helpers import (
    AT,
    COUNTED,
    SLIDING,
    STORED,
    STREAMS,
    TUMBLING,
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
from watersmeet.errors import PredicateError, StateMismatch, UsageError
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
    st.lists(queries(3, distinct=[False, True]), min_size=2, max_size=4),
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


@settings(LIVES, max_examples=LIVES.max_examples // 2)
@given(
    st.lists(queries(3, [SLIDING, TUMBLING, *COUNTED], [False, True]), min_size=1, max_size=3),
    st.sampled_from(["", SLIDING, TUMBLING, *COUNTED]).flatmap(lambda window: queries(2, [window])),
    st.lists(
        st.tuples(st.integers(0, 7), st.none() | st.sampled_from(PLACES), st.integers(0, 3)),
        min_size=4,
        max_size=9,
    ),
    st.integers(0, 3),
    st.integers(0, 5),
    st.sampled_from([None, None, "0 seconds", "3 seconds", "all"]),
    st.integers(0, 1 << 32).map(Random),
)
def test_answers_within_windows_are_those_of_duckdb_however_late_rows_come_and_whatever_left(
    texts, last, script, lateness, disorder, retain, random
):
    """Queries with windows live from the start; one more, perhaps without a window, comes and goes.

    Rows that are retained for queries over the past change no answer.
    """
    timed = STORED.append(pa.field("t", pa.timestamp("us", "UTC")))
    stored: dict[str, list[pa.RecordBatch]] = {name: [] for name in STREAMS}
    given_ = {f"q{number}": text for number, text in enumerate(texts)}
    asked = [Asked(id_, text, -1, len(script)) for id_, text in given_.items()]
    since: int | None = None
    found: Counter = Counter()
    ids, evicted, late = 0, 0, 0
    with tempfile.TemporaryDirectory() as state:
        chosen = Settings(state=state, tasks=2, limits=TINY, retain_batches=2, grace_s=-1.0)
        hub = LocalHub(
            dict.fromkeys(STREAMS, timed),
            state,
            given_,
            time=dict.fromkeys(STREAMS, "t"),
            lateness=f"{lateness} seconds",
            retain=retain,
            settings=chosen,
        )
        for number, (toggled, place, passed) in enumerate(script):
            rows = {}
            for name, part in rows_from(random).items():
                if random.random() < 0.2:
                    continue
                times = [
                    1_000_000 * max(0, 2 * number + random.randint(-disorder, 1)) + random.choice([0, 0, 1])
                    for _ in part
                ]
                plain = record_batch(part, ids, times)
                rows[name] = plain.append_column("t", plain.column(AT).cast(pa.timestamp("us", "UTC")))
                ids += len(part)
            for name in STREAMS:
                stored[name].append(rows.get(name, pa.RecordBatch.from_pylist([], timed)))
            told = []
            if toggled < 3 and since is None:
                told, since = [(ADD, "last", last)], number
            elif toggled < 3:
                told = [(REMOVE, "last", None)]
                asked.append(Asked("last", last, since, number))
                since = None
            try:
                with crash_at(place, passed):
                    answers = hub.batch(commands(*told), at(number), **rows)
            except Crash:
                hub = restarted(hub)
                answers = hub.batch(commands(*told), at(number), **rows)
            found += read_answers(answers.to_batches())
        totals = newest(hub).totals
        evicted = sum(totals[name].evicted_rows for name in STREAMS)
        late = sum(totals[name].late_rows for name in STREAMS)
    if since is not None:
        asked.append(Asked("last", last, since, len(script)))
    event(f"evicted: {evicted > 0}, late: {late > 0}, answers: {found.total() > 0}")
    tables = {name: all_rows(parts, lateness * 1_000_000) for name, parts in stored.items()}
    assert found == ask_duckdb([one for one in asked if one.end > one.start], tables)


@pytest.mark.parametrize("time", [{}, {"R": "t", "S": "t"}], ids=["of the batch", "of a column"])
@pytest.mark.parametrize("window", ["1 SECOND", "TUMBLING 1 SECOND"])
def test_state_stays_bounded_under_windows(tmp_path, time, window):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    text = f"SELECT R.k FROM R, S WHERE R.k = S.k WINDOW {window}"
    hub = LocalHub({"R": schema, "S": schema}, str(tmp_path), {"q": text}, time=time)
    for number in range(30):
        rows = pa.table([[1] * 10, [at(30 * number)] * 10], schema=schema)
        found = hub.batch(at=at(30 * number), R=rows, S=rows)
        assert Counter(found.column("event").to_pylist())["answer"] == 100
        live = Counter()
        for run in newest(hub).live:
            live[run.input] += run.rows
        # The rows of this batch and of the one before: they are expired once this batch is known.
        assert all(live[name] <= 20 for name in ("R", "S", "R.0", "S.0"))
    assert newest(hub).totals["R"].evicted_rows == 280


def test_a_stream_that_is_idle_holds_back_only_the_queries_that_read_it(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    texts = {
        "rs": "SELECT R.k FROM R, S WHERE R.k = S.k WINDOW 1 SECOND",
        "sp": "SELECT S.k FROM S, P WHERE S.k = P.k WINDOW 1 SECOND",
        "r": "SELECT R.k FROM R",
    }
    streams = dict.fromkeys(["R", "S", "P"], schema)
    hub = LocalHub(streams, str(tmp_path), texts, time=dict.fromkeys(streams, "t"))
    for number in range(10):
        rows = pa.table([[1], [at(30 * number)]], schema=schema)
        hub.batch(R=rows, S=rows)
    stored = Counter()
    for run in newest(hub).live:
        stored[run.input] += run.rows
    # S waits for P, of which no row has come; R waits for S only.
    assert (stored["R"], stored["S"]) == (2, 10)


def test_late_rows_count_for_queries_without_a_window_only(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    plain = "SELECT a.k, b.t FROM R AS a, R AS b WHERE a.k = b.k"
    hub = LocalHub({"R": schema}, str(tmp_path), {"windowed": f"{plain} WINDOW 1 HOUR"}, time={"R": "t"})

    def batch(*times, **more):
        rows = pa.table([[1] * len(times), [at(time) for time in times]], schema=schema)
        found = hub.batch(R=rows, **more).to_pylist()
        return Counter(row["query"] for row in found if row["event"] == "answer")

    assert batch(5, 4) == {"windowed": 4}
    assert batch(4, 5) == {"windowed": 4 + 4 + 1 - 4}
    assert newest(hub).totals["R"].late_rows == 1
    batch(5, commands=commands((ADD, "plain", plain)))
    # A late row is stored for the query that counts it, and another query does not see it.
    assert batch(1) == {"plain": 1}
    assert newest(hub).totals["R"].late_rows == 1
    assert batch(6) == {"plain": 3, "windowed": 2 * 4 + 1}


def test_which_rows_are_late_does_not_depend_on_who_read_the_stream_before(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    hub = LocalHub({"R": schema}, str(tmp_path), time={"R": "t"})
    hub.batch(
        commands((ADD, "q", "SELECT R.k FROM R WINDOW 1 SECOND")), R=pa.table([[1], [at(9)]], schema=schema)
    )
    found = hub.batch(R=pa.table([[2, 3], [at(8), at(9)]], schema=schema)).column("answer").to_pylist()
    assert found == ['{"k":3}']


def test_no_row_is_late_and_time_stands_still_when_the_clock_goes_back(tmp_path):
    text = "SELECT a.k FROM R AS a, R AS b WHERE a.k = b.k WINDOW 1 SECOND"
    hub = LocalHub({"R": R}, str(tmp_path), {"q": text})
    row = pa.table({"k": [1], "x": [7]})
    # `at` counts in steps of two seconds. Rows of one time meet, and those of 1,001 steps do not meet the older ones.
    for clock, answers, shown in (
        (1000, 1, 1000),
        (10, 3, 1000),
        (10, 5, 1000),
        (1001, 1, 1001),
        (9, 3, 1001),
    ):
        rows = [one for one in hub.batch(at=at(clock), R=row).to_pylist() if one["event"] == "answer"]
        assert (len(rows), {one["newest"] for one in rows}) == (answers, {at(shown)})
    assert newest(hub).totals["R"].late_rows == 0


def test_a_lateness_needs_a_time_column(tmp_path):
    with pytest.raises(UsageError, match="lateness is of streams with a time column"):
        LocalHub({"R": R}, str(tmp_path), lateness="1 minute")
    with pytest.raises(UsageError, match="lateness='soon'"):
        LocalHub({"R": R}, str(tmp_path), time={"R": "k"}, lateness="soon")


DISTINCT = "SELECT DISTINCT R.x FROM R, S WHERE R.k = S.k"


def answers_in(table: pa.Table) -> list[str]:
    return sorted(row["answer"] for row in table.to_pylist() if row["event"] == "answer")


@pytest.mark.parametrize("tasks", [1, 3])
def test_an_answer_comes_out_once_though_rows_differ_in_a_joined_column(tmp_path, tasks):
    hub = LocalHub({"R": R, "S": S}, str(tmp_path), {"q": DISTINCT, "p": TEXT}, tasks=tasks, partitions=3)
    r, s = pa.table({"k": [1, 2, 3], "x": [7, 7, 7]}), pa.table({"k": [1, 2, 3]})
    assert answers_in(hub.batch(R=r, S=s)) == ['{"x":7}'] * 4
    assert answers_in(hub.batch(R=r, S=s)) == ['{"x":7}'] * 9
    # Removed and added anew, the query counts later rows only, and begins anew.
    hub.batch(commands((REMOVE, "q", None), (REMOVE, "p", None), (ADD, "q", DISTINCT)), R=r, S=s)
    assert answers_in(hub.batch(S=s)) == []
    assert answers_in(hub.batch(R=r)) == ['{"x":7}']


@pytest.mark.parametrize("done", [(), (0,), (1,)], ids=["no task", "the first task", "the last task"])
def test_what_came_out_is_known_though_tasks_of_the_batch_were_never_run_to_their_end(tmp_path, done):
    texts = {"q": DISTINCT, "other": DISTINCT.replace("R.x", "R.k"), "third": "SELECT DISTINCT S.k FROM S"}
    hub = LocalHub({"R": R, "S": S}, str(tmp_path), texts)
    r, s = pa.table({"k": [1], "x": [7]}), pa.table({"k": [1]})
    batch = BatchId(hub.query, hub.run, 0)
    told = hub.ingest(batch, {"R": r, "S": s})
    for task in range(2):
        manifest = hub.operator.agree_and_merge(batch, task, told)
        if task in done:
            _ = [*hub.operator.results(manifest, task)]
    hub.number = 1
    hub = restarted(hub) if not done else hub
    assert answers_in(hub.batch(R=r, S=s)) == []
    assert answers_in(hub.batch(S=pa.table({"k": [2]}))) == ['{"k":2}']


def test_what_came_out_is_forgotten_when_no_later_answer_can_be_equal_to_it(tmp_path):
    hub = LocalHub({"R": R, "S": S}, str(tmp_path), {"q": f"{DISTINCT} WINDOW 10 SECONDS"})
    r, s = pa.table({"k": [1], "x": [7]}), pa.table({"k": [1]})
    found = []
    for number in range(12):
        found.append(len(answers_in(hub.batch(at=at(2 * number), R=r, S=s))))
        # Four seconds a batch: an answer is suppressed for ten seconds.
        assert sum(run.rows for run in newest(hub).live if run.input == "~answered") <= 2
    assert found == [1, 0, 0] * 4
    hub.batch(commands((REMOVE, "q", None)))
    hub.batch()
    assert {run.input for run in newest(hub).live} == {"~catalogue"}


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
    hub.batch(at=at(3), R=pa.table({"k": [1, 2], "x": [7, 8]}))
    (found,) = read_status(tmp_path).joins
    assert (found.name, found.strategy, found.damage) == ("hub", "hub", ())
    assert found.shown is not None and "many queries" in found.shown.summary
    assert found.shown.rows == (("R", "1970-01-01 00:00:06+00:00"),)
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


def test_reserved_and_ambiguous_names_are_refused(tmp_path):
    with pytest.raises(PredicateError, match="__wm_now is reserved"):
        LocalHub({"R": R.append(pa.field("__wm_now", pa.int64()))}, str(tmp_path))
    with pytest.raises(UsageError, match="streams R and r differ only in case"):
        LocalHub({"R": R, "r": R}, str(tmp_path))


def test_another_time_of_a_stream_is_refused_as_that(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    hub = LocalHub({"R": schema}, str(tmp_path), {"q": "SELECT R.k FROM R"})
    row = pa.table([[1], [at(1)]], schema=schema)
    hub.batch(R=row)
    with pytest.raises(StateMismatch, match="the time of stream R was that of its batches, now it is t"):
        restarted(hub, time={"R": "t"}).batch(R=row)
