"""How large a page of a database is: what its reads cost is measured, and the cost model says what follows.

A database on this machine gives a small page almost as cheaply, row by row, as a large one; behind a network each read
waits for an answer first. So the bounds of small pages are found, some of them are read alone and in groups, and the
fewest together that lose little of the best service rate (plan/pagecost.py) make a page.

A probe is read and made ready to be joined, so the cost of a page's row is part of that of its bytes. What a row of
the stream costs is not measured: it is the same for every size of page, and has no part in the choice.

Bounded: probes are where no more than `PROBE_BYTES` are expected, by the rows that were counted and the widest that
were seen, or are left out. Not guaranteed: that the costs stay what they were. They are measured once, for all columns
of the table, and for the default memory of a task: with a smaller `memory=` fewer pages stay in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.plan.pagecost import CostConstants, Sizes, fit_reads, small_page

# Small pages that are read together, and how often: a few milliseconds, or what a distant database takes for some 10 MB.
_TOGETHER = (1, 4, 16, 64)
_TURNS = 2
# Twice the largest group of pages as they should be. A key that fills many pages is in one, and a row may have megabytes.
PROBE_BYTES = 8 << 20
# A probe takes no more than so many times the rows that were counted: others may have come since.
_ROWS_SINCE = 2
# Seek and byte are told apart by sizes that differ by this factor at least.
_UNLIKE = 2
# Below so many small pages there is little to choose, and little to lose. Then a page has about so many bytes.
_FEW = 8
WITHOUT_MEASURE_BYTES = 128 << 10

# The budget of the model, the pages and rows that a task holds by default, and what a row of the stream takes of it. The
# choice hangs on them little: a hundred times the budget makes a page three times as large.
BUDGET_BYTES = 64 << 20
_STREAM_BYTES = 100

# Reads the small pages from one up to another, at most so many rows, makes them ready and gives their bytes.
Read = Callable[[int, int, int], int]


@dataclass(frozen=True, slots=True)
class Choice:
    """How many small pages make one, a power of two, and the costs of reads that say so: 0 if not measured."""

    together: int
    seek_ns: float = 0.0
    byte_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class _Probe:
    rows: int
    bytes: int
    seconds: float


def pages_together(
    read: Read,
    rows: npt.NDArray[np.int64],
    row_bytes: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """`rows` are those of each small page, `row_bytes` the expected bytes of a row."""
    page_rows = max(1, int(np.median(rows)))
    probes = _probe(read, rows, row_bytes, clock) if len(rows) >= _FEW else []
    sizes = [probe.bytes for probe in probes]
    if not sizes or max(sizes) < _UNLIKE * min(sizes):
        widest = max([row_bytes, *(probe.bytes / probe.rows for probe in probes)])
        fitting = max(1, int(WITHOUT_MEASURE_BYTES / (page_rows * widest)))
        return Choice(1 << (fitting.bit_length() - 1))
    seek_ns, byte_ns = fit_reads(sizes, [probe.seconds for probe in probes])
    costs = CostConstants(
        seek_ns=seek_ns,
        byte_ns=byte_ns,
        probe_ns=0.0,
        output_ns=0.0,
        remove_ns=0.0,
        stream_ns=0.0,
        append_ns=0.0,
    )
    width = sum(sizes) / sum(probe.rows for probe in probes)
    whole = Sizes(stream_bytes=_STREAM_BYTES, table_bytes=width, table_rows=int(rows.sum()))
    tried = [page_rows << power for power in range(len(rows).bit_length())]
    return Choice(small_page(BUDGET_BYTES, costs, whole, tried) // page_rows, seek_ns, byte_ns)


def _probe(
    read: Read, rows: npt.NDArray[np.int64], row_bytes: float, clock: Callable[[], float]
) -> list[_Probe]:
    """Reads of some sizes, each with what it brought. Sizes alternate: a database may be slow for a while."""
    counts = [count for count in _TOGETHER if count * _TURNS <= len(rows)]
    before = np.concatenate([[0], np.cumsum(rows)])
    found = []
    # The first read also makes the connection and fills caches that every read needs: it counts for nothing.
    for count, part in [
        (1, 0.0),
        *((count, (turn + 0.5) / _TURNS) for turn in range(_TURNS) for count in counts),
    ]:
        held = before[count:] - before[:-count]
        bounded = np.flatnonzero(held * row_bytes <= PROBE_BYTES)
        if not len(bounded):
            continue
        low = int(bounded[np.argmin(np.abs(bounded - int(part * (len(held) - 1))))])
        here = int(held[low])
        started = clock()
        size = read(low, low + count, _ROWS_SINCE * here)
        found.append(_Probe(here, max(size, 1), clock() - started))
        row_bytes = max(row_bytes, size / here)
    return found[1:]
