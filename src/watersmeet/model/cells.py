"""Cut what one key owes into cells, so that each can be paid by itself.

A range of keys that owes too much for one batch is cut by key. A single key cannot be. Its rows are cut by position: of
every input, generation and run, blocks of some rows. A cell has a block of each input, so the cells of all combinations
of blocks have every combination of rows exactly once:

    cell number  =  the blocks of all inputs as the digits of a number, the last input's the fastest

What a cell owes depends only on the generations of its blocks: nothing if all are the same, since their rows have met,
else all its combinations. To pay a cell touches only its blocks. With blocks of a share of 1/m of the limit for m inputs
a cell fits, and no other shape has as many combinations for the same bytes.

Cells are paid over several batches, and only their number is stored, with the rows of each run. So the blocks must not
change meanwhile: they are of rows that were pushed, which no merge moves that is planned later, and a payment begins
when no pending one will (schemes/budget/slices.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows of the key in one run: their generation, the run and how many they are."""

    generation: int
    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of the key in one run, from `start` up to, not including, `stop`, counted from its first row there."""

    generation: int
    path: str
    start: int
    stop: int


Blocks = Sequence[Sequence[Block]]


def blocks_of(stretches: Iterable[RunRows], block_rows: int) -> list[Block]:
    """The blocks of one input, by generation and run. Whoever cuts the same rows gets the same blocks.

    >>> [(one.path, one.start, one.stop) for one in blocks_of([RunRows(1, "b", 3), RunRows(0, "c", 2)], 2)]
    [('c', 0, 2), ('b', 0, 2), ('b', 2, 3)]
    """
    return [
        Block(one.generation, one.path, start, min(start + block_rows, one.rows))
        for one in sorted(stretches, key=lambda one: (one.generation, one.path))
        for start in range(0, one.rows, block_rows)
    ]


def count_cells(blocks: Blocks) -> int:
    return math.prod(map(len, blocks))


def owed_cells(blocks: Blocks, first: int, end: int) -> Iterator[tuple[int, tuple[Block, ...]]]:
    """The cells between two numbers that owe something: their numbers, and their blocks."""
    for number in range(first, min(end, count_cells(blocks))):
        cell = _cell(blocks, number)
        if any(one.generation != cell[0].generation for one in cell):
            yield number, cell


def _cell(blocks: Blocks, number: int) -> tuple[Block, ...]:
    found = []
    for mine in reversed(blocks):
        number, digit = divmod(number, len(mine))
        found.append(mine[digit])
    return tuple(reversed(found))
