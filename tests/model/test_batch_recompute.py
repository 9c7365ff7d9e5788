"""A batch join that Spark computes again in part: some tasks read rows that arrived in another order the second time.

As after an executor was lost behind an upstream shuffle. Grids and heavy keys are cut by position, so all tasks must join
the files of one manifest.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from watersmeet.engine.batch_join import id_for_ingest, id_for_join
from watersmeet.engine.digest import RowDigest
from watersmeet.engine.operator import Operator
from watersmeet.local.join import LocalJoin
from watersmeet.model.facts import Descriptor

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})
ROWS = [(0 if number % 2 else number % 5, number) for number in range(200)]
TASKS = 4

Rows = Sequence[tuple[int, int]]


def table(rows: Rows) -> pa.Table:
    return pa.table({"k": [k for k, _ in rows], "x": [x for _, x in rows]}, schema=SCHEMA)


class BatchJoin:
    def __init__(self, state, strategy: str, on: str):
        self.join = LocalJoin(
            {"l": SCHEMA, "r": SCHEMA},
            on=on,
            select=["l.x", "r.x AS y"],
            state=str(state),
            tasks=TASKS,
            strategy=strategy,
        )
        spec = replace(self.join.operator.spec, streaming=False, instance="i")
        self.operator = Operator(spec, self.join.clock)

    def ingest(self, **partitions: Sequence[Rows]) -> list[Descriptor]:
        return [
            self.operator.ingest(
                id_for_ingest("i"),
                name,
                number,
                [self.join._arriving(name, part) for part in table(rows).to_batches()],
            )
            for name, parts in partitions.items()
            for number, rows in enumerate(parts)
        ]

    def results(self, task: int, descriptors: list[Descriptor]) -> Counter:
        found: Counter = Counter()
        for batch in self.operator.join(id_for_join("i", descriptors), task, descriptors):
            found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        return found


CASES = [
    ("hash", "l.k = r.k", lambda k, m: k == m),
    ("hypercube", "l.k = r.k", lambda k, m: k == m),
    ("grid", "l.k = r.k", lambda k, m: k == m),
    ("grid", "abs(l.k - r.k) <= 1", lambda k, m: abs(k - m) <= 1),
    ("range", "abs(l.k - r.k) <= 1", lambda k, m: abs(k - m) <= 1),
]


@pytest.mark.parametrize(("strategy", "on", "meet"), CASES, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize("parts", [1, 3], ids=["one partition", "other partitions"])
def test_tasks_that_read_the_rows_in_another_order_join_the_same_files(tmp_path, strategy, on, meet, parts):
    join = BatchJoin(tmp_path, strategy, on)
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    first = join.ingest(l=[ROWS], r=[ROWS])
    again = join.ingest(l=[shuffled[number::parts] for number in range(parts)], r=[ROWS])
    found: Counter = Counter()
    for task in range(TASKS):
        found += join.results(task, first if task < TASKS // 2 else again)
    expected = Counter((x, y) for k, x in ROWS for m, y in ROWS if meet(k, m))
    assert found == expected


def test_an_execution_that_reads_other_rows_has_other_results(tmp_path):
    join = BatchJoin(tmp_path, "hypercube", "l.k = r.k")
    for factor in (1, 2):
        left = [(k, x * factor) for k, x in ROWS]
        told = join.ingest(l=[left], r=[ROWS])
        found: Counter = sum((join.results(task, told) for task in range(TASKS)), Counter())
        assert found == Counter((x, y) for k, x in left for m, y in ROWS if k == m)


def digest_of(*batches: pa.RecordBatch) -> int:
    digest = RowDigest()
    list(digest.watch(batches))
    return digest.total


def test_a_digest_is_that_of_the_rows_whatever_their_order_and_batches():
    rows = pa.RecordBatch.from_pydict(
        {
            "a": [1, 2, None, 2],
            "s": ["x", None, "", "y"],
            "l": [[1, 2], None, [], [None]],
            "d": [{"p": 1.5}, None, {"p": None}, {"p": float("nan")}],
        }
    )
    whole = digest_of(rows)
    assert digest_of(rows.take(pa.array([3, 1, 0, 2]))) == whole
    assert digest_of(rows.slice(2), rows.slice(0, 0), rows.slice(0, 2)) == whole
    assert digest_of(rows.slice(0, 3)) != whole
    assert digest_of(rows, rows.slice(3)) != whole
    for column in range(4):
        other = rows.column(column).take(pa.array([0, 1, 2, 0]))
        assert digest_of(rows.set_column(column, rows.schema.field(column), other)) != whole
