"""`watersmeet status`: show the content of a state directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from watersmeet.cli.outcome import FAILED, reported, say, say_error

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from watersmeet.engine.hub_status import HubStatus
    from watersmeet.log.status import JoinStatus, Status, WindowStatus
    from watersmeet.model.facts import Settlement
    from watersmeet.schemes.scheme import Shown

# Raised when a key of the JSON changes its meaning or is removed. New keys may be added at any time.
JSON_VERSION = 2

# Tasks whose tallies are printed, and what their time is spent on.
_SHOWN_TASKS = 8
_PHASES = ("reading", "probing", "emitting", "merging")

# Rows and changes of a plan that are printed; the JSON has all of them.
_SHOWN_ROWS, _SHOWN_EVENTS = 10, 5


def status(
    state: Annotated[
        str, typer.Argument(metavar="STATE", help="The directory or URI that was passed as state=.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show the content of a state directory: batches, rows, runs, merging debt, damage.

    It only reads, needs no Spark, and may run beside the query.

    Examples:

      watersmeet status /data/state
      watersmeet status s3://bucket/state --json | jq '.joins[].disk_bytes'

    The JSON:

    One object with version, state, joins and damage (a list of texts). Each join has

      name, query      the join's name and Spark's query id
      part_of          of a lookup that is a stage of a join with tables
                       among three or more inputs: the name of that join;
                       otherwise null. Its own name is JOIN~TABLE
      batch, starts    the last batch; the number of starts of the query
      predicate        the join condition, in canonical spelling
      strategy         hash, hypercube, biclique, range, grid, delta,
                       budget, table or hub
      plan             the strategy's plan for the last batch, as it
                       is stored; its kind names the strategy. Of a grid:
                       epoch (changes of shape), groups, left and right
                       (what has arrived), relocations (the latest changes).
                       Of a hypercube: inputs, ranges, heavy (key, label,
                       rows of each input by their lower and upper bound,
                       shape, tasks), watched (keys with most work, and
                       their rows), epoch, load and mean (work of the
                       busiest task and on average), changes (the latest:
                       batch, label, shape before and after, moved_rows).
                       Of a biclique: units, groups. Of delta joins: order
                       (of the inputs), terms (start, then: the inputs that
                       its new rows go through, empty if exact counts
                       decide, since: batch of the decision, predicted and
                       measured: rows of work for a new row, sampled,
                       held_until), changes (the latest), late (terms whose
                       new rows are shared out by work). Of a budget:
                       memory, equal and heavy (partition groups: equal
                       ranges of keys, cut at heavy ones), owners (task of
                       each group), output, pushed_rows and pushed_bytes
                       (of each group), pushed_of (rows by input), pushed
                       and paid (ranges of keys, by this batch), parts (of
                       keys that are paid over several batches), loads
                       (of each task: active_rows, active_bytes,
                       pushed_rows, pushed_bytes, owed_rows, owing_groups,
                       most_owed: results, at most), events (the last
                       pushes, payments and moves to another task: batch,
                       at_ms, task, what, groups, rows, bytes, why),
                       moved_ms, sampled, sampled_ms, forced_bytes, owed_ms
                       (since when each group owes, 0 for not), owed_rows
                       and most_owed (of each group), slice_bytes and
                       slow_ms (of a join that defers: what a task pays in
                       a batch, and what it may take). Of a table:
                       table (version, pages), reading, pages_read,
                       bytes_read, waiting_rows. A label is a value of your
                       data, unchanged: at most 40 characters, or "hash" and
                       the hash of the key
      window           of a window: within, lateness, watermark (null until
                       all inputs have had a time; it waits for the slowest
                       input), newest (the latest time of each input);
                       otherwise null
      inputs           name, runs, rows, bytes (live), arrived_rows,
                       null_rows (dropped for a null key or time),
                       late_rows (dropped below the watermark),
                       evicted_rows (have left the window),
                       absent_rows (dropped: no page of the table can hold
                       their key), arrangements (how often the rows are
                       sorted, each by another key or value), found_by
                       (these keys and values, in words)
      tallies          the last tally of each task that has left one, by
                       task: batch, task, looked_rows, emitted_rows,
                       touched_bytes (parts of run files it opened),
                       reading_ms, probing_ms, emitting_ms, merging_ms, and
                       of delta joins the terms: start (the input whose new
                       rows were looked up), fresh_rows, looked_rows,
                       bound_rows (combinations made); of a budget groups
                       and group_rows (results by partition group). They
                       are advisory: some may be missing
      pending_rows     merging debt: rows (estimated) ...
      pending_parts    ... and parts of merges still to do
      written_ms       when the last batch was written, in Unix ms
      age_s            seconds since then
      live_bytes       what the join reads
      disk_bytes       all files, including those not yet removed
      settled          what was paid after the query had ended, oldest
                       first: batch, folder, rows (results), at_ms, lost
                       (damaged runs that took no part)
      is_settled       whether no batch came after the last settling
      unsettled        the batch of a settling that was begun and not
                       finished; otherwise null
      hub              of a hub: queries (live ones) and templates, streams
                       (name, rows, bytes, arrived_rows, unread_rows: read by
                       no live query, null_rows, indexes: column, rows and
                       bytes, kept_from: SINCE may reach back to there, null
                       without a limit), retain, removed (ids), refused
                       (query and message, of the last commands), and of
                       the last batch answers,
                       answers_per_s, busy_s, top_answers and top_costs
                       (query, answers, looked_rows: rows looked at), keeps
                       (templates that keep steps: inputs, since_batch, and
                       what was expected in a batch: stored_rows, as
                       stored_lookups, and saved_lookups) and kept (stream
                       and column that combinations wait for, rows, bytes);
                       of a join null
      gaps             batches whose rows are missing because acceptGap named
                       them, such as "17-19"
      damage           a list of texts; empty if there is none

    Exit code: 0; 1 if damage was found; 2 if there is no state.
    """
    with reported(debug=debug):
        from watersmeet.log.status import read_status

        found = read_status(state)
    if as_json:
        typer.echo(json.dumps(as_plain(found, state), indent=2))
    else:
        _print(found, state)
    if found.damage:
        raise typer.Exit(FAILED)


def as_plain(found: Status, state: str | None = None) -> dict[str, Any]:
    """The documented JSON as a dict. `state` is the place as it was given: that in the status has no credentials."""
    from watersmeet.log.codec import to_plain

    plain: dict[str, Any] = to_plain(found)
    for join, status in zip(plain["joins"], found.joins, strict=True):
        join["inputs"] = [_plain_input(one) for one in join["inputs"]]
        # The id of a start of Spark, which tells people nothing.
        join["settled"] = [{key: one[key] for key in one if key != "run"} for one in join["settled"]]
        hub = hub_of(state or found.state, status)
        join["hub"] = None if hub is None else _plain_hub(hub)
    return {"version": JSON_VERSION, **plain, "damage": list(found.damage)}


def _plain_input(plain: dict[str, Any]) -> dict[str, Any]:
    """An input with its totals beside its other figures. `rows` is what is live, so the total has another name."""
    flat: dict[str, Any] = {}
    for key, value in plain.items():
        flat |= {"arrived_rows": value.pop("rows"), **value} if key == "totals" else {key: value}
    return flat


def hub_of(state: str, join: JoinStatus) -> HubStatus | None:
    """What a hub has beside a join; None for a join, and where a damage hides it."""
    from watersmeet.schemes.register import SCHEMES
    from watersmeet.schemes.scheme import Serves

    if join.strategy is None or SCHEMES[join.strategy].serves != Serves.HUB:
        return None
    from watersmeet.engine.hub_status import hub_status, open_hub
    from watersmeet.errors import WatersmeetError

    try:
        return hub_status(open_hub(state, join.name, join.query))
    except (WatersmeetError, OSError):
        return None


def _plain_hub(hub: HubStatus) -> dict[str, Any]:
    from watersmeet.cli.hub_view import as_plain as plain_hub

    return plain_hub(hub)


def _print(found: Status, state: str) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for number, join in enumerate(found.joins):
        if number:
            console.print()
        console.print(_heading(join), soft_wrap=not console.is_terminal)
        hub = hub_of(state, join)
        if hub is None:
            console.print(_table(join))
        else:
            from watersmeet.cli.hub_view import print_hub_parts

            print_hub_parts(console, hub)
        planned = join.shown is not None and bool(join.shown.rows)
        if join.shown is not None and planned:
            _print_plan(console, join.shown)
        if join.tallies:
            _print_tallies(console, join)
        if planned or join.tallies:
            console.print()
        say(console, _rest(join))
    for problem in found.damage:
        say_error(problem)


def _print_plan(console: Console, shown: Shown) -> None:
    """Print the first rows of the plan's table and the latest changes."""
    from watersmeet.cli.plans import latest_events, plan_table

    ascii_only = console.options.ascii_only
    console.print()
    console.print(plan_table(shown, _SHOWN_ROWS, console.width, ascii_only=ascii_only))
    if len(shown.rows) > _SHOWN_ROWS:
        say(console, f"and {len(shown.rows) - _SHOWN_ROWS} more")
    lines = min(_SHOWN_EVENTS, len(shown.events))
    say(console, ("latest changes" if lines else "no changes", "dim"))
    for line in latest_events(shown, lines, console.width, ascii_only=ascii_only):
        say(console, line)


def _print_tallies(console: Console, join: JoinStatus) -> None:
    """Print the work of the busiest tasks, as far as they have left a tally."""
    from rich import box
    from rich.table import Table

    from watersmeet.model.figures import count, size

    # Nine columns, which a terminal of 80 characters has just room for.
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for heading in ("task", "batch", "looked up", "emitted", "touched", *_PHASES):
        table.add_column(heading, justify="right", no_wrap=True)
    busiest = sorted(join.tallies, key=lambda one: (-one.looked_rows - one.emitted_rows, one.task))
    for one in sorted(busiest[:_SHOWN_TASKS], key=lambda one: one.task):
        spent = (one.reading_ms, one.probing_ms, one.emitting_ms, one.merging_ms)
        table.add_row(
            str(one.task),
            str(one.batch),
            count(one.looked_rows),
            count(one.emitted_rows),
            size(one.touched_bytes),
            *(f"{ms:,.0f} ms" for ms in spent),
        )
    console.print()
    console.print(table)
    if len(join.tallies) > _SHOWN_TASKS:
        say(console, f"the busiest {_SHOWN_TASKS} of {len(join.tallies)} tasks")


def _heading(join: JoinStatus) -> RenderableType:
    from rich.text import Text

    from watersmeet.cli.figures import age, moment

    text = Text.assemble((join.name, "bold"), f"  query {join.query}\n")
    if join.part_of is not None:
        text.append(f"a lookup of the join {join.part_of}\n")
    if join.batch is None:
        return text.append("no batch yet")
    text.append(f"batch {join.batch}, started {join.starts} time{'s' if join.starts > 1 else ''}")
    if join.written_ms is not None and join.age_s is not None:
        text.append(f", last batch {age(join.age_s)} ({moment(join.written_ms)})")
    if join.gaps:
        text.append(f"\nwithout the rows of batches {', '.join(join.gaps)} (acceptGap)")
    if join.shown is not None:
        text.append(f"\n{join.shown.summary}")
    for done in join.settled:
        text.append(f"\n{_settled(done)}")
    if join.is_settled:
        text.append("\nnothing is owed: no batch came after that")
    if join.unsettled is not None:
        text.append(
            f"\na settling after batch {join.unsettled} was begun and not finished: settle again, or start the query"
        )
    if join.window is not None:
        text.append(f"\n{_window(join.window)}")
    if len(join.inputs) > 2:
        ways = "; ".join(f"{one.name} by {', or by '.join(one.found_by)}" for one in join.inputs)
        text.append(f"\nfound: {ways}")
    return text.append(f"\non {join.predicate}") if join.predicate else text


def _settled(done: Settlement) -> str:
    """A settling in one line, such as: settled after batch 7: 1,234 results in /data/late (2024-01-01 00:05:00)."""
    from watersmeet.cli.figures import moment
    from watersmeet.model.figures import count

    text = f"settled after batch {done.batch}: {count(done.rows)} results in {done.folder} ({moment(done.at_ms)})"
    return f"{text}, without those of {len(done.lost)} damaged runs" if done.lost else text


def _window(window: WindowStatus) -> str:
    """The window in one line, such as: window of 10 minutes, lateness 0 seconds, watermark 2024-01-01 00:05:00; ..."""
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

    from watersmeet.model.figures import count, size

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("input")
    repeated = any(len(one.found_by) > 1 for one in join.inputs)
    headings = ["rows", *(["keys"] if repeated else []), "bytes", "runs", "null keys dropped"]
    absent = any(one.totals.absent_rows for one in join.inputs)
    headings += ["late", "evicted"] if join.window else ["absent"] if absent else []
    for heading in headings:
        table.add_column(heading, justify="right")
    for one in join.inputs:
        figures = [count(one.rows), *([count(len(one.found_by))] if repeated else [])]
        figures += [size(one.bytes), count(one.runs), count(one.totals.null_rows)]
        if join.window:
            figures += [count(one.totals.late_rows), count(one.totals.evicted_rows)]
        elif absent:
            figures.append(count(one.totals.absent_rows))
        table.add_row(one.name, *figures)
    return table


def _rest(join: JoinStatus) -> str:
    from watersmeet.model.figures import counted, size

    debt = (
        f"{counted(join.pending_rows, 'row')} in {counted(join.pending_parts, 'part')}"
        if join.pending_parts
        else "none"
    )
    return f"merging debt: {debt}; on disk: {size(join.disk_bytes)}, of which live: {size(join.live_bytes)}"
