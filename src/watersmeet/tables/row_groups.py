"""Whether Parquet files can be used as they are, and the index over their row groups.

Row groups must not overlap in the key (they may touch, where one key fills several); which file they are in, and in
which order their rows are, does not matter. Bounds come from the statistics where these can be trusted: for one key
column that is not a float. Statistics leave out NaN, and those of several columns say nothing of their common order;
there the key columns are read, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.pages import find_disorder
from watersmeet.kernel.rows import take_rows
from watersmeet.model.pages import PageIndex
from watersmeet.tables.columns import bounds, conform
from watersmeet.tables.parquet_files import ParquetFiles, one_batch, open_parquet, reading

# Beyond this a page costs more to decode than the few rows that a batch has for it are worth.
MOST_BYTES = 16 << 20
# Below this mean, opening a row group costs more than decoding it.
FEWEST_ROWS = 256

# Footers and key columns read at the same time: remote files answer slowly, but many at once.
_READERS = 8

# Where a page is: number of the file and of the row group in it, and what the file looked like.
PLACE_COLUMNS = ("file", "group", "file_bytes", "file_ns")

Ends = tuple[pa.RecordBatch, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class InPlace:
    index: PageIndex
    places: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group; `statistics` are those of the first key column, if there are any."""

    file: int
    number: int
    rows: int
    bytes: int
    raw_bytes: int
    statistics: Any


def plan_in_place(found: ParquetFiles, keys: Sequence[str], *, insist: bool) -> InPlace | str:
    """How to use the files as they are, or why not. With `insist` the size of row groups does not matter."""
    if found.is_partitioned:
        return "some of its columns are in the names of its folders"
    with ThreadPoolExecutor(_READERS) as pool:
        listed = pool.map(lambda file: list(_groups(found, file, keys[0])), range(len(found.files)))
        groups = [group for group in itertools.chain.from_iterable(listed) if group.rows]
        reason = None if insist else _unsuited(groups)
        if reason:
            return reason
        ends = list(pool.map(lambda group: _ends(found, group, keys), groups))
    pages = [(group, pair) for group, pair in zip(groups, ends, strict=True) if pair is not None]
    index, ordered = _index(keys, found.schema, pages)
    wrong = find_disorder(index)
    if wrong is not None:
        return f"the keys of {_name(found, ordered[wrong - 1])} and {_name(found, ordered[wrong])} overlap"
    return InPlace(index, _places(found, ordered))


def _groups(found: ParquetFiles, file: int, key: str) -> Iterator[_Group]:
    """The row groups of a file, from its footer."""
    with reading(found.address, found.files[file].path), open_parquet(found, file) as parquet:
        footer = parquet.metadata
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = [group.column(place) for place in range(group.num_columns)]
        yield _Group(
            file,
            number,
            group.num_rows,
            sum(column.total_compressed_size for column in columns),
            sum(column.total_uncompressed_size for column in columns),
            next((column.statistics for column in columns if column.path_in_schema == key), None),
        )


def _unsuited(groups: Sequence[_Group]) -> str | None:
    largest = max((group.raw_bytes for group in groups), default=0)
    if largest > MOST_BYTES:
        return f"its largest row group has {largest >> 20} MB"
    if len(groups) > 1 and sum(group.rows for group in groups) < FEWEST_ROWS * len(groups):
        return f"its row groups have fewer than {FEWEST_ROWS} rows"
    return None


def _ends(found: ParquetFiles, group: _Group, keys: Sequence[str]) -> Ends | None:
    """The smallest and the largest key of a row group; None if it has none."""
    kind = found.schema.field(keys[0]).type
    trusted = len(keys) == 1 and not pa.types.is_floating(kind)
    if trusted and group.statistics is not None and group.statistics.has_min_max:
        try:
            low, high = (
                pa.RecordBatch.from_arrays([pa.array([value], kind)], names=list(keys))
                for value in (group.statistics.min, group.statistics.max)
            )
            return low, high
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            # A bound that Python cannot express, such as a year beyond 9999: the keys themselves tell.
            pass
    label = _name(found, group)
    with reading(found.address, label), open_parquet(found, group.file) as parquet:
        rows = parquet.read_row_group(group.number, columns=list(keys))
    schema = pa.schema([found.schema.field(key) for key in keys])
    return bounds(conform(one_batch(rows, label), schema, label), keys)


def _index(
    keys: Sequence[str], schema: pa.Schema, pages: Sequence[tuple[_Group, Ends]]
) -> tuple[PageIndex, list[_Group]]:
    """Pages in the order of their keys."""
    none = pa.RecordBatch.from_arrays(
        [pa.array([], schema.field(key).type) for key in keys], names=list(keys)
    )
    first, last = (pa.concat_batches([none, *(ends[end] for _, ends in pages)]) for end in (0, 1))
    both = pa.Table.from_arrays(
        [*first.columns, *last.columns], names=[f"{end}{key}" for end in ("<", ">") for key in keys]
    )
    order = pc.sort_indices(both, [(name, "ascending") for name in both.schema.names]).to_numpy()
    ordered = [pages[at][0] for at in order]
    index = PageIndex(
        tuple(keys),
        take_rows(first, order.astype(np.int64)),
        take_rows(last, order.astype(np.int64)),
        np.array([group.rows for group in ordered], np.int64),
        np.array([group.bytes for group in ordered], np.int64),
    )
    return index, ordered


def _places(found: ParquetFiles, groups: Sequence[_Group]) -> pa.RecordBatch:
    files = [found.files[group.file] for group in groups]
    columns = (
        [group.file for group in groups],
        [group.number for group in groups],
        [file.bytes for file in files],
        [file.modified_ns for file in files],
    )
    return pa.RecordBatch.from_arrays(
        [pa.array(column, pa.int64()) for column in columns], names=list(PLACE_COLUMNS)
    )


def _name(found: ParquetFiles, group: _Group) -> str:
    return f"row group {group.number} of {found.files[group.file].path}"
