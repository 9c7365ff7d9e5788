"""What reshufflers, joiners and the controller send each other, and who must get a row.

A row's part never changes; a mapping says which joiners read that part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from watersmeet.schemes.grid.facts import GridGroup, gather_bits

LEFT, RIGHT = "left", "right"


class ProtocolViolated(Exception):
    """A message came that the protocol rules out: a channel was reordered, or an epoch began too early."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the input `side`, with the part of the grid that its hash gave it."""

    side: str
    number: int
    part: int


@dataclass(frozen=True, slots=True)
class Routed:
    """A new row from a reshuffler, tagged with the latest epoch that the reshuffler knows."""

    row: Row
    epoch: int


@dataclass(frozen=True, slots=True)
class Migrated:
    """A row that one joiner had and another one needs in `epoch`."""

    row: Row
    epoch: int


@dataclass(frozen=True, slots=True)
class MappingChange:
    """The controller's word to reshufflers, and theirs to joiners: from now on, this is the mapping."""

    epoch: int
    group: GridGroup


@dataclass(frozen=True, slots=True)
class MigrationEnd:
    """A joiner's word to another one: nothing more will come from me in this migration."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Ack:
    """A joiner's word to the controller: my state is that of `epoch`."""

    epoch: int


def bits_of(group: GridGroup, side: str) -> tuple[int, ...]:
    return group.row_bits if side == LEFT else group.col_bits


def reads(group: GridGroup, parts: int, cell: int, row: Row) -> bool:
    """Whether the cell's row (for the left input) or column holds this row."""
    bits = bits_of(group, row.side)
    return gather_bits(cell, bits) == row.part // (parts >> len(bits))


def readers(group: GridGroup, parts: int, row: Row) -> list[int]:
    """The cells of one row, or one column, of the grid."""
    bits = bits_of(group, row.side)
    place = row.part // (parts >> len(bits))
    fixed = sum((place >> shift & 1) << bit for shift, bit in enumerate(reversed(bits)))
    return _with_any(fixed, [bit for bit in range(group.cells.bit_length() - 1) if bit not in bits])


def partners(old: GridGroup, new: GridGroup, cell: int) -> list[int]:
    """The cells with which one exchanges what it has: those that differ in the bits that changed sides."""
    changed = set(old.row_bits) ^ set(new.row_bits)
    return [other for other in _with_any(cell, changed) if other != cell]


def is_exchanged(old: GridGroup, new: GridGroup, side: str) -> bool:
    """Whether the rows of this input go to the partners: its side of the grid has fewer parts than before."""
    return len(bits_of(new, side)) < len(bits_of(old, side))


def _with_any(cell: int, bits: Iterable[int]) -> list[int]:
    """The cells that agree with this one outside the given bits."""
    chosen: Sequence[int] = sorted(bits)
    base = cell & ~sum(1 << bit for bit in chosen)
    return [
        base | sum(value << bit for value, bit in zip(values, chosen, strict=True))
        for values in itertools.product((0, 1), repeat=len(chosen))
    ]
