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

from tests import life
from watersmeet.engine.batch_join import RowDigest, id_for_ingest, id_for_join
from watersmeet.engine.operator import Operator
from watersmeet.log.descriptors import Told

ROWS = [(0 if number % 2 else number % 5, number) for number in range(200)]
TASKS = 4

Rows = Sequence[tuple[int, int]]


def table(rows: Rows, schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array([row[place] for row in rows], pa.int64()) for place in (0, 1)], schema=schema)


class BatchJoin:
    def __init__(self, state, strategy: str, on: str, key: str = "k"):
        self.schema = pa.schema({key: pa.int64(), "x": pa.int64()})
        self.join = life.start(
            self.schema, state, on, select=["l.x", "r.x AS y"], tasks=TASKS, strategy=strategy
        )
        spec = replace(self.join.operator.spec, streaming=False, instance="i")
        self.operator = Operator(spec, self.join.clock)

    def ingest(self, **partitions: Sequence[Rows]) -> list[Told]:
        return [
            self.operator.ingest(
                id_for_ingest("i"), name, number, self.join.arriving(name, table(rows, self.schema))
            )
            for name, parts in partitions.items()
            for number, rows in enumerate(parts)
        ]

    def results(self, task: int, descriptors: list[Told]) -> Counter:
        return life.multiset(*self.operator.join(id_for_join("i", descriptors), task, descriptors))


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


@pytest.mark.parametrize("key", ["k", "arrived", "ARRIVED"])
def test_an_execution_that_reads_other_rows_has_other_results(tmp_path, key):
    join = BatchJoin(tmp_path, "hypercube", f"l.{key} = r.{key}", key)
    for factor in (1, 2):
        left = [(k, x * factor) for k, x in ROWS]
        told = join.ingest(l=[left], r=[ROWS])
        found: Counter = sum((join.results(task, told) for task in range(TASKS)), Counter())
        assert found == Counter((x, y) for k, x in left for m, y in ROWS if k == m)


def digest_of(*batches: pa.RecordBatch, **how: int) -> int:
    digest = RowDigest(**how)
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


@pytest.mark.parametrize("name", ["arrived", "ARRIVED", "c1", "hash", ""])
def test_a_digest_is_that_of_all_columns_whatever_their_names(name):
    def digest(x: int) -> int:
        return digest_of(pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([3, x])], [name, "x"]))

    assert digest(4) != digest(5)


@pytest.mark.parametrize("piece_bytes", [20_000, 100_000])
def test_a_digest_is_that_of_the_rows_however_large_they_are(piece_bytes):
    """Rows larger than a piece, and than the memory that a piece is given."""
    lists = [list(range(number)) for number in (10_000, 0, 3, 100_000)]
    rows = pa.RecordBatch.from_pydict({"l": lists, "d": [{"p": [one]} for one in lists]})
    whole = digest_of(rows)
    assert digest_of(rows, piece_bytes=piece_bytes) == whole
    assert digest_of(rows.slice(1), piece_bytes=piece_bytes) != whole
