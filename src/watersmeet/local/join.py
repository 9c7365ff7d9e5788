"""Run the operator in one process, without Spark: for tests, simulation and small data.

A join with tables among three or more inputs is a chain of stages (`engine/chain.py`), which run one after the other in
each batch. It runs the same ingest, plan, join, commit, merge and clean-up as the Spark driver, over the same files. It
refuses predicates that only Spark can evaluate.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from watersmeet.engine.build import OpenedTable, build_stages
from watersmeet.engine.chain import plan_chain
from watersmeet.engine.fingerprint import warn_if_code_changed
from watersmeet.engine.inputs import check_names, check_number, check_tables
from watersmeet.engine.kept_table import PAGE_MEMORY, kept_while_rows_wait, version_of
from watersmeet.engine.operator import Operator
from watersmeet.engine.options import AUTO, How, JoinOptions
from watersmeet.engine.spec import JoinSpec, SessionSettings, Settings, SqlSettings
from watersmeet.errors import PredicateError, UsageError
from watersmeet.kernel.theta import Condition
from watersmeet.local.owed import owed_results, settle_into
from watersmeet.local.stage import GivenRows, LocalStage, TaskWork, single
from watersmeet.log.checkpoint import Checkpoint
from watersmeet.log.files import open_files
from watersmeet.log.probe import probe
from watersmeet.model.facts import BatchId, Settlement
from watersmeet.model.types import type_of_arrow
from watersmeet.predicate.window import Length
from watersmeet.schemes.budget.policy import Pushing
from watersmeet.schemes.grid.policy import GridPolicy, dynamic
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import Span, Table

__all__ = ["GivenRows", "LocalJoin", "TaskWork"]


@dataclass
class LocalJoin:
    """A streaming join of two or more inputs in this process, of which some may be tables.

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
    how: str = How.INNER
    max_delay: Span | None = None
    memory: int | str | None = None
    pay_within: Span | None = None
    defer: Span | None = None
    pushing: Pushing = field(default_factory=Pushing)
    # Work of the last batch, by task.
    work: tuple[TaskWork, ...] = ()

    def __post_init__(self) -> None:
        self._check_inputs()
        options = self._options()
        settings = self.settings or Settings(state=self.state, tasks=self.tasks)
        probe(settings.storage)
        tables = {
            name: self._open(given, settings, waits=options.max_delay_ms > 0)
            for name, given in self.schemas.items()
            if isinstance(given, Table)
        }
        arrow: dict[str, pa.Schema] = {
            name: tables[name].source.open().schema if isinstance(given, Table) else given
            for name, given in self.schemas.items()
        }
        session = SessionSettings(
            sql=SqlSettings(ansi=self.ansi),
            has_place=True,
            operator=lambda: settings,
            memory=lambda: options.memory_bytes or PAGE_MEMORY,
            adapting=lambda: self.policy,
            pushing=lambda: self.pushing,
        )
        self._chain = plan_chain(
            options,
            {name: {f.name: type_of_arrow(f.type) for f in schema} for name, schema in arrow.items()},
            {name: opened.given.keys for name, opened in tables.items()},
            session.sql,
        )
        built = build_stages(self._chain, session, instance=self.run, clock=self.clock, tables=tables)
        self.stages: list[LocalStage] = []
        for stage, one in zip(self._chain.stages, built, strict=True):
            before = {name: self.stages[number].project([]).schema for name, number in stage.earlier.items()}
            schemas = {name: before[name] if name in before else arrow[name] for name in stage.schemas}
            warn_if_code_changed(one.operator_spec, self.query)
            try:
                local = LocalStage(one, schemas, str(stage.options.on), ansi=self.ansi, clock=self.clock)
            except PredicateError as error:
                raise stage.in_users_words(error) from None
            self.stages.append(local)

    def _check_inputs(self) -> None:
        if self.partitions < 1:
            raise UsageError(f"partitions={self.partitions}: give the number of partitions, at least 1")
        check_number(self.schemas)
        check_names(self.schemas)
        check_tables(self.schemas, [name for name, given in self.schemas.items() if isinstance(given, Table)])
        for name, given in self.schemas.items():
            if not isinstance(given, pa.Schema | Table):
                raise UsageError(
                    f"input {name} is a {type(given).__name__}: give its pyarrow.Schema, or a wm.table"
                )

    def _open(self, given: Table, settings: Settings, *, waits: bool) -> OpenedTable:
        table = kept_while_rows_wait(given) if waits else given
        source = prepare(table, open_files(settings.storage), cache=settings.cache)
        return OpenedTable(table, source, version_of(source))

    def _options(self) -> JoinOptions:
        """The request: this class has a field for each argument but `options`, which it takes as `settings`."""
        arguments: dict[str, Any] = {
            argument.name: getattr(self, argument.name)
            for argument in fields(JoinOptions)
            if argument.name not in ("state", "options")
        }
        return JoinOptions(**arguments)

    def batch(self, **inputs: GivenRows) -> pa.Table:
        """Run one micro-batch and return its results. An omitted input has no new rows."""
        results: list[pa.RecordBatch] = []
        self._run(inputs, results.append)
        return self._shaped(self.stages[-1].project(results))

    def count(self, **inputs: GivenRows) -> int:
        """Run one micro-batch and return the number of its results, without keeping them."""
        self._run(inputs, lambda result: None)
        return sum(task.emitted for task in self.work)

    def _run(self, inputs: Mapping[str, GivenRows], take: Callable[[pa.RecordBatch], None]) -> None:
        """Run all stages, each with the results of those before it; `take` gets those of the last."""
        for name in inputs:
            if name not in self.schemas or isinstance(self.schemas[name], Table):
                streams = [name for name, given in self.schemas.items() if not isinstance(given, Table)]
                raise UsageError(f"there is no input {name}; the inputs are {', '.join(streams)}")
        batch = BatchId(self.query, self.run, self.number)
        found: list[pa.Table] = []
        for stage, local in zip(self._chain.stages, self.stages, strict=True):
            given = {name: found[stage.earlier[name]] for name in stage.earlier}
            given |= {
                name: rows for name, rows in inputs.items() if name in stage.schemas and name not in given
            }
            last = local is self.stages[-1]
            results: list[pa.RecordBatch] = []
            self.work = local.run(batch, given, self.partitions, take if last else results.append)
            if not last:
                found.append(local.project(results))
        self.number += 1

    def owed(self) -> pa.Table:
        """What the state owes after the batches that were run, as `wm.owed`. Nothing is changed."""
        return self._shaped(self.stages[-1].project(list(owed_results(self._one(), self._checkpoint()))))

    def settle(self, folder: str) -> Settlement:
        """Write what is owed to a Parquet file in a folder, and mark the state as settled, as `wm.settle`.

        The next batch belongs to the next start.
        """
        return settle_into(
            self._one(),
            self._checkpoint(),
            folder,
            lambda found: self._shaped(self.stages[-1].project(list(found))),
            self.clock(),
        )

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self.query, self.number)

    def _one(self) -> JoinSpec:
        if len(self.stages) > 1 or self.stages[0].operator.spec.table is not None:
            raise UsageError("a join with a wm.table owes nothing: it takes no budget for its history")
        return self.operator.spec

    def arriving(self, name: str, rows: GivenRows) -> list[pa.RecordBatch]:
        """Rows as the operator ingests them, for whoever drives it task by task. A join of one stage only."""
        (only,) = self.stages
        return only.arriving(name, rows)

    @property
    def operator(self) -> Operator:
        """The operator of the streams' join, or of the only lookup."""
        return self.stages[self._chain.main].operator

    @operator.setter
    def operator(self, operator: Operator) -> None:
        self.stages[self._chain.main].operator = operator

    def _shaped(self, flat: pa.Table) -> pa.Table:
        """One struct for each input, if the last stage did not make the results as they were asked for."""
        if self._chain.structs is None:
            return flat
        return pa.table(
            {
                name: pa.StructArray.from_arrays(
                    [single(flat.column(column)) for column in fields.values()], names=list(fields)
                )
                for name, fields in self._chain.structs.items()
            }
        )
