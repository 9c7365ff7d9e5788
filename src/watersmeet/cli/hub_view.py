"""A hub for people: its queries, streams, indexes, refusals, and what answers and costs most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import age, harmless, moment, shortened
from watersmeet.cli.outcome import say
from watersmeet.engine.hub_status import HubStatus, LiveQuery
from watersmeet.log.codec import to_plain
from watersmeet.model.figures import count, counted, size
from watersmeet.model.tally import QueryTally

# Refused commands that are printed; the JSON has all of them.
_SHOWN_TEMPLATES = 10
_SHOWN_REFUSALS = 10
# Columns that a line of a list has room for, beside the id and the batch, where no terminal says so.
_LIST_WIDTH = 160
_ID_WIDTH = 30


def as_plain(status: HubStatus) -> dict[str, Any]:
    """A hub as JSON: the number of queries instead of the queries, as there may be thousands."""
    plain: dict[str, Any] = to_plain(status)
    return plain | {"queries": len(status.queries), "answers_per_s": status.answers_per_s}


def print_queries(queries: Sequence[LiveQuery]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        # A line for each query, for who counts or greps them.
        console.width = _LIST_WIDTH
    ascii_only = console.options.ascii_only
    table = _table("query", "from batch", "text")
    ids = [shortened(harmless(one.id, ascii_only=ascii_only), _ID_WIDTH) for one in queries]
    room = max(20, console.width - max(map(len, ids), default=0) - 20)
    for id_, one in zip(ids, queries, strict=True):
        text = harmless(" ".join(one.sql.split()), ascii_only=ascii_only)
        table.add_row(Text(id_), Text(str(one.first_batch)), Text(shortened(text, room)))
    console.print(table, soft_wrap=not console.is_terminal)


def print_query(query: LiveQuery, status: HubStatus) -> None:
    console = Console(highlight=False)
    say(console, (harmless(query.id), "bold"), f"  from batch {query.first_batch}")
    same = sum(one.template == query.template for one in status.queries) - 1
    differ = "differs" if same == 1 else "differ"
    say(
        console,
        f"{counted(same, 'other query', 'other queries')} {differ} in constants only"
        if same
        else "no other query is like it",
    )
    tallies = {one.query: one for one in (*status.top_answers, *status.top_costs)}
    if query.id in tallies:
        one = tallies[query.id]
        say(
            console,
            f"batch {status.batch}: {counted(one.answers, 'answer')}, {counted(one.looked_rows, 'row')} looked at",
        )
    elif status.answers is not None:
        say(console, f"batch {status.batch}: not among the ten that answer or cost most")
    say(console, harmless(query.sql))


def print_hub(status: HubStatus) -> None:
    console = Console(highlight=False)
    say(
        console,
        (status.name, "bold"),
        f"  batch {status.batch}, {age(status.age_s)} ({moment(status.written_ms)})",
    )
    print_hub_parts(console, status)


def print_hub_parts(console: Console, status: HubStatus) -> None:
    """What a hub has beside a join: also a part of `watersmeet status`."""
    say(console, _summary(status))
    if status.retain is not None:
        say(console, _retained(status))
    console.print()
    _print_streams(console, status)
    _print_kept(console, status)
    for words, tallies in (("answer", status.top_answers), ("cost", status.top_costs)):
        _print_top(console, f"queries that {words} most", tallies)
    if status.refused:
        console.print()
    for one in status.refused[:_SHOWN_REFUSALS]:
        say(console, ("refused ", "bold yellow"), f"{harmless(one.query) or '(no id)'}: {one.message}")
    if len(status.refused) > _SHOWN_REFUSALS:
        say(console, f"and {count(len(status.refused) - _SHOWN_REFUSALS)} more refused")


def _summary(status: HubStatus) -> str:
    text = f"{counted(len(status.queries), 'query', 'queries')} of {counted(status.templates, 'template')}"
    if status.answers is None:
        return text
    text += f"; {counted(status.answers, 'answer')} in the last batch"
    return text + (f" ({count(status.answers_per_s)}/s)" if status.answers_per_s else "")


def _retained(status: HubStatus) -> str:
    longer = "for ever" if status.retain == "all" else f"{status.retain} longer than queries need them"
    since = ", ".join(f"{one.name} from {one.kept_from or 'the first row'} on" for one in status.streams)
    return f"rows are kept {longer}: {since}"


def _print_streams(console: Console, status: HubStatus) -> None:
    table = _table("stream", "rows", "bytes", "arrived", "not read", "indexed by")
    for one in status.streams:
        indexes = ", ".join(f"{index.column} ({size(index.bytes)})" for index in one.indexes)
        figures = (count(one.rows), size(one.bytes), count(one.arrived_rows), count(one.unread_rows))
        table.add_row(Text(one.name), *figures, Text(indexes or "-"))
    console.print(table, soft_wrap=not console.is_terminal)


def _print_kept(console: Console, status: HubStatus) -> None:
    if not status.keeps:
        return
    saved, stored = (
        sum(getattr(one, name) for one in status.keeps) for name in ("saved_lookups", "stored_rows")
    )
    expected = f"{counted(round(saved), 'lookup')} saved, {counted(round(stored), 'row')} stored"
    say(
        console,
        f"steps are kept for {counted(len(status.keeps), 'template')}; expected in a batch: {expected}",
    )
    table = _table("kept for", "rows", "bytes")
    for one in status.kept:
        table.add_row(Text(f"{one.stream}.{one.column}"), count(one.rows), size(one.bytes))
    console.print(table, soft_wrap=not console.is_terminal)
    table = _table("template", "since batch", "stored rows", "as lookups", "saved lookups", "inputs")
    for found in sorted(status.keeps, key=lambda found: -found.saved_lookups)[:_SHOWN_TEMPLATES]:
        figures = (found.stored_rows, found.stored_lookups, found.saved_lookups)
        numbers = (str(found.since_batch), *(count(round(one)) for one in figures))
        table.add_row(str(found.template), *numbers, Text(", ".join(found.inputs)))
    console.print(table, soft_wrap=not console.is_terminal)


def _print_top(console: Console, title: str, tallies: Sequence[QueryTally]) -> None:
    if not tallies:
        return
    console.print()
    table = _table(title, "answers", "rows looked at")
    for one in tallies:
        table.add_row(
            Text(shortened(harmless(one.query), _ID_WIDTH)), count(one.answers), count(one.looked_rows)
        )
    console.print(table, soft_wrap=not console.is_terminal)


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in others:
        left = heading in ("text", "indexed by", "inputs")
        table.add_column(heading, justify="left" if left else "right", no_wrap=not left)
    return table
