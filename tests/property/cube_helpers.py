"""Streams for the hypercube's planner: runs that lie in memory, batch after batch, and what each task reads of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import xxhash

from watersmeet.kernel.hot import hot_keys
from watersmeet.kernel.order import mix
from watersmeet.model.cube import CubePlan, HeavyKey
from watersmeet.model.facts import Plan, Run
from watersmeet.plan.census import Stored
from watersmeet.plan.hypercube import listing_floor, plan_cube
from watersmeet.plan.parts import positions

Keys = npt.NDArray[np.uint64]


def order(values: npt.ArrayLike) -> Keys:
    """Order keys of whole numbers, as ingest makes them."""
    return mix(np.asarray(values, np.uint64))


@dataclass
class Shelf:
    """Runs without files: their sorted keys by path."""

    keys: dict[str, Keys] = field(default_factory=dict)

    def store(self, input_name: str, batch: int, keys: Keys, tasks: int, floor: int | None = None) -> Run:
        keys = np.sort(keys)
        path = f"{input_name}-{batch}-{len(self.keys)}"
        self.keys[path] = keys
        floor = listing_floor(len(keys), tasks) if floor is None else floor
        begin, counts = hot_keys(keys, floor) if floor else (np.zeros(0, int), np.zeros(0, int))
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
            hot=tuple(keys[begin].tolist()),
            hot_rows=tuple(counts.tolist()),
            hot_labels=("",) * len(begin),
            hot_floor=floor,
        )

    def of(self, run: Run) -> Keys:
        return self.keys[run.path]


@dataclass
class Stream:
    """A hypercube join that is only planned. `window`: so many of the latest batches stay."""

    tasks: int
    window: int | None = None
    partitions: int = 1
    batch: int = 0
    plan: Plan | None = None
    shelf: Shelf = field(default_factory=Shelf)
    left: list[Run] = field(default_factory=list)
    right: list[Run] = field(default_factory=list)
    fresh: list[Run] = field(default_factory=list)

    def add(self, left: Keys, right: Keys) -> Plan:
        if self.window is not None:
            oldest = self.batch - self.window
            self.left, self.right = (
                [run for run in runs if run.batch >= oldest] for runs in (self.left, self.right)
            )
        new_left, new_right = (self._store(name, keys) for name, keys in (("l", left), ("r", right)))
        sides = Stored(self.left, new_left), Stored(self.right, new_right)
        self.plan = plan_cube(self.plan, *sides, self.shelf.of, self.tasks, self.batch)
        self.left, self.right = [*self.left, *new_left], [*self.right, *new_right]
        self.fresh = [*new_left, *new_right]
        self.batch += 1
        return self.plan

    @property
    def cube(self) -> CubePlan:
        assert self.plan is not None and self.plan.cube is not None
        return self.plan.cube

    def merge(self) -> None:
        """All runs of each input become one, as merging does sooner or later."""
        self.left, self.right = ([self._merged(runs)] if runs else [] for runs in (self.left, self.right))

    def _merged(self, runs: Sequence[Run]) -> Run:
        keys = np.concatenate([self.shelf.of(run) for run in runs])
        return replace(self.shelf.store(runs[0].input, 0, keys, self.tasks), batch=runs[-1].batch)

    def _store(self, name: str, keys: Keys) -> list[Run]:
        parts = [keys[at :: self.partitions] for at in range(self.partitions)]
        return [self.shelf.store(name, self.batch, part, self.tasks) for part in parts if len(part)]

    def rows_read(self, *, fresh: bool = False) -> npt.NDArray[np.int64]:
        """Live rows that each task has under the plan, those of both inputs together; or of the fresh ones only."""
        assert self.plan is not None
        read = np.zeros(self.tasks, np.int64)
        heavy = np.array([one.key for one in self.cube.heavy], np.uint64)
        bounds = [range_.low for range_ in self.plan.ranges[1:] if range_.low < 1 << 64]
        for run in self.fresh if fresh else [*self.left, *self.right]:
            keys = self.shelf.of(run)
            light = keys[~np.isin(keys, heavy)]
            at = np.searchsorted(np.array(bounds, np.uint64), light, side="right")
            read += np.bincount(at, minlength=self.tasks)
            for one in self.cube.heavy:
                begin, end = np.searchsorted(keys, [np.uint64(one.key)] * 2), 0
                end = int(np.searchsorted(keys, np.uint64(one.key), side="right"))
                read += rows_of_cells(run, end - int(begin[0]), one, self.tasks)
        return read


def rows_of_cells(run: Run, count: int, heavy: HeavyKey, tasks: int) -> npt.NDArray[np.int64]:
    """The rows of one key in one run that each task reads."""
    owners = np.array(heavy.tasks).reshape(heavy.shape.rows, heavy.shape.cols)
    owners = owners if run.input == "l" else owners.T
    read = np.zeros(tasks, np.int64)
    for part, mine in enumerate(owners):
        low, high = positions(run, count, (part, part + 1), len(owners))
        read[np.unique(mine)] += high - low
    return read
