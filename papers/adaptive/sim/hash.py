"""SHJ: the parallel symmetric hash join, for comparison. Each key has one joiner, and nothing is replicated.

Source: Elseidy et al. 2014, section 5. Equality only. A joiner with a heavy key holds all its rows.
"""

from __future__ import annotations

import numpy as np

from papers.adaptive.sim.arrivals import Counts, Floats, KeyedArrivals, count_keys, distinct_keys
from papers.adaptive.sim.costs import CostModel
from papers.adaptive.sim.optimum import least_load
from papers.adaptive.sim.progress import Progress, Recorder
from watersmeet.kernel.keys import mix


def run_hash(keyed: KeyedArrivals, cells: int, costs: CostModel) -> Progress:
    """The whole stream through `cells` joiners; one sample for each chunk."""
    owner = (mix(distinct_keys(keyed).astype(np.int64).view(np.uint64)) % np.uint64(cells)).astype(np.int64)
    left_bytes, right_bytes = keyed.arrivals.left_row_bytes, keyed.arrivals.right_row_bytes
    stored, time, one_each = np.zeros(cells), np.zeros(cells), np.ones(cells)
    left_rows = right_rows = 0
    recorder = Recorder()
    for chunk in count_keys(keyed):
        left, right = _by_joiner(owner, chunk.left_rows, cells), _by_joiner(owner, chunk.right_rows, cells)
        arrived = left * left_bytes + right * right_bytes
        work = costs.work(
            left + right, _by_joiner(owner, chunk.result_rows, cells), np.zeros(cells), stored + arrived / 2
        )
        stored += arrived
        time += work
        left_rows += int(left.sum())
        right_rows += int(right.sum())
        recorder.add(
            left_rows,
            right_rows,
            stored,
            one_each,
            least_load(cells, left_rows * left_bytes, right_rows * right_bytes),
            float(time.max()),
        )
    return recorder.finish()


def _by_joiner(owner: Counts, by_key: Counts, cells: int) -> Floats:
    return np.bincount(owner, weights=by_key, minlength=cells).astype(np.float64)
