"""Look up what combinations of rows lead to: in one arrangement, for the distinct keys of all of them.

Equal keys are looked up once, and no row is read: a lookup says where each key is and how many rows it has. An
arrangement is searched by whole order keys, by the first half of them, or by value (near.py). Without a key all of its
rows are found. Where there are many combinations, most keys that are absent are dropped before they are sorted
(key_table.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from watersmeet.kernel.edges import Arranged, Edge
from watersmeet.kernel.emit import PickedRows
from watersmeet.kernel.gather import Looked, look_up, look_up_prefixes, numbered
from watersmeet.kernel.key_table import WORTH_RATIO, KeyTable, key_table
from watersmeet.kernel.keys import Indices, Keys, joined_keys, order_keys, prefix_ranges
from watersmeet.kernel.match import Matches
from watersmeet.kernel.near import Intervals, look_up_near
from watersmeet.kernel.rows import Keyed
from watersmeet.model.tally import Work


@dataclass(frozen=True, slots=True)
class Sought:
    """What a lookup in one arrangement has found: where each key is, how often, and the key of each combination.

    `by` are the edges that it was by. Instead of keys it is for intervals, `near`, if the arrangement is by value.
    """

    arranged: Arranged
    looked: Sequence[Looked]
    rows: Indices
    of: Indices
    by: frozenset[int]
    near: Intervals | None = None

    @property
    def counts(self) -> Indices:
        """The rows that each combination would meet."""
        return self.rows[self.of]

    def at(self, keep: Indices) -> Sought:
        return replace(self, of=self.of[keep])


@dataclass(frozen=True, slots=True)
class Seeker:
    """Looks combinations up in arrangements, whose rows are `slices`. `work` counts the lookups."""

    edges: Sequence[Edge]
    slices: Mapping[str, Sequence[Keyed]]
    work: Work
    # By arrangement, made when one is first worth it.
    tables: dict[str, KeyTable] = field(default_factory=dict)

    def finds_more(self, arranged: Arranged, found: PickedRows, newest: str, known: Sought | None) -> bool:
        """Whether the rows that were bound last find rows in an arrangement, or fewer than those known."""
        edges = self.edges
        if arranged.input in found or arranged.edge is None:
            return False
        if edges[arranged.edge].band is not None:
            # Each band leads there alone.
            leading: tuple[int | None, ...] = (arranged.edge, *arranged.also)
        else:
            leading = (arranged.edge if known is None else arranged.then,)
        used = frozenset() if known is None else known.by
        return any(newest in edges[one].inputs for one in leading if one is not None and one not in used)

    def look_up(self, arranged: Arranged, found: PickedRows) -> Sought:
        """Look up the keys of all combinations: by both keys of the arrangement if both are bound."""
        slices = self.slices[arranged.name]
        self.work.looked_rows += len(next(iter(found.values())).at)
        assert arranged.edge is not None
        if self.edges[arranged.edge].band is not None:
            return self._look_up_near(arranged, found)
        by = frozenset({arranged.edge})
        prefix = self._keys(arranged.edge, found)
        assert prefix is not None
        if not len(prefix):
            # Without a key all rows are found.
            whole = (Matches(*np.array([[0], [0], [len(s)]])) for s in slices)
            looked = [Looked(s, False, at) for s, at in zip(slices, whole, strict=True)]
            combinations = len(next(iter(found.values())).at)
            return Sought(
                arranged, looked, np.array([sum(map(len, slices))]), np.zeros(combinations, np.int64), by
            )
        suffix = None if arranged.then is None else self._keys(arranged.then, found)
        if suffix is not None and arranged.then is not None:
            by |= {arranged.then}
        if not arranged.halves:
            return self._look_up_exactly(arranged, order_keys(prefix), by)
        if suffix is not None:
            return self._look_up_exactly(arranged, joined_keys(order_keys(prefix), order_keys(suffix)), by)
        keys, of = numbered(prefix_ranges(order_keys(prefix))[0])
        looked = look_up_prefixes(keys, slices)
        return Sought(arranged, looked, _rows_found(looked, len(keys)), of, by)

    def _look_up_exactly(self, arranged: Arranged, keys: Keys, by: frozenset[int]) -> Sought:
        """Look up whole order keys, of each combination one. Most of those that are absent are not even sorted."""
        slices = self.slices[arranged.name]
        table = self.tables.get(arranged.name)
        if table is None and 0 < sum(map(len, slices)) <= WORTH_RATIO * len(keys):
            table = self.tables[arranged.name] = key_table([s.keys for s in slices])
        likely = np.arange(len(keys)) if table is None else table.likely(keys)
        sought, numbers = numbered(keys if table is None else keys[likely])
        looked = look_up(sought, slices)
        # Combinations that find nothing are numbered as if of one more key, which has no rows.
        of = np.full(len(keys), len(sought))
        of[likely] = numbers
        return Sought(arranged, looked, np.append(_rows_found(looked, len(sought)), 0), of, by)

    def _look_up_near(self, arranged: Arranged, found: PickedRows) -> Sought:
        """Look up the values of all combinations: by all bands whose other input is bound. Each narrows the others."""
        assert arranged.edge is not None
        edges = self.edges
        leading = [
            (number, name)
            for number in (arranged.edge, *arranged.also)
            for name in edges[number].inputs
            if name in found
        ]
        near = [edges[number].near(found, name) for number, name in leading]
        sought, of = functools.reduce(Intervals.met, near).distinct()
        looked = look_up_near(sought, self.slices[arranged.name])
        by = frozenset(number for number, _ in leading)
        return Sought(arranged, looked, _rows_found(looked, len(sought.lower)), of, by, sought)

    def _keys(self, number: int, found: PickedRows) -> list[pa.Array] | None:
        """The key of an edge in each combination, if an input of the edge is bound."""
        edge = self.edges[number]
        bound = next((name for name in found if name in edge.inputs), None)
        return None if bound is None else [found[bound].values(column) for column in edge.of(bound)]


def fewest_rows(sought: Mapping[str, Sought]) -> list[Indices]:
    """The rows that each combination would bind of each input that was looked up."""
    fewest: dict[str, Indices] = {}
    for one in sought.values():
        known = fewest.get(one.arranged.input)
        fewest[one.arranged.input] = one.counts if known is None else np.minimum(known, one.counts)
    return list(fewest.values())


def _rows_found(looked: Iterable[Looked], keys: int) -> Indices:
    rows = np.zeros(keys, np.int64)
    for one in looked:
        rows[one.at.found] += one.at.rows
    return rows
