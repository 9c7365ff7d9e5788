"""What HYBRIDJOIN, MESHJOIN and the index nested loop cost, and the page size that serves a stream fastest.

Source: Naeem, Dobbie, Weber 2010, section 4.4 and 4.5, equations 1 to 4, with the symbols of Table 1:

    (1)  memory of a budget M: a page of v_P bytes, and the rest shared by hash table and queue as alpha to beta
    (2)  w = k * H_t * D_t / R_t, the rows that a step answers and takes, where k is fitted (1.36 there)
    (3)  c_loop = c_IO(v_P) + D_t * c_H + w * (c_O + c_E + c_S + c_A)
    (4)  mu = w / c_loop

MESHJOIN has equation 2 with k = 1: a queue of H_t rows has a part for each of the R_t / D_t pages, and a step takes
one part. The index nested loop has w = 1.

`expected_input` needs no k: it finds w from the share of the stream that each page gets, by walking through the steps
of a full hash table with mean values. A page with the share p has its first waiting row some 1 / p rows after it was
read, comes to the front when all older ones are gone, and then answers that row and p more for each row taken since. The
walk is needed because one hot page may get half of the stream: its rows come and go in bulk, and the age of the
oldest row goes up and down with them. Where no page stands out w is close to 2 * H_t * D_t / R_t or above: a row
leaves as soon as its page is read, so the hash table holds half of what comes by between two reads of a page. With the
paper's stream, 2 million rows and 50 MB, k comes out as 1.6 for pages of 1,000 rows and 1.5 for 10,000.

Not guaranteed: anything for a stream that does not fill the hash table; then steps answer fewer rows.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.errors import UsageError

Shares = npt.NDArray[np.float64]
# Rows that a step answers, from the rows of the hash table and those of a page.
Input = Callable[[int, int], float]

# The paper's k, for its own stream and machine.
PAPER_K = 1.36

_NS = 1e-9
# Pages that are walked one by one, and groups of the rest by their shares: a group's rows come and go together, so
# each must be a small part of all.
_SINGLE_PAGES, _PAGE_GROUPS = 512, 1_024
# The walk in hash tables taken: until it has forgotten its beginning, and then until the mean is known to some per cent.
_WARM, _COUNTED = 6, 24

# Page sizes that are tried between a row and the budget, and again around the best of them. The curve is flat there.
_TRIED = 32


@dataclass(frozen=True, slots=True)
class CostConstants:
    """Nanoseconds, measured on the machine. Reading a page costs `seek_ns` and `byte_ns` for each of its bytes.

    Then for each row: probing one of the page (c_H), giving out one (c_O), removing one from hash table and queue (c_E),
    reading one from the stream (c_S), appending one (c_A).
    """

    seek_ns: float
    byte_ns: float
    probe_ns: float
    output_ns: float
    remove_ns: float
    stream_ns: float
    append_ns: float

    def read_ns(self, page_bytes: float) -> float:
        return self.seek_ns + self.byte_ns * page_bytes

    @property
    def row_ns(self) -> float:
        return self.output_ns + self.remove_ns + self.stream_ns + self.append_ns


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a stream row in the hash table (v_S) and of a table's row (v_R), rows of the table (R_t), and how the
    memory beside the page is shared: `hash_weight` for the hash table, `queue_weight` for the queue.
    """

    stream_bytes: float
    table_bytes: float
    table_rows: int
    hash_weight: float = 20.0
    queue_weight: float = 12.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Equation 1: its three parts in bytes, and how many rows fit the hash table."""

    page_bytes: float
    hash_bytes: float
    queue_bytes: float
    hash_rows: int

    @property
    def bytes(self) -> float:
        return self.page_bytes + self.hash_bytes + self.queue_bytes


@dataclass(frozen=True, slots=True)
class Tuned:
    """The page size that gives the highest service rate, and what that is made of."""

    page_rows: int
    page_bytes: float
    hash_rows: int
    input_rows: float
    rate: float


def memory_cost(budget_bytes: float, page_bytes: float, sizes: Sizes) -> Memory:
    """Equation 1.

    >>> memory_cost(1_000, 200, Sizes(stream_bytes=20, table_bytes=100, table_rows=50, hash_weight=3, queue_weight=1))
    Memory(page_bytes=200, hash_bytes=600.0, queue_bytes=200.0, hash_rows=30)
    """
    if page_bytes >= budget_bytes:
        raise UsageError(f"a page of {page_bytes:.0f} bytes leaves nothing of a budget of {budget_bytes:.0f}")
    whole = sizes.hash_weight + sizes.queue_weight
    hash_bytes = (budget_bytes - page_bytes) * sizes.hash_weight / whole
    queue_bytes = (budget_bytes - page_bytes) * sizes.queue_weight / whole
    return Memory(page_bytes, hash_bytes, queue_bytes, int(hash_bytes // sizes.stream_bytes))


def average_input(hash_rows: float, page_rows: float, table_rows: float, k: float = PAPER_K) -> float:
    """Equation 2; with k = 1 that of MESHJOIN."""
    return k * hash_rows * page_rows / table_rows


def loop_cost(constants: CostConstants, page_rows: int, sizes: Sizes, input_rows: float) -> float:
    """Equation 3, in seconds."""
    page_ns = constants.read_ns(page_rows * sizes.table_bytes) + page_rows * constants.probe_ns
    return _NS * (page_ns + input_rows * constants.row_ns)


def service_rate(constants: CostConstants, page_rows: int, sizes: Sizes, input_rows: float) -> float:
    """Equation 4: rows answered in a second."""
    return input_rows / loop_cost(constants, page_rows, sizes, input_rows)


def index_rate(constants: CostConstants, page_rows: int, sizes: Sizes) -> float:
    """The service rate of an index nested loop: a page for each row, nothing kept and nothing removed."""
    page_ns = constants.read_ns(page_rows * sizes.table_bytes) + page_rows * constants.probe_ns
    return 1.0 / (_NS * (page_ns + constants.stream_ns + constants.output_ns))


def zipf_shares(table_rows: int, page_rows: int, exponent: float = 1.0) -> Shares:
    """The share of each page in a stream by Zipf's law over a table in the order of frequency, as the paper has it.

    Row r is drawn as often as x^-exponent has its mass between r and r + 1: the law as the stream generator of the paper
    draws it, by the inverse of the integral.
    """
    edges = np.minimum(np.arange(0, table_rows + page_rows, page_rows, dtype=np.float64), table_rows) + 1.0
    mass = np.log(edges) if exponent == 1.0 else (edges ** (1.0 - exponent) - 1.0) / (1.0 - exponent)
    return np.diff(mass) / mass[-1]


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


def small_page(
    budget_bytes: float, constants: CostConstants, sizes: Sizes, tried: Sequence[int], loss: float = 0.1
) -> int:
    """The fewest rows of a page, of those tried, that lose no more than a part of the best rate, by equation 2 as it is.

    The curve is flat around its top, and of a small page fewer rows are read that nobody waits for.

    >>> rows = dict(probe_ns=0, output_ns=0, remove_ns=0, stream_ns=0, append_ns=0)
    >>> reads = CostConstants(seek_ns=1e5, byte_ns=1.0, **rows)
    >>> small_page(64e6, reads, Sizes(60, 100, 10_000_000), [1_000, 2_000, 4_000, 8_000, 16_000, 32_000])
    8000
    """
    fitting = [rows for rows in tried if rows * sizes.table_bytes < budget_bytes] or [min(tried)]
    if len(fitting) == 1:
        return fitting[0]

    def rate(page_rows: int) -> float:
        held = memory_cost(budget_bytes, page_rows * sizes.table_bytes, sizes).hash_rows
        return service_rate(
            constants, page_rows, sizes, average_input(held, page_rows, sizes.table_rows, k=PAPER_K)
        )

    best = max(map(rate, fitting))
    return min(rows for rows in fitting if rate(rows) >= (1 - loss) * best)


def fit_reads(page_bytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Nanoseconds of a read whatever its size, and of each byte."""
    seek, byte = fit_costs(np.array([[1.0, size] for size in page_bytes]), np.array(seconds)) / _NS
    return float(seek), float(byte)


def fit_costs(parts: Shares, seconds: Shares) -> Shares:
    """What one of each part costs, by least squares of relative errors; `parts` has a row for each time measured.

    A cost is not negative: what would be counts as nothing, and the rest is fitted.
    """
    kept = np.ones(parts.shape[1], np.bool_)
    seconds = np.maximum(seconds, _NS)
    while True:
        found = np.zeros(parts.shape[1])
        found[kept] = np.linalg.lstsq(parts[:, kept] / seconds[:, None], np.ones(len(seconds)), rcond=None)[0]
        if (found >= 0).all():
            return found
        kept &= found > 0


def zipf_input(sizes: Sizes, hash_rows: int, page_rows: int) -> float:
    return expected_input(zipf_shares(sizes.table_rows, page_rows), hash_rows)


def _at(page_rows: int, budget_bytes: float, constants: CostConstants, sizes: Sizes, rows_of: Input) -> Tuned:
    memory = memory_cost(budget_bytes, page_rows * sizes.table_bytes, sizes)
    input_rows = rows_of(memory.hash_rows, page_rows)
    rate = service_rate(constants, page_rows, sizes, input_rows)
    return Tuned(page_rows, memory.page_bytes, memory.hash_rows, input_rows, rate)
