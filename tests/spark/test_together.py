"""Joins of many inputs, whose rows share ingest tasks (engine/together.py), on a real session."""

from __future__ import annotations

import itertools
import random

from pyspark.sql import DataFrame, Row

import watersmeet as wm
from tests.spark.state_helpers import newest
from watersmeet.engine.together import share_tasks
from watersmeet.testing import StreamScript, assert_same_rows

# Columns of one type under different names and at different places, and types that one input has alone.
SCHEMAS = {
    "a": "k int, id long, s string",
    "b": "id long, k int",
    "c": "s string, `x.y` string, k int, t string",
    "d": "k int, p array<int>, q struct<u: int, v: string>",
    "e": "yes boolean, k int, x double",
    "f": "k int",
}
ON = "a.k = b.k AND b.k = c.k AND c.k = d.k AND d.k = e.k AND e.k = f.k AND a.s <= c.s"
TASKS, ROWS, KEYS = 2, 5, (1, 2)


def drawn(rng: random.Random, name: str) -> list[tuple]:
    def text() -> str:
        return rng.choice(["", "a", "ä"])

    values = {
        "a": lambda k: (k, rng.randrange(99), text()),
        "b": lambda k: (rng.randrange(99), k),
        "c": lambda k: (text(), text(), k, text()),
        "d": lambda k: (k, [k, None] if k else None, (k, text())),
        "e": lambda k: (rng.random() < 0.5, k, rng.random()),
        "f": lambda k: (k,),
    }
    return [values[name](rng.choice([None, *KEYS])) for _ in range(ROWS)]


def expected(given: list[dict[str, list]]) -> list[tuple]:
    """All combinations of rows with one key, for which the text of a is not behind that of c."""
    key = {name: schema.split(", ").index("k int") for name, schema in SCHEMAS.items()}
    found = []
    for k in KEYS:
        rows = (
            [row for batch in given for row in batch.get(name, []) if row[key[name]] == k] for name in SCHEMAS
        )
        found += [(a, b, c, *more) for a, b, c, *more in itertools.product(*rows) if a[2] <= c[0]]
    return found


def test_inputs_that_share_tasks_give_what_one_batch_gives(spark, tmp_path):
    """A batch lacks some inputs, one input has more files than there are tasks, and a batch is run again."""
    assert share_tasks(len(SCHEMAS), TASKS)
    rng = random.Random(7)
    given: list[dict[str, list]] = [{name: drawn(rng, name) for name in names} for names in ("abcdef", "ce")]
    again: dict[int, list[Row]] = {}

    def build(**streams: DataFrame) -> DataFrame:
        return wm.join(streams, on=ON, state=str(tmp_path / "state"), tasks=TASKS)

    with StreamScript(spark, tmp_path, **SCHEMAS) as script:
        plain = script._collect

        def collect(frame: DataFrame, number: int) -> None:
            plain(frame, number)
            again[number] = frame.collect()

        script._collect = collect
        script.start(build)
        for batch in given:
            files = {name: spark.createDataFrame(rows, SCHEMAS[name]) for name, rows in batch.items()}
            script.batch(**{name: rows.repartition(3 if name == "b" else 1) for name, rows in files.items()})
        # Files that were added together may be in several batches.
        last = max(script.collected)
        for number, rows in script.collected.items():
            assert_same_rows(again[number], rows)
        # Spark replays the last batch if its commit is lost.
        script.stop()
        (tmp_path / "checkpoint" / "commits" / str(last)).unlink()
        del script.collected[last]
        script.start()
        script.process()
        assert last in script.collected, "the batch was not run again"
        assert_same_rows([tuple(map(tuple, row)) for row in script.results()], expected(given))
    manifest = newest(tmp_path / "state", "-".join(SCHEMAS))
    assert set(manifest.arrived) <= {"c", "e"}
    # All inputs came through as many tasks as join: each input has runs of the first partitions only.
    partitions = {int(run.path.partition("-p")[2][:5]) for run in manifest.live}
    assert partitions <= set(range(TASKS)), partitions
