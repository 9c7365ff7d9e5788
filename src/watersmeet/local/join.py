"""Run the operator in one process, without Spark: for tests, simulation and small data.

It runs the same ingest, plan, join, commit, merge and clean-up as the Spark driver, over the same files. It refuses
predicates that only Spark can evaluate.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from watersmeet.engine.build import OpenedTable, build
from watersmeet.engine.compile import ComputedKey
from watersmeet.engine.fingerprint import warn_if_code_changed
from watersmeet.engine.inputs import check_names, check_number, check_tables
from watersmeet.engine.kept_table import PAGE_MEMORY, kept_while_rows_wait, version_of
from watersmeet.engine.operator import Operator
from watersmeet.engine.options import AUTO, INNER, JoinOptions
from watersmeet.engine.spec import SessionSettings, Settings, SqlSettings
from watersmeet.errors import PredicateError, UsageError
from watersmeet.kernel.evaluate import arrow_type, evaluate, filter_mask, supports
from watersmeet.kernel.theta import Condition
from watersmeet.log.files import open_files
from watersmeet.log.probe import probe
from watersmeet.model.expression import Call, Column, Expression, Selected, columns_of
from watersmeet.model.facts import BatchId
from watersmeet.model.tally import Tally
from watersmeet.model.types import type_of_arrow
from watersmeet.predicate.window import Length
from watersmeet.schemes.grid.policy import GridPolicy, dynamic
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import Table

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[pa.RecordBatch]"


@dataclass(frozen=True, slots=True)
class TaskWork:
    """The work of one task in a batch: fresh rows looked up, results emitted (before `select`), seconds.

    Of a join of many inputs on different keys, `walked` is its work: rows looked up in all inputs and rows bound.
    """

    probed: int
    emitted: int
    seconds: float
    walked: int = 0


@dataclass
class LocalJoin:
    """A streaming join of two or more inputs in this process, or of one and a table.

    >>> import pyarrow as pa, tempfile
    >>> schema = pa.schema({"k": pa.int64(), "x": pa.int64()})
    >>> with tempfile.TemporaryDirectory() as state:
    ...     join = LocalJoin({"l": schema, "r": schema}, on="l.k = r.k", select=["l.x", "r.x AS y"], state=state)
    ...     _ = join.batch(l=pa.table({"k": [1, 2], "x": [10, 20]}))
    ...     join.batch(r=pa.table({"k": [2], "x": [5]})).to_pylist()
    [{'x': 20, 'y': 5}]
    """

    schemas: Mapping[str, pa.Schema | Table]
    on: str | Condition
    state: str
    select: Sequence[str] | None = None
    name: str = "join"
    tasks: int = 2
    # Every input of a batch is cut into this many partitions, each stored as runs of its own.
    partitions: int = 1
    strategy: str = AUTO
    cells: int | None = None
    mapping: tuple[int, int] | None = None
    groups: int | None = None
    policy: GridPolicy = field(default_factory=dynamic)
    query: str = "local"
    ansi: bool = True
    settings: Settings | None = None
    clock: Callable[[], float] = time.time
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0
    within: Length | None = None
    time: Mapping[str, str] | None = None
    lateness: Length | None = None
    how: str = INNER
    max_delay_s: float = 0.0
    memory: int = PAGE_MEMORY
    # Work of the last batch, by task.
    work: tuple[TaskWork, ...] = ()

    def __post_init__(self) -> None:
        self._check_inputs()
        settings = self.settings or Settings(state=self.state, tasks=self.tasks)
        probe(settings.storage)
        tables = {
            name: self._open(given, settings)
            for name, given in self.schemas.items()
            if isinstance(given, Table)
        }
        self._arrow: dict[str, pa.Schema] = {
            name: tables[name].source.open().schema if isinstance(given, Table) else given
            for name, given in self.schemas.items()
        }
        built = build(
            self._options(),
            {name: {f.name: type_of_arrow(f.type) for f in schema} for name, schema in self._arrow.items()},
            SessionSettings(
                sql=SqlSettings(ansi=self.ansi),
                has_place=True,
                operator=lambda: settings,
                memory=lambda: self.memory,
                adapting=lambda: self.policy,
            ),
            instance=self.run,
            clock=self.clock,
            tables=tables,
        )
        self._compiled, self._selected = built.compiled, built.selected
        self._check_local()
        warn_if_code_changed(built.operator_spec, self.query)
        self.operator = Operator(built.operator_spec, self.clock)

    def _check_inputs(self) -> None:
        check_number(self.schemas)
        check_names(self.schemas)
        check_tables(self.schemas, [name for name, given in self.schemas.items() if isinstance(given, Table)])
        for name, given in self.schemas.items():
            if not isinstance(given, pa.Schema | Table):
                raise UsageError(
                    f"input {name} is a {type(given).__name__}: give its pyarrow.Schema, or a wm.table"
                )

    def _open(self, given: Table, settings: Settings) -> OpenedTable:
        table = kept_while_rows_wait(given) if self.max_delay_s else given
        source = prepare(table, open_files(settings.storage), cache=settings.cache)
        return OpenedTable(table, source, version_of(source))

    def _options(self) -> JoinOptions:
        return JoinOptions(
            on=self.on,
            select=self.select or None,
            name=self.name,
            strategy=self.strategy,
            cells=self.cells,
            mapping=self.mapping,
            groups=self.groups,
            within=self.within,
            time=self.time,
            lateness=self.lateness,
            how=self.how,
            max_delay=self.max_delay_s or None,
        )

    def batch(self, **inputs: Rows) -> pa.Table:
        """Run one micro-batch and return its results. An omitted input has no new rows."""
        results: list[pa.RecordBatch] = []
        self._run(inputs, results.append)
        return self._project(results)

    def count(self, **inputs: Rows) -> int:
        """Run one micro-batch and return the number of its results, without keeping them."""
        self._run(inputs, lambda result: None)
        return sum(task.emitted for task in self.work)

    def _run(self, inputs: Mapping[str, Rows], take: Callable[[pa.RecordBatch], None]) -> None:
        batch = BatchId(self.query, self.run, self.number)
        descriptors = [
            self.operator.ingest(batch, name, partition, self.arriving(name, part))
            for name, rows in inputs.items()
            for partition, part in enumerate(self._partitions(name, rows))
        ]
        work = []
        for task in range(self.tasks):
            tally, emitted, started = Tally(), 0, time.perf_counter()
            for result in self.operator.join(batch, task, descriptors, tally):
                emitted += result.num_rows
                take(result)
            seconds = time.perf_counter() - started
            walked = sum(term.work for term in tally.terms.values())
            work.append(TaskWork(tally.probed_rows, emitted, seconds, walked))
        self.work = tuple(work)
        self.number += 1

    def _partitions(self, name: str, rows: Rows) -> Iterable[Rows]:
        """Cut the rows of an input into partitions of even size, in their order."""
        if self.partitions == 1:
            return [rows]
        whole = pa.Table.from_batches(self._batches(name, rows), self._arrow[name])
        cuts = [len(whole) * number // self.partitions for number in range(self.partitions + 1)]
        return [whole.slice(low, high - low) for low, high in itertools.pairwise(cuts)]

    def _batches(self, name: str, rows: Rows) -> Iterable[pa.RecordBatch]:
        if name not in self.schemas:
            raise UsageError(f"there is no input {name}; the inputs are {', '.join(self.schemas)}")
        schema = self._arrow[name]
        return [_conform(name, part, schema) for part in _batches(rows)]

    def arriving(self, name: str, rows: Rows) -> list[pa.RecordBatch]:
        """Rows as the operator ingests them, for whoever drives it task by task.

        Does what the JVM does for the Spark driver: prune the columns and compute keys that are expressions.
        """
        return [self._arriving(name, part) for part in self._batches(name, rows)]

    def _arriving(self, name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        guard = self._compiled.guard(name)
        if guard is not None:
            values = {(name, c.name): rows.column(c.name) for c in columns_of(guard.expression)}
            rows = rows.filter(filter_mask(guard.expression, values, rows.num_rows, ansi=self.ansi))
        columns = {column: rows.column(column) for column in self._compiled.arriving[name]}
        for key in self._compiled.computed:
            if key.input == name:
                columns[key.name] = _compute(key.expression, rows, self.ansi)
        return pa.RecordBatch.from_pydict(columns) if columns else rows.select([])

    def _check_local(self) -> None:
        compiled = self._compiled
        if compiled.spark_checks:
            raise PredicateError(
                "only Spark can evaluate this predicate; the local driver cannot", str(self.on)
            )
        for key in compiled.computed:
            if not supports(_uncast(key)) or not _casts_exactly(key.expression):
                raise PredicateError(
                    f"only Spark can compute the key {key.sql}; the local driver cannot", str(self.on)
                )
        for item in self._selected or ():
            if not isinstance(item.expression, Column) and not supports(item.expression):
                raise PredicateError(
                    f"only Spark can compute {item.text}; the local driver cannot", item.text
                )

    def _project(self, results: list[pa.RecordBatch]) -> pa.Table:
        """Name the results: the selected columns, or one struct for each input."""
        output = self._compiled.join.output
        schema = pa.schema([pa.field(c.name, self._arrow[c.input].field(c.column).type) for c in output])
        flat = pa.Table.from_batches(results).cast(schema) if results else schema.empty_table()
        flat = flat.combine_chunks()
        columns = {(c.input, c.column): _single(flat.column(c.name)) for c in output}
        if self._selected is None:
            return pa.table({name: _struct(name, columns) for name in self.schemas})
        return pa.table({item.name: _select(item, columns, len(flat), self.ansi) for item in self._selected})


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _struct(name: str, columns: dict[tuple[str, str], pa.Array]) -> pa.Array:
    mine = {column: values for (owner, column), values in columns.items() if owner == name}
    return pa.StructArray.from_arrays(list(mine.values()), names=list(mine))


def _select(item: Selected, columns: dict[tuple[str, str], pa.Array], rows: int, ansi: bool) -> pa.Array:
    if isinstance(item.expression, Column):
        return columns[item.expression.input, item.expression.name]
    return evaluate(item.expression, columns, rows, ansi=ansi)


def _uncast(key: ComputedKey) -> Expression:
    """The key without its cast: the kernel casts integers and floats itself when it makes the order key."""
    expression = key.expression
    return expression.args[0] if isinstance(expression, Call) and expression.op == "cast" else expression


def _casts_exactly(expression: Expression) -> bool:
    """Whether Arrow casts a key exactly as Spark does: not if text is parsed or a decimal is rounded.

    Both turn integers into the nearest float, and round ties to even.
    """
    if not isinstance(expression, Call) or expression.op != "cast":
        return True
    source, target = expression.args[0].type, expression.type
    return (source.integral and target.numeric) or source.name == target.name == "decimal"


def _compute(expression: Expression, rows: pa.RecordBatch, ansi: bool) -> pa.Array:
    values = {(c.input, c.name): rows.column(c.name) for c in columns_of(expression)}
    if isinstance(expression, Call) and expression.op == "cast":
        inner = evaluate(expression.args[0], values, rows.num_rows, ansi=ansi)
        # As in Spark, round an integer to the nearest float; Arrow would refuse.
        return inner.cast(arrow_type(expression.type), safe=not expression.type.floating)
    return evaluate(expression, values, rows.num_rows, ansi=ansi)


def _batches(rows: Rows) -> Iterable[pa.RecordBatch]:
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if isinstance(rows, pa.Table):
        return rows.to_batches()
    return [part for piece in rows for part in _batches(piece)]


def _conform(name: str, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    missing = [column for column in schema.names if column not in rows.schema.names]
    if missing:
        raise UsageError(
            f"input {name}: the rows have no column {missing[0]}; the columns are {', '.join(schema.names)}"
        )
    return rows.select(schema.names).cast(schema)
