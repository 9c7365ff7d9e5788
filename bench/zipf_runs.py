"""Runs without files: keys drawn by Zipf's law, sorted, in memory, with the statistics that ingest records.

What a planner reads of a run is real: its keys, and the hot keys that it lists. `bench/many.py` times planners on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from papers.shared.zipf import rank_shares
from watersmeet.kernel.keys import mix
from watersmeet.model.facts import KEY_SPACE, KeyRange, Run
from watersmeet.model.limits import DEFAULT_LIMITS
from watersmeet.schemes.hypercube.hot_keys import HotKeys, listing_floor, most_frequent

DISTINCT = 100_000
# As many of a run's hot keys have a label, the largest ones.
LABELLED = 8

Keys = npt.NDArray[np.uint64]


class ZipfRuns:
    """A store of such runs, for joins of `tasks` tasks."""

    def __init__(self, alpha: float, tasks: int, seed: int):
        self.rng = np.random.default_rng((seed, int(100 * alpha)))
        self.tasks = tasks
        self._reached = np.cumsum(rank_shares(DISTINCT, alpha))
        self._keys: dict[str, Keys] = {}

    def draw(self, rows: int) -> Keys:
        ranks = np.searchsorted(self._reached, self.rng.random(rows), side="right")
        return np.sort(mix(np.minimum(ranks, DISTINCT - 1).astype(np.uint64)))

    def store(self, side: str, batch: int, label: str, keys: Keys, group: str | None = None) -> Run:
        """A run of ascending keys."""
        mark = f"{int(self.rng.integers(0, KEY_SPACE - 1, dtype=np.uint64)):016x}"
        path = f"runs/{side}/{batch:010d}-{label}-{mark}.arrow"
        self._keys[path] = keys
        low, high = (int(keys[0]), int(keys[-1])) if len(keys) else (0, 0)
        rows = len(keys)
        return Run(
            side,
            path,
            group or path,
            batch,
            rows,
            24 * rows,
            low,
            high,
            mark,
            16 * rows,
            stats=self._listed(keys),
        )

    def _listed(self, keys: Keys) -> HotKeys:
        floor = listing_floor(len(keys), self.tasks)
        begin, rows, floor = most_frequent(keys, floor, DEFAULT_LIMITS.most_listed_keys)
        largest = set(np.argsort(-rows, kind="stable")[:LABELLED].tolist())
        found = keys[begin].tolist()
        labels = tuple(str(key % 997) if place in largest else "" for place, key in enumerate(found))
        return HotKeys(tuple(found), tuple(rows.tolist()), labels, floor)

    def merged(self, paths: Sequence[str], range_: KeyRange) -> Keys:
        """The keys of some runs in a range, as a merge writes them."""
        high = np.uint64(min(range_.high, KEY_SPACE - 1))
        parts = [
            keys[np.searchsorted(keys, np.uint64(range_.low)) : np.searchsorted(keys, high)]
            for keys in (self._keys[path] for path in paths)
        ]
        return np.sort(np.concatenate(parts))

    def keys(self, run: Run) -> Keys:
        return self._keys[run.path]

    def forget_all_but(self, paths: Iterable[str]) -> None:
        alive = frozenset(paths)
        self._keys = {path: keys for path, keys in self._keys.items() if path in alive}
