"""Random queries of a hub, and what DuckDB says their answers are.

DuckDB evaluates each query by itself over all rows that the query counts. An answer comes out in the batch of its
newest row, so the batches are part of what is compared.
"""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from watersmeet.hubs.answers import answer_rows
from watersmeet.hubs.catalogue import Command, HubCatalogue, apply_commands
from watersmeet.hubs.forest_builder import build_forest
from watersmeet.hubs.keep import begins_to_keep, numbered, undecided, with_choices
from watersmeet.hubs.keep_choice import KeptInputs
from watersmeet.hubs.kept import Keeper
from watersmeet.hubs.language import Template
from watersmeet.hubs.rows import Rows, StreamRows, first_row, row_numbers
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.templates import TemplateReader
from watersmeet.hubs.walk import Walk
from watersmeet.kernel.keys import order_keys
from watersmeet.kernel.rows import Sorted, sorted_order
from watersmeet.model.signature import LOCATOR
from watersmeet.model.types import Schema, type_of_arrow

SCHEMA = pa.schema(
    {
        "a": pa.int32(),
        "b": pa.int64(),
        "c": pa.string(),
        "d": pa.float64(),
        "f": pa.float32(),
        "e": pa.decimal128(9, 2),
    }
)
STREAMS = ("R", "S", "P")
AT = "at"
# A row's own number and time, by which DuckDB and the hub are compared.
STORED = SCHEMA.append(pa.field("id", pa.int64())).append(pa.field(AT, pa.int64()))

# The columns by type, so that equalities are of two that compare without a cast.
KINDS = (("a", "b"), ("c",), ("d", "f"), ("e",))
CONSTANTS = {
    "a": ["0", "1", "-1", "2"],
    "b": ["0", "1", "2"],
    "c": ["''", "'x'", "'it''s'"],
    "d": ["0", "0.5", "-1", "1.0"],
    "f": ["0.5", "1"],
    "e": ["0.5", "1", "-1.25"],
}

_VALUES: tuple[list[Any], ...] = (
    [0, 0, 1, 1, 2, None],
    [0, 0, 1, 1, 2, None],
    ["x", "x", "", "it's", 'say "é"\n', None],
    [0.0, -0.0, 0.5, 0.5, 1.0, float("nan"), None],
    [0.0, 0.5, 0.5, 1.0, float("inf"), None],
    [Decimal("0.50"), Decimal("0.50"), Decimal(1), Decimal("-1.25"), None],
)


def rows_from(random: Random, most: int = 6) -> dict[str, list[tuple]]:
    """The rows of one batch, by stream. Few values, so that many rows meet."""
    return {
        name: [tuple(map(random.choice, _VALUES)) for _ in range(random.randint(1, most))] for name in STREAMS
    }


@st.composite
def comparisons(draw, alias: str) -> str:
    column = draw(st.sampled_from(sorted(CONSTANTS)))
    constants = st.sampled_from(CONSTANTS[column])
    name = f"{alias}.{column}"
    match draw(st.integers(0, 5)):
        case 0 | 1:
            return f"{name} = {draw(constants)}"
        case 2:
            return f"{name} {draw(st.sampled_from(['<>', '<', '<=', '>', '>=']))} {draw(constants)}"
        case 3:
            listed = ", ".join(draw(st.lists(constants, min_size=1, max_size=3)))
            return f"{name} {draw(st.sampled_from(['IN', 'NOT IN']))} ({listed})"
        case 4:
            return f"{name} BETWEEN {draw(constants)} AND {draw(constants)}"
    return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"


@st.composite
def equalities(draw, one: str, other: str) -> str:
    kind = draw(st.sampled_from(KINDS))
    left, right = draw(st.sampled_from(kind)), draw(st.sampled_from(kind))
    sides = [f"{one}.{left}", f"{other}.{right}"]
    return " = ".join(sides if draw(st.booleans()) else sides[::-1])


# Output columns that a hub and DuckDB compute alike, with the numbers, texts and decimals to put in.
EXPRESSIONS = [
    *("{x}.a + {y}.b", "{x}.b * {n}", "{x}.a - {n}", "-{x}.b", "abs({x}.a)", "{x}.a % 2", "{x}.b / 2"),
    *(
        "{x}.d * {p}",
        "{x}.f + {y}.d",
        "{x}.f - {y}.f",
        "{x}.e * {p}",
        "{x}.e - {y}.e",
        "-abs({x}.e)",
        "{x}.e + {y}.a",
    ),
    *("{x}.c || {s}", "{x}.c || {y}.c", "coalesce({x}.a, {n})", "coalesce({x}.c, {y}.c, {s})"),
    *(
        "{x}.a IN ({n}, {n})",
        "{x}.d >= {p}",
        "{x}.a IS NULL OR {x}.b = {n}",
        "{x}.a > {y}.b",
        "{x}.f < {y}.d",
    ),
    "CASE WHEN {x}.a > {n} THEN {s} WHEN {y}.b = {n} THEN {y}.c END",
    *("CAST({x}.a AS bigint) + {n}", "CAST({x}.b AS double)", "{n}", "{s}", "({x}.a + {n}) * ({y}.b - {n})"),
]


@st.composite
def expressions(draw, aliases: Sequence[str]) -> str:
    """An output column, without its name."""
    text = draw(st.sampled_from(EXPRESSIONS))
    for place, values in {
        "{x}": aliases,
        "{y}": aliases,
        "{n}": ("0", "1", "2", "-1"),
        "{s}": ("'x'", "''", "'it''s'"),
        "{p}": ("0.5", "1.5", "-1.0"),
    }.items():
        while place in text:
            text = text.replace(place, draw(st.sampled_from(values)), 1)
    return text


def since(micros: int) -> str:
    """The clause for a moment."""
    moment = datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(
        microseconds=micros
    )
    return f" SINCE TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S.%f}Z'"


SLIDING, TUMBLING = " WINDOW 3 SECONDS", " WINDOW TUMBLING 4 SECONDS"
# Less than the rows of a batch, and those of several.
COUNTED = (" WINDOW 1 ROW", " WINDOW 4 ROWS", " WINDOW 9 ROWS")


@st.composite
def queries(
    draw,
    most: int = 4,
    windows: Sequence[str] = ("", "", SLIDING, TUMBLING, *COUNTED),
    distinct: Sequence[bool] = (False,),
    least: int = 1,
) -> str:
    """A query of one to four inputs, connected by a tree of equalities, some of them with more."""
    inputs = draw(st.integers(least, most))
    aliases = [f"t{number}" for number in range(inputs)]
    streams = [draw(st.sampled_from(STREAMS)) for _ in aliases]
    parts = [
        draw(equalities(aliases[draw(st.integers(0, number - 1))], aliases[number]))
        for number in range(1, inputs)
    ]
    if inputs > 1:
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            one, other = draw(st.permutations(aliases))[:2]
            parts.append(draw(equalities(one, other)))
    parts += [
        draw(comparisons(draw(st.sampled_from(aliases)))) for _ in range(draw(st.sampled_from([0, 1, 2])))
    ]
    items = [f"{alias}.id AS {alias}_id" for alias in aliases]
    items += [f"{draw(st.sampled_from(aliases))}.{column} AS {column}" for column in ("c", "d", "e")]
    computed = [draw(expressions(aliases)) for _ in range(draw(st.integers(0, 2)))]
    items += [f"{one} AS x{number}" for number, one in enumerate(computed)]
    source = ", ".join(f"{stream} AS {alias}" for stream, alias in zip(streams, aliases, strict=True))
    where = f" WHERE {' AND '.join(draw(st.permutations(parts)))}" if parts else ""
    window = draw(st.sampled_from(windows))
    if draw(st.sampled_from(distinct)):
        shown = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=2, unique=True))
        items = [f"{draw(st.sampled_from(aliases))}.{column} AS {column}" for column in shown]
        if draw(st.booleans()):
            items.append(f"{draw(expressions(aliases))} AS x")
        return f"SELECT DISTINCT {', '.join(items)} FROM {source}{where}{window}"
    return f"SELECT {', '.join(items)} FROM {source}{where}{window}"


# An answer: its query, the batch that it came out in, and its columns.
Answer = tuple[str, int, str]


def _read(answer: str) -> Any:
    return {
        name: value + 0.0 if isinstance(value, int | float) and not isinstance(value, bool) else value
        for name, value in json.loads(answer, parse_int=float).items()
    }


def read_answers(rows: Iterable[pa.RecordBatch]) -> Counter[Answer]:
    """The answers among the rows of a hub's output."""
    return Counter(
        (row["query"], row["batch"], json.dumps(_read(row["answer"]), sort_keys=True))
        for part in rows
        for row in part.to_pylist()
        if row["event"] == "answer"
    )


@dataclass(frozen=True)
class Asked:
    """A query, and the batches that it counts the rows of: those after `start`, up to `end`; with SINCE also earlier ones."""

    id: str
    sql: str
    start: int
    end: int


def ask_duckdb(asked: Sequence[Asked], stored: Mapping[str, pa.Table]) -> Counter[Answer]:
    """All answers of some queries over the rows of all batches.

    `stored` has the batch of each row as `batch`, and as `late` whether it is late: queries with a window leave it out.
    All other rows are numbered as `place`.
    """
    found: Counter[Answer] = Counter()
    with duckdb.connect() as connection:
        for name, table in stored.items():
            connection.register(name, table)
        for one in asked:
            sql, _, since = one.sql.partition(" SINCE TIMESTAMP ")
            sql, _, window = sql.partition(" WINDOW ")
            head, _, where = sql.partition(" WHERE ")
            items, _, source = head.removeprefix("SELECT ").partition(" FROM ")
            is_distinct, items = items.startswith("DISTINCT "), items.removeprefix("DISTINCT ")
            aliases = [part.split(" AS ")[1] for part in source.split(", ")]
            first = 0 if since else one.start + 1
            parts = [where or "true", *(f"{a}.batch BETWEEN {first} AND {one.end}" for a in aliases)]
            if since:
                parts += [f"{a}.{AT} >= epoch_us(TIMESTAMPTZ {since})" for a in aliases]
            newest, oldest = (
                f"{f}({', '.join(f'{a}.{AT}' for a in aliases)})" for f in ("greatest", "least")
            )
            if window.startswith("TUMBLING"):
                width = int(window.split()[1]) * 1_000_000
                parts.append(f"floor({newest} / {width}) = floor({oldest} / {width})")
            elif window.endswith(("ROW", "ROWS")):
                last = f"greatest({', '.join(f'{a}.batch' for a in aliases)})"
                for part in source.split(", "):
                    stream, alias = part.split(" AS ")
                    least = f"({_rows_before(stored[stream])})[{last} + 1] - {int(window.split()[0])}"
                    parts.append(f"({alias}.batch = {last} OR {alias}.place >= {least})")
            elif window:
                parts.append(f"{newest} - {oldest} <= {int(window.split()[0]) * 1_000_000}")
            if window:
                parts += [f"NOT {alias}.late" for alias in aliases]
            batch = f"greatest({one.start + 1}, {', '.join(f'{a}.batch' for a in aliases)}) AS __batch"
            asked_for = (
                f"SELECT {batch}, {newest} AS __newest, {items} FROM {source} WHERE {' AND '.join(parts)}"
            )
            rows = connection.execute(f"{asked_for} ORDER BY __batch, __newest")
            names = [column[0] for column in rows.description or ()][2:]
            came_out: dict[str, list[tuple[int, int]]] = {}
            streams = [part.split(" AS ")[0] for part in source.split(", ")]
            for number, time, *row in rows.fetchall():
                plain = {name: _plain(value) for name, value in zip(names, row, strict=True)}
                shown = json.dumps(plain, sort_keys=True)
                if is_distinct:
                    before = came_out.setdefault(shown, [])
                    if window.endswith(("ROW", "ROWS")):
                        lowest = _oldest_counted(one, [stored[name] for name in streams], number, window)
                        if any(when == number or came >= lowest for when, came in before):
                            continue
                    elif any(_in_one_window(time, came, window) for _, came in before):
                        continue
                    before.append((number, time))
                found[one.id, number, shown] += 1
    return found


def _rows_before(table: pa.Table) -> list[int]:
    """How many rows that are not late came before each batch."""
    batches = np.array(table.column("batch"))[~np.array(table.column("late"))]
    return [
        int((batches < batch).sum())
        for batch in range(int(np.array(table.column("batch")).max(initial=0)) + 99)
    ]


def _oldest_counted(one: Asked, streams: Sequence[pa.Table], batch: int, window: str) -> float:
    """The time below which an answer does not keep back equal ones: that of all rows in the window of some stream."""
    found = -math.inf
    for table in streams:
        times, batches, late = (np.array(table.column(name)) for name in (AT, "batch", "late"))
        last = times[(batches > one.start) & (batches < batch) & ~late][-int(window.split()[0]) :]
        if len(last) == int(window.split()[0]):
            found = max(found, last.min())
    return found


def _in_one_window(time: int, other: int, window: str) -> bool:
    if window.startswith("TUMBLING"):
        width = int(window.split()[1]) * 1_000_000
        return time // width == other // width
    return not window or abs(time - other) <= int(window.split()[0]) * 1_000_000


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    # DISTINCT does not tell -0.0 from 0.0.
    return value if value is None or isinstance(value, str | bool) else float(value) + 0.0


def record_batch(rows: Sequence[tuple], first: int, times: Sequence[int]) -> pa.RecordBatch:
    """Rows with their ids, from `first` on, and their times."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(values, one.type) for values, one in zip(columns, SCHEMA, strict=True)]
    ids = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.RecordBatch.from_arrays([*arrays, ids, pa.array(times, pa.int64())], schema=STORED)


def all_rows(parts: Sequence[pa.RecordBatch], lateness: int | None = None) -> pa.Table:
    """The rows of a stream, of one record batch for each batch, with the number of their batch.

    A row is late if it is more than the lateness behind the newest row of earlier batches; without one, none is.
    """
    tables = []
    newest: int | None = None
    counted = 0
    for batch, part in enumerate(parts):
        times = part.column(AT).to_pylist()
        bound: int | None = None if lateness is None or newest is None else newest - lateness
        late = [bound is not None and time < bound for time in times]
        newest = max([*times, *([] if newest is None else [newest])], default=None)
        in_time = np.cumsum(~np.array(late, np.bool_))
        places, counted = counted + in_time - 1, counted + int(in_time[-1] if len(in_time) else 0)
        tables.append(
            pa.table(part)
            .append_column("batch", pa.array([batch] * part.num_rows, pa.int64()))
            .append_column("late", pa.array(late, pa.bool_()))
            .append_column("place", pa.array(places, pa.int64()))
        )
    return pa.concat_tables(tables)


def hub_schemas() -> dict[str, Schema]:
    return {name: {f.name: type_of_arrow(f.type) for f in STORED} for name in STREAMS}


def random_inputs(template: Template, random: Random) -> list[int]:
    """A connected set of two or more inputs of a template, but not all; none if there is no such set."""
    inputs = len(template.streams)
    if inputs < 3:
        return []
    size = random.randint(2, inputs - 1)
    found = {random.randrange(inputs)}
    while len(found) < size:
        near = {
            other
            for one in template.equalities
            for mine, other in ((one.left, one.right), (one.right, one.left))
            if mine in found and other not in found
        }
        found.add(random.choice(sorted(near)))
    return sorted(found)


@dataclass
class MemoryHub:
    """The pure parts of a hub, with rows and indexes in memory. Commands and rows come in batch by batch."""

    piece_rows: int = 7
    schemas: dict[str, Schema] = field(default_factory=hub_schemas)
    catalogue: HubCatalogue = field(default_factory=HubCatalogue)
    number: int = 0
    ids: int = 0
    # Chooses what new templates keep, if it is given.
    random: Random | None = None
    stored: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: {name: [] for name in STREAMS})

    def __post_init__(self) -> None:
        self.reader = TemplateReader(self.schemas)
        self.attributes = Attributes.of(self.schemas)
        self.kept: list[Sorted] = []

    def batch(self, rows: Mapping[str, Sequence[tuple]], commands: Sequence[Command] = (), parts: int = 1):
        """Run one batch, in `parts` tasks."""
        fresh = {name: self.arrived(given) for name, given in rows.items()}
        found = list(self.answers(fresh, parts))
        for name, part in fresh.items():
            self.stored[name].append(part)
        changed = apply_commands(self.catalogue, commands, self.number, self.reader)
        self.catalogue = changed.catalogue
        if self.random is not None:
            self.keep(self.random)
        self.number += 1
        return read_answers(found), changed.events

    def keep(self, random: Random) -> None:
        """Choose what templates keep: those that keep something when they come, or later."""
        which = [one for one in undecided(self.catalogue).tolist() if random.random() < 0.6]
        choices = {
            one: KeptInputs(tuple(random_inputs(self.catalogue.parsed[one], random)), 1.0, 2.0)
            for one in which
        }
        self.catalogue = numbered(with_choices(self.catalogue, choices, self.number), self.number)

    def arrived(self, rows: Sequence[tuple]) -> pa.RecordBatch:
        first, self.ids = self.ids, self.ids + len(rows)
        return record_batch(rows, first, [(self.number * 2 + at % 3) * 1_000_000 for at in range(len(rows))])

    def answers(self, fresh: Mapping[str, pa.RecordBatch], parts: int = 1) -> Iterator[pa.RecordBatch]:
        last = self.number - 1
        forest = build_forest(self.catalogue, self.attributes, before=last)
        streams, mine = {}, {}
        for stream, name in enumerate(STREAMS):
            runs = [
                Sorted(row_numbers(batch, 0, 0, part.num_rows), part)
                for batch, part in enumerate([*self.stored[name], fresh[name]])
            ]
            streams[stream] = StreamRows.of([run for run in runs if len(run)])
            before = sum(part.num_rows for part in self.stored[name])
            mine[stream] = np.arange(before, before + fresh[name].num_rows)
        rows = Rows(self.attributes, streams, dict(self.indexes(streams)), StreamRows.of(self.kept))
        fresh_from = first_row(np.array([self.number]))[0]
        keepers = []
        for task in range(parts):
            keepers.append(Keeper(forest.keeping, rows, AT, self.kept.append))
            walk = Walk(forest, rows, fresh_from, AT, self.piece_rows, keeper=keepers[-1])
            for found in walk.answers({stream: at[task::parts] for stream, at in mine.items()}):
                yield answer_rows(found, rows, forest.queries, self.number)
        begin = begins_to_keep(self.catalogue, last)
        if begin.any():
            past = build_forest(self.catalogue, self.attributes, begin, before=last, keeps_of=begin)
            keepers.append(Keeper(past.keeping, rows, AT, self.kept.append))
            walk = Walk(past, rows, fresh_from, AT, self.piece_rows, keeper=keepers[-1])
            old = {
                stream: np.arange(at[0] if len(at) else rows.streams[stream].rows)
                for stream, at in mine.items()
            }
            assert not list(walk.answers(old)), "this walk only keeps"
        for keeper in keepers:
            keeper.close()

    def indexes(self, streams: Mapping[int, StreamRows]) -> Iterator[tuple[int, list[Sorted]]]:
        for attribute, (stream, column) in enumerate(self.attributes.columns):
            found = []
            for run in streams[STREAMS.index(stream)].runs:
                valid = run.rows.column(column).is_valid()
                keys = order_keys([run.rows.column(column).filter(valid)])
                numbers = run.keys[valid.to_numpy(zero_copy_only=False)]
                order = sorted_order(keys)
                located = pa.array(numbers[order].view(np.int64))
                found.append(Sorted(keys[order], pa.RecordBatch.from_arrays([located], [LOCATOR])))
            yield attribute, found

    def tables(self) -> dict[str, pa.Table]:
        """All rows of all batches, for DuckDB."""
        return {name: all_rows(parts) for name, parts in self.stored.items()}
