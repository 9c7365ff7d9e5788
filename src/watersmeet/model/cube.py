"""Heavy keys as facts: what runs say of them, and how a batch shares them out.

Source: Qiu, Papadias, Yi: Streaming HyperCube (EDBT 2019), 3.2. The left input is the paper's R, the right one S.
A heavy key's rows of both inputs span a matrix of pairs; it is cut into `shape.rows` x `shape.cols` cells, and each
cell belongs to a task. Rows are cut by their position in the agreed runs, so a cell needs no hash function, no two
cells share a pair, and a new shape needs no file to be written.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.model.grid import GridShape


@dataclass(frozen=True, slots=True)
class Bounds:
    """So many rows at least, and at most."""

    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key that is shared out. `tasks` says whose each cell is, row by row of the grid.

    The bounds are those of the sketch over the live runs of each input; they hold for history and batch together.
    """

    key: int
    label: str
    left: Bounds
    right: Bounds
    shape: GridShape
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CubeChange:
    """What became of one key in a batch: its shape before and after (0 x 0: light), and the rows that moved.

    Moved are the rows that some task reads for this key and would not have read under the plan before.
    """

    batch: int
    label: str
    before: GridShape
    after: GridShape
    moved_rows: int


@dataclass(frozen=True, slots=True)
class CubePlan:
    """The heavy keys of a batch, by ascending key. `epoch` counts the batches that changed the plan's shape.

    `load` is what the busiest task and `mean` what a task on average will look up and give out, as planned.
    """

    heavy: tuple[HeavyKey, ...] = ()
    epoch: int = 0
    load: int = 0
    mean: int = 0
    changes: tuple[CubeChange, ...] = ()


@dataclass(frozen=True, slots=True)
class BicliquePlan:
    """Units in groups; one half of each group stores the left input, the other half the right one."""

    units: int
    groups: int

    @property
    def members(self) -> int:
        """Units of a group on each side."""
        return self.units // (2 * self.groups)
