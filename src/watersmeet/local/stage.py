"""One operator of a join in this process: it stores rows, runs its tasks one after the other and names the results."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from watersmeet.engine.arriving import ArrivingRows, is_computed_exactly
from watersmeet.engine.build import BuiltJoin
from watersmeet.engine.operator import Operator
from watersmeet.errors import PredicateError, UsageError
from watersmeet.kernel.evaluate import evaluate, supports
from watersmeet.model.expression import Column, Selected
from watersmeet.model.facts import BatchId
from watersmeet.model.tally import Tally

GivenRows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[pa.RecordBatch]"


@dataclass(frozen=True, slots=True)
class TaskWork:
    """The work of one task in a batch: fresh rows looked up, results emitted (before `select`), seconds.

    Of a join of many inputs on different keys, `walked` is its work: rows looked up in all inputs and rows bound.
    """

    probed: int
    emitted: int
    seconds: float
    walked: int = 0


class LocalStage:
    """`schemas` are the columns of all inputs of the stage, `on` is what messages quote."""

    def __init__(
        self,
        built: BuiltJoin,
        schemas: Mapping[str, pa.Schema],
        on: str,
        *,
        ansi: bool,
        clock: Callable[[], float],
    ):
        self.schemas = schemas
        self.operator = Operator(built.operator_spec, clock)
        self._compiled, self._selected = built.compiled, built.selected
        self._on, self._ansi = on, ansi
        self._check_local()

    def run(
        self,
        batch: BatchId,
        inputs: Mapping[str, GivenRows],
        partitions: int,
        take: Callable[[pa.RecordBatch], None],
    ) -> tuple[TaskWork, ...]:
        """Run one micro-batch and hand out its results as they come; the work of each task."""
        descriptors = [
            self.operator.ingest(batch, name, partition, self.arriving(name, part))
            for name, rows in inputs.items()
            for partition, part in enumerate(self._partitions(name, rows, partitions))
        ]
        work = []
        for task in range(self.operator.spec.settings.tasks):
            tally, emitted, started = Tally(), 0, time.perf_counter()
            for result in self.operator.join(batch, task, descriptors, tally):
                emitted += result.num_rows
                take(result)
            seconds = time.perf_counter() - started
            walked = sum(term.work for term in tally.terms.values())
            work.append(TaskWork(tally.probed_rows, emitted, seconds, walked))
        return tuple(work)

    def _partitions(self, name: str, rows: GivenRows, partitions: int) -> Iterable[GivenRows]:
        """Cut the rows of an input into partitions of even size, in their order."""
        if partitions == 1:
            return [rows]
        whole = pa.Table.from_batches(self._batches(name, rows), self.schemas[name])
        cuts = [len(whole) * number // partitions for number in range(partitions + 1)]
        return [whole.slice(low, high - low) for low, high in itertools.pairwise(cuts)]

    def _batches(self, name: str, rows: GivenRows) -> Iterable[pa.RecordBatch]:
        return [conform(name, part, self.schemas[name]) for part in record_batches(rows)]

    def arriving(self, name: str, rows: GivenRows) -> list[pa.RecordBatch]:
        """Rows as the operator ingests them, for whoever drives it task by task.

        Does what the JVM does for the Spark driver: prune the columns and compute keys that are expressions.
        """
        arrive = ArrivingRows.of(self._compiled, name, ansi=self._ansi)
        return [arrive(part) for part in self._batches(name, rows)]

    def _check_local(self) -> None:
        compiled = self._compiled
        if compiled.spark_checks:
            raise PredicateError("only Spark can evaluate this predicate; the local driver cannot", self._on)
        for key in compiled.computed:
            if not is_computed_exactly(key):
                raise PredicateError(
                    f"only Spark can compute the key {key.sql}; the local driver cannot", self._on
                )
        for item in self._selected or ():
            if not isinstance(item.expression, Column) and not supports(item.expression):
                raise PredicateError(
                    f"only Spark can compute {item.text}; the local driver cannot", item.text
                )

    def project(self, results: Sequence[pa.RecordBatch]) -> pa.Table:
        """Name the results: the selected columns, or one struct for each input."""
        output = self._compiled.join.output
        schema = pa.schema([pa.field(c.name, self.schemas[c.input].field(c.column).type) for c in output])
        flat = pa.Table.from_batches(results).cast(schema) if results else schema.empty_table()
        flat = flat.combine_chunks()
        columns = {(c.input, c.column): single(flat.column(c.name)) for c in output}
        if self._selected is None:
            return pa.table({name: _struct(name, columns) for name in self.schemas})
        return pa.table({item.name: _select(item, columns, len(flat), self._ansi) for item in self._selected})


def single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _struct(name: str, columns: dict[tuple[str, str], pa.Array]) -> pa.Array:
    mine = {column: values for (owner, column), values in columns.items() if owner == name}
    return pa.StructArray.from_arrays(list(mine.values()), names=list(mine))


def _select(item: Selected, columns: dict[tuple[str, str], pa.Array], rows: int, ansi: bool) -> pa.Array:
    if isinstance(item.expression, Column):
        return columns[item.expression.input, item.expression.name]
    return evaluate(item.expression, columns, rows, ansi=ansi)


def record_batches(rows: GivenRows) -> Iterable[pa.RecordBatch]:
    """Rows as record batches, in their order."""
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if isinstance(rows, pa.Table):
        return rows.to_batches()
    return [part for piece in rows for part in record_batches(piece)]


def conform(name: str, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of an input with only the columns of its schema, in their types."""
    missing = [column for column in schema.names if column not in rows.schema.names]
    if missing:
        raise UsageError(
            f"input {name}: the rows have no column {missing[0]}; the columns are {', '.join(schema.names)}"
        )
    return rows.select(schema.names).cast(schema)
