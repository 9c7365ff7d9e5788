"""The joins of NEXMark's queries 3, 8, 9 and 20 over generated events (`events.py`).

Each kind of event is a directory of its own, as a topic would be. A query's filters are applied as the rows are read.
Of query 8 the join is measured, without the grouping before it: a seller with two auctions in a window comes out twice.
Of query 9 it is all bids that an auction may be won by, without the choice of the highest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from bench.events import AUCTION, BID, EPOCH_EVENTS, IN_EPOCH, PERSON, SCHEMAS, make_events
from bench.windows import Window

SEED = 20_260_101
_STATES = ("OR", "ID", "CA")
_OF_A = ("item", "description", "initial", "reserve", "at", "expires", "seller", "category", "extra")
_OF_B = ("bidder", "price", "channel", "url", "at", "extra")


@dataclass(frozen=True, slots=True)
class Query:
    """Inputs and what kind of events each has; the join, its columns, and the filters of its inputs in SQL."""

    inputs: dict[str, str]
    on: str
    select: tuple[str, ...]
    filters: dict[str, str]
    # Events per second and core that are published for Flink, on other hardware.
    flink: int
    window: Window | None = None


def _all_of(name: str, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name}.{column} AS {name}_{column}" for column in columns)


QUERIES = {
    "q3": Query(
        {"p": PERSON, "a": AUCTION},
        "p.id = a.seller",
        ("p.name", "p.city", "p.state", "a.id AS auction"),
        {"p": "state IN ('OR', 'ID', 'CA')", "a": "category = 10"},
        152_000,
    ),
    "q8": Query(
        {"p": PERSON, "a": AUCTION},
        "p.id = a.seller AND p.period = a.period",
        ("p.id", "p.name", "p.period", "a.id AS auction"),
        {},
        146_000,
        Window("10 seconds", {"p": "period", "a": "period"}, "4 seconds", bounds=False),
    ),
    "q9": Query(
        {"a": AUCTION, "b": BID},
        "a.id = b.auction AND b.at >= a.at AND b.at <= a.expires",
        ("a.id", *_all_of("a", _OF_A), *_all_of("b", _OF_B)),
        {},
        14_200,
    ),
    "q20": Query(
        {"b": BID, "a": AUCTION},
        "b.auction = a.id",
        ("b.auction", *_all_of("b", _OF_B), *_all_of("a", _OF_A)),
        {"a": "category = 10"},
        19_000,
    ),
}


@dataclass(frozen=True, slots=True)
class EventWorkload:
    """A query over `events` events, of which each micro-batch brings as many."""

    name: str
    query: str
    events: int
    batches: int
    heap_gb: int
    seed: int = SEED

    reach: ClassVar[int] = 0

    @property
    def _query(self) -> Query:
        return QUERIES[self.query]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._query.inputs)

    streams = inputs

    @property
    def on(self) -> str:
        return self._query.on

    @property
    def select(self) -> tuple[str, ...]:
        return self._query.select

    @property
    def filters(self) -> dict[str, str]:
        return self._query.filters

    @property
    def window(self) -> Window | None:
        return self._query.window

    @property
    def text(self) -> str:
        return f"{self.name} NEXMark {self.query} over {self.events:,} events, {self.batches} batches, {self.heap_gb} GB heap"

    @property
    def new_rows(self) -> list[int]:
        """The rows that each batch brings, of all inputs together, before the filters."""
        epochs = self.batch_events // EPOCH_EVENTS
        return [epochs * sum(IN_EPOCH[kind] for kind in self._query.inputs.values())] * self.batches

    @property
    def batch_events(self) -> int:
        """A whole number of epochs."""
        return self.events // self.batches // EPOCH_EVENTS * EPOCH_EVENTS

    def schema(self, name: str) -> str:
        return SCHEMAS[self._query.inputs[name]]

    def facts(self) -> str:
        """What the files depend on; the queries share them."""
        return f"nexmark,{self.batch_events},{self.batches},{self.seed},{sorted(self._query.inputs.items())}"

    def quick(self) -> EventWorkload:
        """A tenth of the events."""
        events = self.events // 10
        return replace(self, name=f"{self.name}-quick", events=events, heap_gb=min(self.heap_gb, 4))

    def sized(self, events: int) -> EventWorkload:
        """The same in as many batches, over `events` events."""
        heap_gb = min(self.heap_gb, max(4, math.ceil(self.heap_gb * events / self.events)))
        return replace(self, name=f"{self.name}@{events}", events=events, heap_gb=heap_gb)

    def batch_of(self, number: int, batch: int) -> pa.Table:
        """The events that one batch brings of one input, by its number."""
        first = batch * self.batch_events
        return make_events(
            list(self._query.inputs.values())[number], first, first + self.batch_events, self.seed
        )

    def batches_of(self, number: int) -> Iterator[pa.Table]:
        return (self.batch_of(number, batch) for batch in range(self.batches))

    def kept(self, name: str, rows: pa.Table) -> pa.Table:
        """The rows that the filter of an input leaves: what the join stores."""
        if name not in self.filters:
            return rows
        kind = self._query.inputs[name]
        chosen = (
            pc.is_in(rows["state"], pa.array(_STATES)) if kind == PERSON else pc.equal(rows["category"], 10)
        )
        return rows.filter(chosen)


_EVENTS, _BATCHES = 5_000_000, 25
Q3, Q8 = (EventWorkload(query, query, _EVENTS, _BATCHES, heap_gb=6) for query in ("q3", "q8"))
# Spark's default store holds all bids, with their texts, on the heap.
Q9, Q20 = (EventWorkload(query, query, _EVENTS, _BATCHES, heap_gb=12) for query in ("q9", "q20"))
QUERIED = (Q3, Q8, Q9, Q20)
# Without Spark: what the state of q20 takes on disk after 20M events.
DISK = EventWorkload("q20-disk", "q20", 20_000_000, 100, 0)
CHECKS = tuple(
    replace(one, name=f"{one.name}-check", events=250_000, batches=5, heap_gb=4) for one in QUERIED
)
EVENT_WORKLOADS = (*QUERIED, *CHECKS, DISK)
