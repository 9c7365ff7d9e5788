"""A stream of sales and the products it names: keys by Zipf's law, arrivals in bursts of every length.

Source: Naeem, Dobbie, Weber 2010, section 5 and Figure 7. A key is drawn through the inverse of an integral, without a
table of weights. Arrivals come from on-off sources in a priority queue: source i has 2^i rows a step while it is on, and
stays on or off for up to 2^i steps, so that the flow varies by as much as the time one looks at is long.

Everything follows from a seed; time is virtual. Differs from Figure 7 as printed: a source that switches is due again after
a random time from the moment it was due (there the whole sum is multiplied, which would grow without bounds), each source
has its own switch (there all share one), all that are due in a step switch, and the sources start in the middle of their
lives, so that the first steps are like all others. The flow is not self-similar beyond the longest source, 1,024
steps with ten of them: over longer times it evens out.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

PRODUCTS = 2_000_000
SOURCES = 10
# Of the table's columns: three of 8 bytes, a text of 92 behind an offset of 4.
PRODUCT_BYTES = 120
_TEXT = PRODUCT_BYTES - 3 * 8 - 4
# Bytes of a sale: product, time, quantity.
SALE_BYTES = 20


@dataclass(frozen=True, slots=True)
class Zipf:
    """Products 1 to `products`; the share of product k is in proportion to the integral of x^-exponent from k to k + 1.

    That is a little below Zipf's own law for the first few products, and next to it for all others. Exponent 0 is uniform.
    """

    products: int = PRODUCTS
    exponent: float = 1.0

    def __post_init__(self) -> None:
        if self.products < 1 or self.exponent < 0:
            raise ValueError(f"{self} needs at least one product and an exponent of at least 0")

    def draw(self, count: int, rng: np.random.Generator) -> Numbers:
        """`count` products.

        >>> Zipf(1000).draw(8, np.random.default_rng(7)).tolist()
        [75, 492, 212, 4, 7, 417, 1, 291]
        """
        whole = self._integral(np.float64(self.products + 1))
        drawn = self._inverse(rng.random(count) * whole)
        # Rounding may reach the end of the last product.
        return np.minimum(drawn.astype(np.int64), self.products)

    def reached(self, product: npt.ArrayLike) -> Shares:
        """The share of all sales that products 1 to `product` have together.

        >>> float(Zipf(2_000_000).reached(400_000).round(3))
        0.889
        """
        upto = self._integral(np.asarray(product, np.float64) + 1)
        return upto / self._integral(np.float64(self.products + 1))

    def _integral(self, x: npt.NDArray[np.float64] | np.float64) -> Shares:
        """From 1 to x."""
        rest = 1 - self.exponent
        return np.asarray(np.expm1(rest * np.log(x)) / rest if rest else np.log(x))

    def _inverse(self, integral: Shares) -> Shares:
        rest = 1 - self.exponent
        return np.exp(np.log1p(rest * integral) / rest if rest else integral)


def mean_burst(sources: int = SOURCES) -> int:
    """Rows in a step on average: each source is on half of the time."""
    return 2**sources - 1


def bursts(rng: np.random.Generator, sources: int = SOURCES) -> Iterator[int]:
    """Rows in each step, without end.

    >>> list(itertools.islice(bursts(np.random.default_rng(7), sources=3), 12))
    [0, 2, 4, 0, 2, 4, 12, 14, 14, 14, 12, 6]
    """
    flow = 0
    queue: list[tuple[float, int, bool]] = []
    for width in (2**number for number in range(1, sources + 1)):
        on = rng.random() < 0.5
        flow += width * on
        # What is left, seen at any moment, of a time that is drawn evenly from 0 to `width`.
        queue.append((width * (1 - math.sqrt(rng.random())), width, on))
    heapq.heapify(queue)
    for step in itertools.count(1):
        while queue[0][0] < step:
            due, width, on = queue[0]
            flow += -width if on else width
            heapq.heapreplace(queue, (due + width * rng.random(), width, not on))
        yield flow


def arrivals(
    rows: int, rate: float, rng: np.random.Generator, sources: int = SOURCES
) -> npt.NDArray[np.float64]:
    """Seconds at which rows arrive, ascending, `rate` a second on average over a long time.

    A step takes as long as its average rows need at that rate; the rows of a step are spread evenly over it.
    """
    counts: list[int] = []
    reached = 0
    for count in bursts(rng, sources):
        if reached >= rows:
            break
        counts.append(count)
        reached += count
    steps = np.array(counts, np.int64)
    number = np.repeat(np.arange(len(steps)), steps)[:rows]
    place = np.arange(rows) - (np.cumsum(steps) - steps)[number]
    return (number + (place + 0.5) / steps[number]) * (mean_burst(sources) / rate)


def sales(
    rows: int,
    *,
    products: int = PRODUCTS,
    exponent: float = 1.0,
    rate: float = 1000.0,
    sources: int = SOURCES,
    seed: int = 7,
) -> pa.Table:
    """`product` (bigint), `at` (timestamp, from 1970 on) and `quantity` (int): 20 bytes a row, in order of arrival.

    >>> sales(3, products=1000).column("product").to_pylist()
    [247, 1, 59]
    """
    keys, times, amounts = np.random.default_rng(seed).spawn(3)
    at = np.floor(arrivals(rows, rate, times, sources) * 1e6).astype(np.int64)
    return pa.table(
        {
            "product": Zipf(products, exponent).draw(rows, keys),
            "at": pa.array(at).cast(pa.timestamp("us", "UTC")),
            "quantity": amounts.integers(1, 10, rows, dtype=np.int32),
        }
    )


def products(rows: int, *, first: int = 1, seed: int = 7) -> pa.Table:
    """Products `first`, `first` + 1, ...: `id`, `warehouse_key` (bigint), `price` (double), `description`; 120 bytes each.

    A product's row depends on the seed and on `first`: make a table in pieces of one size to make it again.

    >>> products(2, first=5).column("id").to_pylist()
    [5, 6]
    """
    rng = np.random.default_rng((seed, first))
    letters = rng.integers(ord("a"), ord("z") + 1, (rows, _TEXT), dtype=np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * _TEXT
    return pa.table(
        {
            "id": np.arange(first, first + rows),
            "warehouse_key": rng.integers(0, 2**40, rows),
            "price": np.round(rng.uniform(1, 1000, rows), 2),
            "description": pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters)),
        }
    )
