"""Streams for the planner of `range`: runs that lie in memory, batch after batch, and what each task joins of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xxhash

from watersmeet.kernel.band import BandFacing, BandJoin, close_pairs
from watersmeet.kernel.rows import position
from watersmeet.model.facts import Run
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.types import SqlType
from watersmeet.schemes.range.facts import RangePlan
from watersmeet.schemes.range.plan import Range
from watersmeet.schemes.scheme import BatchFacts, Slice

Keys = npt.NDArray[np.uint64]
Values = npt.NDArray[np.int64]
INPUTS = ("l", "r")
_SIGN = np.uint64(1 << 63)


def order(values: npt.ArrayLike) -> Keys:
    """Order words of whole numbers, as ingest makes them."""
    return np.asarray(values, np.int64).view(np.uint64) ^ _SIGN


@dataclass
class Rows:
    """Some rows of one input, sorted by key: their keys and numbers."""

    keys: Keys
    numbers: Values

    def __len__(self) -> int:
        return len(self.keys)


@dataclass
class BandStream:
    """A join with low <= l - r <= high that is planned and counted. `window`: the number of latest batches that stay."""

    low: int | None
    high: int | None
    tasks: int = 2
    partitions: int = 1
    window: int | None = None
    limits: Limits = DEFAULT_LIMITS
    batch: int = 0
    plan: RangePlan | None = None
    stored: dict[str, Rows] = field(default_factory=dict)
    old: list[Run] = field(default_factory=list)
    fresh: list[Run] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(INPUTS, 0))

    @property
    def scheme(self) -> Range:
        return Range(BandFacing(SqlType("bigint"), self.low, self.high))

    @property
    def planned(self) -> RangePlan:
        assert self.plan is not None
        return self.plan

    def add(self, left: npt.ArrayLike, right: npt.ArrayLike) -> RangePlan:
        """Plan a batch that brings these values."""
        oldest = 0 if self.window is None else self.batch - self.window
        self.old = [run for run in (*self.old, *self.fresh) if run.batch >= oldest]
        self.fresh = [*self._store("l", order(left)), *self._store("r", order(right))]
        facts = BatchFacts(
            batch=self.batch,
            now_ms=0,
            tasks=self.tasks,
            inputs=INPUTS,
            before=self.plan,
            batch_before=None,
            history=tuple(self.old),
            reachable=tuple(self.old),
            fresh=tuple(self.fresh),
            keys_of=lambda run: self.stored[run.path].keys,
            limits=self.limits,
        )
        self.plan = self.scheme.plan(facts)
        self.scheme.check(self.plan, self.tasks)
        self.batch += 1
        return self.plan

    def merge(self) -> None:
        """All stored runs of each input become one, as merging does sooner or later."""
        runs = [*self.old, *self.fresh]
        self.fresh, self.old = [], []
        for name in INPUTS:
            if mine := [self.stored[run.path] for run in runs if run.input == name]:
                keys, numbers = (
                    np.concatenate(parts)
                    for parts in zip(*((rows.keys, rows.numbers) for rows in mine), strict=True)
                )
                self.old.append(self._run(name, f"merged-{name}-{self.batch}", keys, numbers))

    def _store(self, name: str, keys: Keys) -> list[Run]:
        first = self.numbers[name]
        numbers = np.arange(first, first + len(keys))
        self.numbers[name] += len(keys)
        return [
            self._run(
                name,
                f"{name}-{self.batch}-{part}",
                keys[part :: self.partitions],
                numbers[part :: self.partitions],
            )
            for part in range(min(self.partitions, len(keys)))
        ]

    def _run(self, name: str, path: str, keys: Keys, numbers: Values) -> Run:
        places = np.argsort(keys, kind="stable")
        self.stored[path] = Rows(keys[places], numbers[places])
        return Run(
            input=name,
            path=path,
            group=path,
            batch=self.batch,
            rows=len(keys),
            bytes=1,
            low=int(keys.min()),
            high=int(keys.max()),
            checksum=xxhash.xxh3_64_hexdigest(path.encode()),
        )

    # What a task does

    def _joined(self, task: int) -> Iterator[tuple[Rows, Rows, Rows, Rows]]:
        """For each share with rows of both inputs: fresh left, stored left, fresh right and stored right rows."""
        for left, right in self.scheme.shares(self.planned, INPUTS, task, self.tasks):
            new, old = self._read(self.fresh, "l", left.fresh), self._read(self.old, "l", left.history)
            other_new = self._read(self.fresh, "r", right.fresh)
            other_old = self._read(self.old, "r", right.history)
            if len(new) + len(old) and len(other_new) + len(other_old):
                yield new, old, other_new, other_old

    def _read(self, runs: Sequence[Run], name: str, wanted: Slice | None) -> Rows:
        keys, numbers = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for run in runs:
            if wanted is None or run.input != name:
                continue
            rows = self.stored[run.path]
            begin, end = position(rows.keys, wanted.range.low), position(rows.keys, wanted.range.high)
            if wanted.part is not None:
                low, high = wanted.part.positions(run, end - begin)
                begin, end = begin + low, begin + high
            keys.append(rows.keys[begin:end])
            numbers.append(rows.numbers[begin:end])
        every = np.concatenate(keys)
        places = np.argsort(every, kind="stable")
        return Rows(every[places], np.concatenate(numbers)[places])

    def work(self) -> npt.NDArray[np.int64]:
        """Fresh rows that each task looks up in the last batch, and the pairs that it finds."""
        return np.array(
            [sum(self._work(*share) for share in self._joined(task)) for task in range(self.tasks)]
        )

    def _work(self, new: Rows, old: Rows, other_new: Rows, other_old: Rows) -> int:
        pairs = self._count(new, other_old) + self._count(new, other_new) + self._count(old, other_new)
        return len(new) + len(other_new) + pairs

    def _count(self, left: Rows, right: Rows) -> int:
        values, others = ((rows.keys ^ _SIGN).view(np.int64) for rows in (left, right))
        first = 0 if self.high is None else np.searchsorted(others, values - self.high)
        last = len(others) if self.low is None else np.searchsorted(others, values - self.low, side="right")
        return int(np.sum(np.broadcast_to(last - first, len(values)))) if len(values) else 0

    def pairs(self) -> Counter[tuple[int, int]]:
        """The pairs that all tasks together find in the last batch, by the numbers of their rows."""
        found: Counter[tuple[int, int]] = Counter()
        for task in range(self.tasks):
            for new, old, other_new, other_old in self._joined(task):
                for left, right in ((new, other_old), (new, other_new), (old, other_new)):
                    found += self._meet(left, right)
        return found

    def owed(self) -> Counter[tuple[int, int]]:
        """The pairs of the last batch, without a plan."""
        everything = Slice()
        new, old = (self._read(runs, "l", everything) for runs in (self.fresh, self.old))
        other_new, other_old = (self._read(runs, "r", everything) for runs in (self.fresh, self.old))
        return self._meet(new, other_old) + self._meet(new, other_new) + self._meet(old, other_new)

    def _meet(self, left: Rows, right: Rows) -> Counter[tuple[int, int]]:
        join = BandJoin(SqlType("bigint"), self.low, self.high, None, ())
        return Counter(
            pair
            for one, other in close_pairs(left.keys, right.keys, join, 1 << 20)
            for pair in zip(left.numbers[one].tolist(), right.numbers[other].tolist(), strict=True)
        )


def unevenness(work: npt.NDArray[np.int64]) -> float:
    """Busiest / mean; 1 if there is nothing to do."""
    return float(work.max() / work.mean()) if work.any() else 1.0
