"""Lives of a join whose inputs share ingest tasks, through the callables that Spark runs, against DuckDB.

Partitions of all inputs are put into ingest tasks in any order and number. A batch that crashed, or whose sink lost it,
is run again with other tasks.
"""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import life
from watersmeet.engine.together import Slots
from watersmeet.local.join import LocalJoin
from watersmeet.log.descriptors import decode_told
from watersmeet.model.facts import BatchId, Descriptor
from watersmeet.spark import tasks
from watersmeet.spark.tasks import IngestTogether, JoinTask

SCHEMAS = {
    "a": pa.schema({"k": pa.int64(), "id": pa.int64(), "s": pa.string()}),
    "b": pa.schema({"id": pa.int64(), "k": pa.int64()}),
    "c": pa.schema({"s": pa.string(), "id": pa.int64(), "k": pa.int64()}),
    "d": pa.schema({"k": pa.int64(), "id": pa.int64()}),
    "e": pa.schema({"id": pa.int64(), "yes": pa.bool_(), "k": pa.int64()}),
}
ONE_KEY = "a.k = b.k AND b.k = c.k AND c.k = d.k AND d.k = e.k"
PATH = "a.s = c.s AND a.k = b.k AND c.id = d.k AND d.id = e.k"
SELECT = [f"{name}.id AS {name}" for name in SCHEMAS]
VALUES = {
    pa.int64(): st.sampled_from([1, 1, 1, 2, None]),
    pa.string(): st.sampled_from("xxy"),
    pa.bool_(): st.booleans(),
}


@st.composite
def parts(draw) -> list[tuple[str, pa.Table]]:
    """Partitions of any inputs, several of one or none."""
    names = draw(st.permutations(list(SCHEMAS)))[draw(st.sampled_from([0, 0, 1, 5])) :]
    names += draw(st.lists(st.sampled_from(list(SCHEMAS)), max_size=3))
    return [
        (name, pa.Table.from_pylist(draw(st.lists(rows_of(name), min_size=1, max_size=3)), SCHEMAS[name]))
        for name in names
    ]


def rows_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: VALUES[field.type] for field in SCHEMAS[name]})


def in_slots(slots: Slots[pa.DataType], name: str, rows: pa.Table) -> pa.RecordBatch:
    """Rows of one input as Spark sends them: numbered, in slots."""
    number, of = next((n, one) for n, one in enumerate(slots.inputs) if one.input == name)
    columns = [pa.nulls(len(rows), kind) for kind in slots.types]
    for column, slot in zip(of.columns, of.slots, strict=True):
        columns[slot] = rows[column].combine_chunks()
    names = ["input", *(f"c{slot}" for slot in range(len(columns)))]
    return pa.RecordBatch.from_arrays([pa.array([number] * len(rows), pa.int32()), *columns], names=names)


class Context:
    """Of a Spark task: what the callables ask for."""

    def __init__(self, batch: BatchId, partition: int) -> None:
        self.batch, self.partition = batch, partition

    def partitionId(self) -> int:  # noqa: N802
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        session = f"spark-session-{self.batch.run}"
        return {
            "streaming.sql.batchId": str(self.batch.number),
            "sql.streaming.queryId": self.batch.query,
            "spark.job.tags": session,
        }.get(name)


def called(task: Any, batch: BatchId, partition: int, rows: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # What is meant for a worker process must not happen to this one.
    nothing = mock.Mock()
    context = mock.Mock(return_value=Context(batch, partition))
    with mock.patch.multiple(tasks, task_context=context, keep_modules=nothing, acknowledge_at_once=nothing):
        yield from task(iter(rows))


def ingested(
    join: LocalJoin, batch: BatchId, groups: list[list[tuple[str, pa.Table]]]
) -> list[pa.RecordBatch]:
    """What the join tasks are sent of a batch whose partitions are in these ingest tasks."""
    slots = Slots.assign({name: [(f.name, f.type) for f in schema] for name, schema in SCHEMAS.items()})
    task = IngestTogether(join.operator.spec, slots.inputs)
    return [
        sent
        for partition, group in enumerate(groups)
        for sent in called(task, batch, partition, [in_slots(slots, name, rows) for name, rows in group])
    ]


def run(join: LocalJoin, batch: BatchId, groups: list[list[tuple[str, pa.Table]]]) -> Counter:
    """Run a batch whose partitions are in these ingest tasks."""
    spec = join.operator.spec
    told = ingested(join, batch, groups)
    received = pa.Table.from_batches(told) if told else None
    found: Counter = Counter()
    for number in range(spec.settings.tasks):
        mine = (
            []
            if received is None
            else received.filter(pa.compute.equal(received["task"], number)).to_batches()
        )
        found += life.multiset(*called(JoinTask(spec), batch, number, mine))
    return found


@settings(life.LIVES, max_examples=life.LIVES.max_examples // 2)
@given(
    st.lists(
        st.tuples(parts(), st.sampled_from([None, None, "run-written", "manifest-written"])),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([ONE_KEY, PATH]),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_inputs_that_share_tasks_give_what_one_big_join_gives(batches, on, joiners, rng):
    def grouped(given_parts: list[tuple[str, pa.Table]]) -> list[list[tuple[str, pa.Table]]]:
        mixed = rng.sample(given_parts, len(given_parts))
        groups: list[list[tuple[str, pa.Table]]] = [[] for _ in range(joiners)]
        for part in mixed:
            rng.choice(groups).append(part)
        return groups

    found: Counter = Counter()
    with tempfile.TemporaryDirectory() as state:
        small = {"limits": life.TINY, "run_rows": 2}
        join = life.start(SCHEMAS, state, on, tasks=joiners, select=SELECT, settings=small)
        query, start = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
        for number, (given_parts, crash) in enumerate(batches):
            try:
                with life.crash_at(crash):
                    found += run(join, BatchId(query, start, number), grouped(given_parts))
            except life.Crash:
                start = str(uuid.UUID(int=number + 3))
                found += run(join, BatchId(query, start, number), grouped(given_parts))
    whole = {
        name: pa.concat_tables(
            [
                schema.empty_table(),
                *(rows for given_parts, _ in batches for of, rows in given_parts if of == name),
            ]
        )
        for name, schema in SCHEMAS.items()
    }
    query_text = f"SELECT {', '.join(SELECT)} FROM {', '.join(SCHEMAS)} WHERE {on}"
    assert not life.difference(found, life.ask_duckdb(query_text, **whole))


def test_equal_rows_of_several_turns_are_stored_by_different_names(tmp_path):
    """A run that is named twice would be merged, and removed, as one."""
    join = life.start(SCHEMAS, tmp_path, ONE_KEY, select=SELECT)
    same = pa.table([[1], [1]], schema=SCHEMAS["d"])
    other = pa.table([[1], [1]], schema=SCHEMAS["b"])
    groups = [[("d", same), ("b", other), ("d", same)], [("d", same)]]
    batch = BatchId(str(uuid.UUID(int=1)), str(uuid.UUID(int=2)), 0)
    told = [
        decode_told(one) for sent in ingested(join, batch, groups) for one in sent["descriptor"].to_pylist()
    ]
    stored = {(one.input, one.partition): one.runs[0].path for one in told if isinstance(one, Descriptor)}
    assert set(stored) == {("d", 0), ("d", 1), ("d", 2), ("b", 0)}
    assert len(set(stored.values())) == 4
