"""Say which strategy a join takes and why, for `wm.explain`. What `wm.join` refuses is refused here in the same words.

No row is read and no state is needed. Of a table only the columns are read.
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.engine.build import ParsedJoin, parse, parse_lookup
from watersmeet.engine.chain import plan_chain
from watersmeet.engine.choose import SPARK, check_arguments
from watersmeet.engine.compile_lookup import TableSide
from watersmeet.engine.file_way import FileWay, choose_file_way
from watersmeet.engine.options import JoinOptions
from watersmeet.engine.spec import SessionSettings
from watersmeet.engine.stages import Chain, Stage, explain_chain
from watersmeet.errors import PredicateError
from watersmeet.model.figures import duration
from watersmeet.model.window import explain_window
from watersmeet.spark.file_frames import FileFrame, OpenInputs, open_file_inputs
from watersmeet.spark.frames import schema_of
from watersmeet.spark.operator import (
    Inputs,
    check_inputs,
    check_lookups,
    check_sendable,
    schema_of_table,
    settings_for,
)
from watersmeet.tables.spec import Table


def explain_join(inputs: Inputs, options: JoinOptions) -> str:
    """The strategy with its reason, the window, who checks the predicate, the lookups, and the way of file inputs."""
    check_inputs(inputs)
    opened = open_file_inputs(inputs)
    check_lookups(opened, options)
    if not isinstance(options.on, str):
        check_sendable(options.on)
    first = next(given for given in opened.values() if not isinstance(given, Table))
    settings = settings_for(first.sparkSession, options)
    keys = {name: given.keys for name, given in opened.items() if isinstance(given, Table)}
    schemas = {
        name: schema_of_table(given) if isinstance(given, Table) else schema_of(name, given)
        for name, given in opened.items()
    }
    chain = plan_chain(options, schemas, keys, settings.sql, streaming=first.isStreaming)
    parsed = [_parsed(stage, keys, settings, streaming=first.isStreaming) for stage in chain.stages]
    words = [*_strategy(chain, parsed[chain.main]), explain_chain(chain)]
    words += [_way(name, chain, parsed, settings).explain(name) for name in _files(opened)]
    return "; ".join(filter(None, words))


def _parsed(
    stage: Stage, keys: Mapping[str, tuple[str, ...]], settings: SessionSettings, *, streaming: bool
) -> ParsedJoin:
    try:
        if stage.table is not None:
            table = TableSide(stage.table, keys[stage.table])
            return parse_lookup(stage.options, stage.schemas, settings, table)
        parsed = parse(stage.options, stage.schemas, settings, streaming=streaming)
    except PredicateError as error:
        raise stage.in_users_words(error) from None
    check_arguments(parsed.choice, stage.options)
    return parsed


def _strategy(chain: Chain, main: ParsedJoin) -> list[str]:
    words = [f"{main.choice.name}: {main.choice.why}"]
    if main.found:
        words.append(f"found are {chain.stages[chain.main].translated(main.found)}")
    options = chain.stages[chain.main].options
    if options.defer_ms is not None:
        slow = duration(options.defer_ms) if options.defer_ms else "the trigger interval"
        words.append(f"a task that takes longer than {slow} sets history aside")
    if options.pay_within is not None:
        words.append(f"what is owed for {duration(options.pay_within_ms)} is due, also while no rows come")
    if main.compiled.signature.window is not None:
        words.append(explain_window(main.compiled.signature.window))
    if main.compiled.spark_checks and main.choice.name != SPARK:
        words.append("Spark then checks the predicate, because Arrow cannot evaluate a part of it exactly")
    return words


def _files(inputs: OpenInputs) -> list[str]:
    return [name for name, given in inputs.items() if isinstance(given, FileFrame)]


def _way(name: str, chain: Chain, parsed: list[ParsedJoin], settings: SessionSettings) -> FileWay:
    """How the rows of a file input reach the stage that stores them first."""
    stage, found = next(
        (stage, found)
        for stage, found in zip(chain.stages, parsed, strict=True)
        if name in stage.schemas and name not in stage.earlier
    )
    if found.choice.name == SPARK:
        return FileWay((), "Spark joins these inputs itself")
    return choose_file_way(found.compiled, name, stage.schemas[name], ansi=settings.sql.ansi)
