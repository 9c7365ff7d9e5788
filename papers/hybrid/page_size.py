"""The page size that serves a stream fastest, and the rows that a step of HYBRIDJOIN answers without a fitted k.

Source: Naeem, Dobbie, Weber 2010, sections 4.4 and 4.5; the equations are in `papers.hybrid.equations`.

`expected_input` takes the place of equation 2. It finds w from the share of the stream that each page gets, by walking
through the steps of a full hash table with mean values. A page with the share p has its first waiting row some 1 / p
rows after it was read. It comes to the front when all older ones are gone, and then answers that row and p more for
each row taken since. The walk is needed because one hot page may get half of the stream: its rows come and go in bulk,
and the age of the oldest row goes up and down with them. Where no page stands out w is close to 2 * H_t * D_t / R_t or
above: a row leaves as soon as its page is read, so the hash table holds half of what comes by between two reads of a
page. With the paper's stream, 2 million rows and 50 MB, k comes out as 1.6 for pages of 1,000 rows and 1.5 for 10,000.

Nothing is guaranteed for a stream that does not fill the hash table; then steps answer fewer rows.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from papers.hybrid.equations import CostConstants, Sizes, memory_cost, service_rate
from watersmeet.errors import UsageError

Shares = npt.NDArray[np.float64]
# Rows that a step answers, from the rows of the hash table and those of a page.
Input = Callable[[int, int], float]

# Pages that are walked one by one, and groups of the rest by their shares: a group's rows come and go together, so
# each must be a small part of all.
_SINGLE_PAGES, _PAGE_GROUPS = 512, 1_024
# The walk in hash tables taken: until it has forgotten its beginning, and then until the mean is known to some per cent.
_WARM, _COUNTED = 6, 24

# Page sizes that are tried between a row and the budget, and again around the best of them. The curve is flat there.
_TRIED = 32


@dataclass(frozen=True, slots=True)
class Tuned:
    """The page size that gives the highest service rate, and what that is made of."""

    page_rows: int
    page_bytes: float
    hash_rows: int
    input_rows: float
    rate: float


def zipf_shares(table_rows: int, page_rows: int, exponent: float = 1.0) -> Shares:
    """The share of each page in a stream by Zipf's law over a table in the order of frequency, as the paper has it.

    Row r is drawn as often as x^-exponent has its mass between r and r + 1: the law as the stream generator of the paper
    draws it, by the inverse of the integral.
    """
    edges = np.minimum(np.arange(0, table_rows + page_rows, page_rows, dtype=np.float64), table_rows) + 1.0
    mass = np.log(edges) if exponent == 1.0 else (edges ** (1.0 - exponent) - 1.0) / (1.0 - exponent)
    return np.diff(mass) / mass[-1]


def dense_k(rows: int, page_rows: int) -> float:
    """The k of equation 2 where some row waits on every page: 2, but for pages with a large part of the stream.

    Rows leave when their page is read, so that those in memory are half of what comes by between two reads of a page. When
    a page with the share p is read, its rows all leave at once, and of as many new ones the part p waits for its next read.
    """
    shares = zipf_shares(rows, page_rows)
    return float(2 / (1 + (shares**2).sum()))


def expected_input(shares: Shares, hash_rows: int) -> float:
    """The rows that a step of HYBRIDJOIN answers on average while the hash table is full, to some per cent.

    The shares add up to 1. See the module's header.

    >>> round(expected_input(np.full(100, 0.01), 5_000), -1)
    100.0
    """
    pages, counts = _grouped(np.sort(shares[shares > 0])[::-1])
    gaps = _even_waits()
    waits = [next(gaps) / share for share in pages]
    front = [(first, place) for place, first in enumerate(waits)]
    heapq.heapify(front)
    taken, steps = float(hash_rows), 0
    warm, end = (taken * (1 + part) for part in (_WARM, _WARM + _COUNTED))
    start = taken, steps
    while taken < end:
        first, place = front[0]
        taken = max(taken, first)
        answered = 1.0 + pages[place] * (taken - first)
        heapq.heapreplace(front, (taken + next(gaps) / pages[place], place))
        taken += counts[place] * answered
        steps += counts[place]
        if taken < warm:
            start = taken, steps
    return (taken - start[0]) / max(1, steps - start[1])


def _grouped(shares: Shares) -> tuple[list[float], list[int]]:
    """Shares and how many pages have them."""
    rest = shares[_SINGLE_PAGES:]
    groups = np.array_split(rest, min(_PAGE_GROUPS, len(rest))) if len(rest) else []
    return (
        [*shares[:_SINGLE_PAGES].tolist(), *(float(group.mean()) for group in groups)],
        [*[1] * min(len(shares), _SINGLE_PAGES), *map(len, groups)],
    )


def _even_waits() -> Iterator[float]:
    """Waits for the next row, in mean waits: those of a stream without memory, spread evenly instead of drawn."""
    for place in itertools.count(1):
        yield -math.log1p(-(place * _GOLDEN % 1.0))


_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def tune(budget_bytes: float, constants: CostConstants, sizes: Sizes, input_of: Input | None = None) -> Tuned:
    """The best page size for a budget, by default with `expected_input` under Zipf's law with exponent 1."""
    rows_of = input_of or (lambda hash_rows, page_rows: zipf_input(sizes, hash_rows, page_rows))
    most = min(sizes.table_rows, int(0.99 * budget_bytes / sizes.table_bytes))
    if most < 1:
        raise UsageError(f"a budget of {budget_bytes:.0f} bytes holds no page of one row")
    low, high = 1, most
    for _ in range(2):
        tried = np.unique(np.geomspace(low, high, _TRIED).astype(np.int64)).tolist()
        found = [_at(page_rows, budget_bytes, constants, sizes, rows_of) for page_rows in tried]
        place = max(range(len(found)), key=lambda at: found[at].rate)
        best = found[place]
        low, high = tried[max(0, place - 1)], tried[min(len(tried) - 1, place + 1)]
    return best


def zipf_input(sizes: Sizes, hash_rows: int, page_rows: int) -> float:
    return expected_input(zipf_shares(sizes.table_rows, page_rows), hash_rows)


def _at(page_rows: int, budget_bytes: float, constants: CostConstants, sizes: Sizes, rows_of: Input) -> Tuned:
    memory = memory_cost(budget_bytes, page_rows * sizes.table_bytes, sizes)
    input_rows = rows_of(memory.hash_rows, page_rows)
    rate = service_rate(constants, page_rows, sizes, input_rows)
    return Tuned(page_rows, memory.page_bytes, memory.hash_rows, input_rows, rate)
