"""The facts of the adaptive grid: the mapping of each group of cells, the plan of one batch, what a change moved.

Source: Elseidy et al. 2014, sections 3.1 (mappings), 4.2 (counters, groups, growth). The left input is the
paper's R and lies along the rows of the join matrix; the right one is S, along the columns.

A cell has a number. Some of its bits name the cell's row, the others its column. Which ones is the whole mapping.
Halving the rows turns the lowest row bit into the lowest column bit. So a cell keeps all that it read of the left
input, gains what its partner read, and keeps one half of the right. This is the locality-aware migration, as a change
of three small tuples. All of it is stored as JSON with the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from watersmeet.model.closed import ClosedSet
from watersmeet.model.facts import SchemePlan


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of rows and their bytes. Loads are compared by bytes, minimums by rows."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class GridShape:
    """An (n, m) mapping: the left input is cut into `rows` parts, the right one into `cols`."""

    rows: int
    cols: int

    @property
    def cells(self) -> int:
        return self.rows * self.cols


@dataclass(frozen=True, slots=True)
class GridGroup:
    """A power of two of cells and their mapping: which bits of a cell's number are its row, which its column.

    Both tuples run from the highest bit of the row (column) number to the lowest.

    >>> group = GridGroup(row_bits=(3, 2), col_bits=(1, 0))
    >>> group.shape
    GridShape(rows=4, cols=4)
    >>> group.reshaped(GridShape(2, 8))
    GridGroup(row_bits=(3,), col_bits=(1, 0, 2))
    """

    row_bits: tuple[int, ...]
    col_bits: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.row_bits + self.col_bits) != list(range(len(self.row_bits) + len(self.col_bits))):
            raise ValueError(f"row bits {self.row_bits} and column bits {self.col_bits} must share all bits")

    @property
    def cells(self) -> int:
        return 1 << (len(self.row_bits) + len(self.col_bits))

    @property
    def shape(self) -> GridShape:
        return GridShape(1 << len(self.row_bits), 1 << len(self.col_bits))

    def reshaped(self, shape: GridShape) -> GridGroup:
        """The same cells under another mapping. In each step the lowest bit of one side moves to the other."""
        rows, cols = self.row_bits, self.col_bits
        while (1 << len(rows)) > shape.rows:
            rows, cols = rows[:-1], (*cols, rows[-1])
        while (1 << len(rows)) < shape.rows:
            rows, cols = (*rows, cols[-1]), cols[:-1]
        if shape.cells != self.cells or (1 << len(rows)) != shape.rows:
            raise ValueError(f"{self.cells} cells have no mapping ({shape.rows}, {shape.cols})")
        return GridGroup(rows, cols)

    def grown(self) -> GridGroup:
        """Split each cell c into the four cells 4c to 4c+3, half a row by half a column each."""
        rows, cols = tuple(b + 2 for b in self.row_bits), tuple(b + 2 for b in self.col_bits)
        return GridGroup((*rows, 1), (*cols, 0))


def gather_bits(number: int, bits: Sequence[int]) -> int:
    """The bits of `number` at the given places, packed from high to low."""
    gathered = 0
    for bit in bits:
        gathered = gathered << 1 | (number >> bit & 1)
    return gathered


# Why a plan changed its shape: the first decision, a better mapping, more cells (and a mapping for them), or
# another mapping at the user's request.
class Reason(ClosedSet):
    FIRST = "first"
    MIGRATE = "migrate"
    GROW = "grow"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class Relocation:
    """A new epoch: the mappings of all groups before and after, and the stored rows that it affected.

    Amounts are summed over cells and both inputs. `kept` is read by the same cell before and after, `moved` by a cell
    that did not read it before, `discarded` no longer. Rows of the batch that brings the change are in none of them,
    because they are read under the new mapping only. `exact` says whether the amounts were counted section by section
    or follow from the totals.
    """

    epoch: int
    reason: Reason
    before: tuple[GridShape, ...]
    after: tuple[GridShape, ...]
    kept: Amount
    moved: Amount
    discarded: Amount
    exact: bool


@dataclass(frozen=True, slots=True)
class Relocated:
    """A change of the grid's shape, and the first batch under it."""

    batch: int
    event: Relocation


@dataclass(frozen=True, slots=True)
class GridPlan(SchemePlan):
    """The mapping for one batch, and the facts for the next decision.

    `epoch` grows when the mapping changes. Sections are numbered group * parts + part; `parts` never changes during a
    join. `left` and `right` have arrived so far, this batch included. `decided_left` and `decided_right` had arrived at
    the last decision (|R| and |S| of Algorithm 2). `relocations` are the latest changes of shape, oldest first.
    """

    kind: ClassVar[str] = "grid"
    epoch: int
    parts: int
    groups: tuple[GridGroup, ...]
    left: Amount = Amount()
    right: Amount = Amount()
    decided_left: Amount = Amount()
    decided_right: Amount = Amount()
    relocations: tuple[Relocated, ...] = ()

    @property
    def cells(self) -> int:
        return sum(group.cells for group in self.groups)

    @property
    def sections(self) -> int:
        return len(self.groups) * self.parts

    @property
    def group_cells(self) -> tuple[int, ...]:
        return tuple(group.cells for group in self.groups)

    @property
    def shapes(self) -> tuple[GridShape, ...]:
        return tuple(group.shape for group in self.groups)

    @property
    def max_load(self) -> Fraction:
        """The bytes that the fullest cell stores: its group's share of the rows, cut by the group's mapping."""
        left, right = self.left.bytes, self.right.bytes
        return max(
            (Fraction(left, group.shape.rows) + Fraction(right, group.shape.cols)) * group.cells / self.cells
            for group in self.groups
        )
