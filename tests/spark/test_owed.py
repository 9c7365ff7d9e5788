"""What a query owes after it has ended, on a real session: asked for, settled, and never paid twice."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import watersmeet as wm
from tests.spark.state_helpers import all_files, newest, renew_workers, state_files
from watersmeet.errors import CorruptFile, StateError, UsageError
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import FULL_RANGE
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, id long"
NAMES, JOIN = "abc", "a-b-c"
BATCHES = 3


@dataclass
class Query:
    """A join of three streams that owes results. Key 0 has more rows than all others together.

    Its state and its checkpoint are in `place`.
    """

    spark: Any
    place: Path
    script: StreamScript
    rows: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {name: [] for name in NAMES})

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "on": " AND ".join(f"a.k = {name}.k" for name in NAMES[1:]),
            "select": ["a.id AS a", "b.id AS b", "c.id + 0 AS c"],
            "state": str(self.place / "state"),
            "tasks": 2,
            "memory": "3 KB",
            "options": {"partitionGroups": 8},
        }

    def build(self, **streams: DataFrame) -> DataFrame:
        return wm.join(streams, **self.arguments)

    def batch(self, number: int) -> None:
        new = [(key, 1000 * number + key) for key in range(12)] + [
            (0, 1000 * number + 100 + n) for n in range(4)
        ]
        for name in NAMES:
            self.rows[name] += new
        self.script.batch(**dict.fromkeys(NAMES, new))

    @property
    def streams(self) -> dict[str, DataFrame]:
        return {name: self.script._stream(name) for name in NAMES}

    @property
    def after(self) -> dict[str, Any]:
        """The arguments of wm.owed and wm.settle."""
        return {"inputs": self.streams, "checkpoint": str(self.place / "checkpoint"), **self.arguments}

    def expected(self) -> list[tuple[int, ...]]:
        return [
            tuple(id for _, id in combination)
            for combination in itertools.product(*self.rows.values())
            if len({key for key, _ in combination}) == 1
        ]


@pytest.fixture(scope="module")
def ended(spark, tmp_path_factory):
    """A query that has ended and owes results, and a copy of its state and checkpoint."""
    folder = tmp_path_factory.mktemp("query")
    query = Query(spark, folder, StreamScript(spark, folder, **dict.fromkeys(NAMES, SCHEMA)))
    with query.script:
        query.script.start(query.build)
        for number in range(BATCHES):
            query.batch(number)
        query.script.stop()
        assert newest(folder / "state", JOIN).pushes
        for part in ("state", "checkpoint"):
            shutil.copytree(folder / part, folder / "copy" / part)
        yield query


@pytest.fixture
def query(ended, tmp_path):
    """The same with a copy of its state and checkpoint, which the test may change. It cannot be started again."""
    shutil.copytree(ended.script.folder / "copy", tmp_path, dirs_exist_ok=True)
    return replace(ended, place=tmp_path, rows=dict(ended.rows))


def test_what_is_owed_completes_the_results_and_is_settled_once(ended, spark):
    query = replace(ended, rows={name: list(rows) for name, rows in ended.rows.items()})
    place = query.place
    emitted = [tuple(row) for row in query.script.results()]
    before = all_files(place / "state")
    late = wm.owed(**query.after)
    assert late.columns == ["a", "b", "c"] and not late.isStreaming
    owed = [tuple(row) for row in late.collect()]
    assert owed, "nothing was owed, so nothing is tested"
    assert_same_rows([*emitted, *owed], query.expected())
    assert_same_rows([tuple(row) for row in late.collect()], owed)
    assert all_files(place / "state") == before, "asking what is owed changed the state"

    done = wm.settle(**query.after, to=str(place / "late"))
    first = newest(place / "state", JOIN).batch.number
    assert (done.batch, done.rows, done.folder) == (first, len(owed), str(place / "late"))
    settled = [tuple(row) for row in spark.read.parquet(str(place / "late")).collect()]
    assert_same_rows(settled, owed)
    assert not wm.owed(**query.after).collect()
    assert wm.settle(**query.after, to=str(place / "other")) == done
    assert not (place / "other").exists()

    query.script.restart()
    query.batch(BATCHES)
    query.script.stop()
    emitted = [tuple(row) for row in query.script.results()]
    owed = [tuple(row) for row in wm.owed(**query.after).collect()]
    assert_same_rows([*emitted, *settled, *owed], query.expected())
    again = wm.settle(**query.after, to=str(place / "later"))
    assert (again.rows, again.batch > first) == (len(owed), True)
    (join,) = wm.status(place / "state").joins
    assert [(one.batch, one.rows) for one in join.settled] == [(first, done.rows), (again.batch, again.rows)]
    assert join.is_settled and join.unsettled is None


def test_a_damaged_run_is_named_and_the_rest_is_paid(query, spark, tmp_path):
    whole = Counter(map(tuple, wm.owed(**query.after).collect()))
    files = state_files(tmp_path / "state", JOIN)
    run = next(run for run in newest(tmp_path / "state", JOIN).live if run.input == "b")
    (rows,) = RunReader(files).slices(run, FULL_RANGE, ("id",))
    gone = set(rows.rows.column(0).to_pylist())
    content = bytearray(files.read(run.path))
    content[len(content) // 2] ^= 1
    (files.root / run.path).write_bytes(content)
    renew_workers()
    with pytest.warns(UserWarning, match=f"{run.path}.*of input b take no part"):
        late = wm.owed(**query.after)
    rest = Counter(map(tuple, late.collect()))
    assert rest == Counter({row: n for row, n in whole.items() if row[1] not in gone})
    assert rest and rest != whole
    with pytest.raises(CorruptFile, match="Nothing was settled"):
        wm.settle(**query.after, to=str(tmp_path / "late"))
    assert not (tmp_path / "late").exists()
    done = wm.settle(**query.after, to=str(tmp_path / "late"), accept_loss=True)
    assert done.lost == (run.path,)
    assert Counter(map(tuple, spark.read.parquet(str(tmp_path / "late")).collect())) == rest


def test_a_batch_that_spark_has_not_committed_is_left_out_and_is_not_settled(query, tmp_path):
    last = newest(tmp_path / "state", JOIN)
    (tmp_path / "checkpoint" / "commits" / str(last.batch.number)).unlink()
    for name, arrived in last.arrived.items():
        query.rows[name] = query.rows[name][:-arrived] if arrived else query.rows[name]
    emitted = [
        tuple(row)
        for number, rows in query.script.collected.items()
        if number < last.batch.number
        for row in rows
    ]
    assert_same_rows([*emitted, *map(tuple, wm.owed(**query.after).collect())], query.expected())
    with pytest.raises(StateError, match=f"Spark has not committed batch {last.batch.number}"):
        wm.settle(**query.after, to=str(tmp_path / "late"))


def test_folders_that_would_hide_or_mix_results_are_refused(query, spark, tmp_path):
    sink = tmp_path / "sink"
    (sink / "_spark_metadata").mkdir(parents=True)
    for to, reason in (
        (sink, "streaming file sink"),
        (sink / "late", "streaming file sink"),
        (tmp_path / "state" / "late", "of the query"),
        (tmp_path, "of the query"),
    ):
        with pytest.raises(UsageError, match=reason):
            wm.settle(**query.after, to=str(to))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("1")
    with pytest.raises(UsageError, match="not empty"):
        wm.settle(**query.after, to=str(tmp_path / "full"))
    with pytest.raises(UsageError, match="no file format"):
        wm.settle(**query.after, to=str(tmp_path / "late"), format="delta")
    with pytest.raises(UsageError, match="is not streaming"):
        wm.owed(**query.after | {"inputs": dict.fromkeys(NAMES, spark.range(1))})
