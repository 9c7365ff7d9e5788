"""The hub beside RJoin as published: two implementations of the same queries, with nothing in common but the paper.

Random rows and queries go to a hub on the local driver, to the state machine of `papers/rjoin` on its overlay, where
messages overtake each other, and to DuckDB. All three must give the same answers, as multisets, in the same batches.

The published algorithm is exact without windows and DISTINCT, with a Delta of at least the longest delay. It has no
aliases, so each alias is a relation of its own, and a row is published to all relations of its stream. A batch is a
span of the overlay's time. A command of batch b has its effect where the rows of b + 1 begin to be published.
"""

from __future__ import annotations

import datetime
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from papers.rjoin.messages import Answer as Told
from papers.rjoin.next_key import Rule
from papers.rjoin.node import Node, Settings
from papers.rjoin.overlay import Overlay
from papers.rjoin.query import Column, Operand, Query, Row, Value
from tests.life import LIVES
from tests.property.hub_helpers import (
    STORED,
    STREAMS,
    Answer,
    Asked,
    all_rows,
    ask_duckdb,
    read_answers,
    record_batch,
)
from tests.property.test_mutants import Mutant, cases, is_noticed
from watersmeet.hubs import rows as hub_rows
from watersmeet.hubs.catalogue import ADD, REMOVE
from watersmeet.local.hub import COMMAND_SCHEMA, LocalHub

MOST_INPUTS, NODES, DELAY, SPREAD = 4, 4, 4, 6
# An input query asks for the rates of its relations one after the other, hears of the last, and is sent. A message takes
# at most as many hops as there are nodes.
LONGEST_WAIT = (MOST_INPUTS + 2) * DELAY * NODES
# The columns that the queries use: those that are equal without a cast, with values for rows and constants.
NUMBERS, TEXTS = ("a", "b"), ("c",)
VALUES: dict[str, tuple[Value, ...]] = {"a": (0, 0, 1, 2), "b": (0, 0, 1, 2), "c": ("x", "x", "", "it's")}
# A constant in quotes, as SQL writes it.
QUOTED = "'{}'"


@dataclass(frozen=True)
class Asking:
    """A query in both languages: the inputs as streams, and conditions and outputs by input and column."""

    streams: tuple[str, ...]
    where: tuple[tuple[tuple[int, str], tuple[int, str] | Value], ...]
    select: tuple[tuple[int, str], ...]

    @property
    def sql(self) -> str:
        def text(side: tuple[int, str] | Value) -> str:
            if isinstance(side, tuple):
                return f"t{side[0]}.{side[1]}"
            return QUOTED.format(side.replace("'", "''")) if isinstance(side, str) else str(side)

        items = [f"t{input_}.{column} AS c{place}" for place, (input_, column) in enumerate(self.select)]
        sources = [f"{stream} AS t{input_}" for input_, stream in enumerate(self.streams)]
        where = [f"{text(one)} = {text(other)}" for one, other in self.where]
        return f"SELECT {', '.join(items)} FROM {', '.join(sources)} WHERE {' AND '.join(where)}"

    def published(self, id_: str, owner: str, inserted: int) -> Query:
        relations = [
            relation(stream, self.streams[:input_].count(stream))
            for input_, stream in enumerate(self.streams)
        ]

        def operand(side: tuple[int, str] | Value) -> Operand:
            return Column(relations[side[0]], side[1]) if isinstance(side, tuple) else side

        where = tuple((operand(one), operand(other)) for one, other in self.where)
        select = tuple(Column(relations[input_], column) for input_, column in self.select)
        return Query(id_, owner, inserted, select, where)


def relation(stream: str, alias: int) -> str:
    return f"{stream}{alias}"


@st.composite
def askings(draw) -> Asking:
    """A tree of equalities over some inputs, at times with a cycle or constants; all ids of rows are shown."""
    inputs = range(draw(st.integers(1, MOST_INPUTS)))
    streams = tuple(draw(st.sampled_from(STREAMS)) for _ in inputs)
    ends = [(draw(st.integers(0, input_ - 1)), input_) for input_ in inputs[1:]]
    if len(inputs) > 1 and draw(st.integers(0, 3)) == 0:
        one, other = draw(st.permutations(inputs))[:2]
        ends.append((one, other))
    where: list = []
    for one, other in ends:
        kind = draw(st.sampled_from([NUMBERS, NUMBERS, TEXTS]))
        where.append(((one, draw(st.sampled_from(kind))), (other, draw(st.sampled_from(kind)))))
    # The published algorithm knows the relations of a query by its conditions.
    for _ in range(draw(st.sampled_from([0, 0, 1, 2])) if where else 1):
        column = draw(st.sampled_from("abc"))
        where.append(((draw(st.sampled_from(inputs)), column), draw(st.sampled_from(VALUES[column]))))
    more = draw(st.lists(st.tuples(st.sampled_from(inputs), st.sampled_from("abc")), max_size=2))
    return Asking(
        streams, tuple(draw(st.permutations(where))), (*((input_, "id") for input_ in inputs), *more)
    )


@dataclass
class PublishedHub:
    """A hub of the overlay. With `waits`, no message is under way at the end of a batch: then removals are real ones.

    Without, messages overtake those of other batches. An answer that comes after the removal belongs to an earlier
    batch if all of its rows do, and is told apart by them.
    """

    settings: Settings
    waits: bool
    random: Random
    # The batch of each row.
    batch_of: list[int] = field(default_factory=list)
    asked: list[tuple[str, Asked, Asking]] = field(default_factory=list)
    begin: int = 0
    batches: int = 0

    def __post_init__(self) -> None:
        self.overlay = Overlay(
            [f"node {number}" for number in range(NODES)],
            self.settings,
            delay=lambda: self.random.randint(0, DELAY),
            draw=self.random.randrange,
        )

    def anyone(self) -> str:
        return f"node {self.random.randrange(NODES)}"

    def batch(self, rows: Mapping[str, pa.RecordBatch]) -> None:
        for stream, part in rows.items():
            for values in part.select([*VALUES, "id"]).to_pylist():
                self.batch_of.append(self.batches)
                time = self.begin + self.random.randrange(SPREAD)
                for alias in range(MOST_INPUTS):
                    row = Row(relation(stream, alias), values, time)
                    self.overlay.at(time, partial(self.overlay.publish, self.anyone(), row))
        if self.waits:
            self.overlay.run()
        self.begin = max(self.begin + SPREAD, self.overlay.now + 1)
        self.batches += 1

    def add(self, id_: str, asking: Asking, start: int) -> None:
        """A query that counts rows from now on."""
        name = f"{id_}, number {len(self.asked)}"
        query = asking.published(name, self.anyone(), self.begin)
        self.overlay.at(self.begin, partial(self.overlay.submit, query.owner, query))
        self.asked.append((query.owner, Asked(id_, asking.sql, start, 1 << 30), asking))

    def remove(self, id_: str) -> None:
        """End the query that began last under an id, with the batch that was the last."""
        number = max(at for at, (_, one, _) in enumerate(self.asked) if one.id == id_)
        owner, one, asking = self.asked[number]
        self.asked[number] = owner, Asked(id_, one.sql, one.start, self.batches - 1), asking
        if self.waits:
            self.overlay.remove(owner, f"{id_}, number {number}")

    def answers(self) -> Iterator[Answer]:
        self.overlay.run()
        for number, (_, one, asking) in enumerate(self.asked):
            for told in self.overlay.answers(f"{one.id}, number {number}"):
                batch = max(self.batch_of[int(id_)] for id_ in told.values[: len(asking.streams)])
                if self.waits or batch <= one.end:
                    yield one.id, batch, shown(told)


def shown(told: Told) -> str:
    """An answer as `read_answers` gives it."""
    plain = {
        f"c{at}": value if isinstance(value, str) else float(value) for at, value in enumerate(told.values)
    }
    return json.dumps(plain, sort_keys=True)


def drawn_rows(random: Random, first: int, time: int) -> dict[str, pa.RecordBatch]:
    """Rows of one batch, without null, which the paper has not."""
    found = {}
    for stream in STREAMS:
        rows = [
            (*(random.choice(VALUES[column]) for column in "abc"), None, None, None)
            for _ in range(random.randint(0, 5))
        ]
        found[stream] = record_batch(rows, first, [time] * len(rows))
        first += len(rows)
    return found


def commands(told: Sequence[tuple[str, str, str | None]]) -> pa.Table:
    rows = [{"op": op, "id": id_, "sql": sql, "at": at} for at, (op, id_, sql) in enumerate(told)]
    return pa.Table.from_pylist(rows, COMMAND_SCHEMA)


# As published: rows stay in the ALTT as long as a message may take, and without end where rewritten queries look for
# them there.
MACHINES = st.builds(
    lambda rule, pairs, implied, valid: Settings(
        None if pairs else LONGEST_WAIT, rule, rate_window=20, valid=valid, pairs=pairs, implied=implied
    ),
    st.sampled_from(Rule),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 5, 1000]),
)


@settings(LIVES, max_examples=LIVES.max_examples // 2)
@given(
    st.lists(askings(), min_size=2, max_size=4),
    st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=2, max_size=5),
    MACHINES,
    st.booleans(),
    st.integers(0, 1 << 32).map(Random),
)
def test_the_hub_the_published_algorithm_and_duckdb_give_the_same_answers(
    asked, script, machine, waits, random
):
    published = PublishedHub(machine, waits, random)
    live = dict.fromkeys(range(len(asked) - 1), -1)
    for which in live:
        published.add(f"q{which}", asked[which], -1)
    stored: dict[str, list[pa.RecordBatch]] = {name: [] for name in STREAMS}
    found: Counter[Answer] = Counter()
    with tempfile.TemporaryDirectory() as state:
        given_ = {f"q{which}": asked[which].sql for which in live}
        hub = LocalHub(dict.fromkeys(STREAMS, STORED), state, given_, tasks=random.randint(1, 2))
        for number, toggled in enumerate(script):
            rows = drawn_rows(random, len(published.batch_of), 2_000_000 * number)
            for name, part in rows.items():
                stored[name].append(part)
            published.batch(rows)
            told = []
            for which in dict.fromkeys(one % len(asked) for one in toggled):
                told.append((REMOVE if which in live else ADD, f"q{which}", asked[which].sql))
                if which in live:
                    del live[which]
                    published.remove(f"q{which}")
                else:
                    live[which] = number
                    published.add(f"q{which}", asked[which], number)
            at = datetime.datetime.fromtimestamp(2 * number, datetime.timezone.utc)
            found += read_answers(hub.batch(commands(told), at, **rows).to_batches())
    by_paper = Counter(published.answers())
    event(f"answers: {min(3, len(str(by_paper.total())))} digits, waits: {waits}")
    assert found == by_paper
    tables = {name: all_rows(parts) for name, parts in stored.items()}
    counting = [one for _, one, _ in published.asked if one.end > one.start]
    assert found == ask_duckdb(counting, tables)


def forgets_the_late(self, now, shelf):
    shelf.late = []


def told_twice(self, now, message):
    out = RECEIVE(self, now, message)
    if isinstance(message, Told) and message.query not in self.removed:
        self.answers.append(message)
    return out


RECEIVE = Node.receive
KILLERS = (test_the_hub_the_published_algorithm_and_duckdb_give_the_same_answers,)
MUTANTS = [
    Mutant(
        "the hub: a row meets fresh rows twice",
        {"watersmeet.hubs.paths.takes_old": lambda following, start: following < 0},
        KILLERS,
    ),
    Mutant(
        "the hub: fresh rows never meet",
        {"watersmeet.hubs.paths.takes_old": lambda following, start: following != start},
        KILLERS,
    ),
    Mutant(
        "the hub: only the equality of the index is checked",
        {"watersmeet.hubs.paths.is_checked": lambda sought, exact: np.zeros(len(sought), np.bool_)},
        KILLERS,
    ),
    Mutant(
        "the hub: a query counts the rows of its command's batch",
        {"watersmeet.hubs.forest_builder.first_row": lambda batch: hub_rows.first_row(batch - 1)},
        KILLERS,
    ),
    Mutant(
        "the paper: a Delta of nothing",
        {"papers.rjoin.node.Node._collect_garbage": forgets_the_late},
        KILLERS,
    ),
    Mutant("the paper: an answer is taken twice", {"papers.rjoin.node.Node.receive": told_twice}, KILLERS),
    Mutant(
        "the paper: a query counts rows that were published before it",
        {"papers.rjoin.node.Node._is_in_time": lambda self, query, row: True},
        KILLERS,
    ),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_rule_of_either_is_noticed(mutant, killer, monkeypatch):
    assert is_noticed(mutant, killer, monkeypatch)
