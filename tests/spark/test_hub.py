"""A hub on a real session: commands as a stream, answers, a restart and a replay."""

from __future__ import annotations

import datetime
import json
from collections import Counter

import pytest

from watersmeet.engine.hub import HubOptions
from watersmeet.errors import UsageError
from watersmeet.spark.hub import hub_answers
from watersmeet.testing import StreamScript

SCHEMAS = {"r": "k long, x int", "s": "k long, y string", "c": "op string, id string, sql string"}
TEXT = "SELECT R.x, S.y FROM R, S WHERE R.k = S.k AND R.x > 1"


def build(state, **changes):
    def answers(r, s, c):
        return hub_answers({"R": r, "S": s}, c, HubOptions(state=state, tasks=2, **changes))

    return answers


def seen(script: StreamScript) -> Counter:
    return Counter(
        (row.query, row.event, tuple(json.loads(row.answer).values()) if row.answer else ())
        for row in script.results()
    )


def test_queries_come_and_go_as_rows_of_a_stream_over_restarts_and_replays(spark, tmp_path):
    state = str(tmp_path / "state")
    given = {"given": "SELECT S.y FROM S"}
    with StreamScript(spark, tmp_path, **SCHEMAS).start(build(state, queries=given)) as script:
        script.batch(r=[(1, 5)], s=[(1, "before")], c=[("add", "q", TEXT), ("add", "bad", "SELECT nonsense")])
        script.batch(r=[(1, 2), (1, 1), (2, 9)])
        expected = Counter(
            {
                ("given", "added", ()): 1,
                ("given", "answer", ("before",)): 1,
                ("q", "added", ()): 1,
                ("bad", "refused", ()): 1,
            }
        )
        assert seen(script) == expected
        script.batch(s=[(1, "a"), (2, "b")])
        expected += Counter(
            {("q", "answer", (2, "a")): 1, ("q", "answer", (9, "b")): 1}
            | {("given", "answer", (y,)): 1 for y in "ab"}
        )
        assert seen(script) == expected
        # The last batch is run again: its commit is lost with the query.
        script.stop()
        commits = tmp_path / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)
        script.start(build(state, queries={**given, "late": "SELECT R.x FROM R"}))
        script.process()
        assert seen(script) == expected
        # The row comes first: Spark may make two batches of the two files.
        script.batch(s=[(1, "c")], c=[("remove", "q", None)])
        script.batch(r=[(1, 7)], s=[(1, "d")])
        expected += Counter(
            {
                ("late", "added", ()): 1,
                ("q", "answer", (2, "c")): 1,
                ("q", "removed", ()): 1,
                ("late", "answer", (7,)): 1,
                ("given", "answer", ("c",)): 1,
                ("given", "answer", ("d",)): 1,
            }
        )
        assert seen(script) == expected
        newest = {row.batch: {row.newest} for row in script.results() if row.newest}
        # Without a column of times, all rows of a batch have the time of the batch, whenever it is run.
        assert all(len(times) == 1 for times in newest.values())


@pytest.mark.parametrize("kind", ["timestamp", "long"])
def test_commands_of_one_batch_take_effect_in_the_order_of_their_times(spark, tmp_path, kind):
    """Spark gives the files of a batch to tasks by size, the largest first: the new text before the removal."""

    def at(second: int):
        return datetime.datetime(2026, 1, 1, 0, 0, second) if kind == "timestamp" else second

    other = f"SELECT R.x AS {'n' * 2000} FROM R"
    schemas = SCHEMAS | {"c": f"op string, id string, sql string, at {kind}"}
    state = str(tmp_path / "state")
    with StreamScript(spark, tmp_path, **schemas).start(build(state)) as script:
        script.batch(c=[("add", "q", TEXT, at(0))])
        script.stop()
        script.add(c=[("remove", "q", None, at(1))])
        script.add(c=[("add", "q", other, at(2))])
        script.start()
        script.process()
        assert seen(script) == Counter({("q", "added", ()): 2, ("q", "removed", ()): 1})
        script.batch(r=[(1, 5)])
        assert [row.answer for row in script.results() if row.answer] == [f'{{"{"n" * 2000}":5}}']


def test_times_of_commands_that_are_no_times_are_refused(spark, tmp_path):
    schemas = SCHEMAS | {"c": "op string, id string, sql string, at string"}
    script = StreamScript(spark, tmp_path, **schemas)
    with pytest.raises(UsageError, match="the column at of the commands is string"):
        script.start(build(str(tmp_path / "state")))


def test_what_is_no_stream_is_refused(spark, tmp_path):
    still = spark.createDataFrame([(1,)], "k long")
    with pytest.raises(UsageError, match="R is not streaming"):
        hub_answers({"R": still}, None, HubOptions(state=str(tmp_path)))
    with pytest.raises(UsageError, match="a hub needs streams by name"):
        hub_answers({}, None, HubOptions(state=str(tmp_path)))
