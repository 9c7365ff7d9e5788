"""Band join of sorted runs: pairs whose order words are close, or in order.

A run is sorted by the word of its band value (`kernel/words.py`), so the partners of a row are one stretch of
the other side: two binary searches find it, and the cost of a batch follows its new rows and its results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.kernel.pairs import OutputColumn, Side
from watersmeet.model.expression import Expression
from watersmeet.model.facts import KeyRange
from watersmeet.model.types import SqlType


@dataclass(frozen=True, slots=True)
class BandJoin:
    """`low <= left - right <= high` as in `model.expression.Band`; `residual` must hold too."""

    type: SqlType
    low: int | float | None
    high: int | float | None
    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True


def join_bands(left: Side, right: Side, join: BandJoin) -> Iterator[pa.RecordBatch]:
    """All results that the fresh rows of both sides owe, in bounded batches."""
    raise NotImplementedError


def right_range(left: KeyRange, join: BandJoin) -> KeyRange:
    """The words of the right side that may lie in a band with a left word of this range."""
    raise NotImplementedError
