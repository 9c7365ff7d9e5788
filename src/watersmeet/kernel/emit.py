"""From candidates to result batches: tests, then the columns that come out, bounded in rows and bytes.

A kernel finds candidates as positions; `Emission` tests them and gathers their rows. It knows inputs by name, however
many there are. A result batch has at most `output_rows` rows and about `output_bytes`; a single result that exceeds
these bytes is a batch of its own. No gathered array can reach 2 GiB, where Arrow's 32-bit offsets end, unless one
value does.

Where all rows of one side meet all rows of another and nothing is left to test, positions say nothing that the two
numbers of rows do not say. `cross` then writes the columns of one side, the *tiled* one, once, as many copies behind
each other as fit a batch, and all batches view them. Of the other side, the *spread* one, each batch holds some rows,
each as often as the tiled side has rows. So a result costs one write for each column of one side instead of one read
by position for each column of both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.early import possible
from watersmeet.kernel.evaluate import Read, same_value, surviving, take
from watersmeet.kernel.keys import Indices, Mask
from watersmeet.kernel.rows import take_rows, take_values
from watersmeet.kernel.sizes import (
    all_row_bytes,
    cut_by_bytes,
    mean_row_bytes,
    row_bytes,
    value_bytes,
    varies,
)
from watersmeet.kernel.vectors import Vectors
from watersmeet.model.expression import Column, Expression, columns_of
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.types import VECTOR
from watersmeet.model.window import AT


@dataclass(frozen=True, slots=True)
class OutputColumn:
    input: str
    column: str
    name: str


class Picked(NamedTuple):
    """Some rows of an input, by position."""

    rows: pa.RecordBatch
    at: Indices

    def values(self, column: str) -> pa.Array:
        return take_values(self.rows.column(column), self.at)


# The rows of each input that make up candidates, aligned: the first of each input is the first candidate, and so on.
PickedRows = dict[str, Picked]
# Two columns, as (input, name), that must have equal values.
EqualColumns = tuple[tuple[str, str], tuple[str, str]]


def columns_read(
    name: str,
    output: Iterable[OutputColumn],
    keys: Iterable[str],
    conditions: Iterable[Expression],
    within: int | None,
) -> list[str]:
    """The columns of an input that a join of several inputs needs: those that come out, its keys, and what is tested."""
    tested = (column for condition in conditions for column in columns_of(condition))
    return list(
        dict.fromkeys(
            [
                *(c.column for c in output if c.input == name),
                *keys,
                *(c.name for c in tested if c.input == name),
                *([AT] if within is not None else ()),
            ]
        )
    )


@dataclass(frozen=True, slots=True)
class Emission:
    """What becomes of a candidate: it is tested, then the columns of `output` come out.

    The tests, in this order: window times are at most `within` apart, the columns of `verify` are equal, `residual`
    is true, none of `early` is certainly not (early.py). `read` names the columns of each input that are copied for a
    candidate; vectors are read in place.
    """

    output: tuple[OutputColumn, ...]
    residual: Expression | None = None
    ansi: bool = True
    verify: tuple[EqualColumns, ...] = ()
    within: int | None = None
    early: tuple[Expression, ...] = ()
    limits: Limits = field(kw_only=True)
    read: dict[str, list[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        residual = columns_of(self.residual) if self.residual is not None else ()
        gathered = dict.fromkeys(
            [
                *((c.input, c.column) for c in self.output),
                *((c.input, c.name) for c in residual if c.type != VECTOR),
            ]
        )
        read: dict[str, list[str]] = {}
        for name, column in (*gathered, *(key for equality in self.verify for key in equality)):
            read.setdefault(name, []).append(column)
        object.__setattr__(self, "read", read)

    @property
    def tests_pairs(self) -> bool:
        """Whether rows with equal keys may still fail."""
        return self.residual is not None or self.within is not None

    def results(self, found: PickedRows) -> Iterator[pa.RecordBatch]:
        """The candidates that pass, in bounded batches that are not empty."""
        if self.within is not None:
            found = _close(found, self.within)
        for part in bounded(found, self.read, self.limits.output_bytes):
            batch = self._gathered(part)
            if batch.num_rows:
                yield batch

    def passing(self, found: PickedRows) -> PickedRows:
        """The candidates that pass all tests but that of the window."""
        for (one, key), (other, also) in self.verify:
            same = same_value(found[one].values(key), found[other].values(also))
            found = kept(found, np.flatnonzero(pc.fill_null(same, False)))
        if self.residual is not None and _rows(found):
            found = kept(found, surviving(self.residual, _reading(found), _rows(found), ansi=self.ansi))
        if self.early:
            found = kept(found, possible(self.early, _reading(found), _rows(found), ansi=self.ansi))
        return found

    def _gathered(self, found: PickedRows) -> pa.RecordBatch:
        found = self.passing(found)
        arrays = [found[c.input].values(c.column) for c in self.output]
        return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in self.output])


def _reading(found: PickedRows) -> Read:
    def read(column: Column, alive: Indices) -> pa.Array | Vectors:
        picked = found[column.input]
        return take(picked.rows.column(column.name), picked.at[alive])

    return read


def rows_together(limits: Limits, *sides: pa.RecordBatch) -> int:
    """How many candidates to look at together, going by the mean size of a row."""
    return max(1, min(limits.output_rows, limits.output_bytes // sum(map(mean_row_bytes, sides))))


def bounded(found: PickedRows, read: Mapping[str, Sequence[str]], most_bytes: int) -> Iterator[PickedRows]:
    """Cut candidates so that the columns to be read stay within `most_bytes`, whatever single values weigh."""
    weighed = (
        row_bytes([rows.column(column) for column in read.get(name, ())], at)
        for name, (rows, at) in found.items()
    )
    sizes = [sizes for sizes in weighed if sizes is not None]
    if not sizes:
        yield found
        return
    for here in cut_by_bytes(sum(sizes[1:], sizes[0]), most_bytes):
        yield {name: Picked(rows, at[here]) for name, (rows, at) in found.items()}


def _rows(found: PickedRows) -> int:
    return len(next(iter(found.values())).at)


def kept(found: PickedRows, keep: Indices) -> PickedRows:
    """The candidates at some ascending places."""
    # By position: where about half of the candidates pass, a mask takes several times as long.
    return found if len(keep) == _rows(found) else picked_at(found, keep)


def picked_at(found: PickedRows, at: Indices) -> PickedRows:
    """The candidates at some places, in this order and as often as they are named."""
    return {name: Picked(rows, before.take(at)) for name, (rows, before) in found.items()}


def _close(found: PickedRows, width: int) -> PickedRows:
    for name in list(found)[1:]:
        found = close_to(found, name, width)
    return found


def close_to(found: PickedRows, name: str, width: int) -> PickedRows:
    """The candidates whose row of one input is within the window of the rows of the inputs before it."""
    for other in itertools.takewhile(lambda other: other != name, found):
        times, others = (found[one].rows.column(AT).to_numpy().take(found[one].at) for one in (other, name))
        found = kept(found, np.flatnonzero(close_times(times, others, width)))
    return found


def close_times(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64], width: int) -> Mask:
    """Which of these pairs of window times are at most `width` apart.

    One subtraction and one comparison: with the width added, a difference within the window is a number from 0 to
    twice the width, and negative ones are larger than that as unsigned words.

    >>> close_times(np.array([0, 10, 10]), np.array([5, 5, 4]), 5).tolist()
    [True, True, False]
    """
    apart = one - other
    apart += width
    return apart.view(np.uint64) <= np.uint64(2 * width)


def rows_crossed(limits: Limits, *sides: pa.RecordBatch) -> int:
    """How many results of a cross product fit a batch if all are as wide as the widest; 0 if those are too few."""
    fit = limits.output_bytes // max(1, sum(map(_widest_row, sides)))
    return min(limits.output_rows, fit) if fit >= limits.least_crossed_rows else 0


def _widest_row(rows: pa.RecordBatch) -> int:
    if any(varies(field.type) for field in rows.schema):
        return int(all_row_bytes(rows).max(initial=0))
    return mean_row_bytes(rows) if rows.num_rows else 0


def cross(
    rows: Mapping[str, pa.RecordBatch],
    output: Sequence[OutputColumn],
    limit: int,
    least_tiled_rows: int = DEFAULT_LIMITS.least_tiled_rows,
) -> Iterator[pa.RecordBatch]:
    """Every pair of rows of two inputs once, in batches of at most `limit`.

    The side with the narrower rows is spread, as it is the one that is written, or else the one with few rows.

    >>> left, right = pa.record_batch({"a": [1, 2]}), pa.record_batch({"b": [7, 8, 9], "c": [4, 5, 6]})
    >>> columns = OutputColumn("l", "a", "a"), OutputColumn("r", "b", "b")
    >>> [batch.to_pydict() for batch in cross({"l": left, "r": right}, columns, 3)]
    [{'a': [1, 1, 1], 'b': [7, 8, 9]}, {'a': [2, 2, 2], 'b': [7, 8, 9]}]
    """
    sides = [(name, side.select(needed(output, name))) for name, side in rows.items()]
    sides.sort(key=lambda side: side[1].nbytes / side[1].num_rows)
    if sides[1][1].num_rows < least_tiled_rows:
        sides.sort(key=lambda side: side[1].num_rows)
    (spread_name, spread), (_, tiled) = sides
    names = [c.name for c in output]
    # In equal parts: a short rest would be copied many times.
    parts = max(1, math.ceil(tiled.num_rows / limit))
    width = max(1, math.ceil(tiled.num_rows / parts))
    for low in range(0, tiled.num_rows, width):
        for spread_columns, tiled_columns in _laid_out(spread, tiled.slice(low, width), limit):
            arrays = [(spread_columns if c.input == spread_name else tiled_columns)[c.column] for c in output]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def needed(output: Sequence[OutputColumn], name: str) -> list[str]:
    """The columns of one input that come out; under several names it is still one."""
    return list(dict.fromkeys(c.column for c in output if c.input == name))


def _laid_out(
    spread: pa.RecordBatch, tiled: pa.RecordBatch, limit: int
) -> Iterator[tuple[dict[str, pa.Array], dict[str, pa.Array]]]:
    """The columns of both halves of each batch. `tiled` has at most `limit` rows."""
    width = tiled.num_rows
    copies = min(limit // width, spread.num_rows)
    tiles = pa.concat_batches([tiled] * copies) if copies > 1 else tiled
    words = {
        name: found for name in spread.schema.names if (found := _words(spread.column(name))) is not None
    }
    others = spread.select([name for name in spread.schema.names if name not in words])
    which: Indices = np.repeat(np.arange(copies if others.num_columns else 0), width)
    for low in range(0, spread.num_rows, copies):
        high = min(low + copies, spread.num_rows)
        if high - low < copies:
            tiles = tiles.slice(0, (high - low) * width)
        columns = {
            name: _repeated(values[low:high], width, spread.schema.field(name).type)
            for name, values in words.items()
        }
        if others.num_columns:
            columns |= _columns(take_rows(others.slice(low, high - low), which[: (high - low) * width]))
        yield columns, _columns(tiles)


def _columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


# Words that numpy repeats without looking at each, by their bytes.
_WORDS: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)} | {
    16: np.dtype("V16")
}


def _words(column: pa.Array) -> npt.NDArray[Any] | None:
    """The values of a column as words; None if they are not of one such size, or some are missing."""
    word = _WORDS.get(value_bytes(column.type) or 0)
    if word is None or column.null_count:
        return None
    return np.frombuffer(column.buffers()[1], word, len(column), column.offset * word.itemsize)


def _repeated(values: npt.NDArray[Any], times: int, kind: pa.DataType) -> pa.Array:
    """Each value several times in a row: in a third of the time that it takes to take them by position.

    Written into Arrow's memory. That of numpy goes back to the system each time, and to get new pages took longer than
    to fill them.
    """
    buffer = pa.allocate_buffer(len(values) * times * values.itemsize)
    np.frombuffer(buffer, values.dtype).reshape(len(values), times)[:] = values[:, None]
    return pa.Array.from_buffers(kind, len(values) * times, [None, buffer])
