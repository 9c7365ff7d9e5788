"""What one experiment is, and what it found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from papers.rjoin.sim.workload import Ints

# How the next key is chosen: by rate; at random of all candidates, or of triples alone for rewritten queries, as section 3 has
# it; the worst; the first of the where clause.
RATE, RANDOM, RANDOM_TRIPLE, WORST, FIRST = "RJoin", "random", "random triple", "worst", "first"
RULES = (RATE, RANDOM, RANDOM_TRIPLE, WORST, FIRST)

NODES, QUERIES, TUPLES, WAYS, THETA = 1000, 20_000, 1000, 4, 0.9
# Rows that came before the queries, so that nodes have rates to tell; the paper gives neither them nor the window.
HISTORY = RATE_WINDOW = VALID = 1000
# Rows between two rounds of moving.
BALANCE_EVERY = 50


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One run. `valid` below 0: nodes ask for rates every time. `own_ranks`: which values are frequent differs by attribute. `snapshots` are numbers of rows, the last of all."""

    snapshots: tuple[int, ...] = (TUPLES,)
    queries: int = QUERIES
    ways: int = WAYS
    theta: float = THETA
    rule: str = RATE
    window: int = 0
    own_ranks: bool = False
    moving: bool = False
    history: int = HISTORY
    valid: int = VALID
    nodes: int = NODES
    seed: int = 17

    @property
    def tuples(self) -> int:
        return self.snapshots[-1]

    @property
    def text(self) -> str:
        """For people who wait for it."""
        parts = [f"{self.rule}, {self.queries:,} {self.ways}-way queries, {self.tuples:,} tuples"]
        parts += [f"skew {self.theta:g}"] if self.theta != THETA else []
        parts += [f"window {self.window}"] if self.window else []
        parts += ["own ranks"] if self.own_ranks else []
        parts += ["moving ids"] if self.moving else []
        parts += ["no history"] if not self.history else []
        parts += ["no candidate tables"] if self.valid < 0 else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """After some tuples: messages by kind, and loads and messages by node.

    `alone` are the messages that carry queries if no two share one. `working` nodes were hit at all, `rewriting` ones by a
    rewritten query. `storage` is all that was ever stored, `kept` what is still there under a window.
    """

    tuples: int
    inserting: int
    inserting_ric: int
    tuple_messages: int
    ric_messages: int
    query_messages: int
    alone: int
    answers: int
    hits: Ints
    storage: Ints
    kept: Ints
    sent: Ints
    rewriting: int

    @property
    def messages(self) -> int:
        return self.tuple_messages + self.ric_messages + self.query_messages

    @property
    def per_tuple(self) -> float:
        """Messages for one tuple; indexing the input queries is not among them."""
        return (self.messages - self.inserting) / self.tuples

    @property
    def ric_per_tuple(self) -> float:
        return (self.ric_messages - self.inserting_ric) / self.tuples

    @property
    def working(self) -> int:
        return int((self.hits > 0).sum())

    @property
    def fullest(self) -> int:
        return int(self.hits.max())


@dataclass(frozen=True, slots=True)
class Found:
    """`hits` and `stored` are totals after each tuple; `moved` the stored items that went with moving nodes."""

    snapshots: tuple[Snapshot, ...]
    hits: Ints
    stored: Ints
    moved: int

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]

    def at(self, tuples: int) -> Snapshot:
        return next(one for one in self.snapshots if one.tuples == tuples)


def share_of_busiest(loads: Ints, part: float = 0.1) -> float:
    """How much of a load the busiest tenth of the nodes has: the pattern of its distribution."""
    ordered = np.sort(loads)[::-1]
    return float(ordered[: round(len(loads) * part)].sum() / max(1, ordered.sum()))
