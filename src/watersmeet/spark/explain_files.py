"""Say how the rows of file inputs reach a join, for `wm.explain`."""

from __future__ import annotations

from watersmeet.engine.build import ParsedJoin, parse_lookup
from watersmeet.engine.choose import SPARK
from watersmeet.engine.compile_lookup import TableSide
from watersmeet.engine.file_way import FileWay, choose_file_way
from watersmeet.engine.spec import SessionSettings
from watersmeet.engine.stages import Chain
from watersmeet.spark.file_frames import FileFrame, OpenInputs
from watersmeet.tables.spec import Table


def explain_files(
    inputs: OpenInputs, chain: Chain, parsed: ParsedJoin | None, settings: SessionSettings
) -> str:
    """The way of each file input in words; empty if there is none. `parsed` is the join of the streams."""
    return "; ".join(
        _way(name, inputs, chain, parsed, settings).explain(name)
        for name, given in inputs.items()
        if isinstance(given, FileFrame)
    )


def _way(
    name: str, inputs: OpenInputs, chain: Chain, parsed: ParsedJoin | None, settings: SessionSettings
) -> FileWay:
    stage = next(stage for stage in chain.stages if name in stage.schemas and name not in stage.earlier)
    if stage.table is not None:
        table = inputs[stage.table]
        assert isinstance(table, Table), "a stage looks up a table"
        parsed = parse_lookup(stage.options, stage.schemas, settings, TableSide(stage.table, table.keys))
    assert parsed is not None, "the streams are joined by a stage"
    if parsed.choice.name == SPARK:
        return FileWay((), "Spark joins these inputs itself")
    return choose_file_way(parsed.compiled, name, stage.schemas[name], ansi=settings.sql.ansi)
