"""How large a page of a database is: what its reads cost is measured, and the cost model says what follows.

A database on this machine gives a small page almost as cheaply, row by row, as a large one; behind a network each read
waits for an answer first. So the bounds of small pages are found, some of them are read alone and in groups, and the
fewest together that lose little of the best service rate (plan/pagecost.py) make a page.

What a row of the stream costs is not measured: it is the same for every size of page, and has no part in the choice.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from watersmeet.plan.pagecost import CostConstants, Sizes, fit_reads, small_page

# Small pages that are read together, and how often: a few milliseconds, or what a distant database takes for some 10 MB.
_TOGETHER = (1, 4, 16, 64)
_TURNS = 2
# Below so many small pages there is little to choose, and little to lose.
_FEW = 8
WITHOUT_MEASURE = 2

# The budget of the model, the pages and rows that a task holds by default, and what a row of the stream takes of it. The
# choice hangs on them little: a hundred times the budget makes a page three times as large.
BUDGET_BYTES = 64 << 20
_STREAM_BYTES = 100


def pages_together(
    read: Callable[[int, int], int], pages: int, rows: int, clock: Callable[[], float] = time.perf_counter
) -> int:
    """How many small pages make one, a power of two. `read` reads those from one up to another and gives their bytes.

    `pages` is how many there are, `rows` how many rows in each.
    """
    if pages < _FEW:
        return WITHOUT_MEASURE
    sizes = [count for count in _TOGETHER if count * _TURNS <= pages]
    seconds, read_bytes = [], []
    for count in sizes:
        taken = []
        for turn in range(_TURNS):
            low = (2 * turn + 1) * (pages - count) // (2 * _TURNS)
            started = clock()
            size = read(low, low + count)
            taken.append(clock() - started)
        seconds.append(min(taken))
        read_bytes.append(float(max(size, 1)))
    seek_ns, byte_ns = fit_reads(read_bytes, seconds)
    costs = CostConstants(seek_ns, byte_ns, 0.0, 0.0, 0.0, 0.0, 0.0)
    table = Sizes(_STREAM_BYTES, read_bytes[-1] / (sizes[-1] * rows), pages * rows)
    tried = [rows << power for power in range(pages.bit_length())]
    return small_page(BUDGET_BYTES, costs, table, tried) // rows
