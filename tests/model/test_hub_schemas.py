"""Streams whose columns change at a restart: harmless where no live query uses the change, refused by name where one does."""

from __future__ import annotations

import datetime
import re
import tempfile
from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.life import LIVES, TINY
from tests.model.test_hub_lives import R, S, at, commands, restarted
from tests.property.hub_helpers import (
    STORED,
    STREAMS,
    Asked,
    all_rows,
    ask_duckdb,
    hub_schemas,
    queries,
    read_answers,
    record_batch,
    rows_from,
)
from watersmeet.engine.hub_status import hub_status, open_hub
from watersmeet.engine.spec import Settings
from watersmeet.errors import StateMismatch
from watersmeet.hubs.catalogue import ADD, REMOVE
from watersmeet.hubs.changes import used_columns
from watersmeet.hubs.templates import TemplateReader
from watersmeet.local.hub import LocalHub
from watersmeet.model.facts import BatchId

TEXT = "SELECT R.x FROM R, S WHERE R.k = S.k"
EVERY = "SELECT * FROM R"
Y = pa.field("y", pa.string())
# Another type for a column that no live query uses.
RETYPED = pa.date32()


def small(state) -> Settings:
    return Settings(state=str(state), tasks=2, limits=TINY, retain_batches=2, grace_s=-1.0)


def started(state, queries, schemas=None) -> LocalHub:
    return LocalHub(schemas or {"R": R, "S": S}, str(state), queries, settings=small(state))


def changed(hub: LocalHub, r: pa.Schema) -> LocalHub:
    return restarted(hub, schemas={"R": r, "S": S})


def rows(r: pa.Schema, **columns) -> pa.Table:
    number = len(next(iter(columns.values())))
    return pa.table({one.name: columns.get(one.name, [None] * number) for one in r}, schema=r)


def answers_in(found: pa.Table) -> list[str]:
    return sorted(row["answer"] for row in found.to_pylist() if row["event"] == "answer")


CHANGES = {
    "a column at the end": R.append(Y),
    "a column at the front": R.insert(0, Y),
    "other columns in another order": pa.schema([R.field("x"), Y, R.field("k")]),
}


@pytest.mark.parametrize("then", CHANGES.values(), ids=CHANGES)
def test_a_new_column_harms_no_query_and_later_ones_may_use_it(tmp_path, then):
    hub = started(tmp_path, {"q": TEXT, "all": EVERY})
    s = pa.table({"k": [1]})
    for _ in range(4):
        hub.batch(R=rows(R, k=[1, 2], x=[7, 8]))
    hub = changed(hub, then)
    # What is there is found by the index that it is in; `SELECT *` has the columns that it had.
    found = hub.batch(S=s, R=rows(then, k=[5], x=[9], y=["new"]))
    assert answers_in(found) == ['{"k":5,"x":9}', *['{"x":7}'] * 4]
    hub.batch(commands((ADD, "late", "SELECT R.y FROM R, S WHERE R.k = S.k AND R.y > ''")))
    assert answers_in(hub.batch(R=rows(then, k=[1], x=[3], y=["a"]))) == ['{"k":1,"x":3}', '{"x":3}']
    assert answers_in(hub.batch(S=s)) == ['{"x":3}', *['{"x":7}'] * 4, '{"y":"a"}']
    hub.batch(commands((ADD, "by y", "SELECT a.x FROM R AS a, R AS b WHERE a.y = b.y")))
    for _ in range(4):
        # They merge with the old ones.
        hub.batch(R=rows(then, k=[3], x=[1], y=["b"]))
    assert Counter(answers_in(hub.batch(R=rows(then, k=[3], x=[1], y=["b"]))))['{"x":1}'] == 9
    (stream, _) = hub_status(open_hub(str(tmp_path))).streams
    assert [one.column for one in stream.indexes] == [one for one in then.names if one in "ky"]


@pytest.mark.parametrize("then", [pa.schema([R.field("k")]), R.set(1, pa.field("x", RETYPED))])
def test_a_column_that_no_live_query_uses_may_go_or_get_another_type(tmp_path, then):
    hub = started(tmp_path, {"q": "SELECT S.k FROM R, S WHERE R.k = S.k", "gone": EVERY})
    for _ in range(3):
        hub.batch(R=rows(R, k=[1], x=[7]))
    hub.batch(commands((REMOVE, "gone", None)), R=rows(R, k=[1], x=[7]))
    hub = changed(hub, then)
    day = datetime.date(2026, 1, 31)
    for number in range(4):
        found = answers_in(hub.batch(R=rows(then, k=[1], x=[day]), S=pa.table({"k": [1]})))
        # Four rows of R from before; then one of each in every batch.
        assert found == ['{"k":1}'] * ((5 + number) * (number + 1) - (4 + number) * number)
    hub.batch(commands((ADD, "all", EVERY)))
    answer = '{"k":1,"x":"2026-01-31"}' if "x" in then.names else '{"k":1}'
    assert answers_in(hub.batch(R=rows(then, k=[1], x=[day]))).count(answer) == (5 if len(then) == 1 else 1)


USES = {
    "an output": "SELECT R.x FROM R",
    "an expression": "SELECT R.k + R.x AS n FROM R",
    "a star": EVERY,
    "an equality": "SELECT a.k FROM R AS a, R AS b WHERE a.x = b.k",
    "its other side": "SELECT a.k FROM R AS a, R AS b WHERE a.k = b.x",
    "a comparison": "SELECT R.k FROM R WHERE R.x > 5",
}


@pytest.mark.parametrize("text", USES.values(), ids=USES)
@pytest.mark.parametrize(
    ("then", "is_now"),
    [(pa.schema([R.field("k")]), "gone"), (R.set(1, pa.field("x", RETYPED)), "date")],
    ids=["dropped", "retyped"],
)
def test_a_change_that_a_live_query_uses_is_refused_by_name_before_anything_is_written(
    tmp_path, text, then, is_now
):
    hub = started(tmp_path, {"fine": "SELECT R.k FROM R, S WHERE R.k = S.k", "q": text})
    hub.batch(R=rows(R, k=[1], x=[7]))
    files = sorted(tmp_path.rglob("*"))
    wrong = f"column x of stream R was bigint and is {is_now} now, but query q uses it"
    with pytest.raises(StateMismatch, match=re.escape(wrong)):
        changed(hub, then).batch(R=rows(then, k=[1]))
    assert sorted(tmp_path.rglob("*")) == files
    # As before it goes on; without the query the change is harmless.
    hub = restarted(hub)
    hub.batch(commands((REMOVE, "q", None)), R=rows(R, k=[1], x=[7]))
    found = changed(hub, then).batch(R=rows(then, k=[1]), S=pa.table({"k": [1]}))
    assert answers_in(found) == ['{"k":1}'] * 3


def test_a_message_counts_the_queries_that_are_alike(tmp_path):
    hub = started(tmp_path, {f"q{at}": f"SELECT R.k FROM R WHERE R.x > {at}" for at in range(5)})
    hub.batch(R=rows(R, k=[1], x=[7]))
    then = pa.schema([R.field("k")])
    with pytest.raises(
        StateMismatch, match=re.escape("each of the queries q0, q1, q2 (and 2 more like it) uses")
    ):
        changed(hub, then).batch(R=rows(then, k=[1]))


def test_a_query_of_an_uncommitted_batch_counts_too(tmp_path):
    """The batch is replayed with the columns of now, and keeps the catalogue of the attempt."""
    hub = started(tmp_path, {"fine": "SELECT R.k FROM R"})
    hub.batch(R=rows(R, k=[1], x=[7]))
    hub.batch(commands((ADD, "q", "SELECT R.x FROM R")), R=rows(R, k=[1], x=[7]))
    hub.number = 1
    then = pa.schema([R.field("k")])
    with pytest.raises(StateMismatch, match="query q uses it"):
        changed(hub, then).batch(commands((ADD, "q", "SELECT R.x FROM R")), R=rows(then, k=[1]))


def test_distinct_answers_of_the_batch_before_are_evaluated_over_the_columns_of_then(tmp_path):
    """No task of the last batch with the old columns was run to its end, so that nothing tells what came out."""
    gone, stays = "SELECT DISTINCT R.x FROM R", "SELECT DISTINCT R.k FROM R, S WHERE R.k = S.k"
    hub = started(tmp_path, {"gone": gone, "stays": stays})
    r, s = rows(R, k=[1], x=[7]), pa.table({"k": [1]})
    batch = BatchId(hub.query, hub.run, 0)
    told = hub.ingest(batch, {"R": r, "S": s}, commands((REMOVE, "gone", None)))
    for task in range(hub.tasks):
        hub.operator.agree_and_merge(batch, task, told)
    hub.number = 1
    then = pa.schema([Y, R.field("k")])
    hub = changed(hub, then)
    assert answers_in(hub.batch(R=rows(then, k=[1, 2]), S=s)) == []
    assert answers_in(hub.batch(S=pa.table({"k": [2]}))) == ['{"k":2}']


def test_the_time_of_a_stream_keeps_its_column_and_its_type(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    hub = LocalHub({"R": schema}, str(tmp_path), {"q": "SELECT R.k FROM R"}, time={"R": "t"})
    hub.batch(R=pa.table([[1], [at(1)]], schema=schema))
    other = pa.schema({"k": pa.int64(), "t": pa.timestamp("us")})
    with pytest.raises(
        StateMismatch, match="the time of stream R was t timestamp, now it is t timestamp_ntz"
    ):
        restarted(hub, schemas={"R": other}).batch(R=pa.table([[1], [None]], schema=other))
    with pytest.raises(
        StateMismatch, match="the time of stream R was t timestamp, now it is that of its batches"
    ):
        restarted(hub, time={}).batch(R=pa.table([[1], [at(1)]], schema=schema))


@pytest.mark.parametrize("streams", [("R",), ("R", "S", "P")])
def test_other_streams_are_refused(tmp_path, streams):
    hub = started(tmp_path, {"q": "SELECT R.k FROM R"})
    hub.batch(R=rows(R, k=[1], x=[7]))
    with pytest.raises(
        StateMismatch, match=f"the streams of the hub were R, S, now they are {', '.join(streams)}"
    ):
        restarted(hub, schemas=dict.fromkeys(streams, R)).batch(R=rows(R, k=[1], x=[7]))


# --- any changes --------------------------------------------------------------------------------------------------------

_ALWAYS = ("id", "at")
_NAMED = re.compile(r"\b(t\d)\.(\w+)")
_SOURCES = re.compile(r"(\w+) AS (t\d)")


def used_by(text: str) -> set[tuple[str, str]]:
    """The columns that a text names."""
    head, _, where = text.partition(" FROM ")
    streams = {alias: stream for stream, alias in _SOURCES.findall(where.partition(" WHERE ")[0])}
    return {(streams[alias], column) for alias, column in _NAMED.findall(f"{head} {where}")}


@given(queries(4, distinct=[False, True]))
def test_all_columns_that_a_text_names_are_used(text):
    """Else a change of one of them would not be refused."""
    assert set(used_columns(TemplateReader(hub_schemas()).read(text).template)) == used_by(text)


def drawn_schema(random: Random, stream: str, used: set[tuple[str, str]], breaks: bool) -> pa.Schema:
    """Columns in any order. Those that a live query uses are there as they were, unless one is to break."""
    fields = []
    mine = [name for owner, name in sorted(used) if owner == stream and name not in _ALWAYS]
    broken = random.choice(mine) if breaks and mine else None
    for one in STORED:
        free = one.name not in _ALWAYS and ((stream, one.name) not in used or one.name == broken)
        kind = random.choice(["gone", "other"] if one.name == broken else ["as it was", "gone", "other"])
        if not free or kind == "as it was":
            fields.append(one)
        elif kind == "other":
            fields.append(pa.field(one.name, RETYPED))
    fields += [pa.field(f"new{number}", pa.int64()) for number in range(random.randint(0, 1))]
    random.shuffle(fields)
    return pa.schema(fields)


def as_now(part: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        part.column(one.name) if one in STORED else pa.nulls(part.num_rows, one.type) for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@settings(LIVES, max_examples=LIVES.max_examples // 2)
@given(
    st.lists(queries(3, distinct=[False, True]), min_size=2, max_size=4),
    st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=2), st.booleans()), min_size=3, max_size=7),
    st.integers(0, 1 << 32).map(Random),
)
def test_answers_are_those_of_duckdb_whatever_columns_come_and_go(texts, script, random):
    """A column that is away or has another type counts as null, for later queries that use it once it is back."""
    stored: dict[str, list[pa.RecordBatch]] = {name: [] for name in STREAMS}
    asked: list[Asked] = []
    live = {0: -1}
    found: Counter = Counter()
    ids, refused = 0, 0
    schemas = dict.fromkeys(STREAMS, STORED)
    with tempfile.TemporaryDirectory() as state:
        hub = LocalHub(schemas, state, {"q0": texts[0]}, settings=small(state))
        for number, (toggled, restarts) in enumerate(script):
            given_ = {}
            for name, part in rows_from(random).items():
                given_[name] = record_batch(part, ids, [2_000_000 * number] * len(part))
                ids += len(part)
            used = set().union(*(used_by(texts[which]) for which in live))
            if restarts and number:
                wrong = {name: drawn_schema(random, name, used, breaks=True) for name in STREAMS}
                if any(one not in wrong[stream] for stream, name in used for one in [STORED.field(name)]):
                    with pytest.raises(StateMismatch, match="uses it"):
                        restarted(hub, schemas=wrong).batch(at=at(number))
                    refused += 1
                schemas = {name: drawn_schema(random, name, used, breaks=False) for name in STREAMS}
                hub = restarted(hub, schemas=schemas)
            told = []
            for which in dict.fromkeys(one % len(texts) for one in toggled):
                fits = all(STORED.field(name) in schemas[stream] for stream, name in used_by(texts[which]))
                if which in live:
                    told.append((REMOVE, f"q{which}", None))
                    asked.append(Asked(f"q{which}", texts[which], live.pop(which), number))
                elif fits:
                    told.append((ADD, f"q{which}", texts[which]))
                    live[which] = number
            now = {name: as_now(part, schemas[name]) for name, part in given_.items()}
            for name, part in given_.items():
                stored[name].append(
                    pa.RecordBatch.from_arrays(
                        [
                            part.column(one.name)
                            if one in schemas[name]
                            else pa.nulls(part.num_rows, one.type)
                            for one in STORED
                        ],
                        schema=STORED,
                    )
                )
            answers = hub.batch(commands(*told), at(number), **now)
            found += read_answers(answers.to_batches())
    asked += [Asked(f"q{which}", texts[which], start, len(script)) for which, start in live.items()]
    event(f"refused: {refused > 0}, answers: {min(3, len(str(found.total())))} digits")
    tables = {name: all_rows(parts) for name, parts in stored.items()}
    assert found == ask_duckdb([one for one in asked if one.end > one.start], tables)
