"""The load of the best mapping, by trying every one: what the planner under test is measured against.

Source: Elseidy et al. 2014, 3.3 and 4.2.2. Nothing here comes from the planner, so that a mistake of it cannot hide in the
optimum. A number of cells that is no power of two is a sum of them, as in the paper: a group of cells has its share of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator


def load(rows: int, cols: int, left: float, right: float) -> float:
    """What one cell of a mapping holds of inputs of these sizes: the input-load factor.

    >>> load(8, 8, 1, 64)
    8.125
    """
    return left / rows + right / cols


def least_load(cells: int, left: float, right: float) -> float:
    """The least that the fullest cell can hold, over all mappings of each group.

    >>> least_load(64, 1, 64)
    2.0
    """
    return max(
        min(load(rows, cols, left, right) for rows, cols in mappings(group)) * group / cells
        for group in _groups(cells)
    )


def mappings(cells: int) -> Iterator[tuple[int, int]]:
    """All of them.

    >>> list(mappings(4))
    [(1, 4), (2, 2), (4, 1)]
    """
    return ((rows, cells // rows) for rows in range(1, cells + 1) if cells % rows == 0)


def _groups(cells: int) -> list[int]:
    return [1 << bit for bit in range(cells.bit_length()) if cells >> bit & 1]
