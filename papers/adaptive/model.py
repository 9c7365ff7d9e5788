"""The operators at the paper's sizes, simulated: 10 GB and more on 16 to 128 machines.

Mappings and decisions come from watersmeet.schemes.grid.policy, the code that runs on Spark; sim/ turns them into loads and
times. Three constants of the machines are taken from the paper, one is assumed; everything else that the
exhibits show follows from them:

- a row takes what makes STATICMID's load in Figure 5a grow by 14 MB for each 1 % of the input;
- receiving a row takes what makes DYNAMIC need the 168 s of Table 2 for EQ5 without skew;
- work on state that is on disk takes 10 times as long: "an order of magnitude" in section 5.3;
- a result takes 0.4 us, assumed: 5 million a second on two cores. B_CI on Spark here took 0.24 us.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from papers.adaptive import paper
from papers.adaptive.operators import DYNAMIC, SHJ, STATICMID, static_mid, static_opt
from papers.adaptive.sim.arrivals import Arrivals, KeyedArrivals
from papers.adaptive.sim.costs import CostModel
from papers.adaptive.sim.grid import run_grid
from papers.adaptive.sim.hash import run_hash
from papers.adaptive.sim.progress import Progress
from papers.shared.arrival import Point, cut, steady
from papers.shared.queries import SEED
from papers.shared.zipf import draw_keys
from watersmeet.schemes.grid.policy import GridPolicy, dynamic

MB, GB = 1e6, 1e9
CHUNKS = 100

SUPPLIERS_PER_GB, LINES_PER_GB, ORDERS_PER_GB = 10_000, 6_000_000, 1_500_000
# Rows of the two inputs for each GB, by TPC-H's own shares (regions, nations, modes, quantities, days).
ROWS_PER_GB = {
    "EQ5": (SUPPLIERS_PER_GB // 5, LINES_PER_GB),
    "EQ7": (SUPPLIERS_PER_GB * 2 // 25, round(LINES_PER_GB * 0.304)),
    "B_NCI": (round(LINES_PER_GB / 7 * 2 / 50), LINES_PER_GB // 4),
    "B_CI": (round(LINES_PER_GB / 7 * 5 / 50), LINES_PER_GB * 6 // 7),
    "Fluct": (LINES_PER_GB, ORDERS_PER_GB),
}
# Results for each GB; those of B_CI grow with the square, since the days of shipping stay the same.
RESULTS_PER_GB = {
    "EQ5": LINES_PER_GB / 5,
    "EQ7": LINES_PER_GB * 0.304 * 2 / 25,
    "B_NCI": 105e3,
    "B_CI": 544e6,
}

ROW_BYTES = round(100 * paper.ILF_MB_PER_PERCENT[STATICMID] * MB / (60e6 / 8))
ROW_S = paper.TABLE2["EQ5"][0.0][1] / (20e3 + 60e6 / paper.TABLE2_MACHINES)
RESULT_S = 0.4e-6
DISK_FACTOR = float(paper.OUT_OF_CORE_TIMES)

# SHJ needs the key of every row: one row of each such number is drawn and stands for the others.
_STANDS_FOR = 50


@dataclass(frozen=True, slots=True)
class Cluster:
    """The number of joiners, and the memory that each has for its state."""

    cells: int
    memory_bytes: float = math.inf


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated run: its course, and the rows that it stands for."""

    progress: Progress
    rows: int
    memory_bytes: float

    @property
    def seconds(self) -> float:
        return self.progress.execution_time

    @property
    def throughput(self) -> float:
        return self.rows / self.seconds

    @property
    def max_bytes(self) -> float:
        return float(self.progress.max_bytes[-1])

    @property
    def mean_bytes(self) -> float:
        return float(self.progress.mean_bytes[-1])

    @property
    def total_bytes(self) -> float:
        return float(self.progress.total_bytes[-1])

    @property
    def overflowed(self) -> bool:
        return float(self.progress.max_bytes.max()) > self.memory_bytes


# Several exhibits show the same runs.
@functools.cache
def simulate(operator: str, query: str, gigabytes: float, cluster: Cluster, z: float = 0.0) -> Outcome:
    """One operator on one query, both inputs arriving at a steady rate."""
    left, right = (round(gigabytes * rows) for rows in ROWS_PER_GB[query])
    results = RESULTS_PER_GB[query] * gigabytes ** (2 if query == "B_CI" else 1)
    if operator == SHJ:
        return _simulate_hash(left, right, gigabytes, cluster, z)
    return simulate_rows(operator, left, right, results, cluster)


def simulate_rows(operator: str, left: int, right: int, results: float, cluster: Cluster) -> Outcome:
    """A grid over these numbers of rows; a chunk makes results with itself and with all before it."""
    ends = cut(steady(left, right), CHUNKS)
    done = (np.arange(CHUNKS + 1) / CHUNKS) ** 2
    policy = _policy(operator, left, right)
    progress = run_grid(_arrivals(ends, results * np.diff(done)), cluster.cells, policy, _costs(cluster))
    return Outcome(progress, left + right, cluster.memory_bytes)


def simulate_path(operator: str, path: list[Point], cluster: Cluster, chunks: int) -> Outcome:
    """DYNAMIC or STATICMID over inputs that arrive along a path; DYNAMIC adapts after as many rows as in the paper."""
    ends = cut(path, chunks)
    policy = dynamic(min_rows=paper.FLUCT_FIRST_ROWS) if operator == DYNAMIC else static_mid()
    progress = run_grid(_arrivals(ends, np.zeros(len(ends))), cluster.cells, policy, _costs(cluster))
    return Outcome(progress, path[-1].left + path[-1].right, cluster.memory_bytes)


def _simulate_hash(left: int, right: int, gigabytes: float, cluster: Cluster, z: float) -> Outcome:
    suppliers = np.arange(round(gigabytes * SUPPLIERS_PER_GB))
    rng = np.random.default_rng((SEED, round(100 * z)))
    ends = cut(steady(left // _STANDS_FOR, right // _STANDS_FOR), CHUNKS)
    keyed = KeyedArrivals(
        _arrivals(ends, None, row_bytes=ROW_BYTES * _STANDS_FOR),
        rng.permutation(suppliers)[: ends[-1].left],
        draw_keys(suppliers, ends[-1].right, z, rng),
    )
    # Of pairs too few meet this way; the time of EQ5's and EQ7's few results does not show.
    progress = run_hash(keyed, cluster.cells, _costs(cluster, stands_for=_STANDS_FOR))
    return Outcome(progress, left + right, cluster.memory_bytes)


def _arrivals(ends: list[Point], results: np.ndarray | None, row_bytes: int = ROW_BYTES) -> Arrivals:
    return Arrivals(
        left_rows=np.diff([0, *(end.left for end in ends)]),
        right_rows=np.diff([0, *(end.right for end in ends)]),
        left_row_bytes=row_bytes,
        right_row_bytes=row_bytes,
        result_rows=results,
    )


def _policy(operator: str, left: int, right: int) -> GridPolicy:
    if operator == DYNAMIC:
        return dynamic()
    return static_mid() if operator == STATICMID else static_opt(left, right)


def _costs(cluster: Cluster, stands_for: int = 1) -> CostModel:
    return CostModel(
        input_time=ROW_S * stands_for,
        output_time=RESULT_S * stands_for,
        migrated_time=ROW_S / 2,
        memory_bytes=cluster.memory_bytes,
        disk_factor=DISK_FACTOR,
    )
