"""Streams for the hypercube's planner: runs that lie in memory, batch after batch, and what each task reads of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import xxhash

from watersmeet.kernel.keys import mix
from watersmeet.kernel.rows import hot_keys
from watersmeet.model.cube import CubePlan
from watersmeet.model.facts import KEY_SPACE, Plan, Run
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

    def rows_read(self) -> npt.NDArray[np.int64]:
        """Live rows that each task has under the plan, those of both inputs together."""
        assert self.plan is not None
        none = np.zeros(self.tasks, np.int64)
        return sum((self.readers(run, self.plan).sum(axis=1) for run in (*self.left, *self.right)), none)

    def moved_rows(self, before: Plan) -> int:
        """Rows of earlier batches that some task has under the plan, and had not under the one before."""
        assert self.plan is not None
        new = {run.path for run in self.fresh}
        return sum(
            int(np.count_nonzero(self.readers(run, self.plan) & ~self.readers(run, before)))
            for run in (*self.left, *self.right)
            if run.path not in new
        )

    def readers(self, run: Run, plan: Plan) -> npt.NDArray[np.bool_]:
        """Which task has which row of a run."""
        keys = self.shelf.of(run)
        bounds = np.array([range_.low for range_ in plan.ranges[1:] if range_.low < KEY_SPACE], np.uint64)
        owner = np.searchsorted(bounds, keys, side="right")
        read = owner == np.arange(len(plan.ranges))[:, None]
        for one in plan.cube.heavy if plan.cube else ():
            begin, end = (int(np.searchsorted(keys, np.uint64(one.key), side)) for side in ("left", "right"))
            if begin == end:
                continue
            read[:, begin:end] = False
            owners = np.array(one.tasks).reshape(one.shape.rows, one.shape.cols)
            for part, mine in enumerate(owners if run.input == "l" else owners.T):
                parts = one.shape.rows if run.input == "l" else one.shape.cols
                low, high = positions(run, end - begin, (part, part + 1), parts)
                read[np.unique(mine), begin + low : begin + high] = True
        return read

    def results(self) -> float:
        """Results of the last batch."""
        return float(self._by_key()[1].sum())

    def work(self) -> npt.NDArray[np.float64]:
        """Fresh rows that each task looks up in the last batch, and results that it gives out; all of them counted."""
        assert self.plan is not None
        none = np.zeros(self.tasks)
        work = sum((self.readers(run, self.plan).sum(axis=1) for run in self.fresh), none)
        keys, results = self._by_key()
        light = ~np.isin(keys, np.array([one.key for one in self.cube.heavy], np.uint64))
        bounds = np.array(
            [range_.low for range_ in self.plan.ranges[1:] if range_.low < KEY_SPACE], np.uint64
        )
        np.add.at(work, np.searchsorted(bounds, keys[light], side="right"), results[light])
        for one in self.cube.heavy:
            old_left, new_left = self._parts(self.left, one.key, one.shape.rows)
            old_right, new_right = self._parts(self.right, one.key, one.shape.cols)
            cells = np.outer(new_left, old_right + new_right) + np.outer(old_left, new_right)
            np.add.at(work, np.array(one.tasks), cells.reshape(-1))
        return work

    def _by_key(self) -> tuple[Keys, npt.NDArray[np.float64]]:
        """Every live key, and its results in the last batch."""
        keys = np.unique(np.concatenate([self.shelf.of(run) for run in (*self.left, *self.right)]))
        counts = []
        for runs in (self.left, self.right):
            for fresh in (False, True):
                counted = np.zeros(len(keys))
                for run in runs:
                    if (run.batch == self.batch - 1) == fresh:
                        np.add.at(counted, np.searchsorted(keys, self.shelf.of(run)), 1)
                counts.append(counted)
        old_left, new_left, old_right, new_right = counts
        return keys, new_left * (old_right + new_right) + old_left * new_right

    def _parts(self, runs: Sequence[Run], key: int, of: int) -> npt.NDArray[np.float64]:
        """Rows of a key in each of its parts: those of earlier batches, and the fresh ones."""
        rows = np.zeros((2, of))
        for run in runs:
            keys = self.shelf.of(run)
            begin, end = (int(np.searchsorted(keys, np.uint64(key), side)) for side in ("left", "right"))
            if begin == end:
                continue
            cuts = [positions(run, end - begin, (part, part + 1), of) for part in range(of)]
            rows[int(run.batch == self.batch - 1)] += [high - low for low, high in cuts]
        return rows
