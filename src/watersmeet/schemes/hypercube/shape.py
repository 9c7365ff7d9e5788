"""Decide which keys are heavy, and into how many parts each input's rows of a heavy key are cut.

Source: Qiu, Papadias, Yi: Streaming HyperCube (EDBT 2019), 3.2: the static HyperCube's sides follow the square root of
a key's output, and a side is halved or doubled when it is more than a factor of two off. `plan.py` says where we
differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from watersmeet.schemes.hypercube.facts import Shape

# How many times too long a side may be while its key has no fresh rows. A key that comes alone has all workers. k keys
# of equal output that take turns should have a k-th of them each, so a side of its root. With four, up to sixteen keys
# have a side that suits both cases, and keep it. With less, grids would grow and shrink with every turn.
IDLE_EXCESS = 4

# The desired parts of each input's rows of a key; not integers yet.
Sides = tuple[float, ...]


def desired_sides(rows: Sequence[int], heavy_output: float, workers: int) -> Sides:
    """The sides that the static HyperCube gives a key with `rows` rows in each input.

    >>> desired_sides((100, 100), 20_000, 8)
    (2.0, 2.0)
    """
    scale: float = (workers / heavy_output) ** (1 / len(rows))
    return tuple([count * scale for count in rows])


def attainable(desired: Sides) -> Sides:
    """The nearest sides with at least one part each and the same number of cells.

    >>> attainable((12.0, 0.5))
    (6.0, 1.0)
    """
    if min(desired) >= 1:
        return desired
    cells = max(1.0, math.prod(desired))
    sides = list(desired)
    while min(sides) < 1:
        sides = [max(1.0, side) for side in sides]
        long = [place for place, side in enumerate(sides) if side > 1]
        if not long:
            break
        scale = (cells / math.prod(sides)) ** (1 / len(long))
        sides = [side * scale if place in long else side for place, side in enumerate(sides)]
    return tuple(sides)


def first_shape(wanted: Sides) -> Shape:
    """The nearest powers of two; from four on about the next above, so that a large key is cut finely.

    >>> first_shape((2.7, 5.2))
    (2, 8)
    """
    return tuple(map(_first, wanted))


# As a power of two: a side a tenth above a power may stay there.
NEARLY = 0.15


def _first(wanted: float) -> int:
    bits = math.log2(wanted)
    return 1 << (round(bits) if wanted < 4 else math.ceil(bits - NEARLY))


def next_shape(shape: Shape, wanted: Sides) -> Shape:
    """Halve or double a side, one at a time, while it is more than a factor of two off.

    >>> next_shape((2, 2), (1.414, 4.243))
    (2, 4)
    """
    return tuple(map(_stepped, shape, wanted))


def _stepped(parts: int, wanted: float) -> int:
    while parts > 2 * wanted and parts > 1:
        parts //= 2
    while parts < wanted / 2:
        parts *= 2
    return parts


def idle_shape(shape: Shape, wanted: Sides) -> Shape:
    """Halve a side while it is more than `IDLE_EXCESS` times too long.

    >>> idle_shape((32, 8), (2.0, 4.0))
    (8, 8)
    """
    return tuple(map(_shortened, shape, wanted))


def _shortened(parts: int, wanted: float) -> int:
    while parts > IDLE_EXCESS * wanted:
        parts //= 2
    return parts


def least_cells(rows: npt.NDArray[np.int64], all_rows: int, tasks: int) -> npt.NDArray[np.float64]:
    """At least as many cells as tasks that a key's rows would fill: a key without partners has no output.

    >>> least_cells(np.array([50, 5]), 100, 8).tolist()
    [4.0, 0.4]
    """
    cells: npt.NDArray[np.float64] = rows * tasks / all_rows
    return cells


@overload
def is_heavy(share: float, workers: int, was_heavy: bool) -> bool: ...
@overload
def is_heavy(
    share: npt.NDArray[np.float64], workers: int, was_heavy: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]: ...
def is_heavy(share: Any, workers: int, was_heavy: Any) -> Any:
    """More than a worker's share makes a key heavy, less than half of it light. In between it stays as it was.

    >>> is_heavy(np.array([0.3, 0.2, 0.2]), 4, np.array([False, False, True])).tolist()
    [True, False, True]
    """
    return share * workers > 1.0 - 0.5 * was_heavy
