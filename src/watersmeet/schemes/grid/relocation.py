"""Count the rows that cells keep, newly read and drop after a change of mapping.

Source: Elseidy et al. 2014, 4.2.1 (locality-aware migration, Lemma 4.4) and 4.2.2 (growth). Nothing is sent here: a
cell reads other parts of the same files. The counts are still those of the paper, since a part that is new to a cell
is not in its cache. A cell added by growth starts empty, and the first of the four replaces the one that was split.

Counts go over the sections of the history, so they are exact even if the hash is uneven.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from watersmeet.schemes.grid.facts import Amount, GridGroup, GridPlan

Counts = npt.NDArray[np.int64]
Amounts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StoredSections:
    """Rows and bytes of each input in each section, by section number."""

    left_rows: Counts
    left_bytes: Counts
    right_rows: Counts
    right_bytes: Counts


@dataclass(frozen=True, slots=True)
class RelocatedAmounts:
    kept: Amount
    moved: Amount
    discarded: Amount


def estimate_stored(plan: GridPlan) -> StoredSections:
    """The sections' content if the hash is even: each has its share of what has arrived."""
    return StoredSections(
        _spread(plan, plan.left.rows),
        _spread(plan, plan.left.bytes),
        _spread(plan, plan.right.rows),
        _spread(plan, plan.right.bytes),
    )


def _spread(plan: GridPlan, total: int) -> Counts:
    """Distribute `total` over the sections, by the size of their groups, rounded so that the sum is exact."""
    weights = np.repeat(np.array(plan.group_cells), plan.parts)
    shares = total * np.cumsum(weights, dtype=np.float64) / (plan.cells * plan.parts)
    bounds = np.rint(shares).astype(np.int64)
    return np.diff(bounds, prepend=0)


def count_relocation(before: GridPlan, after: GridPlan, stored: StoredSections) -> RelocatedAmounts:
    """The relocated amounts, summed over all cells and both inputs."""
    rows = _count(before, after, stored.left_rows, stored.right_rows)
    size = _count(before, after, stored.left_bytes, stored.right_bytes)
    return RelocatedAmounts(*(Amount(int(r), int(b)) for r, b in zip(rows, size, strict=True)))


def relocation_per_cell(
    before: GridPlan, after: GridPlan, left: Counts | Amounts, right: Counts | Amounts
) -> npt.NDArray[Any]:
    """Kept, moved and discarded for each cell of `after`: an array of three columns.

    `left` and `right` are the content of each section, counted or expected.
    """
    rows = []
    for number, (old, new) in enumerate(zip(before.groups, after.groups, strict=True)):
        here = slice(number * before.parts, (number + 1) * before.parts)
        rows.append(_side(old, old.row_bits, new, new.row_bits, left[here]))
        rows[-1] += _side(old, old.col_bits, new, new.col_bits, right[here])
    return np.concatenate(rows)


def _count(before: GridPlan, after: GridPlan, left: Counts, right: Counts) -> npt.NDArray[Any]:
    return relocation_per_cell(before, after, left, right).sum(axis=0)


def _side(
    old: GridGroup,
    old_bits: tuple[int, ...],
    new: GridGroup,
    new_bits: tuple[int, ...],
    stored: Counts | Amounts,
) -> npt.NDArray[Any]:
    """Kept, moved and discarded of one input, for each cell of one group. Both parts are ranges of sections."""
    reached = np.concatenate(([0], np.cumsum(stored)))
    cells = np.arange(new.cells)
    new_low, new_high = _ranges(cells, new_bits, len(stored))
    split = new.cells // old.cells
    old_low, old_high = _ranges(cells // split, old_bits, len(stored))
    old_high = np.where(cells % split == 0, old_high, old_low)
    low = np.maximum(old_low, new_low)
    high = np.maximum(low, np.minimum(old_high, new_high))
    kept = reached[high] - reached[low]
    moved = reached[new_high] - reached[new_low] - kept
    discarded = reached[old_high] - reached[old_low] - kept
    return np.stack([kept, moved, discarded], axis=1)


def _ranges(cells: Counts, bits: tuple[int, ...], parts: int) -> tuple[Counts, Counts]:
    """The first part, and one past the last, that each cell reads along one side."""
    place = np.zeros_like(cells)
    for bit in bits:
        place = place << 1 | (cells >> bit & 1)
    width = parts >> len(bits)
    return place * width, (place + 1) * width
