"""`wm.hub` as a user has it: commands in a folder, a folder of answers for each query, one read back, a replayed batch."""

from __future__ import annotations

import datetime
import json
import os
import time
from decimal import Decimal

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.engine.hub_commands import write_command
from watersmeet.errors import ConfigError, PredicateError, StateError, UsageError
from watersmeet.spark.hub import Hub
from watersmeet.testing import StreamScript

SCHEMAS = {"r": "k long, x int", "s": "k long, y string"}
PAIR = "SELECT R.x, S.y FROM R, S WHERE R.k = S.k"
IDS = ["007", "Zoë", "a/b=c %41", "{*}[x]", "pair"]


class Script(StreamScript):
    """Streams R and S, and a hub whose answers are delivered."""

    hub: Hub

    def __init__(self, spark, folder, *, format="parquet", schemas=SCHEMAS, **arguments):
        super().__init__(spark, folder, **schemas)
        self.place, self.format = folder / "out", format
        self.arguments = {"state": str(folder / "state"), "tasks": 2, **arguments}
        self.runs = spark.sparkContext.accumulator(0)

    def start(self, checkpoint="checkpoint"):
        runs = self.runs

        def count(parts):
            for part in parts:
                runs.add(part.num_rows)
                yield part

        self.hub = wm.hub({"R": self._stream("r"), "S": self._stream("s")}, **self.arguments)
        answers = self.hub.answers()
        writer = answers.mapInArrow(count, answers.schema).writeStream
        writer = writer.foreachBatch(self.hub.deliver(self.place, self.format))
        self.query = writer.option("checkpointLocation", str(self.folder / checkpoint)).start()
        return self

    def read(self, query, **arguments):
        return sorted(map(tuple, self.hub.read(query, self.place, format=self.format, **arguments).collect()))

    def events(self):
        rows = self.spark.read.format(self.format).load(str(self.place / "events")).collect()
        return sorted((row.batch, row.query, row.event) for row in rows)

    def replay_last_batch(self):
        self.stop()
        commits = self.folder / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)
        self.start().process()


def drop_command(path, command, *, written_s):
    """A file of one command that was written at some time and gets its name now."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(json.dumps(command))
    os.utime(draft, (written_s, written_s))
    draft.rename(path)


def test_each_query_has_its_own_answers_once_also_if_a_batch_is_repeated(spark, tmp_path):
    script = Script(spark, tmp_path, queries=dict.fromkeys(IDS, PAIR))
    with script.start():
        script.batch(r=[(1, 5), (2, 6)], s=[(1, "a")])
        script.batch(s=[(1, "b"), (2, "c")])
        script.replay_last_batch()
        for id_ in IDS:
            rows = [(row.x, row.y) for row in script.hub.read(id_, script.place).collect()]
            assert sorted(rows) == [(5, "a"), (5, "b"), (6, "c")], id_
        assert script.events() == sorted((0, id_, "added") for id_ in IDS)
        assert script.hub.read("007", script.place).columns == ["batch", "oldest", "newest", "x", "y"]


def test_a_place_is_refused_to_a_new_checkpoint(spark, tmp_path):
    script = Script(spark, tmp_path, queries={"r": "SELECT R.x FROM R"})
    with script.start():
        script.batch(r=[(1, 5)])
        script.batch(r=[(1, 6)])
        script.stop()
        script.start("another")
        with pytest.raises(StreamingQueryException, match="another query, .* Deliver to a new folder"):
            script.process()
        assert [row[-1] for row in script.read("r")] == [5, 6]
        script.start().process()
        script.batch(r=[(1, 7)])
        assert [row[-1] for row in script.read("r")] == [5, 6, 7]


def test_no_answer_yet_is_no_row_and_another_place_is_refused(spark, tmp_path):
    script = Script(spark, tmp_path, queries={"none": "SELECT R.x FROM R WHERE R.x > 100"})
    with script.start():
        script.batch(r=[(1, 5)])
        assert script.read("none") == []
        with pytest.raises(UsageError, match="nothing was delivered to .*elsewhere: give the place"):
            script.hub.read("none", str(tmp_path / "elsewhere"))


def test_a_batch_of_a_delivery_runs_the_hub_once(spark, tmp_path):
    script = Script(spark, tmp_path, queries={"r": "SELECT R.x FROM R"})
    with script.start():
        script.batch(r=[(1, x) for x in range(10)])
    # Ten answers and one event.
    assert script.runs.value == 11


def test_commands_in_the_folder_of_the_state_take_effect_while_it_runs(spark, tmp_path):
    script = Script(spark, tmp_path)
    with script.start():
        folder = tmp_path / "state" / "~commands" / "hub"
        assert script.hub.folder == str(folder)
        with pytest.raises(StateError, match="there is no hub named hub"):
            script.hub.status()
        with pytest.raises(PredicateError, match="nope is not a column"):
            script.hub.add("q", "SELECT R.nope FROM R")
        script.hub.add("q", PAIR)
        script.process()
        script.batch(r=[(1, 5)], s=[(1, "a")])
        assert script.read("q")[0][-2:] == (5, "a")
        # One without a time of its own has that of its file, which is later.
        (folder / "by-hand.json").write_text(json.dumps({"op": "remove", "id": "q"}) + "\n{nonsense\n")
        script.hub.add("late", "SELECT R.x FROM R")
        script.process()
        script.batch(r=[(1, 6)])
        assert [row[-1] for row in script.read("late")] == [6]
        events = [(query, event) for _, query, event in script.events()]
        assert sorted(events) == [("", "refused"), ("late", "added"), ("q", "added"), ("q", "removed")]
        status = script.hub.status()
        assert [one.id for one in status.queries] == ["late"]
        script.hub.remove("late")
        script.process()
        assert script.hub.status().queries == ()
        with pytest.raises(UsageError, match="there is no query 'q' in the hub hub"):
            script.hub.read("q", script.place)
        assert [row[-2:] for row in script.read("q", sql=PAIR)] == [(5, "a")]


def test_files_of_commands_without_times_take_effect_in_the_order_of_the_files(spark, tmp_path):
    script = Script(spark, tmp_path, queries={"q": "SELECT S.y FROM S"})
    with script.start():
        script.batch(r=[(0, 0)])
        script.stop()
        folder = tmp_path / "state" / "~commands" / "hub"
        long = {"op": "add", "id": "q", "sql": f"SELECT R.x FROM R WHERE R.x <> {'0' * 2000}"}
        drop_command(folder / "a.json", long, written_s=2_000_000_000)
        drop_command(folder / "b.json", {"op": "remove", "id": "q"}, written_s=1_900_000_000)
        script.start().process()
        assert [(query, event) for _, query, event in script.events()][1:] == [
            ("q", "added"),
            ("q", "removed"),
        ]


def test_a_command_is_read_however_old_or_new_its_file_is(spark, tmp_path):
    script = Script(spark, tmp_path, queries={"q": "SELECT S.y FROM S"})
    with script.start():
        script.process()
        folder, now_s = tmp_path / "state" / "~commands" / "hub", int(time.time())
        # The last one is beyond 64 bits of nanoseconds.
        for at, days in enumerate((0, -9, 3_000, 0, 100_000)):
            add = {"op": "add", "id": f"q{at}", "sql": "SELECT R.x FROM R"}
            drop_command(folder / f"{at}.json", add, written_s=now_s + days * 86_400)
            script.process()
            assert script.hub.state().find(f"q{at}"), f"{days} days"


def test_a_query_that_was_added_again_has_only_the_answers_of_its_own_text(spark, tmp_path):
    script = Script(spark, tmp_path, queries={"q": "SELECT R.x FROM R"})
    with script.start():
        script.batch(r=[(1, 5)])
        folder = tmp_path / "state" / "~commands" / "hub"
        write_command(folder, "remove", "q")
        write_command(folder, "add", "q", "SELECT S.y FROM S")
        # The old text answers in the batch that removes it.
        script.batch(r=[(1, 6)])
        script.batch(s=[(1, "a")])
        assert [row[-1] for row in script.read("q")] == ["a"]
        assert sorted(row[-1] for row in script.read("q", sql=" SELECT R.x FROM R"))[0] == 5
        write_command(folder, "remove", "q")
        script.process()
        assert [row[-1] for row in script.read("q", sql="SELECT S.y FROM S")] == ["a"]
        assert {row[-1] for row in script.read("q", sql="SELECT R.x FROM R")} <= {5, 6}


@pytest.mark.parametrize("format", ["parquet", "orc", "json"])
def test_an_answer_comes_back_in_the_types_of_its_columns(spark, tmp_path, format):
    kinds = {
        "k": "long",
        "tiny": "tinyint",
        "d": "decimal(30,4)",
        "f": "double",
        "g": "float",
        "t": "timestamp",
        "n": "timestamp_ntz",
        "day": "date",
        "b": "boolean",
        "batch": "string",
    }
    schema = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    moment = datetime.datetime(2026, 1, 31, 12, 30, 0, 5)
    row = (
        *(1 << 62, -7, Decimal("12345678901234567890.1234"), float("inf"), 0.1),
        *(moment, moment, datetime.date(1600, 2, 29), True, 'say "ü"\n'),
    )
    text = f"SELECT {', '.join(f'R.{name}' for name in kinds)} FROM R"
    script = Script(
        spark,
        tmp_path,
        format=format,
        schemas={"r": schema, "s": "k long"},
        queries={"q": text, "none": text},
        time={"R": "t"},
    )
    nothing = tuple(moment if name == "t" else None for name in kinds)
    with script.start():
        script.batch(r=[row, nothing])
        found = script.hub.read("q", script.place, format=format)
        assert found.columns == ["_batch", "oldest", "newest", *kinds]
        assert [field.dataType.simpleString() for field in found.schema][3:] == [
            kind.replace("long", "bigint") for kind in kinds.values()
        ]
        rows = found.where(F.col("k").isNotNull()).collect()
        original = spark.createDataFrame([row], schema).collect()
        published = original[0].t
        assert [tuple(one)[1:] for one in rows] == [(published, published, *one) for one in original]
        assert found.where(F.col("k").isNull()).count() == 1


def test_a_case_sensitive_session_reads_back_what_its_hub_accepted(spark, tmp_path):
    text = "SELECT a.k, A.x FROM R a, R A WHERE a.k = A.k"
    script = Script(spark, tmp_path, queries={"q": text})
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with script.start():
            script.batch(r=[(1, 5)])
            assert script.hub.read("q", script.place).select("k", "x").collect() == [(1, 5)]
            script.hub.add("other", text)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_query_without_answers_is_read_as_no_rows(spark, tmp_path):
    script = Script(spark, tmp_path, queries={"q": PAIR})
    with script.start():
        script.batch(r=[(1, 5)])
        found = script.hub.read("q", script.place)
        assert (found.columns[-2:], found.count()) == (["x", "y"], 0)


def test_a_hub_on_an_object_store_has_no_folder_of_its_own(spark, tmp_path, bucket):
    streams = {"R": spark.readStream.schema(SCHEMAS["r"]).parquet(str(tmp_path))}
    hub = wm.hub(streams, queries={"q": "SELECT R.x FROM R"}, state=f"{bucket}/state")
    assert (hub.commands, hub.folder) == (None, None)
    with pytest.raises(UsageError, match="a hub without queries needs commands"):
        wm.hub(streams, state=f"{bucket}/state")
    with pytest.raises(UsageError, match=r"commands from no local folder, and remove\(\) writes"):
        hub.remove("q")


def test_the_answers_of_a_hub_are_one_dataframe(spark, tmp_path):
    streams = {"R": spark.readStream.schema(SCHEMAS["r"]).parquet(str(tmp_path))}
    hub = wm.hub(streams, state=str(tmp_path / "state"), commands=tmp_path / "mine")
    # Who only reads makes no folder: commands that are put there would wait for ever.
    assert not (tmp_path / "mine").exists() and not (tmp_path / "state").exists()
    with pytest.raises(ConfigError, match="there is no command folder .*mine: start the hub once"):
        hub.add("q", "SELECT R.x FROM R")
    assert hub.answers() is hub.answers()
    assert hub.folder == str(tmp_path / "mine") and (tmp_path / "mine").is_dir()
    with pytest.raises(UsageError, match="answers cannot be delivered as 'text'"):
        hub.deliver(tmp_path, "text")


def test_a_stream_gets_columns_between_starts_and_loses_those_that_no_query_uses(spark, tmp_path):
    """Types as Spark hands them over: what is stored stays readable, nested columns too."""
    types = "k long, x int, s string, t timestamp, d decimal(9,2), l array<timestamp>, z map<string, date>"
    script = Script(
        spark,
        tmp_path,
        queries={"pair": PAIR, "all": "SELECT R.k, R.x, R.s, R.t, R.d FROM R, S WHERE R.k = S.k"},
    )
    script.schemas["r"] = types
    moment = datetime.datetime(2026, 1, 31, 12, 30)
    row = (1, 5, "é", moment, Decimal("1.50"), [moment], {"a": moment.date()})
    with script.start():
        script.batch(r=[row])
        script.stop()
        # One at the front, and all others moved.
        script.schemas["r"] = "new long, d decimal(9,2), s string, t timestamp, x int, k long, z string"
        script.start()
        script.batch(s=[(1, "a")])
        assert [one[-2:] for one in script.read("pair")] == [(5, "a")]
        assert [one[-5:] for one in script.read("all")] == [(1, 5, "é", moment, Decimal("1.50"))]
        script.hub.add("new", "SELECT R.new, R.z FROM R, S WHERE R.k = S.k")
        script.process()
        script.batch(r=[(9, Decimal("2.00"), "b", moment, 6, 1, "z")])
        script.batch(s=[(1, "b")])
        assert [one[-2:] for one in script.read("new")] == [(9, "z")]
        assert sorted(one[-2:] for one in script.read("pair")) == [(5, "a"), (5, "b"), (6, "a"), (6, "b")]
        script.stop()
        script.schemas["r"] = "k long, s string, t timestamp, d decimal(9,2)"
        with pytest.raises(StreamingQueryException, match="column x of stream R was int and is gone now"):
            script.start().batch(r=[(1, "b", moment, Decimal("2.00"))])
