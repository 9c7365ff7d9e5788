"""Rows that are kept for queries that come later, and queries with SINCE that reach back to them."""

from __future__ import annotations

import tempfile
from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.life import LIVES, TINY, Crash, crash_at
from tests.model.test_hub_lives import PLACES, R, S, answers_in, at, commands, newest, restarted
from tests.property.hub_helpers import (
    AT,
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
    since,
)
from watersmeet.engine.hub_status import hub_status, open_hub
from watersmeet.engine.spec import Settings
from watersmeet.errors import UsageError
from watersmeet.hubs.catalogue import ADD, REMOVE
from watersmeet.local.hub import LocalHub

SECOND = 1_000_000
TIMED = STORED.append(pa.field("t", pa.timestamp("us", "UTC")))
RETAIN = [None, "0 seconds", "3 seconds", "8 seconds", "all"]


class Life:
    """A hub with random rows, and what it should answer by DuckDB."""

    def __init__(self, state: str, random: Random, retain: str | None, lateness: int, disorder: int):
        self.random, self.lateness, self.disorder = random, lateness, disorder
        self.stored: dict[str, list[pa.RecordBatch]] = {name: [] for name in STREAMS}
        self.found: Counter = Counter()
        self.asked: list[Asked] = []
        self.live: dict[str, tuple[str, int]] = {}
        self.ids = self.number = 0
        self.hub = LocalHub(
            dict.fromkeys(STREAMS, TIMED),
            state,
            time=dict.fromkeys(STREAMS, "t"),
            lateness=f"{lateness} seconds",
            retain=retain,
            settings=Settings(state=state, tasks=2, limits=TINY, retain_batches=2, grace_s=-1.0),
        )

    def rows(self) -> dict[str, pa.RecordBatch]:
        rows = {}
        for name, part in rows_from(self.random, 4).items():
            if self.random.random() < 0.2:
                continue
            times = [SECOND * max(0, 2 * self.number + self.random.randint(-self.disorder, 1)) for _ in part]
            plain = record_batch(part, self.ids, times)
            rows[name] = plain.append_column("t", plain.column(AT).cast(pa.timestamp("us", "UTC")))
            self.ids += len(part)
        for name in STREAMS:
            self.stored[name].append(rows.get(name, pa.RecordBatch.from_pylist([], TIMED)))
        return rows

    def batch(
        self,
        told: list[tuple[str, str, str | None]],
        place: str | None = None,
        passed: int = 0,
        **restart,
    ) -> dict[str, str]:
        """Run a batch, and once more after a restart if it crashes. Returns what became of each command, by query."""
        rows = self.rows()
        try:
            with crash_at(place, passed):
                found = self.hub.batch(commands(*told), at(self.number), **rows)
        except Crash:
            self.hub = restarted(self.hub, **restart)
            found = self.hub.batch(commands(*told), at(self.number), **rows)
        self.found += read_answers(found.to_batches())
        became = {row["query"]: row["event"] for row in found.to_pylist() if row["event"] != "answer"}
        assert set(became) == {id_ for _, id_, _ in told}
        for op, id_, text in told:
            if op == REMOVE:
                text, start = self.live.pop(id_)
                self.asked.append(Asked(id_, text, start, self.number))
            elif became[id_] == "added":
                assert text is not None
                self.live[id_] = text, self.number
        self.number += 1
        return became

    def expected(self) -> Counter:
        asked = [
            *self.asked,
            *(Asked(id_, text, start, self.number - 1) for id_, (text, start) in self.live.items()),
        ]
        tables = {name: all_rows(parts, self.lateness * SECOND) for name, parts in self.stored.items()}
        return ask_duckdb([one for one in asked if one.end > one.start], tables)

    def marks(self) -> dict[str, int]:
        """The watermark of each stream that has had rows."""
        newest_ = {
            name: max((time for part in parts for time in part.column(AT).to_pylist()), default=None)
            for name, parts in self.stored.items()
        }
        return {name: time - self.lateness * SECOND for name, time in newest_.items() if time is not None}


SCRIPTS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 12), st.integers(0, 3)), max_size=2),
        st.none() | st.sampled_from(PLACES),
        st.integers(0, 3),
        st.none() | st.sampled_from(RETAIN),
    ),
    min_size=4,
    max_size=8,
)


@settings(LIVES, max_examples=LIVES.max_examples // 2)
@given(
    st.lists(queries(3, ["", SLIDING, TUMBLING], [False, True]), min_size=3, max_size=3),
    SCRIPTS,
    st.sampled_from(RETAIN),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 5),
    st.integers(0, 1 << 32).map(Random),
)
def test_a_query_with_since_answers_as_sql_over_all_rows_or_is_refused(
    texts, script, retain, changes, lateness, disorder, random
):
    """Whatever comes, goes and crashes, and also if restarts retain rows for another time."""
    past = 0
    with tempfile.TemporaryDirectory() as state:
        life = Life(state, random, retain, lateness, disorder)
        for toggled, place, passed, other in script:
            if changes and other is not None and random.random() < 0.5:
                life.hub = restarted(life.hub, retain=other)
            told = {}
            for which, back, kind in toggled:
                id_ = f"q{which}"
                text = texts[which] + (since(SECOND * (2 * life.number - back)) if kind else "")
                told[id_] = (REMOVE, id_, None) if id_ in life.live else (ADD, id_, text)
            restart = {"retain": other} if changes else {}
            became = life.batch([*told.values()], place, passed, **restart)
            past += sum(
                became[id_] == "added" and text is not None and " SINCE " in text
                for _, id_, text in told.values()
            )
            if changes:
                continue
            kept = None if retain in (None, "all") else SECOND * int(retain.split()[0])
            marks = life.marks()
            for op, id_, text in told.values():
                if op == REMOVE or " SINCE " not in text:
                    continue
                streams = {name for name in STREAMS if f"{name} AS " in text}
                moment = SECOND * (
                    2 * (life.number - 1) - next(b for w, b, _ in reversed(toggled) if f"q{w}" == id_)
                )
                if retain == "all":
                    is_kept = True
                elif kept is None:
                    is_kept = all(moment > marks[name] + lateness * SECOND for name in streams & set(marks))
                else:
                    is_kept = all(moment >= marks[name] - kept for name in streams & set(marks))
                assert (became[id_] == "added") == is_kept
        life.batch([])
        expected = life.expected()
    event(f"past: {past > 0}, answers: {expected.total() > 0}, changes: {changes}")
    assert life.found == expected


JOIN = "SELECT R.x FROM R, S WHERE R.k = S.k"
SCHEMAS = {"R": R, "S": S}


def stored(hub: LocalHub) -> Counter:
    """The rows and index entries that are kept, by run."""
    found: Counter = Counter()
    for run in newest(hub).live:
        if run.times:
            found[run.input] += run.rows
    return found


def events_in(table: pa.Table) -> list[tuple[str, str]]:
    return [(row["query"], row["event"]) for row in table.to_pylist() if row["event"] != "answer"]


def test_a_query_over_the_past_comes_once_and_leaves_nothing_behind(tmp_path):
    hub = LocalHub(SCHEMAS, str(tmp_path), retain="all", partitions=2)
    hub.batch(at=at(0), R=pa.table({"k": [1, 2, 3], "x": [7, 8, 9]}))
    hub.batch(at=at(1), S=pa.table({"k": [2, 2, 3, 5]}))
    # Nothing is built over the past, and no query reads the streams.
    assert stored(hub) == {"R": 3, "S": 4}
    assert answers_in(hub.batch(commands((ADD, "q", JOIN + since(0))), at(2))) == []
    # The command that removes it makes the batch in which it is in force.
    found = hub.batch(commands((REMOVE, "q", None)), at(3))
    assert answers_in(found) == ['{"x":8}', '{"x":8}', '{"x":9}']
    assert {(row["batch"], row["oldest"], row["newest"]) for row in found.to_pylist() if row["answer"]} == {
        (3, at(0), at(1))
    }
    assert stored(hub) == {"R": 3, "R.0": 3, "S": 4, "S.0": 4}
    assert answers_in(hub.batch(at=at(4), S=pa.table({"k": [1, 2, 3]}))) == []
    assert stored(hub) == {"R": 3, "S": 7}


@pytest.mark.parametrize(
    ("moment", "answers"),
    [(0, [7, 8, 9]), (2 * SECOND, [8, 9]), (2 * SECOND + 1, [9]), (4 * SECOND, [9]), (4 * SECOND + 1, [])],
    ids=["before", "at", "after", "at the last", "after the last"],
)
def test_rows_count_from_the_moment_of_since_on(tmp_path, moment, answers):
    hub = LocalHub({"R": R}, str(tmp_path), retain="all")
    for number, x in enumerate([7, 8, 9]):
        hub.batch(at=at(number), R=pa.table({"k": [1], "x": [x]}))
    hub.batch(commands((ADD, "q", f"SELECT R.x FROM R{since(moment)}")), at(3))
    assert answers_in(hub.batch(at=at(4))) == [f'{{"x":{x}}}' for x in answers]
    assert answers_in(hub.batch(at=at(5), R=pa.table({"k": [1], "x": [1]}))) == ['{"x":1}']


@pytest.mark.parametrize("text", [JOIN, f"{JOIN} AND S.k = 1"], ids=["from the first", "from the last"])
def test_old_and_new_rows_meet_once_in_each_batch_that_brings_one(tmp_path, text):
    hub = LocalHub(SCHEMAS, str(tmp_path), retain="all", partitions=2)
    row, key = pa.table({"k": [1], "x": [7]}), pa.table({"k": [1]})
    hub.batch(at=at(0), R=row, S=key)
    # The rows of the command's batch are of the past too.
    hub.batch(commands((ADD, "q", text + since(0))), at(1), R=row)
    counts = [len(answers_in(hub.batch(at=at(2), R=row, S=key)))]
    hub = restarted(hub)
    counts += [len(answers_in(hub.batch(at=at(3), S=key))), len(answers_in(hub.batch(at=at(4), R=row)))]
    assert counts == [3 * 2, 3, 3]


def test_an_index_gets_only_what_it_lacks(tmp_path):
    hub = LocalHub(SCHEMAS, str(tmp_path), retain="all")
    row, key = pa.table({"k": [1], "x": [7]}), pa.table({"k": [1]})
    for number in range(4):
        hub.batch(at=at(number), R=row, S=key)
    hub.batch(commands((ADD, "live", JOIN)), at(4), R=row, S=key)
    hub.batch(at=at(5), R=row, S=key)
    assert stored(hub) == {"R": 6, "S": 6, "R.0": 1, "S.0": 1}
    for id_, moment in (("late", 2), ("early", 1), ("same", 1)):
        hub.batch(commands((ADD, id_, f"{JOIN}{since(moment * 2 * SECOND)}")), at(6))
        assert len(answers_in(hub.batch(at=at(7)))) == (6 - moment) ** 2
        assert {name: rows for name, rows in stored(hub).items() if "." in name} == {
            "R.0": 6 - moment,
            "S.0": 6 - moment,
        }


def test_what_is_gone_is_refused_with_the_moment_from_which_on_rows_are_kept(tmp_path):
    hub = LocalHub(SCHEMAS, str(tmp_path), retain="5 seconds")
    rows = [pa.table({"k": [number], "x": [number]}) for number in range(10)]
    for number in range(9):
        hub.batch(at=at(number), R=rows[number])
    # The watermark is that of the last batch with rows, also if it has the command: 18 seconds.
    text = "SELECT R.x FROM R"
    found = hub.batch(
        commands((ADD, "gone", text + since(13 * SECOND - 1)), (ADD, "kept", text + since(13 * SECOND))),
        at(9),
        R=rows[9],
    )
    assert events_in(found) == [("gone", "refused"), ("kept", "added")]
    (message,) = [row["message"] for row in found.to_pylist() if row["event"] == "refused"]
    assert message.startswith(
        "SINCE reaches back to 1970-01-01 00:00:12.999999+00:00, but all rows of R are kept from "
        "1970-01-01 00:00:13+00:00 on only"
    )
    assert answers_in(hub.batch(at=at(10))) == ['{"x":7}', '{"x":8}', '{"x":9}']
    status = hub_status(open_hub(str(tmp_path)))
    assert (status.retain, [one.kept_from for one in status.streams]) == (
        "5 seconds",
        ["1970-01-01 00:00:13+00:00"] * 2,
    )


def test_since_does_not_reach_back_to_rows_with_other_columns(tmp_path):
    hub = LocalHub(SCHEMAS, str(tmp_path), retain="all")
    for number in range(3):
        hub.batch(at=at(number), R=pa.table({"k": [number], "x": [number]}), S=pa.table({"k": [number]}))
    hub = restarted(hub, schemas=SCHEMAS | {"R": R.set(1, pa.field("x", pa.string()))})
    hub.batch(at=at(3), R=pa.table({"k": [3], "x": ["three"]}))
    texts = {
        "old": f"SELECT R.x FROM R{since(4 * SECOND)}",
        "new": f"SELECT R.x FROM R{since(4 * SECOND + 1)}",
    }
    texts["other"] = f"SELECT S.k FROM S{since(0)}"
    found = hub.batch(commands(*((ADD, name, text) for name, text in texts.items())), at(4))
    assert events_in(found) == [("old", "refused"), ("new", "added"), ("other", "added")]
    assert answers_in(hub.batch(at=at(5))) == ['{"k":0}', '{"k":1}', '{"k":2}', '{"x":"three"}']


def test_rows_leave_that_long_after_the_queries_need_them(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    hub = LocalHub({"R": schema, "S": schema}, str(tmp_path), time={"R": "t", "S": "t"}, retain="30 seconds")

    def batch(number: int, *told: tuple[str, str, str | None]) -> tuple[int, int]:
        row = pa.table([[1], [at(5 * number)]], schema=schema)
        hub.batch(commands(*told), R=row, S=row)
        found = stored(hub)
        return found["R"], found["R.0"]

    window = "SELECT R.k FROM R, S WHERE R.k = S.k WINDOW 20 SECONDS"
    # A row every ten seconds. With the one of the batch there are those of the last thirty seconds.
    assert [batch(number) for number in range(8)][-3:] == [(5, 0)] * 3
    batch(8, (ADD, "q", window))
    # A window keeps them for its width, and then they are retained; so are the entries of its indexes.
    assert [batch(number) for number in range(9, 20)][-3:] == [(7, 7)] * 3
    batch(20, (REMOVE, "q", None))
    assert [batch(number) for number in range(21, 30)][-1] == (5, 0)


def test_a_query_without_a_window_keeps_no_row_from_before_its_since(tmp_path):
    hub = LocalHub(SCHEMAS, str(tmp_path), retain="4 seconds")
    row, key = pa.table({"k": [1], "x": [7]}), pa.table({"k": [1]})
    for number in range(4):
        hub.batch(at=at(number), R=row, S=key)
    hub.batch(commands((ADD, "q", JOIN + since(4 * SECOND))), at(4))
    hub = restarted(hub, retain=None)
    for number in range(5, 10):
        hub.batch(at=at(number), R=row, S=key)
    assert stored(hub) == dict.fromkeys(("R", "S", "R.0", "S.0"), 7)


@pytest.mark.parametrize("window", ["", " WINDOW 2 SECONDS", " WINDOW TUMBLING 4 SECONDS"])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_command_that_was_taken_is_kept_though_a_restart_retains_nothing(tmp_path, window, crashes):
    hub = LocalHub(SCHEMAS, str(tmp_path), retain="all")
    row, key = pa.table({"k": [1], "x": [7]}), pa.table({"k": [1]})
    for number in range(4):
        hub.batch(at=at(number), R=row, S=key)
    told = commands((ADD, "q", JOIN + window + since(2 * SECOND)))
    if crashes:
        with pytest.raises(Crash), crash_at("result-emitted"):
            hub.batch(told, at(4), R=row)
    else:
        hub.batch(told, at(4), R=row)
    hub = restarted(hub, retain=None)
    if crashes:
        # The replay stores what the attempt has: its command was judged by that.
        assert events_in(hub.batch(told, at(4), R=row)) == [("q", "added")]
    # Rows of seconds 2, 4 and 6, and of R one of 8: pairs in the window, or all.
    expected = {"": 4 * 3, " WINDOW 2 SECONDS": 3 + 2 * 2 + 1, " WINDOW TUMBLING 4 SECONDS": 1 + 2 * 2}
    assert len(answers_in(hub.batch(at=at(5)))) == expected[window]
    refused = hub.batch(commands((ADD, "other", JOIN + since(2 * SECOND))), at(6))
    assert events_in(refused) == [("other", "refused")]


def test_rows_from_before_a_start_that_retains_cannot_be_reached(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path))
    row = pa.table({"k": [1], "x": [7]})
    hub.batch(at=at(0), R=row)
    hub.batch(at=at(1), R=row)
    hub = restarted(hub, retain="all")
    hub.batch(at=at(2), R=row)
    text = "SELECT R.x FROM R"
    told = commands((ADD, "gone", text + since(2 * SECOND)), (ADD, "kept", text + since(2 * SECOND + 1)))
    assert events_in(hub.batch(told, at(3))) == [("gone", "refused"), ("kept", "added")]
    assert answers_in(hub.batch(at=at(4))) == ['{"x":7}']


def test_whether_since_is_refused_does_not_depend_on_other_queries(tmp_path):
    """Another query may keep rows for longer: it is no reason to answer."""
    became = []
    for place, given_ in (("alone", {}), ("beside", {"q": JOIN})):
        hub = LocalHub(SCHEMAS, str(tmp_path / place), given_, retain="3 seconds")
        for number in range(5):
            hub.batch(at=at(number), R=pa.table({"k": [1], "x": [7]}))
        told = commands(*((ADD, f"r{back}", f"SELECT R.x FROM R{since(back * SECOND)}") for back in range(9)))
        became.append(events_in(hub.batch(told, at(5))))
    assert became[0] == became[1]
    assert became[0] == [(f"r{back}", "added" if back >= 5 else "refused") for back in range(9)]


def test_a_late_row_counts_without_a_window_only(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    hub = LocalHub({"R": schema}, str(tmp_path), time={"R": "t"}, retain="1 minute")
    hub.batch(R=pa.table([[1], [at(9)]], schema=schema))
    hub.batch(R=pa.table([[2], [at(5)]], schema=schema))
    texts = {"all": "SELECT R.k FROM R", "punctual": "SELECT R.k FROM R WINDOW 1 HOUR"}
    hub.batch(commands(*((ADD, id_, text + since(0)) for id_, text in texts.items())))
    found = [(row["query"], row["answer"]) for row in hub.batch().to_pylist()]
    assert sorted(found) == [("all", '{"k":1}'), ("all", '{"k":2}'), ("punctual", '{"k":1}')]


def test_distinct_answers_of_the_past_come_once_and_later_equal_ones_do_not(tmp_path):
    text = "SELECT DISTINCT R.x FROM R, S WHERE R.k = S.k"
    hub = LocalHub(SCHEMAS, str(tmp_path), {"other": text.replace("R.x", "S.k")}, retain="all", partitions=2)
    r, s = pa.table({"k": [1, 2, 3], "x": [7, 7, 8]}), pa.table({"k": [1, 2]})
    hub.batch(at=at(0), R=r, S=s)
    hub.batch(commands((ADD, "q", text + since(0)), (REMOVE, "other", None)), at(1), R=r)
    with pytest.raises(Crash), crash_at("result-emitted"):
        hub.batch(at=at(2))
    hub = restarted(hub)
    assert answers_in(hub.batch(at=at(2))) == ['{"x":7}']
    assert answers_in(hub.batch(at=at(3), R=r)) == []
    assert answers_in(hub.batch(at=at(4), S=pa.table({"k": [1, 3]}))) == ['{"x":8}']


def test_a_new_hub_has_no_past_and_since_is_its_first_moment(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path), {"q": f"SELECT R.x FROM R{since(2 * SECOND)}"})
    found = [hub.batch(at=at(number), R=pa.table({"k": [1], "x": [number]})) for number in range(3)]
    assert [answers_in(one) for one in found] == [[], ['{"x":1}'], ['{"x":2}']]


def test_a_retain_that_is_no_length_is_refused(tmp_path):
    for retain in ("soon", "-1 minute", "1 month", 5):
        with pytest.raises(UsageError, match=r'retain=.* or retain="all"'):
            LocalHub({"R": R}, str(tmp_path), retain=retain)


@pytest.mark.parametrize("came", range(3, 8))
def test_a_merge_that_was_planned_before_a_query_drops_nothing_that_it_reaches(tmp_path, came):
    """A live query with a window needs half of the entries of each index run only."""
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    text = "SELECT R.k FROM R, S WHERE R.k = S.k"
    hub = LocalHub(
        {"R": schema, "S": schema},
        str(tmp_path),
        {"window": f"{text} WINDOW 35 SECONDS"},
        time={"R": "t", "S": "t"},
        retain="1 hour",
        settings=Settings(state=str(tmp_path), tasks=2, limits=TINY, retain_batches=2, grace_s=-1.0),
    )
    for number in range(came + 1):
        rows = pa.table([[1, 1], [at(5 * number + 100), at(5 * number)]], schema=schema)
        told = [(ADD, "q", text + since(0))] if number == came else []
        hub.batch(commands(*told), R=rows, S=rows)
    assert len(answers_in(hub.batch())) == (2 * (came + 1)) ** 2
    found = Counter(row["query"] for row in hub.batch(S=rows).to_pylist())
    assert found["q"] == 2 * 2 * (came + 1)
