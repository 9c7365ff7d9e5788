"""A node as a state machine: procedures 1 to 3 of RJoin, with sections 4 to 7. Messages in, messages out; no clock.

Source: Idreos et al. 2008. `now` is an argument, random numbers come from the caller. Kept as published, with all that
follows from it (tests/papers/rjoin/test_limits.py has an example of each):

- A rewritten query under a pair (section 6, a) meets no row that has left the ALTT. Theorem 1 treats it like an input query,
  which it is not: it may be born long after the row. Completeness needs `pairs=False` or an infinite `delta`.
- An input query that first asks for rates arrives later than in the proof: `delta` must cover the request, too.
- Windows: the rule compares a row with the start of the window alone. So it depends on the order of evaluation, lets wider
  answers through, and drops a query that a row in delay could still meet.
- DISTINCT: a projection is kept by one rewritten query. Two equal rewritten queries do not know of each other, so duplicates
  remain; under a window the row that was let through first may be the one that expires first.

The paper does not say how a query is removed. Here its owner takes no more answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from papers.rjoin.messages import (
    Answer,
    AskRates,
    Eval,
    Insert,
    Message,
    NewRow,
    Outgoing,
    Rate,
    Rates,
    Send,
    SendDirect,
    Ticket,
)
from papers.rjoin.next_key import Rule, choose
from papers.rjoin.query import Column, Key, Query, Row, Triple, Value, candidates, check, rewrite


@dataclass(frozen=True, slots=True)
class Settings:
    """`delta` is the life of a row in the ALTT, None without end; `rate_window` the time over which rates are counted.

    `valid` is the age up to which a known rate is used. `pairs` and `implied` are (a) and (c) of section 6.
    """

    delta: int | None = None
    rule: Rule = Rule.RATE
    rate_window: int = 1000
    valid: int = 1000
    pairs: bool = True
    implied: bool = True


@dataclass
class Stored:
    """A query at its key, and the projections that have triggered it (section 4, DISTINCT)."""

    query: Query
    seen: set[tuple[Value, ...]] = field(default_factory=set)


@dataclass
class Shelf:
    """All that a node stores under one key. `late` is the ALTT: rows and when they came; `came` the times of arrivals."""

    inputs: list[Stored] = field(default_factory=list)
    rewritten: list[Stored] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    late: list[tuple[Row, int]] = field(default_factory=list)
    came: list[int] = field(default_factory=list)


@dataclass
class _Waiting:
    """A query whose next key is decided when the rates are there."""

    query: Query
    keys: list[Key]
    rewritten: bool


class Node:
    """`answers` are those that came to this node as an owner. `query_load` and `storage_load` are as in section 8."""

    def __init__(self, address: str, settings: Settings, draw: Callable[[int], int]) -> None:
        self.address, self.settings = address, settings
        self.shelves: defaultdict[Key, Shelf] = defaultdict(Shelf)
        self.table: dict[Key, Rate] = {}
        self.answers: list[Answer] = []
        self.removed: set[str] = set()
        self.query_load = 0
        self._draw = draw
        self._waiting: dict[Ticket, _Waiting] = {}
        self._tickets = 0

    @property
    def storage_load(self) -> int:
        return sum(len(shelf.rewritten) + len(shelf.rows) for shelf in self.shelves.values())

    def publish(self, row: Row) -> list[Outgoing]:
        """Procedure 1."""
        return [Send(key, NewRow(row, key)) for key in row.index_keys()]

    def submit(self, now: int, query: Query) -> list[Outgoing]:
        check(query)
        return self._index(now, query, rewritten=False)

    def remove(self, query: str) -> None:
        self.removed.add(query)

    def receive(self, now: int, message: Message) -> list[Outgoing]:
        match message:
            case NewRow():
                return self._meet_queries(now, message.row, message.key)
            case Insert():
                self._learn(message.rates)
                return self._store_input(now, message.query, message.key)
            case Eval():
                self._learn(message.rates)
                return self._store_rewritten(now, message.query, message.key)
            case AskRates():
                return self._tell_rates(now, message)
            case Rates():
                self._learn(message.found)
                waiting = self._waiting.pop(message.ticket)
                return self._decide(waiting)
            case Answer():
                if message.query not in self.removed:
                    self.answers.append(message)
                return []

    def _meet_queries(self, now: int, row: Row, key: Key) -> list[Outgoing]:
        """Procedure 2."""
        shelf = self.shelves[key]
        self.query_load += 1
        shelf.came.append(now)
        self._collect_garbage(now, shelf)
        out: list[Outgoing] = []
        for stored in shelf.inputs:
            out += self._trigger(now, stored, row, starts_window=True)
        valid = []
        for stored in shelf.rewritten:
            if self._in_window(stored.query, row):
                valid.append(stored)
                out += self._trigger(now, stored, row)
        shelf.rewritten = valid
        if isinstance(key, Triple):
            shelf.rows.append(row)
        else:
            shelf.late.append((row, now))
        return out

    def _store_input(self, now: int, query: Query, key: Key) -> list[Outgoing]:
        """Rule 2 of section 4: an input query looks at the ALTT first."""
        shelf = self.shelves[key]
        self._collect_garbage(now, shelf)
        stored = Stored(query)
        shelf.inputs.append(stored)
        out: list[Outgoing] = []
        for row, _ in shelf.late:
            out += self._trigger(now, stored, row, starts_window=True)
        return out

    def _store_rewritten(self, now: int, query: Query, key: Key) -> list[Outgoing]:
        """Procedure 3; under a pair the rows are those of the ALTT."""
        shelf = self.shelves[key]
        self.query_load += 1
        self._collect_garbage(now, shelf)
        stored = Stored(query)
        self._keep(shelf, stored)
        rows = shelf.rows if isinstance(key, Triple) else [row for row, _ in shelf.late]
        out: list[Outgoing] = []
        for row in rows:
            if self._in_window(query, row):
                out += self._trigger(now, stored, row, moves_start=True)
        return out

    def _keep(self, shelf: Shelf, stored: Stored) -> None:
        shelf.rewritten.append(stored)

    def _trigger(
        self, now: int, stored: Stored, row: Row, *, starts_window: bool = False, moves_start: bool = False
    ) -> list[Outgoing]:
        query = stored.query
        if not self._is_in_time(query, row):
            return []
        found = rewrite(query, row)
        if found is None or (not starts_window and self._is_repeated(stored, row)):
            return []
        if query.window is not None and (starts_window or moves_start):
            found = replace(
                found,
                start=row.published if query.start is None else max(query.start, row.published),
            )
        if found.is_answered:
            values = tuple(side for side in found.select if not isinstance(side, Column))
            return [SendDirect(query.owner, Answer(query.id, values))]
        return self._index(now, found, rewritten=True)

    def _is_in_time(self, query: Query, row: Row) -> bool:
        """Definition 1: a query counts rows that are published after it was submitted."""
        return row.published >= query.inserted

    def _in_window(self, query: Query, row: Row) -> bool:
        if query.window is None or query.start is None:
            return True
        return abs(query.start - row.published) + 1 <= query.window

    def _is_repeated(self, stored: Stored, row: Row) -> bool:
        """Whether a DISTINCT query has seen the projection of this row; remember it if not."""
        if not stored.query.distinct:
            return False
        projection = tuple(row.values[c.attribute] for c in stored.query.columns_of(row.relation))
        repeated = projection in stored.seen
        stored.seen.add(projection)
        return repeated

    def _collect_garbage(self, now: int, shelf: Shelf) -> None:
        if self.settings.delta is not None:
            shelf.late = [(row, came) for row, came in shelf.late if now - came <= self.settings.delta]

    def _index(self, now: int, query: Query, *, rewritten: bool) -> list[Outgoing]:
        """Send a query to one of its keys, or first ask for the rates that are not known (section 6)."""
        pairs, implied = self.settings.pairs, self.settings.implied
        keys = candidates(query, rewritten=rewritten, pairs=pairs, implied=implied)
        waiting = _Waiting(query, keys, rewritten)
        unknown = tuple(key for key in keys if not self._knows(now, key))
        if not self.settings.rule.asks or not unknown:
            return self._decide(waiting)
        self._tickets += 1
        ticket = self.address, self._tickets
        self._waiting[ticket] = waiting
        return [Send(unknown[0], AskRates(self.address, ticket, unknown))]

    def _knows(self, now: int, key: Key) -> bool:
        return key in self.table and now - self.table[key].learned <= self.settings.valid

    def _decide(self, waiting: _Waiting) -> list[Outgoing]:
        """A node that has told its rate is reached in one hop; the rates go along (section 7)."""
        query, keys = waiting.query, waiting.keys
        key = choose(self.settings.rule, keys, self.table, self._draw)
        rates = tuple(self.table[key] for key in keys if key in self.table)
        message = (Eval if waiting.rewritten else Insert)(query, key, rates)
        if key in self.table:
            return [SendDirect(self.table[key].address, message)]
        return [Send(key, message)]

    def _tell_rates(self, now: int, message: AskRates) -> list[Outgoing]:
        key, *others = message.keys
        shelf = self.shelves[key]
        shelf.came = [came for came in shelf.came if now - came < self.settings.rate_window]
        found = (*message.found, Rate(key, len(shelf.came), now, self.address))
        if others:
            return [Send(others[0], replace(message, keys=tuple(others), found=found))]
        return [SendDirect(message.asker, Rates(message.ticket, found))]

    def _learn(self, rates: Iterable[Rate]) -> None:
        """The candidate table keeps the most recent rate of each key."""
        for rate in rates:
            if rate.key not in self.table or self.table[rate.key].learned < rate.learned:
                self.table[rate.key] = rate

    def hand_over(self, goes: Callable[[Key], bool]) -> dict[Key, Shelf]:
        """Give up what is stored under some keys: the ring has made another node responsible for them."""
        keys = [key for key in self.shelves if goes(key)]
        return {key: self.shelves.pop(key) for key in keys}

    def take_over(self, shelves: Mapping[Key, Shelf]) -> None:
        for key, given in shelves.items():
            shelf = self.shelves[key]
            for one in fields(Shelf):
                getattr(shelf, one.name).extend(getattr(given, one.name))

    def retire(self, successor: Node) -> None:
        """Leave the ring: the successor takes over everything, also what this node waits for and was answered."""
        successor.take_over(self.hand_over(lambda key: True))
        successor._waiting.update(self._waiting)
        # What waits was not asked again for the rates that this node knew.
        successor._learn(self.table.values())
        successor.answers += self.answers
        successor.removed |= self.removed
