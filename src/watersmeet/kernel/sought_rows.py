"""Read the rows that a lookup has found, in parts of bounded size.

Only the rows of keys that some combination still has are read. They are gathered a piece of the keys at a time. A key
with more rows than a piece is read in several parts. Rows that are only located are fetched from the arrangement that
holds them, each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from watersmeet.kernel.gather import (
    Looked,
    Part,
    gather,
    locate,
    pieces_of_keys,
    row_bytes,
    views,
    whole_part,
)
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.near import Primary, distinct_locators, fetched, parts_near, stretches_of
from watersmeet.kernel.rows import Keyed
from watersmeet.kernel.seek import Sought
from watersmeet.model.limits import Limits


@dataclass(frozen=True, slots=True)
class SoughtRows:
    """The keys of a lookup that combinations have: where they are in each slice, and the rows of each.

    `of` has the keys of all combinations, ascending, and `order` says which combination each of these is.
    """

    sought: Sought
    keys: Indices
    looked: Sequence[Looked]
    rows: Indices
    of: Indices
    order: Indices

    @staticmethod
    def found_by(sought: Sought) -> SoughtRows:
        used = np.zeros(len(sought.rows), np.bool_)
        used[sought.of] = True
        keys = np.flatnonzero(used)
        of = (np.cumsum(used) - 1)[sought.of]
        # Combinations of one key stay in their order. Tasks deal them out later (late.py), so all must have the same
        # order, and how an unstable sort leaves equal keys depends on the processor.
        order = np.sort(of * len(of) + np.arange(len(of))) % max(1, len(of))
        looked = [one.only(used) for one in sought.looked]
        return SoughtRows(sought, keys, looked, sought.rows[keys], of[order], order)

    def parts(
        self, slices: Mapping[str, Sequence[Keyed]], value: str | None, read: list[str], limits: Limits
    ) -> Iterator[tuple[Part, int, int, int]]:
        """The rows in parts, a piece of the keys at a time. `value` is the column that they are found by the value of.

        With each part: from where to where the combinations of its keys are in `of`, and the first of its keys.
        """
        arranged, near = self.sought.arranged, self.sought.near
        name, through = arranged.input, arranged.through
        if near is not None:
            assert value is not None
            located = None if through is None else Primary(slices[through], value)
            for part in parts_near(name, self.looked, near.at(self.keys), read, limits, located):
                yield part, 0, len(self.of), 0
            return
        size = self.rows * row_bytes(slices[through or arranged.name], read)
        for first, end in pieces_of_keys(self.rows, size, limits):
            low, high = (int(place) for place in np.searchsorted(self.of, [first, end]))
            large = end - first == 1 and (
                self.rows[first] > limits.piece_rows or size[first] > limits.piece_bytes
            )
            parts: Iterable[Part]
            if through is not None:
                parts = self._located(slices[through], first, end, read, limits, large=large)
            elif large:
                parts = (part for _, part in views(name, self.looked, first, {name: read}, limits))
            else:
                parts = [gather(name, self.looked, first, end, read).owed(0, 1)]
            for part in parts:
                yield part, low, high, first

    def _located(
        self, slices: Sequence[Keyed], first: int, end: int, read: list[str], limits: Limits, *, large: bool
    ) -> Iterator[Part]:
        """The rows of some keys, or of one key that is too large for a piece, from the slices that hold them."""
        name = self.sought.arranged.input
        if large:
            here = [stretches_of(one, first, end) for one in self.looked]
            for locators in distinct_locators(here, limits.piece_rows):
                for rows in fetched(name, locators, slices, read, limits):
                    yield whole_part(name, rows)
            return
        key, pairs = locate(self.looked, first, end, slices)
        by_key = [replace(one, at=one.at._replace(found=key[one.at.found])) for one in pairs]
        # An arrangement may still locate rows that another one has evicted.
        if any(len(one.at.found) for one in by_key):
            yield gather(name, by_key, 0, end - first, read).owed(0, 1)
