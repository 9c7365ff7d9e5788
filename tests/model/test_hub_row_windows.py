"""Windows over rows on the local driver: which rows are met at their borders, and when rows leave the state."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.model.test_hub_lives import R, S, at, commands, newest, restarted
from tests.property.test_mutants import Mutant, cases, fails
from watersmeet.engine import hub_ingest
from watersmeet.hubs import counted, distinct
from watersmeet.hubs.catalogue import ADD, REMOVE
from watersmeet.hubs.rows import StreamRows
from watersmeet.hubs.walk import Walk
from watersmeet.local.hub import LocalHub
from watersmeet.model.facts import BatchId

SELF_ROWS = "SELECT a.x AS one, b.x AS other FROM R AS a, R AS b WHERE a.k = b.k WINDOW {} ROWS"


def met_in(table: pa.Table, query: str = "q") -> list[tuple[int, int]]:
    """The pairs of rows that came out, the smaller first."""
    rows = [row for row in table.to_pylist() if row["event"] == "answer" and row["query"] == query]
    pairs = [tuple(sorted(json.loads(row["answer"]).values())) for row in rows]
    return sorted(pair for pair, count in Counter(pairs).items() for _ in range((count + 1) // 2))


def test_a_window_over_rows_has_the_last_rows_before_the_batch_and_all_of_the_batch(tmp_path):
    hub = LocalHub(
        {"R": R, "S": S}, str(tmp_path), {"q": SELF_ROWS.format(3), "one": SELF_ROWS.format(1)}, partitions=2
    )

    def batch(*x):
        return hub.batch(R=pa.table({"k": [1] * len(x), "x": list(x)}), S=pa.table({"k": [1] * 9}))

    # More rows in one batch than the window has.
    found = batch(1, 2, 3, 4, 5)
    assert len(met_in(found)) == len(met_in(found, "one")) == 15
    # The last three before the batch, also if the batch itself has more; S has brought many more.
    found = batch(6, 7, 8, 9)
    new = {(a, b) for a in (6, 7, 8, 9) for b in (6, 7, 8, 9) if a <= b}
    assert set(met_in(found)) == {(a, b) for a in (3, 4, 5) for b in (6, 7, 8, 9)} | new
    assert set(met_in(found, "one")) == {(5, b) for b in (6, 7, 8, 9)} | new
    # Over the border of two batches, after a restart, and a batch of other rows only.
    hub = restarted(hub)
    assert met_in(batch(10)) == [(7, 10), (8, 10), (9, 10), (10, 10)]
    hub.batch(S=pa.table({"k": [1]}))
    assert met_in(batch(11)) == [(8, 11), (9, 11), (10, 11), (11, 11)]


@pytest.mark.parametrize("time", [{}, {"R": "t", "S": "t"}], ids=["of the batch", "of a column"])
def test_state_stays_bounded_under_windows_over_rows(tmp_path, time):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    text = "SELECT R.k FROM R, S WHERE R.k = S.k"
    texts = {"q": f"{text} WINDOW 20 ROWS", "narrow": f"{text} WINDOW 5 ROWS", "alone": "SELECT R.t FROM R"}
    hub = LocalHub({"R": schema, "S": schema}, str(tmp_path), texts, time=time)
    for number in range(40):
        rows = pa.table([[1] * 10, [at(30 * number)] * 10], schema=schema)
        if number == 20:
            hub = restarted(hub)
        found = hub.batch(at=at(30 * number), R=rows, **({"S": rows} if number % 4 == 0 else {}))
        answers = Counter(row["query"] for row in found.to_pylist() if row["event"] == "answer")
        # Old rows of S that are met: the last 20, and the last 5; of R as many where S brings rows.
        fresh = number % 4 == 0
        old_s = min(20, 10 * (number // 4 + (not fresh))), min(5, 10 * (number // 4 + (not fresh)))
        old_r = min(20, 10 * number), min(5, 10 * number)
        for name, s, r in zip(("q", "narrow"), old_s, old_r, strict=True):
            assert answers[name] == 10 * s + (10 * r + 100 if fresh else 0)
        live = Counter()
        for run in newest(hub).live:
            live[run.input] += run.rows
        # The window, and a batch whose rows are expired once this one is known.
        assert all(live[name] <= 40 for name in ("R", "S", "R.0", "S.0"))
    assert newest(hub).totals["R"].evicted_rows >= 360
    hub.batch(commands((REMOVE, "q", None), (REMOVE, "narrow", None)))
    hub.batch()
    # A query of one stream needs no stored row.
    assert {run.input for run in newest(hub).live} == {"~catalogue"}


def test_rows_stay_for_windows_over_rows_beside_other_windows(tmp_path):
    """A query over time lets go of rows that one over rows needs, and the other way round."""
    texts = {"q": SELF_ROWS.format(3), "time": SELF_ROWS.format(0).replace("0 ROWS", "1 SECOND")}
    hub = LocalHub({"R": R}, str(tmp_path), texts)
    for number in range(8):
        found = hub.batch(at=at(30 * number), R=pa.table({"k": [1], "x": [number]}))
        assert met_in(found) == [(old, number) for old in range(max(0, number - 3), number + 1)]
        assert met_in(found, "time") == [(number, number)]
    # Many rows at once: those over time reach further back than those over rows.
    hub.batch(at=at(300), R=pa.table({"k": [1] * 9, "x": [9] * 9}))
    found = hub.batch(at=at(300), R=pa.table({"k": [1], "x": [10]}))
    assert met_in(found) == [(9, 10)] * 3 + [(10, 10)]
    assert met_in(found, "time") == [(9, 10)] * 9 + [(10, 10)]


def test_late_rows_that_another_query_keeps_do_not_push_rows_out_of_a_window(tmp_path):
    schema = pa.schema({"k": pa.int64(), "x": pa.int64(), "t": pa.timestamp("us", "UTC")})
    texts = {"q": SELF_ROWS.format(3), "plain": "SELECT a.k FROM R AS a, R AS b WHERE a.k = b.k"}
    hub = LocalHub({"R": schema}, str(tmp_path), texts, time={"R": "t"}, partitions=2)

    def batch(*seconds, **more):
        rows = pa.table([[1] * len(seconds), seconds, [at(one) for one in seconds]], schema=schema)
        return met_in(hub.batch(R=rows, **more))

    batch(99, 100)
    assert batch(105, 10, 20, 30) == [(99, 105), (100, 105), (105, 105)]
    batch(1, 2, 3, commands=commands((REMOVE, "plain", None)))
    assert batch(106) == [(99, 106), (100, 106), (105, 106), (106, 106)]
    assert batch(107, 4) == [(100, 107), (105, 107), (106, 107), (107, 107)]
    assert newest(hub).totals["R"].late_rows == 1


def test_a_wider_window_over_rows_that_comes_later_counts_its_own_rows(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path), {"q": SELF_ROWS.format(1)})

    def batch(x, **more):
        return hub.batch(R=pa.table({"k": [1], "x": [x]}), **more)

    for x in range(5):
        batch(x)
    batch(5, commands=commands((ADD, "wide", SELF_ROWS.format(4))))
    for x in range(6, 16):
        found = batch(x)
        assert met_in(found) == [(x - 1, x), (x, x)]
        assert met_in(found, "wide") == [(old, x) for old in range(max(6, x - 4), x + 1)]


@pytest.mark.parametrize("time", [{}, {"R": "t", "S": "t"}], ids=["of the batch", "of a column"])
def test_an_answer_comes_out_again_when_the_window_over_rows_has_newer_rows_only(tmp_path, time):
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC")})
    pair = "SELECT DISTINCT R.k FROM R, S WHERE R.k = S.k WINDOW 3 ROWS"
    texts = {"alone": "SELECT DISTINCT R.k FROM R WINDOW 3 ROWS", "pair": pair}
    hub = LocalHub({"R": schema, "S": schema}, str(tmp_path), texts, time=time)

    def batch(number, r, s=0, more=None):
        rows = {
            name: pa.table([[1] * n, [at(number)] * n], schema=schema) for name, n in (("R", r), ("S", s))
        }
        found = hub.batch(more, at=at(number), **rows)
        stored = sum(run.rows for run in newest(hub).live if run.input == "~answered")
        assert stored <= 6
        return "".join(sorted(row["query"][0] for row in found.to_pylist() if row["event"] == "answer"))

    # Both answers come out, and again once three rows of R have come since then: not with the third, but after it.
    assert batch(0, 2, 1) == "ap"
    assert batch(1, 1, 1) == batch(2, 1, 1) == batch(3, 1) == ""
    hub = restarted(hub)
    assert batch(4, 1) == "ap"
    # Many rows at once: those of the batch itself do not count.
    assert batch(5, 9, 1) == ""
    assert batch(6, 1, 1) == "ap"
    # Three rows of one stream are enough.
    assert batch(7, 0, 3) == ""
    assert batch(8, 0, 1) == "p"
    # A new query of the same text counts its own rows, though the streams have more.
    assert batch(9, 5, 5, commands((REMOVE, "pair", None), (ADD, "young", pair))) == ""
    assert batch(10, 1, 1) == "ay"
    assert batch(11, 1, 1) == batch(12, 1, 1) == ""


@pytest.mark.parametrize("done", [(), (0,), (1,)], ids=["no task", "the first task", "the last task"])
def test_what_came_out_in_a_window_over_rows_is_known_though_tasks_never_ended(tmp_path, done):
    texts = {f"q{number}": f"SELECT DISTINCT R.k AS k{number} FROM R WINDOW 2 ROWS" for number in range(3)}
    hub = LocalHub({"R": R, "S": S}, str(tmp_path), texts)
    r = pa.table({"k": [1], "x": [7]})
    hub.batch(R=r)
    hub.batch(R=r)
    batch = BatchId(hub.query, hub.run, 2)
    # In this batch all answers would come out again one batch later: the rows of the first are still in the window.
    told = hub.ingest(batch, {"R": r})
    for task in range(2):
        manifest = hub.operator.agree_and_merge(batch, task, told)
        if task in done:
            assert not [*hub.operator.results(manifest, task)]
    hub = restarted(replace(hub, number=3))
    assert Counter(hub.batch(R=r).column("query").to_pylist()) == dict.fromkeys(texts, 1)
    assert hub.batch(R=r).num_rows == 0


BORDERS = test_a_window_over_rows_has_the_last_rows_before_the_batch_and_all_of_the_batch
LATE = test_late_rows_that_another_query_keeps_do_not_push_rows_out_of_a_window
AGAIN = test_an_answer_comes_out_again_when_the_window_over_rows_has_newer_rows_only
BESIDE = test_rows_stay_for_windows_over_rows_beside_other_windows


def counting_late_rows(self: StreamRows, end, most):
    numbers = [run.keys[: np.searchsorted(run.keys, end)] for run in self.runs]
    return np.sort(np.concatenate([np.zeros(0, np.uint64), *numbers]))[-most:]


def without_late_kept(*arguments):
    return replace(stored(*arguments), late_kept_rows=0)


def known_by_one(queries, *arguments):
    """Only the first stream of a query says what is old."""
    return oldest_counted(replace(queries, stream=queries.stream[:, :1]), *arguments)


oldest_counted = distinct.oldest_counted
first_of_last, stored = Walk.first_of_last, hub_ingest.store_stream
MUTANTS = [
    Mutant(
        "an answer never comes out again",
        {"watersmeet.hubs.distinct.OVER_ROWS": -1},
        (AGAIN,),
    ),
    Mutant(
        "one stream decides whether an answer is old",
        {"watersmeet.engine.hub_desk.oldest_counted": known_by_one},
        (AGAIN,),
    ),
    Mutant(
        "a window over rows has one row more",
        {"watersmeet.hubs.walk.Walk.first_of_last": lambda self, s, n: first_of_last(self, s, n + 1)},
        (BORDERS, BESIDE, LATE),
    ),
    Mutant(
        "a window over rows has one row less",
        {"watersmeet.hubs.walk.Walk.first_of_last": lambda self, s, n: first_of_last(self, s, n - 1)},
        (BORDERS, BESIDE, LATE),
    ),
    Mutant(
        "late rows are among the last rows",
        {"watersmeet.hubs.rows.StreamRows.last_numbers": counting_late_rows},
        (LATE,),
    ),
    Mutant(
        "late rows that are kept are counted",
        {"watersmeet.engine.hub_desk.store_stream": without_late_kept},
        (LATE,),
    ),
    Mutant(
        "rows leave two batches too early",
        {"watersmeet.hubs.needed.floor_of": lambda count, width: counted.floor_of(count, width - 2)},
        (LATE, BESIDE, AGAIN),
    ),
    Mutant(
        "rows stay for windows over time only",
        {"watersmeet.hubs.needed.floor_of": lambda count, width: 1 << 60},
        (BORDERS, BESIDE, LATE),
    ),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_rule_of_windows_over_rows_is_noticed(mutant, killer, monkeypatch, tmp_path):
    for name, broken in mutant.broken.items():
        monkeypatch.setattr(name, broken)
    more = ({},) if killer is AGAIN else ()
    assert fails(killer, (tmp_path, *more), monkeypatch)
