"""`watersmeet run --check`: describe a job, without credentials."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from watersmeet.cli.outcome import say
from watersmeet.credentials import hide
from watersmeet.jobs.model import AvailableNow, Every, Job, Options, Sink, Source, TableSource
from watersmeet.jobs.runner import Prepared
from watersmeet.jobs.secrets import shown
from watersmeet.model.signature import InputSpec
from watersmeet.model.window import AT, explain_window


def explain(console: Console, prepared: Prepared) -> None:
    """Print what the job reads, stores and writes, and where it would begin."""
    job = prepared.job
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    # An input is stored first by the stage that reads it as it comes: a later one may use its name for more.
    specs = {spec.name: spec for one in reversed(prepared.operators.specs) for spec in one.signature.inputs}
    for source in job.inputs:
        if isinstance(source, TableSource):
            grid.add_row(f"table {source.name}", Text("\n".join(_table(source))))
            continue
        columns = ", ".join(prepared.columns(source.name))
        grid.add_row(f"input {source.name}", Text("\n".join(_source(source, columns, specs[source.name]))))
    grid.add_row("join", Text("\n".join(_join(prepared))))
    grid.add_row(
        "result", Text(", ".join(f"{f.name} {f.dataType.simpleString()}" for f in prepared.joined.schema))
    )
    grid.add_row("sink", Text("\n".join(_sink(job.sink))))
    grid.add_row("trigger", _trigger(job))
    grid.add_row("checkpoint", Text(hide(job.checkpoint)))
    grid.add_row("state", Text(hide(job.state)))
    say(console, "job ", (job.name, "bold"), f"  {job.file}")
    console.print(grid)
    say(console, _begin(prepared))


def _table(source: TableSource) -> list[str]:
    where = f"{source.table} of " if source.table else ""
    lines = [f"{where}{source.place!r}", f"found by {', '.join(source.keys)}"]
    return lines + ([f"at most {source.refresh} old"] if source.refresh is not None else [])


def _source(source: Source, columns: str, spec: InputSpec) -> list[str]:
    lines = [f"{source.format} {hide(source.path or '')}".rstrip()]
    lines += [f"where {source.where}"] if source.where else []
    lines += [
        f"columns {columns}",
        f"stored: {', '.join(c.name for c in spec.stored if c.name != AT) or 'its keys only'}",
    ]
    lines += ["read by the tasks of the join"] if source.native else []
    return lines + _options(source.options)


def _join(prepared: Prepared) -> list[str]:
    types = ", ".join(prepared.signature.key_types)
    compared = f"keys compared as {types}; " if types else ""
    window = prepared.signature.window
    names = ", ".join(spec.name for spec in prepared.operators.specs)
    choice = prepared.operators.choice
    return [
        f"on {prepared.job.join.on}",
        f"strategy {choice.name}: {choice.why}",
        *([f"window: {explain_window(window)}"] if window else []),
        f"{compared}name in the state: {names}",
    ]


def _sink(sink: Sink) -> list[str]:
    return [f"{sink.format} {hide(sink.path or '')}".rstrip(), *_options(sink.options)]


def _options(options: Options) -> list[str]:
    return [f"option {key} = {shown(key, value)}" for key, value in options.items()]


def _trigger(job: Job) -> str:
    if isinstance(job.trigger, AvailableNow):
        return "joins the present input, then ends"
    return "as fast as possible" if job.trigger == Every() else f"every {job.trigger.interval}"


def _begin(prepared: Prepared) -> str:
    if prepared.checkpoint is None:
        return "ok, but the checkpoint cannot be read from here: the first batch will tell if the state fits"
    if prepared.checkpoint.fresh:
        return "ok: it would start from the beginning; nothing was started"
    at = prepared.checkpoint.next_batch
    return f"ok: it would continue with batch {at} of query {prepared.checkpoint.query}; nothing was started"
