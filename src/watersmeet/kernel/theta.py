"""Join by any condition: block by block over the pairs that a batch owes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.kernel.pairs import OutputColumn, Side
from watersmeet.model.expression import Expression

# (left rows, right rows), aligned -> one truth for each pair.
Condition = Callable[[pa.RecordBatch, pa.RecordBatch], Any]


@dataclass(frozen=True, slots=True)
class ThetaJoin:
    """Pairs for which `residual` is true and `condition` returns true; without both, every pair.

    `condition` sees `columns`: the names of the left input's and of the right input's columns.
    """

    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True
    condition: Condition | None = None
    columns: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def join_blocks(left: Side, right: Side, join: ThetaJoin) -> Iterator[pa.RecordBatch]:
    """All results that the fresh rows of both sides owe, in bounded batches."""
    raise NotImplementedError
