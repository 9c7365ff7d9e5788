"""Streams for the hypercube's planner: runs that lie in memory, batch after batch, and what each task reads of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import xxhash

from watersmeet.kernel.keys import mix
from watersmeet.model.facts import Run
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.schemes.hypercube.allot import task_of
from watersmeet.schemes.hypercube.census import ROWS_PER_SEARCH, KeyCounts, Stored, count_rows
from watersmeet.schemes.hypercube.facts import CubePlan
from watersmeet.schemes.hypercube.hot_keys import HotKeys, listing_floor, most_frequent
from watersmeet.schemes.hypercube.plan import heavy_shapes, plan_cube
from watersmeet.schemes.hypercube.scheme import Hypercube
from watersmeet.schemes.hypercube.suspects import Effort
from watersmeet.schemes.scheme import KeysOf, RowPart

Keys = npt.NDArray[np.uint64]


def order(values: npt.ArrayLike) -> Keys:
    """Order keys of whole numbers, as ingest makes them."""
    return mix(np.asarray(values, np.uint64))


def count_keys(
    stored: Sequence[Stored], keys: Keys, keys_of: KeysOf, rows_per_search: int = ROWS_PER_SEARCH
) -> KeyCounts:
    """Count rows exactly, in all runs. `keys` ascend and are distinct."""
    new, old = (
        np.stack([count_rows(runs, keys, keys_of, rows_per_search) for runs in side])
        for side in ([one.new for one in stored], [one.old for one in stored])
    )
    return KeyCounts(keys, new, old)


@dataclass
class Shelf:
    """Runs without files: their sorted keys by path."""

    limits: Limits = DEFAULT_LIMITS
    keys: dict[str, Keys] = field(default_factory=dict)

    def store(self, input_name: str, batch: int, keys: Keys, tasks: int, floor: int | None = None) -> Run:
        keys = np.sort(keys)
        path = f"{input_name}-{batch}-{len(self.keys)}"
        self.keys[path] = keys
        floor = listing_floor(len(keys), tasks, self.limits) if floor is None else floor
        begin = counts = np.zeros(0, int)
        if floor:
            begin, counts, floor = most_frequent(keys, floor, self.limits.most_listed_keys)
        return Run(
            input=input_name,
            path=path,
            group=path,
            batch=batch,
            rows=len(keys),
            bytes=1,
            low=int(keys[0]),
            high=int(keys[-1]),
            checksum=xxhash.xxh3_64_hexdigest(path.encode()),
            stats=HotKeys(tuple(keys[begin].tolist()), tuple(counts.tolist()), ("",) * len(begin), floor),
        )

    def of(self, run: Run) -> Keys:
        return self.keys[run.path]


@dataclass
class Stream:
    """A hypercube join that is only planned. `window`: the number of latest batches that stay."""

    tasks: int
    window: int | None = None
    partitions: int = 1
    inputs: tuple[str, ...] = ("l", "r")
    # None: the planner's own choice.
    effort: Effort | None = None
    batch: int = 0
    plan: CubePlan | None = None
    shelf: Shelf = field(default_factory=Shelf)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    fresh: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runs = {name: [] for name in self.inputs}

    @property
    def live(self) -> list[Run]:
        return [run for runs in self.runs.values() for run in runs]

    def add(self, *arriving: Keys) -> CubePlan:
        """Plan a batch that brings these keys, of each input."""
        oldest = 0 if self.window is None else self.batch - self.window
        kept = {name: [run for run in runs if run.batch >= oldest] for name, runs in self.runs.items()}
        new = {name: self._store(name, keys) for name, keys in zip(self.inputs, arriving, strict=True)}
        stored = {name: Stored(kept[name], new[name]) for name in self.inputs}
        self.plan = plan_cube(self.plan, stored, self.shelf.of, self.tasks, self.batch, self.effort)
        Hypercube().check(self.plan, self.tasks)
        self.runs = {name: [*kept[name], *new[name]] for name in self.inputs}
        self.fresh = [run for runs in new.values() for run in runs]
        self.batch += 1
        return self.plan

    @property
    def cube(self) -> CubePlan:
        assert self.plan is not None
        return self.plan

    def merge(self) -> None:
        """All runs of each input become one, as merging does sooner or later."""
        self.runs = {name: [self._merged(runs)] if runs else [] for name, runs in self.runs.items()}

    def _merged(self, runs: Sequence[Run]) -> Run:
        keys = np.concatenate([self.shelf.of(run) for run in runs])
        return replace(self.shelf.store(runs[0].input, 0, keys, self.tasks), batch=runs[-1].batch)

    def _store(self, name: str, keys: Keys) -> list[Run]:
        parts = [keys[at :: self.partitions] for at in range(self.partitions)]
        return [self.shelf.store(name, self.batch, part, self.tasks) for part in parts if len(part)]

    def rows_read(self) -> npt.NDArray[np.int64]:
        """Live rows that each task has under the plan, those of all inputs together."""
        none = np.zeros(self.tasks, np.int64)
        return sum((self.readers(run, self.cube).sum(axis=1) for run in self.live), none)

    def moved_rows(self, before: CubePlan) -> int:
        """Rows of earlier batches that some task has under the plan, and had not under the one before."""
        if (self.cube.ranges, heavy_shapes(self.cube.heavy)) == (before.ranges, heavy_shapes(before.heavy)):
            return 0
        new = {run.path for run in self.fresh}
        return sum(
            int(np.count_nonzero(self.readers(run, self.cube) & ~self.readers(run, before)))
            for run in self.live
            if run.path not in new
        )

    def readers(self, run: Run, plan: CubePlan) -> npt.NDArray[np.bool_]:
        """Which task has which row of a run."""
        keys, axis = self.shelf.of(run), self.inputs.index(run.input)
        read = task_of(keys, plan.ranges) == np.arange(len(plan.ranges))[:, None]
        for one in plan.heavy:
            begin, end = (int(np.searchsorted(keys, np.uint64(one.key), side)) for side in ("left", "right"))
            if begin == end:
                continue
            read[:, begin:end] = False
            for part, mine in enumerate(np.moveaxis(one.owners, axis, 0)):
                low, high = RowPart(part, part + 1, one.shape[axis]).positions(run, end - begin)
                read[np.unique(mine), begin + low : begin + high] = True
        return read

    def results(self) -> float:
        """Results of the last batch."""
        return float(self._by_key()[1].sum())

    def work(self) -> npt.NDArray[np.float64]:
        """Fresh rows that each task looks up in the last batch, and results that it gives out; all of them counted."""
        none = np.zeros(self.tasks)
        work = sum((self.readers(run, self.cube).sum(axis=1) for run in self.fresh), none)
        keys, results = self._by_key()
        light = ~np.isin(keys, np.array([one.key for one in self.cube.heavy], np.uint64))
        np.add.at(work, task_of(keys[light], self.cube.ranges), results[light])
        for one in self.cube.heavy:
            counts = [
                self._parts(self.runs[name], one.key, of)
                for name, of in zip(self.inputs, one.shape, strict=True)
            ]
            cells = _outer([old + new for old, new in counts]) - _outer([old for old, _ in counts])
            np.add.at(work, np.array(one.tasks), cells.reshape(-1))
        return work

    def _by_key(self) -> tuple[Keys, npt.NDArray[np.float64]]:
        """Every live key, and its results in the last batch: all combinations, but for those of old rows alone."""
        keys = np.unique(np.concatenate([self.shelf.of(run) for run in self.live]))
        old, every = np.zeros((2, len(self.inputs), len(keys)))
        for axis, runs in enumerate(self.runs.values()):
            for run in runs:
                places = np.searchsorted(keys, self.shelf.of(run))
                np.add.at(every[axis], places, 1)
                if run.batch != self.batch - 1:
                    np.add.at(old[axis], places, 1)
        return keys, every.prod(axis=0) - old.prod(axis=0)

    def _parts(self, runs: Sequence[Run], key: int, of: int) -> npt.NDArray[np.float64]:
        """Rows of a key in each of its parts: those of earlier batches, and the fresh ones."""
        rows = np.zeros((2, of))
        for run in runs:
            keys = self.shelf.of(run)
            begin, end = (int(np.searchsorted(keys, np.uint64(key), side)) for side in ("left", "right"))
            if begin == end:
                continue
            cuts = [RowPart(part, part + 1, of).positions(run, end - begin) for part in range(of)]
            rows[int(run.batch == self.batch - 1)] += [high - low for low, high in cuts]
        return rows


def _outer(sides: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """The product of one number of each side, for every combination."""
    return functools.reduce(np.multiply.outer, sides)
