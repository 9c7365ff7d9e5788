"""The three algorithms as step machines over the relation, fed by a stream that is always ahead."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field

import numpy as np
import pyarrow as pa

from papers.hybrid.cases import SEED
from papers.hybrid.joins import HybridJoin, IndexJoin, MeshJoin, rows_within
from papers.hybrid.relation import KEY, Relation
from papers.hybrid.results import HYBRIDJOIN, MESHJOIN
from papers.hybrid.sales import Zipf
from papers.hybrid.steps import StepJoin
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.lookup import LookupJoin

# 20 bytes, as in the paper: the product, the row's number in the stream, the quantity.
STREAM = pa.schema({"product": pa.int64(), "number": pa.int64(), "quantity": pa.int32()})
# As in Figure 1 of the paper: the product is replaced by its key in the warehouse. Pages are read as whole rows.
_OUTPUT = (
    OutputColumn("s", "number", "number"),
    OutputColumn("s", "quantity", "quantity"),
    OutputColumn("p", "warehouse_key", "warehouse_key"),
)
_JOIN = LookupJoin(verify=(("product", KEY),), residual=None, output=_OUTPUT, names=("s", "p"))
# Rows that are drawn at once, outside of what is measured.
_PIECE_ROWS = 1 << 18


def draw_rows(law: Zipf, first: int, count: int, rng: np.random.Generator) -> pa.RecordBatch:
    """Rows of the stream from number `first` on."""
    return pa.record_batch(
        {
            "product": law.draw(count, rng),
            "number": np.arange(first, first + count),
            "quantity": rng.integers(1, 10, count, dtype=np.int32),
        },
        schema=STREAM,
    )


def capacity_of(relation: Relation, budget_bytes: int) -> int:
    """Rows that can wait beside a page, H_t."""
    return rows_within(budget_bytes, relation, STREAM)


def make_machine(algorithm: str, relation: Relation, budget_bytes: int) -> StepJoin:
    if algorithm == HYBRIDJOIN:
        return HybridJoin(relation, _JOIN, STREAM, capacity_of(relation, budget_bytes))
    if algorithm == MESHJOIN:
        return MeshJoin(relation, _JOIN, STREAM, capacity_of(relation, budget_bytes))
    return IndexJoin(relation, _JOIN, STREAM)


@dataclass
class Tally:
    """What a machine did: seconds in taking rows and in steps, of these in reading pages; turns, those that answered no
    row, rows answered, and the seconds between taking each of them and its answer, added up.
    """

    taking_s: float = 0.0
    stepping_s: float = 0.0
    reading_s: float = 0.0
    turns: int = 0
    unused: int = 0
    answered: int = 0
    waited_s: float = 0.0

    def __sub__(self, other: Tally) -> Tally:
        return Tally(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def copy(self) -> Tally:
        return Tally(*astuple(self))

    @property
    def seconds(self) -> float:
        return self.taking_s + self.stepping_s


@dataclass
class Watched:
    """A machine at work on a stream that is always ahead of it. All streams over as many products are the same one."""

    machine: StepJoin
    relation: Relation
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._law = Zipf(int(self.relation.index.rows.sum()))
        self._rng = np.random.default_rng(SEED)
        self._drawn = 0
        self._rows = pa.RecordBatch.from_pylist([], STREAM)
        # For each turn where the rows that it took end, and the seconds when it had taken them.
        self._ends, self._taken_s = np.empty(1024, np.int64), np.empty(1024)

    def turn(self, most: int | None = None) -> None:
        """One iteration: take as many rows as there is room for, or at most `most`, read a page, join."""
        tally, counters, relation = self.tally, self.machine.counters, self.relation
        self._take(most)
        answered, aside = counters.answered, relation.aside_s
        started = relation.clock()
        self.machine.step()
        tally.stepping_s += relation.clock() - started - (relation.aside_s - aside)
        tally.reading_s = relation.reading_s
        tally.turns += 1
        if counters.answered == answered:
            tally.unused += 1
        else:
            taken_in = np.searchsorted(self._ends[: tally.turns], counters.last, side="right")
            tally.waited_s += float((tally.seconds - self._taken_s[taken_in]).sum())
        tally.answered = counters.answered

    def _take(self, most: int | None) -> None:
        end = None if most is None else self.machine.counters.taken + most
        while self.machine.room and self.machine.counters.taken != end:
            if not self._rows.num_rows:
                self._rows = draw_rows(self._law, self._drawn, _PIECE_ROWS, self._rng)
                self._drawn += _PIECE_ROWS
            left = self._rows.num_rows if end is None else end - self.machine.counters.taken
            started = self.relation.clock()
            self._rows = self._rows.slice(self.machine.offer(self._rows.slice(0, left)))
            self.tally.taking_s += self.relation.clock() - started
        turn = self.tally.turns
        if turn == len(self._ends):
            self._ends, self._taken_s = (np.concatenate([old, old]) for old in (self._ends, self._taken_s))
        self._ends[turn], self._taken_s[turn] = self.machine.counters.taken, self.tally.seconds
