"""Tables cut into pages, drawn by Hypothesis, with an order of keys that is written down a second time here."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from watersmeet.kernel.lookup import Page, open_page
from watersmeet.kernel.pages import homes, page_orders
from watersmeet.kernel.rows import Sorted, take_rows
from watersmeet.model.pages import PageIndex

Key = tuple[Any, ...]

# Few values of each type, so that keys meet: some share their first eight bytes, or all of their order word.
TEXTS = [
    "",
    "a",
    "ab",
    "prefix--",
    "prefix--\0",
    "prefix--a",
    "prefix--b",
    "prefix--é",
    "\U0001f600",
    "z" * 20,
]
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-(2**63), -5, *range(8), 2**63 - 1]),
    (pa.int8(), [-128, -1, 0, 1, 2, 127]),
    (pa.bool_(), [False, True]),
    (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 1e-300, 2.5, math.inf, math.nan]),
    (pa.float32(), [-2.0, -0.0, 0.0, 0.5, math.nan]),
    (pa.decimal128(9, 2), [Decimal(n).scaleb(-2) for n in (-100, -1, 0, 1, 99, 12345)]),
    (pa.decimal128(38, 0), [Decimal(n) for n in (-(10**37), -1, 0, 1, 2, 10**37, 10**37 + 1, 10**37 + 2)]),
    (pa.date32(), [dt.date(2024, 2, day) for day in range(1, 7)]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2024, 2, 1, 0, 0, s, tzinfo=dt.timezone.utc) for s in range(6)]),
    (pa.string(), TEXTS),
    (pa.binary(), [text.encode() for text in TEXTS]),
]


def rank(key: Key) -> tuple[Any, ...]:
    """Something that Python orders as SQL orders the key."""
    return tuple(_rank(value) for value in key)


def _rank(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value


@dataclass
class Paged:
    """A table as lists of pages of keys, its index, and Arrow batches for both sides."""

    types: tuple[pa.DataType, ...]
    pages: list[list[Key]]
    gaps: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"k{place}" for place in range(len(self.types)))

    @property
    def index(self) -> PageIndex:
        sizes = np.array([len(page) for page in self.pages], np.int64)
        first, last = ([page[end] for page in self.pages] for end in (0, -1))
        return PageIndex(
            self.names, self.batch(first, normal=True), self.batch(last, normal=True), sizes, sizes, self.gaps
        )

    def batch(self, keys: Sequence[Key], *, normal: bool = False, start: int | None = None) -> pa.RecordBatch:
        """Key columns, and with `start` a column of numbers from there on. `normal` leaves one zero and one NaN."""
        columns = {
            name: pa.array([_normal(key[place]) if normal else key[place] for key in keys], kind)
            for place, (name, kind) in enumerate(zip(self.names, self.types, strict=True))
        }
        if start is not None:
            columns["id"] = pa.array(range(start, start + len(keys)), pa.int64())
        return pa.RecordBatch.from_pydict(columns)

    def open_pages(self) -> list[Page]:
        """Each page with the numbers of its rows, in an order that is not that of the keys."""
        starts = [0, *itertools.accumulate(map(len, self.pages))]
        found = []
        for number, home in enumerate(homes(self.index).tolist()):
            rows = self.batch(self.pages[number], start=starts[number])
            found.append(open_page(number, rows.take(pa.array(range(len(rows)))[::-1]), self.names, home))
        return found

    def pending(self, keys: Sequence[Key]) -> Sorted:
        rows = self.batch(keys, start=0)
        orders = page_orders(self.index, rows.select(list(self.names)), np.arange(len(keys), dtype=np.uint64))
        order = np.argsort(orders, kind="stable")
        return Sorted(orders[order], take_rows(rows, order))


def _normal(value: Any) -> Any:
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    return value


@st.composite
def paged_tables(draw: st.DrawFn, *, gaps: bool = True) -> tuple[Paged, list[Key]]:
    """A table of a few pages and the keys of some stream rows: of few keys, so that they meet and fill pages.

    Hypothesis likes short lists and repeats itself: a seed for the rows gives more of the cases that matter.
    """
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
    values = [st.sampled_from(values) for _, values in kinds]
    pool = draw(st.lists(st.tuples(*values), min_size=1, max_size=8))
    rows, sought, most = draw(st.integers(0, 25)), draw(st.integers(0, 25)), draw(st.integers(1, 6))
    rng = random.Random(draw(st.integers(0, 2**32)))
    keys = sorted((rng.choice(pool) for _ in range(rows) if rng.random() < 0.9), key=rank)
    pages: list[list[Key]] = []
    while keys:
        size = rng.randint(1, most)
        if not gaps:
            # A database keeps the rows of a key together: pages begin with a key of their own.
            while size < len(keys) and rank(keys[size]) == rank(keys[size - 1]):
                size += 1
        pages.append(keys[:size])
        keys = keys[size:]
    if gaps:
        # Some pages are missing: keys between the others.
        pages = [page for page in pages if rng.random() < 0.9]
    asked = [_sometimes_null(rng.choice(pool), rng) for _ in range(sought)]
    return Paged(tuple(kind for kind, _ in kinds), pages, gaps), asked


def _sometimes_null(key: Key, rng: random.Random) -> Key:
    return tuple(None if rng.random() < 0.1 else value for value in key)
