"""`watersmeet status`: what is in a state directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from watersmeet.cli.outcome import FAILED, reported, say, say_error

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from watersmeet.log.status import JoinStatus, Status, TableStatus, WindowStatus
    from watersmeet.log.status_cube import CubeStatus

# Raised when a key of the JSON changes its meaning or goes; new keys may come at any time.
JSON_VERSION = 1

# Of heavy keys and of changes to their grids: the rest is in the JSON.
_SHOWN_KEYS, _SHOWN_CHANGES = 10, 5


def status(
    state: Annotated[
        str, typer.Argument(metavar="STATE", help="The state directory or URI: what was passed as state=.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show what a state directory holds: batches, rows, runs, merging debt, damage.

    It only reads, needs no Spark, and may be used while the query runs.

    Examples:

      watersmeet status /data/state
      watersmeet status s3://bucket/state --json | jq '.joins[].disk_bytes'

    The JSON:

    One object with version, state, joins and damage (a list of texts). Each join has

      name, query      the join's name and Spark's query id
      batch, starts    the last batch; how often the query was started
      predicate        the join condition, in canonical spelling
      strategy         hash, hypercube, biclique, range or grid
      grid             of a grid: cells, epoch (changes of shape), mappings
                       (rows and columns of each group of cells), load_bytes
                       (what the fullest cell reads), changes (the latest);
                       otherwise null
      hypercube        of a hypercube: epoch (changes), busiest_work and
                       mean_work (rows to look up and results of a task in
                       the last batch, as planned), balance (their ratio),
                       heavy (the most rows first: label, rows with input,
                       lower and upper bound, grid, tasks that share it),
                       changes (the latest: batch, label, before and after,
                       [0, 0] being a light key, moved_rows); otherwise null.
                       A label is a value of your data, unchanged: at most
                       40 characters, or "hash" and the hash of the key
      biclique         of a biclique: units, groups; otherwise null
      window           of a window: within, lateness, watermark (null until
                       all inputs have shown a time; it waits for the one
                       that is behind), newest (the latest time of each
                       input); otherwise null
      inputs           name, runs, rows, bytes (live), arrived_rows,
                       null_rows (dropped for a null key or time),
                       late_rows (dropped below the watermark),
                       evicted_rows (have left the window),
                       absent_rows (dropped: no page of the table can hold
                       their key)
      table            of a join with a table: name, strategy, version,
                       pages, pages_read and bytes_read (needed by the last
                       batch), waiting_rows; otherwise null
      pending_rows     merging debt: rows (estimated) ...
      pending_parts    ... and parts of merges still to do
      written_ms       when the last batch was written, in Unix ms
      age_s            seconds since then
      live_bytes       what the join reads
      disk_bytes       all files, also those not yet removed
      gaps             batches whose rows are missing because acceptGap named
                       them, such as "17-19"
      damage           what is wrong, as texts; empty if nothing is

    Exit code: 0; 1 if damage was found; 2 if there is no state.
    """
    with reported(debug=debug):
        from watersmeet.log.status import read_status

        found = read_status(state)
    if as_json:
        typer.echo(json.dumps(as_plain(found), indent=2))
    else:
        _print(found)
    if found.damage:
        raise typer.Exit(FAILED)


def as_plain(found: Status) -> dict[str, Any]:
    """The documented JSON."""
    from watersmeet.log.codec import to_plain

    return {"version": JSON_VERSION, **to_plain(found), "damage": list(found.damage)}


def _print(found: Status) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for number, join in enumerate(found.joins):
        if number:
            console.print()
        console.print(_heading(join), soft_wrap=not console.is_terminal)
        console.print(_table(join))
        if join.hypercube is not None and join.hypercube.heavy:
            _print_heavy(console, join.hypercube, [one.name for one in join.inputs])
        say(console, _rest(join))
    for problem in found.damage:
        say_error(problem)


def _print_heavy(console: Console, cube: CubeStatus, inputs: list[str]) -> None:
    """The heaviest keys and the latest changes."""
    from watersmeet.cli.heavy import heavy_table, latest_changes

    ascii_only = console.options.ascii_only
    console.print()
    console.print(heavy_table(cube.heavy[:_SHOWN_KEYS], inputs, console.width, ascii_only=ascii_only))
    if len(cube.heavy) > _SHOWN_KEYS:
        say(console, f"and {len(cube.heavy) - _SHOWN_KEYS} more")
    shown = min(_SHOWN_CHANGES, len(cube.changes))
    say(console, ("latest changes" if shown else "no changes", "dim"))
    for line in latest_changes(cube, shown, console.width, ascii_only=ascii_only):
        say(console, line)
    console.print()


def _heading(join: JoinStatus) -> RenderableType:
    from rich.text import Text

    from watersmeet.cli.figures import age, moment

    text = Text.assemble((join.name, "bold"), f"  query {join.query}\n")
    if join.batch is None:
        return text.append("no batch yet")
    text.append(f"batch {join.batch}, started {join.starts} time{'s' if join.starts > 1 else ''}")
    if join.written_ms is not None and join.age_s is not None:
        text.append(f", last batch {age(join.age_s)} ({moment(join.written_ms)})")
    if join.gaps:
        text.append(f"\nwithout the rows of batches {', '.join(join.gaps)} (acceptGap)")
    if join.strategy is not None:
        text.append(f"\n{_strategy(join)}")
    if join.window is not None:
        text.append(f"\n{_window(join.window)}")
    return text.append(f"\non {join.predicate}") if join.predicate else text


def _strategy(join: JoinStatus) -> str:
    """Such as: grid of 4 cells, mapping (1, 4) after 2 changes, the last in batch 7: 120 rows read anew."""
    from watersmeet.cli.figures import count, size
    from watersmeet.cli.heavy import biclique_words, cube_words

    if join.table is not None:
        return _table_words(join.table)
    if join.hypercube is not None:
        return f"hypercube: {cube_words(join.hypercube)}"
    if join.biclique is not None:
        return biclique_words(join.biclique)
    if join.grid is None:
        return f"strategy {join.strategy}"
    grid = join.grid
    shapes = " + ".join(f"({rows}, {cols})" for rows, cols in grid.mappings)
    text = f"grid of {count(grid.cells)} cells, mapping {shapes}, {size(grid.load_bytes)} a cell"
    if not grid.changes:
        return text
    last = grid.changes[-1]
    times = f"{grid.epoch} change{'s' if grid.epoch > 1 else ''}"
    return (
        f"{text}; {times}, the last in batch {last.batch}: {count(last.kept_rows)} rows kept, "
        f"{count(last.moved_rows)} moved, {count(last.discarded_rows)} dropped by cells"
    )


def _table_words(table: TableStatus) -> str:
    """Such as: table p by hybrid: the last batch needed 12 of 888 pages, 6.4 MB."""
    from watersmeet.cli.figures import count, size

    text = f"table {table.name} by {table.strategy}: the last batch needed {count(table.pages_read)} of "
    text += f"{count(table.pages)} pages, {size(table.bytes_read)}"
    return f"{text}; {count(table.waiting_rows)} rows wait" if table.waiting_rows else text


def _window(window: WindowStatus) -> str:
    """Such as: window of 10 minutes, lateness 0 seconds, watermark 2024-01-01 00:05:00; newest l 00:05, r 00:07."""
    text = f"window of {window.within}"
    if window.lateness is None:
        return text
    text += f", lateness {window.lateness}, "
    text += f"watermark {window.watermark}" if window.watermark is not None else "no watermark yet"
    newest = ", ".join(f"{name} {time}" for name, time in window.newest.items())
    return f"{text}; newest: {newest}" if newest else text


def _table(join: JoinStatus) -> RenderableType:
    from rich import box
    from rich.table import Table

    from watersmeet.cli.figures import count, size

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("input")
    headings = ["rows", "bytes", "runs", "null keys dropped"]
    headings += ["late", "evicted"] if join.window else ["absent"] if join.table else []
    for heading in headings:
        table.add_column(heading, justify="right")
    for one in join.inputs:
        figures = [count(one.rows), size(one.bytes), count(one.runs), count(one.null_rows)]
        if join.window:
            figures += [count(one.late_rows), count(one.evicted_rows)]
        elif join.table:
            figures.append(count(one.absent_rows))
        table.add_row(one.name, *figures)
    return table


def _rest(join: JoinStatus) -> str:
    from watersmeet.cli.figures import count, size

    debt = (
        f"{count(join.pending_rows)} rows in {count(join.pending_parts)} parts"
        if join.pending_parts
        else "none"
    )
    return f"merging debt: {debt}; on disk: {size(join.disk_bytes)}, of which live: {size(join.live_bytes)}"
