"""Turn the user's options into a join that tasks can run, for the API, job files and the local driver alike.

    options, schemas, settings  ->  parsed  ->  compiled  ->  a scheme  ->  JoinSpec

Nothing here depends on Spark. The drivers map their inputs to schemas and open tables first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from watersmeet.engine.choose import (
    SPARK,
    Choice,
    check_arguments,
    choose,
    choose_lookup,
    scheme_for,
    table_scheme,
    walks_by,
)
from watersmeet.engine.compile import Asked, Compiled, compile_callable, compile_join
from watersmeet.engine.compile_lookup import TableSide, columns_needed, compile_lookup
from watersmeet.engine.compile_many import compile_many, compile_walk
from watersmeet.engine.inputs import check_names, check_number, check_tables
from watersmeet.engine.kept_table import TableSpec
from watersmeet.engine.options import JoinOptions
from watersmeet.engine.spec import JoinSpec, SessionSettings
from watersmeet.engine.stages import Chain
from watersmeet.engine.window import add_window
from watersmeet.errors import PredicateError
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.model.expression import Predicate, Selected
from watersmeet.model.found import explain_found
from watersmeet.model.types import Schema
from watersmeet.predicate import is_fixed_zone, normal_zone, parse_predicate, parse_select, parse_window
from watersmeet.schemes.table.facts import Reading, TableVersion
from watersmeet.tables.source import PreparedTable
from watersmeet.tables.spec import Table


@dataclass(frozen=True)
class OpenedTable:
    """A table input: the user's description, the location of its pages, and the version at the start of the query."""

    given: Table
    source: PreparedTable
    version: TableVersion


@dataclass(frozen=True)
class ParsedJoin:
    """The meaning of the options for these inputs, and the chosen strategy."""

    compiled: Compiled
    selected: tuple[Selected, ...] | None
    choice: Choice

    @property
    def found(self) -> str:
        """What each input is found by, in words, if the join walks from one to the other; otherwise empty."""
        return explain_found(self.compiled.signature) if self.choice.walks else ""


@dataclass(frozen=True)
class BuiltJoin(ParsedJoin):
    """A checked join: what the driver needs to map its inputs, and what tasks run.

    `spec` is None if Spark's own join is chosen.
    """

    spec: JoinSpec | None

    @property
    def operator_spec(self) -> JoinSpec:
        assert self.spec is not None, "Spark's own join has no operator"
        return self.spec


def build(
    options: JoinOptions,
    schemas: dict[str, Schema],
    settings: SessionSettings,
    *,
    instance: str,
    clock: Callable[[], float],
    tables: Mapping[str, OpenedTable] | None = None,
    streaming: bool = True,
    name: str | None = None,
) -> BuiltJoin:
    """Build the operator that joins these inputs: streams, or one stream and a table.

    `instance` tells two operators of one query apart. `name` is the folder in the state; by default it follows from the
    options.
    """
    check_number(schemas)
    check_names(schemas)
    if tables:
        check_tables(schemas, list(tables))
        assert len(schemas) == 2, "more inputs are a chain: see build_stages"
        built = _build_lookup(options, schemas, settings, tables, streaming)
    else:
        built = _build_streams(options, parse(options, schemas, settings, streaming=streaming), settings)
    if built.spec is None:
        return built
    spec = replace(
        built.spec,
        name=name or options.name_for(schemas),
        instance=instance,
        streaming=streaming,
        built_ms=int(clock() * 1000),
    )
    return replace(built, spec=spec)


def build_stages(
    chain: Chain,
    settings: SessionSettings,
    *,
    instance: str,
    clock: Callable[[], float],
    tables: Mapping[str, OpenedTable],
    streaming: bool = True,
) -> tuple[BuiltJoin, ...]:
    """Build the operators of a chain, in its order. Refusals speak of the user's text."""
    built: list[BuiltJoin] = []
    for stage in chain.stages:
        try:
            one = build(
                stage.options,
                stage.schemas,
                settings,
                instance=instance,
                clock=clock,
                tables={stage.table: tables[stage.table]} if stage.table is not None else None,
                streaming=streaming,
                name=stage.name,
            )
        except PredicateError as error:
            raise stage.in_users_words(error) from None
        beside = tuple(opened.version.folder for name, opened in tables.items() if name != stage.table)
        if one.spec is not None and not built:
            one = replace(one, spec=replace(one.spec, stages=tuple(each.name for each in chain.stages)))
        built.append(_with_tables_beside(one, beside))
    return tuple(built)


def _with_tables_beside(built: BuiltJoin, folders: tuple[str, ...]) -> BuiltJoin:
    if built.spec is None or built.spec.table is None:
        return built
    return replace(built, spec=replace(built.spec, table=replace(built.spec.table, beside=folders)))


def parse(
    options: JoinOptions, schemas: dict[str, Schema], settings: SessionSettings, *, streaming: bool = True
) -> ParsedJoin:
    """Parse and compile a join of streams or batches. It needs no state directory yet."""
    check_number(schemas)
    check_names(schemas)
    options.check_streams()
    predicate, selected = _texts(options, schemas, settings)
    if predicate is not None:
        zone = normal_zone(settings.sql.zone)
        compile_text = compile_join if len(schemas) == 2 else compile_many
        if walks_by(options.strategy):
            compile_text = compile_walk
        compiled = compile_text(Asked(predicate, selected, schemas, settings.sql.ansi, zone))
    else:
        assert not isinstance(options.on, str)
        compiled = compile_callable(options.on, selected, schemas)
    window = parse_window(
        options.within,
        options.time,
        options.lateness,
        schemas,
        streaming=streaming,
        case_sensitive=settings.sql.case_sensitive,
    )
    if window is not None:
        compiled = add_window(compiled, *window, schemas)
    choice = choose(
        options.strategy,
        compiled.signature.inputs[0].order,
        inputs=len(schemas),
        walks=compiled.partners.graph is not None,
        calls=predicate is None,
        streaming=streaming,
        has_place=settings.has_place,
        budget=options.budget,
        waits=options.pay_within is not None,
        window=compiled.signature.window,
    )
    return ParsedJoin(compiled, selected, choice)


def _texts(
    options: JoinOptions, schemas: dict[str, Schema], settings: SessionSettings
) -> tuple[Predicate | None, tuple[Selected, ...] | None]:
    """Parse the predicate (None if it is a function) and the selected columns."""
    sql = settings.sql
    predicate = selected = None
    if isinstance(options.on, str):
        predicate = parse_predicate(
            options.on,
            schemas,
            ansi=sql.ansi,
            case_sensitive=sql.case_sensitive,
            fixed_zone=is_fixed_zone(sql.zone),
        )
    if options.select is not None:
        selected = parse_select(options.select, schemas, ansi=sql.ansi, case_sensitive=sql.case_sensitive)
    return predicate, selected


def _build_streams(options: JoinOptions, parsed: ParsedJoin, settings: SessionSettings) -> BuiltJoin:
    compiled, choice = parsed.compiled, parsed.choice
    if choice.name == SPARK:
        check_arguments(choice, options)
        return BuiltJoin(compiled, parsed.selected, choice, None)
    operator = settings.operator()
    scheme = scheme_for(
        choice,
        options,
        compiled.partners,
        tasks=operator.tasks,
        adapting=settings.adapting(),
        memory=settings.memory() if options.memory is not None else None,
        pushing=replace(settings.pushing(), pay_within_ms=options.pay_within_ms, defer_ms=options.defer_ms),
    )
    signature = replace(compiled.signature, scheme=scheme.name, layout=scheme.layout)
    spec = JoinSpec("", "", signature, compiled.join, operator, scheme=scheme)
    return BuiltJoin(replace(compiled, signature=signature), parsed.selected, choice, spec)


def parse_lookup(
    options: JoinOptions,
    schemas: dict[str, Schema],
    settings: SessionSettings,
    table: TableSide,
) -> ParsedJoin:
    """Parse and compile the join of a stream with a table. Nothing of the table but its columns is known yet."""
    options.check_table(table.name, next(other for other in schemas if other != table.name))
    choice = choose_lookup(options.strategy)
    predicate, selected = _texts(options, schemas, settings)
    assert predicate is not None, "JoinOptions.check_table refuses a function"
    asked = Asked(predicate, selected, schemas, settings.sql.ansi, normal_zone(settings.sql.zone))
    compiled = compile_lookup(asked, table, left=options.keeps_all)
    return ParsedJoin(compiled, selected, choice)


def _build_lookup(
    options: JoinOptions,
    schemas: dict[str, Schema],
    settings: SessionSettings,
    tables: Mapping[str, OpenedTable],
    streaming: bool,
) -> BuiltJoin:
    ((name, table),) = tables.items()
    keys = table.given.keys
    parsed = parse_lookup(options, schemas, settings, TableSide(name, keys))
    compiled, choice = parsed.compiled, parsed.choice
    operator, memory = settings.operator(), settings.memory()
    assert isinstance(compiled.join, LookupJoin)
    refresh_s = table.given.refresh_s
    spec = JoinSpec(
        "",
        "",
        compiled.signature,
        compiled.join,
        operator,
        scheme=table_scheme(options, tasks=operator.tasks, memory=memory, streaming=streaming),
        table=TableSpec(
            name=name,
            keys=keys,
            columns=columns_needed(compiled.join, keys),
            source=table.source,
            given=table.version,
            refresh_ms=None if refresh_s is None else int(1000 * refresh_s),
            memory=memory,
            reading=Reading(choice.name),
        ),
    )
    return BuiltJoin(compiled, parsed.selected, choice, spec)
