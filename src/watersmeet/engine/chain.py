"""Plan a join with tables among three or more inputs: a chain of stages, each a join that exists without the others.

    s ── lookup p ──┐
                    ├── join of the streams ── lookup g ── results
    c ──────────────┘

A *stage* is a lookup in one table, or the join of the streams. It is an ordinary operator with its own folder,
manifests and plan, so each is exactly once by itself and so is the chain: Spark commits or repeats a batch for all
stages together (docs/adr/011-tables-among-many-inputs.md). Any other join is a chain of one stage.

The rules, all decided here from texts and types alone:

- A table is looked up before the streams are joined if one stream supplies its whole key, alone or with tables that
  were looked up for it. The first such stream in the order of the inputs gets it. Otherwise it is looked up in the
  results of the streams' join. With a window over rows all tables are looked up there: a row counts once for the window
  of its input, whether it has no partner in a table or several.
- A condition belongs to the first stage that has all inputs it reads. With how="left" a condition belongs to the table
  that it reads, the last one to be looked up if it reads several; any other condition is one of the streams' join.
- A stage returns the columns that later stages or the output read, by their names with the input in front (`p:price`).
  Names of inputs have no colon, so no two columns share a name. With a dot, PySpark would look for fields.

What a user wrote is checked here as a whole first. So a refusal speaks of the user's text, and not of a stage's;
`Stage.in_users_words` (engine/stages.py) translates what is found only when a stage is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.engine.choose import LOOKUPS
from watersmeet.engine.options import AUTO, How, JoinOptions
from watersmeet.engine.spec import SqlSettings
from watersmeet.engine.stages import Chain, Stage, flat_name
from watersmeet.errors import PredicateError, UsageError
from watersmeet.log.names import lookup_folder
from watersmeet.model.expression import (
    Call,
    Column,
    Expression,
    Selected,
    columns_of,
    inputs_of,
    with_columns,
)
from watersmeet.model.types import Schema
from watersmeet.model.window import over_time
from watersmeet.predicate import is_fixed_zone, parse_predicate, parse_select, parse_window
from watersmeet.predicate.write import quoted, sql_of

# The input of a lookup in the results of the streams' join.
_JOINED = "joined"


def plan_chain(
    options: JoinOptions,
    schemas: dict[str, Schema],
    tables: Mapping[str, Sequence[str]],
    sql: SqlSettings,
    *,
    streaming: bool = True,
) -> Chain:
    """Plan the stages of a join. `tables` has the key columns of those inputs that are tables."""
    if not tables or len(schemas) == 2:
        return Chain(
            (Stage(options.name_for(schemas), options, schemas, next(iter(tables), None)),),
        )
    options.check_chain(tables, [name for name in schemas if name not in tables])
    return _Planner(options, schemas, tables, sql, streaming).plan()


@dataclass(frozen=True, slots=True)
class _Part:
    """Inputs whose rows are together: a stream and the tables that were looked up for it, or all of them.

    `stage` is the number of the stage that put them together; None for a stream as it comes.
    """

    name: str
    inputs: tuple[str, ...]
    schema: Schema
    stage: int | None = None

    def column(self, column: Column) -> Column:
        """A column of the user as the part has it."""
        return Column(self.name, column.name if self.stage is None else flat_name(column), column.type)


class _Planner:
    def __init__(
        self,
        options: JoinOptions,
        schemas: dict[str, Schema],
        tables: Mapping[str, Sequence[str]],
        sql: SqlSettings,
        streaming: bool,
    ):
        assert isinstance(options.on, str), "JoinOptions.check_chain refuses a function"
        self.options, self.schemas, self.tables, self.text = options, schemas, tables, options.on
        self.streams = [name for name in schemas if name not in tables]
        texts = {"ansi": sql.ansi, "case_sensitive": sql.case_sensitive}
        predicate = parse_predicate(options.on, schemas, fixed_zone=is_fixed_zone(sql.zone), **texts)
        self.selected: tuple[Selected, ...] | None = None
        if options.select is not None:
            self.selected = parse_select(options.select, schemas, **texts)
        # Conditions that no stage has tested yet.
        self.open = list(predicate.conjuncts)
        self.times: dict[str, str] = {}
        self.counts_rows = False
        if len(self.streams) > 1:
            window = parse_window(
                options.within,
                options.time,
                options.lateness,
                {name: schemas[name] for name in self.streams},
                streaming=streaming,
                case_sensitive=sql.case_sensitive,
            )
            if window is not None:
                self.times, self.counts_rows = window[1], not over_time(window[0])
        self.homes = self._find_homes()
        self.stages: list[Stage] = []

    def plan(self) -> Chain:
        self._check_inputs()
        if self.options.keeps_all:
            self._check_left()
        early = [] if self.counts_rows else [table for table, home in self.homes.items() if home is not None]
        late = [table for table in self.homes if table not in early]
        self._check_delay(early)
        parts = {name: _Part(name, (name,), self.schemas[name]) for name in self.streams}
        delay = self._delay_of_each(early, late)
        for table in early:
            home = self.homes[table]
            assert home is not None
            last = len(self.streams) == 1 and table == early[-1]
            parts[home] = self._look_up(parts[home], table, delay, last=last)
        whole = next(iter(parts.values()))
        if len(parts) > 1:
            whole = self._join(list(parts.values()), last=not late)
        for table in late:
            whole = self._look_up(whole, table, delay, last=table == late[-1])
        assert not self.open, f"no stage tests {self.open}"
        return Chain(tuple(self.stages), self._structs() if self.selected is None else None)

    # --- where a table is looked up ---------------------------------------------------------------------------------

    def _find_homes(self) -> dict[str, str | None]:
        """The stream that each table is looked up for, None if it takes several; in the order of the lookups."""
        homes: dict[str, str | None] = {}
        bound = {name: {name} for name in self.streams}

        def found(table: str) -> str | None:
            return next((name for name in self.streams if self._supplies(bound[name], table)), None)

        while (table := next((one for one in self._left_over(homes) if found(one)), None)) is not None:
            homes[table] = home = found(table)
            assert home is not None
            bound[home].add(table)
        whole = set().union(*bound.values())
        while (
            table := next((one for one in self._left_over(homes) if self._supplies(whole, one)), None)
        ) is not None:
            homes[table] = None
            whole.add(table)
        for table in self._left_over(homes):
            raise self._not_found(table, whole)
        return homes

    def _left_over(self, homes: Mapping[str, object]) -> list[str]:
        return [table for table in self.tables if table not in homes]

    def _supplies(self, inputs: set[str], table: str) -> bool:
        """Whether some conditions say what each key column of the table equals, in terms of these inputs."""
        return all(self._supplies_key(inputs, table, key) for key in self.tables[table])

    def _supplies_key(self, inputs: set[str], table: str, key: str) -> bool:
        column = self._column(table, key)
        equal_to = [
            inputs_of(other)
            for part in self.open
            if isinstance(part, Call) and part.op == "="
            for one, other in (part.args, part.args[::-1])
            if one == column
        ]
        return any(read and read <= inputs for read in equal_to)

    def _column(self, name: str, column: str) -> Column:
        return Column(name, column, self.schemas[name][column])

    def _not_found(self, table: str, bound: set[str]) -> PredicateError:
        stream = self.streams[0]
        if not any(table in inputs_of(part) and len(inputs_of(part)) > 1 for part in self.open):
            return PredicateError(
                f"nothing joins the table {table} to {', '.join(name for name in self.schemas if name != table)}",
                self.text,
                hint=f"add a condition for its key, such as {stream}.k = {table}.{self.tables[table][0]}",
            )
        missing = next(key for key in self.tables[table] if not self._supplies_key(bound, table, key))
        return PredicateError(
            f"the predicate does not say what the key {table}.{missing} equals: add {stream}.<column> = "
            f"{table}.{missing}",
            self.text,
            hint="a table is found by its key alone; choose other key columns with wm.table(..., key=...)",
        )

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check_inputs(self) -> None:
        """Refuse names that differ in letter case only: they would meet in the columns of a stage."""
        seen: dict[str, str] = {}
        for name in self.schemas:
            other = seen.setdefault(name.lower(), name)
            if other != name:
                raise UsageError(f"the inputs {other} and {name} differ in letter case only: rename one")

    def _check_left(self) -> None:
        """Refuse conditions that leave open which rows are kept."""
        behind = {name: {name} for name in self.streams}
        for table, home in self.homes.items():
            behind[table] = {home} if home is not None else set()
        for table in self.homes:
            mine = [part for part in self.open if table in inputs_of(part)]
            # Of a condition over several tables, the one that is looked up last decides.
            reads = {stream for part in mine for name in inputs_of(part) for stream in behind[name]}
            if self.homes[table] is None or len(reads) > 1:
                streams = reads or {name for part in mine for name in inputs_of(part) if name in self.streams}
                listed = " and ".join(name for name in self.streams if name in streams)
                raise PredicateError(
                    f'how="left" keeps the rows of a stream that have no partner in {table}, so its condition may read '
                    f"one stream, and this one reads {listed}",
                    self.text,
                    hint='use how="inner", or join the streams first and look the table up in a second join',
                )
        if len(self.streams) > 1:
            return
        for part in self.open:
            if not inputs_of(part) & set(self.tables):
                raise PredicateError(
                    f'how="left" with several tables: the condition {sql_of(part)} reads none of them, so it does not '
                    "say which one it is for",
                    self.text,
                    hint=f"filter {self.streams[0]} before the join",
                )

    def _check_delay(self, early: Sequence[str]) -> None:
        if early and self.times and self.options.max_delay_ms:
            raise UsageError(
                f"max_delay= cannot be combined with a window over time here: rows that wait for a page of {early[0]} "
                "could be too late for the window. Leave one of the two out"
            )

    def _delay_of_each(self, early: Sequence[str], late: Sequence[str]) -> float | None:
        """What each lookup may delay a row, so that all lookups that a row passes stay within max_delay."""
        if self.options.max_delay is None:
            return None
        most = max(sum(self.homes[table] == name for table in early) for name in self.streams) + len(late)
        return self.options.max_delay_ms / 1000 / most

    # --- stages -------------------------------------------------------------------------------------------------------

    def _look_up(self, part: _Part, table: str, delay_s: float | None, *, last: bool) -> _Part:
        bound = {*part.inputs, table}
        here = [
            one
            for one in self.open
            if inputs_of(one) <= bound and (not self.options.keeps_all or table in inputs_of(one))
        ]
        # Beside a join of streams, a strategy for streams is not for the lookups.
        ours = len(self.streams) == 1 or self.options.strategy in LOOKUPS
        options = replace(
            self.options,
            strategy=self.options.strategy if ours else AUTO,
            max_delay=delay_s,
            within=None,
            time=None,
            lateness=None,
            cells=None,
            mapping=None,
            groups=None,
        )
        name = part.name
        # Only the results of the streams' join have a name that the user did not give. SQL may ignore letter case.
        while name.lower() == table.lower():
            name += "_"
        one = replace(part, name=name)
        given = _Part(table, (table,), self.schemas[table])
        return self._add([one, given], here, options, last=last, table=table)

    def _join(self, parts: list[_Part], *, last: bool) -> _Part:
        bound = {name for part in parts for name in part.inputs}
        here = [one for one in self.open if inputs_of(one) <= bound]
        self._check_connected(parts, here)
        strategy = self.options.strategy if self.options.strategy not in LOOKUPS else AUTO
        times = {
            part.name: part.column(self._column(part.name, column)).name
            for part in parts
            if (column := self.times.get(part.name)) is not None
        }
        options = replace(
            self.options, strategy=strategy, time=times or None, how=How.INNER, max_delay=None, memory=None
        )
        self.times = {}
        return self._add(parts, here, options, last=last)

    def _add(
        self,
        parts: Sequence[_Part],
        conjuncts: Sequence[Expression],
        options: JoinOptions,
        *,
        last: bool,
        table: str | None = None,
    ) -> _Part:
        """Add a stage over some parts that tests some conditions; what it returns, as a part."""
        part_of = {name: part for part in parts for name in part.inputs}

        def renamed(column: Column) -> Column:
            return part_of[column.input].column(column)

        self.open = [one for one in self.open if one not in conjuncts]
        inputs = tuple(name for name in self.schemas if name in part_of)
        columns = self._needed(inputs)
        base = self.options.name_for(self.schemas)
        self.stages.append(
            Stage(
                name=base if table is None else lookup_folder(base, table),
                options=replace(
                    options,
                    on=" AND ".join(f"({sql_of(with_columns(one, renamed))})" for one in conjuncts),
                    select=self._select(columns, renamed, last=last),
                ),
                schemas={part.name: part.schema for part in parts},
                table=table,
                earlier={part.name: part.stage for part in parts if part.stage is not None},
                user_on=self.text,
            )
        )
        schema = {flat_name(column): column.type for column in columns}
        streams = [part for part in parts if part.name != table]
        name = streams[0].name if len(streams) == 1 else _JOINED
        return _Part(name, inputs, schema, len(self.stages) - 1)

    def _needed(self, inputs: Sequence[str]) -> list[Column]:
        """The columns that later stages and the output read, in the order of the inputs."""
        read = {column for part in self.open for column in columns_of(part)}
        read |= {self._column(name, at) for name, at in self.times.items()}
        if self.selected is not None:
            read |= {column for item in self.selected for column in item.columns}
        every = [Column(name, column, kind) for name in inputs for column, kind in self.schemas[name].items()]
        return [column for column in every if self.selected is None or column in read]

    def _select(
        self, columns: Iterable[Column], renamed: Callable[[Column], Column], *, last: bool
    ) -> list[str]:
        if last and self.selected is not None:
            return [
                f"{sql_of(with_columns(item.expression, renamed))} AS {quoted(item.name)}"
                for item in self.selected
            ]
        return [f"{sql_of(renamed(column))} AS {quoted(flat_name(column))}" for column in columns]

    def _structs(self) -> dict[str, dict[str, str]]:
        return {
            name: {column: flat_name(Column(name, column, kind)) for column, kind in schema.items()}
            for name, schema in self.schemas.items()
        }

    def _check_connected(self, parts: Sequence[_Part], conjuncts: Sequence[Expression]) -> None:
        """Refuse streams that nothing joins, not even a table that was looked up for one of them."""
        part_of = {name: part.name for part in parts for name in part.inputs}
        edges = [{part_of[name] for name in inputs_of(one)} for one in conjuncts]
        reached, grown = {parts[0].name}, True
        while grown:
            more = {name for edge in edges if edge & reached for name in edge} - reached
            reached, grown = reached | more, bool(more)
        apart = [part.name for part in parts if part.name not in reached]
        if apart:
            raise PredicateError(
                f"nothing joins {' and '.join(apart)} to {', '.join(name for name in self.streams if name in reached)}",
                self.text,
                hint=f"add a condition between {apart[0]} and {parts[0].name}; a table whose key takes columns of both "
                "is looked up after they are joined",
            )
