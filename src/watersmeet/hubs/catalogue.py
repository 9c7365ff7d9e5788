"""The catalogue: the live queries of a hub, and how commands change it.

The catalogue of a batch is a pure function of the catalogue before it and of the commands of the batch, in their
order. So a replayed batch makes the same one. It is kept as Arrow columns: a query is a row with the number of its
template, its constants, its window, the batch that brought it, and whether its id was ever given at a start. It counts
rows of later batches only, or those of all batches from the publication time `since` on.

    add, unknown id                         the query is added
    add, live id, same text                 nothing: it is the same query
    add, live id, other text                refused
    add, SINCE before what is kept          refused
    add, removed id                         added anew; but a query that was given at a start before stays removed
    remove, live id                         removed: no answer comes out of later batches
    remove, other id                        refused

Commands of one batch take effect one after the other. A query that is added and removed in one batch was never live.

A restart gives the same queries as the start before, and must not bring back what a command removed meanwhile. So the
ids of queries that were given and then removed are remembered. Other ids are not: they come and go with commands.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from watersmeet.errors import PredicateError
from watersmeet.hubs.expressions import from_text, to_text
from watersmeet.hubs.language import (
    Comparison,
    Equality,
    HubQuery,
    Item,
    Template,
    with_shared_parts,
)
from watersmeet.hubs.since import problem_with_since
from watersmeet.hubs.templates import TemplateReader
from watersmeet.kernel.keys import Mask, order_keys
from watersmeet.predicate.literals import brief

ADD: Final = "add"
REMOVE: Final = "remove"
# A delivery has a folder for each query, and a name of a file has at most 255 bytes.
MOST_FOLDER_BYTES: Final = 255
# Spark writes these as a percent sign and two digits in the name of a folder (ExternalCatalogUtils).
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(1, 0x20)}
# Of a refused id as many characters are shown.
_SHOWN_ID_CHARS: Final = 200

# Rows that are plain Python objects at a time. They take ten times as much, and what lies between objects that stay is
# not given back.
_PLAIN_ROWS: Final = 512

_EQUALITY = pa.struct(
    [("left", pa.int8()), ("left_column", pa.string()), ("right", pa.int8()), ("right_column", pa.string())]
)
_FILTER = pa.struct(
    [("input", pa.int8()), ("column", pa.string()), ("op", pa.string()), ("slots", pa.list_(pa.int32()))]
)
_ITEM = pa.struct([("name", pa.string()), ("input", pa.int8()), ("column", pa.string())])
TEMPLATES: Final = pa.schema(
    [
        ("aliases", pa.list_(pa.string())),
        ("streams", pa.list_(pa.string())),
        ("equalities", pa.list_(_EQUALITY)),
        ("filters", pa.list_(_FILTER)),
        ("items", pa.list_(_ITEM)),
        ("distinct", pa.bool_()),
        # Of each item, null if it is a column.
        ("expressions", pa.list_(pa.string())),
        # The inputs whose combinations are kept, null if that is not chosen yet, and the batch that it was chosen in.
        ("keeps", pa.list_(pa.int8())),
        ("chosen", pa.int64()),
        # What was expected of it then, in a batch (hubs/keep_choice.py).
        ("stored_rows", pa.float64()),
        ("saved_lookups", pa.float64()),
    ]
)
QUERIES: Final = pa.schema(
    [
        ("id", pa.string()),
        ("sql", pa.string()),
        ("template", pa.int32()),
        ("constants", pa.list_(pa.string())),
        ("start", pa.int64()),
        ("window", pa.string()),
        ("width", pa.int64()),
        ("given", pa.bool_()),
        ("since", pa.int64()),
        # The number of the combinations that are kept for it (hubs/keep.py).
        ("kept", pa.int64()),
    ]
)
EVENTS: Final = pa.schema([("query", pa.string()), ("event", pa.string()), ("message", pa.string())])


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `given` says that it is a query that was given at the start."""

    op: str | None
    id: str | None
    sql: str | None = None
    given: bool = False


@dataclass(frozen=True)
class HubCatalogue:
    """The live queries, their templates, and the ids that were given at a start and removed later.

    `given_by` is the number of the last start whose given queries are in.
    """

    queries: pa.RecordBatch = field(default_factory=lambda: _no_rows(QUERIES))
    templates: pa.RecordBatch = field(default_factory=lambda: _no_rows(TEMPLATES))
    removed: tuple[str, ...] = ()
    given_by: int = -1

    def __len__(self) -> int:
        return int(self.queries.num_rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HubCatalogue) and (
            self.queries.equals(other.queries)
            and self.templates.equals(other.templates)
            and (self.removed, self.given_by) == (other.removed, other.given_by)
        )

    @functools.cached_property
    def parsed(self) -> tuple[Template, ...]:
        """The templates by number. What they have in common is one object in memory: names, equalities and columns."""
        known: dict[Any, Any] = {}
        return tuple(
            with_shared_parts(_to_template(plain), lambda one: known.setdefault(one, one))
            for part in pa.Table.from_batches([self.templates]).to_batches(_PLAIN_ROWS)
            for plain in part.to_pylist()
        )

    @property
    def distinct(self) -> Mask:
        """Which templates are DISTINCT."""
        found: Mask = self.templates.column("distinct").to_numpy(zero_copy_only=False).astype(np.bool_)
        return found


@dataclass(frozen=True, slots=True)
class Changed:
    """A catalogue after some commands, and what became of them."""

    catalogue: HubCatalogue
    events: pa.RecordBatch


def apply_commands(
    before: HubCatalogue,
    commands: Sequence[Command],
    batch: int,
    reader: TemplateReader,
    unkept: Mapping[str, int] | None = None,
) -> Changed:
    """The catalogue after a batch's commands.

    `unkept` has the newest publication time of which a row may not be there any more, by stream.
    """
    if not commands:
        return Changed(before, _no_rows(EVENTS))
    change = _Change(before, batch, reader, unkept or {})
    for command in commands:
        change.apply(command)
    return change.result()


@dataclass(frozen=True, slots=True)
class _New:
    id: str
    sql: str
    query: HubQuery
    given: bool


class _Change:
    """The commands of one batch, one after the other. New queries become rows from time to time: they take less so."""

    def __init__(self, before: HubCatalogue, batch: int, reader: TemplateReader, unkept: Mapping[str, int]):
        self.before, self.batch, self.reader, self.unkept = before, batch, reader, unkept
        self.queries, self.templates = before.queries, before.templates
        # A live query: its place among the rows, or it is new and no row yet.
        self.rows = {id_: at for at, id_ in enumerate(before.queries.column("id").to_pylist())}
        self.new: dict[str, _New] = {}
        self.gone: list[int] = []
        # Whether the id of a row was ever given at a start.
        self.given: list[bool] = before.queries.column("given").to_pylist()
        self.removed = dict.fromkeys(before.removed)
        self.events: list[tuple[str, str, str | None]] = []

    @functools.cached_property
    def numbers(self) -> dict[Template, int]:
        """The templates by number: those before, and those that come with new queries."""
        return {template: at for at, template in enumerate(self.before.parsed)}

    def apply(self, command: Command) -> None:
        id_ = command.id or ""
        problem = problem_with(command)
        if problem is not None:
            shown = id_[:_SHOWN_ID_CHARS].encode("utf-8", "replace").decode()
            self.events.append((shown, "refused", problem))
        elif command.op == ADD:
            self.add(id_, (command.sql or "").strip(), given=command.given)
        else:
            self.remove(id_)

    def live(self, id_: str) -> str | None:
        """The text of a live query."""
        if id_ in self.new:
            return self.new[id_].sql
        text: str | None = self.queries.column("sql")[self.rows[id_]].as_py() if id_ in self.rows else None
        return text

    def add(self, id_: str, sql: str, *, given: bool) -> None:
        live = self.live(id_)
        if live is not None:
            if given:
                self.mark(id_)
            if live != sql:
                self.refuse(id_, f"query {brief(id_)} is live with another text: remove it first")
            return
        if given and id_ in self.removed:
            return
        try:
            query = self.reader.read(sql)
        except PredicateError as error:
            self.refuse(id_, str(error))
            return
        if query.since is not None:
            problem = problem_with_since(query.since, query.template.streams, self.unkept)
            if problem is not None:
                self.refuse(id_, problem)
                return
        self.new[id_] = _New(id_, sql, query, given or id_ in self.removed)
        self.removed.pop(id_, None)
        self.events.append((id_, "added", None))
        if len(self.new) == _PLAIN_ROWS:
            self.store()

    def mark(self, id_: str) -> None:
        """Note that the id of a live query was given at a start."""
        if id_ in self.new:
            self.new[id_] = replace(self.new[id_], given=True)
        else:
            self.given[self.rows[id_]] = True

    def remove(self, id_: str) -> None:
        if id_ in self.new:
            given = self.new.pop(id_).given
        elif id_ in self.rows:
            at = self.rows.pop(id_)
            given = self.given[at]
            self.gone.append(at)
        else:
            self.refuse(id_, f"there is no query {brief(id_)} to remove")
            return
        if given:
            self.removed[id_] = None
        self.events.append((id_, "removed", None))

    def refuse(self, id_: str, message: str) -> None:
        self.events.append((id_, "refused", message))

    def store(self) -> None:
        """Make rows of the new queries, and of their templates those that are new."""
        if not self.new:
            return
        known = len(self.numbers)
        rows = [
            {
                "id": one.id,
                "sql": one.sql,
                "template": self.numbers.setdefault(one.query.template, len(self.numbers)),
                "constants": one.query.constants,
                "start": self.batch,
                "window": str(one.query.window.of) if one.query.window else None,
                "width": one.query.window.width if one.query.window else None,
                "given": one.given,
                "since": one.query.since,
            }
            for one in self.new.values()
        ]
        fresh = [_from_template(template) for template in itertools.islice(self.numbers, known, None)]
        self.rows |= {id_: len(self.given) + at for at, id_ in enumerate(self.new)}
        self.given += [one.given for one in self.new.values()]
        self.new = {}
        self.queries = pa.concat_batches([self.queries, pa.RecordBatch.from_pylist(rows, QUERIES)])
        self.templates = pa.concat_batches([self.templates, pa.RecordBatch.from_pylist(fresh, TEMPLATES)])

    def result(self) -> Changed:
        self.store()
        place = QUERIES.get_field_index("given")
        queries, templates = self.queries, self.templates
        queries = queries.set_column(place, QUERIES.field(place), pa.array(self.given, pa.bool_()))
        if self.gone:
            keep = np.ones(queries.num_rows, np.bool_)
            keep[self.gone] = False
            queries, templates = _without_unused(queries.filter(pa.array(keep)), templates)
        events = pa.RecordBatch.from_arrays(
            [pa.array(column, pa.string()) for column in zip(*self.events, strict=True)]
            if self.events
            else [pa.array([], pa.string())] * 3,
            schema=EVENTS,
        )
        after = HubCatalogue(queries, templates, tuple(self.removed), self.before.given_by)
        return Changed(after, events)


def problem_with(command: Command) -> str | None:
    """Why a command is refused, whatever the catalogue and the text say."""
    if command.op is None and command.id is None:
        return 'this is no command: write {"op": "add", "id": "q1", "sql": "SELECT ..."}'
    if command.op not in (ADD, REMOVE):
        return f"op is {brief(str(command.op))}: write {ADD} or {REMOVE}"
    if not command.id:
        return "a command needs the id of a query"
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in command.id):
        return "the id has a character that no text can hold"
    size = len(folder_of(command.id).encode())
    if size > MOST_FOLDER_BYTES:
        return f"the id makes a folder name of {size} bytes, at most {MOST_FOLDER_BYTES}: take a shorter one"
    if command.op == ADD and not (command.sql or "").strip():
        return f"query {brief(command.id)} has no sql"
    return None


def folder_of(id_: str) -> str:
    """The folder of a query in a delivery, as Spark names it.

    >>> folder_of("a/b"), folder_of("Zoë")
    ('query=a%2Fb', 'query=Zoë')
    """
    return "query=" + "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in id_)


def text_numbers(texts: pa.Array) -> pa.Array:
    """A hash of each text of a query. It tells the answers of an id apart that had several texts, one after the other."""
    return pa.array(order_keys([texts]).view(np.int64))


def _without_unused(
    queries: pa.RecordBatch, templates: pa.RecordBatch
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Only the templates that a query has, numbered anew."""
    used, numbers = np.unique(queries.column("template").to_numpy(), return_inverse=True)
    if len(used) == templates.num_rows:
        return queries, templates
    at = queries.schema.get_field_index("template")
    return (
        queries.set_column(at, QUERIES.field(at), pa.array(numbers.astype(np.int32))),
        templates.take(pa.array(used.astype(np.int64))),
    )


def commands_of(rows: Iterable[pa.RecordBatch]) -> Iterator[Command]:
    """The commands in rows with the columns `op`, `id`, `sql` and `at`, in the order of `at`.

    The rows of a batch come in the order of its partitions, which for files is that of their sizes. Commands without a
    time come first.
    """
    found = [
        row
        for part in rows
        for row in zip(
            *(part.column(name).to_pylist() for name in ("at", "op", "id", "sql")),
            strict=True,
        )
    ]
    found.sort(key=lambda row: (row[0] is not None, row[0] or 0))
    return (Command(*command) for _, *command in found)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _from_template(template: Template) -> dict[str, Any]:
    return {
        "aliases": template.aliases,
        "streams": template.streams,
        "equalities": [
            {"left": e.left, "left_column": e.left_column, "right": e.right, "right_column": e.right_column}
            for e in template.equalities
        ],
        "filters": [
            {"input": f.input, "column": f.column, "op": f.op, "slots": f.slots} for f in template.filters
        ],
        "items": [{"name": i.name, "input": i.input, "column": i.column} for i in template.items],
        "distinct": template.distinct,
        "expressions": [
            None if one.expression is None else to_text(one.expression) for one in template.items
        ],
    }


def _to_template(plain: dict[str, Any]) -> Template:
    return Template(
        tuple(plain["aliases"]),
        tuple(plain["streams"]),
        tuple(Equality(**one) for one in plain["equalities"]),
        tuple(
            Comparison(one["input"], one["column"], one["op"], tuple(one["slots"]))
            for one in plain["filters"]
        ),
        tuple(
            Item(**one, expression=None if text is None else from_text(text))
            for one, text in itertools.zip_longest(plain["items"], plain["expressions"] or ())
        ),
        plain["distinct"],
    )
