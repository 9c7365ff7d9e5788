"""The pages of a table in key order, and which keys each of them can hold.

A page is read at once. It is a contiguous range of the key order with its smallest and largest key. Keys are ordered
as Arrow and Spark order them (text by its bytes, NaN above all), several key columns lexicographically. The columns
have canonical Arrow types. Floats are normalised as SQL compares them (-0.0 is 0.0, one NaN). There are no nulls: a
table row with a null key matches nothing and need not be in any page.

An order key of a stream that is joined with a table is

    page (28 bits) | hash of the key (28 bits) | salt (8 bits)

so rows of one page are adjacent, rows of one key too, and the rows of one key can still be cut between tasks.

Pages ascend: first[i] <= last[i] <= first[i + 1]. If last[i] == first[i + 1] the page *continues*: the rows of one key
fill the end of one page and the beginning of the next, or whole pages. `kernel.pages.find_disorder` checks that; here
it is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.model.facts import KeyRange

PAGE_SHIFT = 36
HASH_SHIFT = 8
HASH_BITS = PAGE_SHIFT - HASH_SHIFT
# A table has fewer pages: one number stands for keys in no page.
PAGE_NUMBERS = 1 << (64 - PAGE_SHIFT)

Keys = npt.NDArray[np.uint64]
Pages = npt.NDArray[np.int64]

_FIRST, _LAST, _ROWS, _BYTES, _GAPS = "first:", "last:", "rows", "bytes", b"watersmeet.gaps"


def page_range(page: int) -> KeyRange:
    """The order keys of the rows of a page.

    >>> page_range(2) == KeyRange(2 << 36, 3 << 36)
    True
    """
    return KeyRange(page << PAGE_SHIFT, (page + 1) << PAGE_SHIFT)


def page_bounds(pages: Pages) -> tuple[Keys, Keys]:
    """The first and the last order key of each page.

    >>> [keys.tolist() for keys in page_bounds(np.array([2]))] == [[2 << 36], [(3 << 36) - 1]]
    True
    """
    first = pages.astype(np.uint64) << np.uint64(PAGE_SHIFT)
    return first, first | np.uint64((1 << PAGE_SHIFT) - 1)


def pages_of(orders: Keys) -> Pages:
    """The page of each order key.

    >>> pages_of(np.array([0, (2 << 36) - 1, 2 << 36], np.uint64)).tolist()
    [0, 1, 2]
    """
    # Page numbers are short, so nothing needs to be converted.
    return (orders >> np.uint64(PAGE_SHIFT)).view(np.int64)


def pages_in(keys: KeyRange) -> range:
    """The pages with order keys in a range.

    >>> pages_in(KeyRange(5, (2 << 36) + 1)), pages_in(KeyRange(1 << 36, 2 << 36))
    (range(0, 3), range(1, 2))
    """
    return range(keys.low >> PAGE_SHIFT, -(-keys.high >> PAGE_SHIFT))


@dataclass(frozen=True, slots=True, eq=False)
class PageIndex:
    """`first` and `last` are the smallest and largest key of each page, a column for each of `keys`, in their order.

    `rows` are those of each page, an estimate for a database; `bytes` are read for each. With `gaps`, a key between two
    pages is in no page, since files do not change. Without, it belongs to the page before it: page i holds all keys
    from first[i] up to, not including, first[i + 1], and page 0 also all below. `last` then only records what was there
    when the index was made.

    >>> keys = [pa.record_batch({"id": ids}) for ids in ([1, 10], [8, 12])]
    >>> index = PageIndex(("id",), *keys, rows=np.array([5, 3]), bytes=np.array([600, 360]))
    >>> len(index), index.gaps
    (2, True)
    """

    keys: tuple[str, ...]
    first: pa.RecordBatch
    last: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    gaps: bool = True

    def __post_init__(self) -> None:
        lengths = {self.first.num_rows, self.last.num_rows, len(self.rows), len(self.bytes)}
        if len(lengths) > 1:
            raise ValueError(f"the columns of a page index differ in length: {sorted(lengths)}")
        for bounds in (self.first, self.last):
            if tuple(bounds.schema.names) != self.keys:
                raise ValueError(f"a page index over {self.keys} has bounds of {bounds.schema.names}")
            if any(column.null_count for column in bounds.columns):
                raise ValueError("a page has no null keys, so its bounds must not be null")
        if self.first.schema.types != self.last.schema.types:
            raise ValueError("first and last keys of pages differ in type")

    def __len__(self) -> int:
        return len(self.rows)

    def to_batch(self) -> pa.RecordBatch:
        """Convert to one record batch, for a file. Columns added to it are ignored by `from_batch`."""
        columns = {_FIRST + key: column for key, column in zip(self.keys, self.first.columns, strict=True)}
        columns |= {_LAST + key: column for key, column in zip(self.keys, self.last.columns, strict=True)}
        columns |= {_ROWS: pa.array(self.rows, pa.int64()), _BYTES: pa.array(self.bytes, pa.int64())}
        return pa.RecordBatch.from_pydict(columns, metadata={_GAPS: b"%d" % self.gaps})

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> PageIndex:
        """The inverse of `to_batch`."""
        keys = tuple(name.removeprefix(_FIRST) for name in batch.schema.names if name.startswith(_FIRST))
        first, last = (
            pa.RecordBatch.from_arrays([batch.column(prefix + key) for key in keys], names=list(keys))
            for prefix in (_FIRST, _LAST)
        )
        gaps = (batch.schema.metadata or {}).get(_GAPS, b"1") == b"1"
        return cls(keys, first, last, batch.column(_ROWS).to_numpy(), batch.column(_BYTES).to_numpy(), gaps)

    @property
    def continues(self) -> npt.NDArray[np.bool_]:
        """Whether each page's last key is also the first key of the next page."""
        ends = np.zeros(len(self), np.bool_)
        if self.gaps and len(self) > 1:
            ends[:-1] = True
            for last, first in zip(self.last.columns, self.first.columns, strict=True):
                ends[:-1] &= _same(last.slice(0, len(self) - 1), first.slice(1))
        return ends


def _same(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    same = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return same.to_numpy(zero_copy_only=False)
