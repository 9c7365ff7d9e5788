"""Scripts of joins with a window, and a brute-force reading of the rules that says what each must give.

The oracle knows nothing of manifests, floors or merges: it goes through the script batch by batch, says which rows are
taken, and pairs them.
"""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from tests.model.stream_scripts import CRASHES
from watersmeet.schemes.grid.policy import dynamic

ROWS = "rows"
# Counts as null, so that no difference overflows.
FAR = (1 << 61) + 1


@dataclass(frozen=True)
class Row:
    """A row as a script has it; its time counts in units of the window."""

    k: Any
    t: Any
    id: int

    @property
    def x(self) -> int:
        return self.id % 3


@dataclass(frozen=True)
class Step:
    """A batch: partitions of each input. `back`: first go back this many batches, and through them again."""

    rows: dict[str, list[list[Row]]]
    crash: str | None = None
    zombie: bool = False
    back: int = 0


def far_apart(l, r):
    return pc.greater(pc.abs(pc.subtract(l["k"], r["k"])), 1)


@dataclass(frozen=True)
class Case:
    """`meet` is what `on` says of two rows whose keys are not null; `nulls` of the others."""

    on: Any
    meet: Callable[[Row, Row], bool]
    how: dict[str, Any]
    keeps_nulls: bool = False
    nulls: bool = False


GROWING = dynamic(epsilon=0.5, capacity_bytes=900, max_cells=16)
CASES = [
    Case("l.k = r.k", lambda a, b: a.k == b.k, {}),
    Case("l.k = r.k AND l.x <= r.x", lambda a, b: a.k == b.k and a.x <= b.x, {}),
    Case("l.k = r.k AND l.x = r.x", lambda a, b: a.k == b.k and a.x == b.x, {}),
    Case("l.k = r.k", lambda a, b: a.k == b.k, {"strategy": "hypercube"}),
    Case("l.k = r.k", lambda a, b: a.k == b.k, {"strategy": "hash"}),
    Case("l.k = r.k", lambda a, b: a.k == b.k, {"strategy": "biclique"}),
    Case("l.k = r.k", lambda a, b: a.k == b.k, {"strategy": "biclique", "groups": 1}),
    Case(
        "l.k = r.k AND l.x <= r.x",
        lambda a, b: a.k == b.k and a.x <= b.x,
        {"strategy": "biclique", "groups": 2},
    ),
    Case("l.k = r.k", lambda a, b: a.k == b.k, {"strategy": "grid", "cells": 6}),
    Case("abs(l.k - r.k) <= 1", lambda a, b: abs(a.k - b.k) <= 1, {}),
    Case("l.k < r.k AND l.x <> r.x", lambda a, b: a.k < b.k and a.x != b.x, {}),
    Case("abs(l.k - r.k) <= 1", lambda a, b: abs(a.k - b.k) <= 1, {"strategy": "grid", "cells": 4}),
    Case("l.k <> r.k", lambda a, b: a.k != b.k, {"cells": 3}, keeps_nulls=True),
    Case("true", lambda a, b: True, {"policy": GROWING}, keeps_nulls=True, nulls=True),
    Case(far_apart, lambda a, b: abs(a.k - b.k) > 1, {"cells": 2}, keeps_nulls=True),
]

UTC = datetime.timezone.utc
# For each kind of time: its type, a time from a whole number, a length from a whole number.
TIMES = {
    "bigint": (pa.int64(), lambda t: t, lambda n: n),
    "smallint": (pa.int16(), lambda t: t, lambda n: n),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda t: datetime.datetime(2024, 3, 31, tzinfo=UTC) + datetime.timedelta(minutes=t),
        lambda n: f"{n} minutes",
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        lambda t: datetime.datetime(1969, 12, 31) + datetime.timedelta(hours=t),
        lambda n: datetime.timedelta(hours=n),
    ),
    "date": (
        pa.date32(),
        lambda t: datetime.date(1969, 12, 30) + datetime.timedelta(days=t),
        lambda n: f"{n} days",
    ),
}


@dataclass(frozen=True)
class Script:
    case: Case
    kind: str
    width: int
    lateness: int
    tasks: int
    steps: list[Step]


@st.composite
def scripts(draw, kinds=(*TIMES, ROWS)) -> Script:
    """Batches whose times move on, with stragglers behind; some inputs are idle, some batches empty."""
    kind = draw(st.sampled_from(kinds))
    pair = st.tuples(st.none() | st.integers(0, 3), st.integers(-9, 4))
    partitions = st.lists(st.lists(pair, max_size=6), max_size=2)
    step = st.tuples(
        partitions,
        partitions,
        st.integers(0, 5),
        st.none() | st.sampled_from(CRASHES),
        st.booleans(),
        st.sampled_from([0, 0, 0, 1, 3]),
    )
    ids, clock, steps = itertools.count(), 0, []
    for left, right, later, crash, zombie, back in draw(st.lists(step, min_size=1, max_size=12)):
        clock += later
        rows = {
            side: [[Row(k, _time(clock, jitter, kind), next(ids)) for k, jitter in part] for part in parts]
            for side, parts in (("l", left), ("r", right))
        }
        steps.append(Step(rows, crash, zombie, back))
    width, lateness = draw(st.integers(1, 12)), draw(st.integers(0, 8))
    return Script(draw(st.sampled_from(CASES)), kind, width, lateness, draw(st.integers(1, 3)), steps)


def _time(clock: int, jitter: int, kind: str) -> int | None:
    if jitter == -9:
        return FAR if kind == "bigint" and clock % 2 else None
    return clock + jitter


class Oracle:
    """Who is taken, and who meets whom, by the rules as the guide has them."""

    def __init__(self, script: Script, lateness: list[int] | None = None):
        self.script = script
        self.taken: dict[str, list[tuple[int, Row]]] = {"l": [], "r": []}
        self.late = {"l": 0, "r": 0}
        self.nulls = {"l": 0, "r": 0}
        self.watermark: int | None = None
        for number, step in enumerate(script.steps):
            for side in "lr":
                for row in itertools.chain(*step.rows[side]):
                    self._take(number, side, row)
            if script.kind != ROWS and all(self.taken.values()):
                reached = min(max(row.t for _, row in self.taken[side]) for side in "lr")
                reached -= lateness[number] if lateness else script.lateness
                self.watermark = reached if self.watermark is None else max(self.watermark, reached)
        self.pairs = Counter(self._pairs())

    def _take(self, number: int, side: str, row: Row) -> None:
        timeless = self.script.kind != ROWS and (row.t is None or row.t == FAR)
        if timeless or (row.k is None and not self.script.case.keeps_nulls):
            self.nulls[side] += 1
        elif self.script.kind != ROWS and self.watermark is not None and row.t < self.watermark:
            self.late[side] += 1
        else:
            self.taken[side].append((number, row))

    def _pairs(self) -> Iterator[tuple[int, int]]:
        case = self.script.case
        for (i, (one, left)), (j, (other, right)) in itertools.product(
            enumerate(self.taken["l"]), enumerate(self.taken["r"])
        ):
            whole = left.k is not None and right.k is not None
            if not (case.meet(left, right) if whole else case.nulls):
                continue
            if self.script.kind != ROWS:
                near = abs(left.t - right.t) <= self.script.width
            elif one == other:
                near = True
            elif one < other:
                near = i >= self._before("l", other) - self.script.width
            else:
                near = j >= self._before("r", one) - self.script.width
            if near:
                yield left.id, right.id

    def _before(self, side: str, batch: int) -> int:
        return sum(number < batch for number, _ in self.taken[side])

    def needed(self, side: str) -> int:
        """The rows that a row of the next batch could still meet."""
        if self.script.kind == ROWS:
            return min(self.script.width, len(self.taken[side]))
        if self.watermark is None:
            return len(self.taken[side])
        return sum(row.t + self.script.width >= self.watermark for _, row in self.taken[side])
