"""The workloads: what data, in how many micro-batches.

A workload is plain facts; `data.py` turns it into files and `run.py` feeds those files to one
competitor. A row of a stream is 24 bytes wide (three 8-byte columns), and every column of every input
is used by the result, so nothing that a competitor reads is thrown away unseen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from bench.graphs import GRAPHS, GraphWorkload
from bench.nexmark import EVENT_WORKLOADS, EventWorkload
from bench.tpch import Q5, Q5_CHECK
from bench.windows import MINUTE, MINUTE_CHECK, Window, WindowWorkload
from papers.shared.zipf import rank_shares

SEED = 20_260_101
# Spark's cores, shuffle partitions and our join tasks.
CORES = 2

# The first two batches open what a new query needs and, in a new JVM, start Python workers and compile Spark's
# generated code: demands count from the third batch on (index 2).
FIRST_COUNTED = 2


@dataclass(frozen=True, slots=True)
class Workload:
    """Two inputs of `rows` rows each, one file a side per micro-batch.

    Both draw from `keys` keys, evenly, or by Zipf's law with exponent `alpha`: then a key that is frequent in one
    input is so in the other.
    """

    name: str
    rows: int
    keys: int
    batches: int
    heap_gb: int
    seed: int = SEED
    # Rows match when their keys are at most this far apart.
    reach: int = 0
    alpha: float = 0.0

    select: ClassVar[tuple[str, ...]] = ("l.k", "l.id", "l.x", "r.id AS rid", "r.y")
    inputs: ClassVar[tuple[str, str]] = ("l", "r")
    streams: ClassVar[tuple[str, ...]] = inputs
    filters: ClassVar[dict[str, str]] = {}
    window: ClassVar[Window | None] = None

    @property
    def on(self) -> str:
        return f"abs(l.k - r.k) <= {self.reach}" if self.reach else "l.k = r.k"

    @property
    def text(self) -> str:
        """All of it in one phrase."""
        keys = f"{self.keys:,} keys" if self.keys > 1 else "one key"
        skew = f" (Zipf, alpha {self.alpha:g})" if self.alpha else ""
        heap = f", {self.heap_gb} GB heap" if self.heap_gb else ""
        return f"{self.name} {self.rows:,} x {self.rows:,} rows, {keys}{skew}, {self.batches} batches{heap}"

    @property
    def batch_rows(self) -> int:
        """Rows of one input in one micro-batch."""
        return self.rows // self.batches

    @property
    def expected_results(self) -> int:
        """Mean number of result rows of the whole run; `reach` is for uniform keys."""
        return round(self.rows * self.rows * (2 * self.reach + 1) * meeting_share(self.keys, self.alpha))


@dataclass(frozen=True, slots=True)
class TableWorkload:
    """A stream `s` of `rows` sales, one file per micro-batch, and a table `p` of `table_rows` products, one file.

    Products are drawn by Zipf's law. Which of them is popular has nothing to do with its id, or, `by_id`, the first is
    the most popular, the second comes next, and so on.
    """

    name: str
    rows: int
    table_rows: int
    batches: int
    heap_gb: int
    seed: int = SEED
    alpha: float = 1.0
    by_id: bool = False
    # Rows of a row group of the table (Spark closes one at 128 MB: about as many products), and columns of numbers beside the six that all tables have.
    group_rows: int = 1_000_000
    numbers: int = 0

    inputs: ClassVar[tuple[str, str]] = ("s", "p")
    streams: ClassVar[tuple[str, ...]] = ("s",)
    filters: ClassVar[dict[str, str]] = {}
    window: ClassVar[Window | None] = None
    key: ClassVar[str] = "id"
    on: ClassVar[str] = "s.product = p.id"
    select: ClassVar[tuple[str, ...]] = (
        "s.sale", "s.product", "s.qty", "p.name", "p.category", "p.price", "p.stock", "p.note",
    )  # fmt: skip

    @property
    def text(self) -> str:
        order = "in order of id" if self.by_id else "scattered over the ids"
        return (
            f"{self.name} {self.rows:,} rows, table of {self.table_rows:,} rows (Zipf, alpha {self.alpha:g}, {order}), "
            f"{self.batches} batches, {self.heap_gb} GB heap"
        )

    @property
    def batch_rows(self) -> int:
        return self.rows // self.batches


# What makes its batches itself.
Drawn: TypeAlias = GraphWorkload | EventWorkload | WindowWorkload
AnyWorkload: TypeAlias = Workload | TableWorkload | Drawn


def meeting_share(keys: int, alpha: float) -> float:
    """How likely a left and a right row have the same key."""
    return float((rank_shares(keys, alpha) ** 2).sum())


# Heap is the same for every competitor on a workload; it is what Spark's default store needs
# (its state lives on the heap, in two retained versions), not what we need.
UNIFORM_2M = Workload("uniform-2m", 2_000_000, 1_000_000, 20, heap_gb=6)
UNIFORM_10M = Workload("uniform-10m", 10_000_000, 5_000_000, 20, heap_gb=12)
SMALL = Workload("small", 500 * 60, 15_000, 60, heap_gb=4)
CHECK = Workload("check", 200_000, 50_000, 8, heap_gb=4)

# A state of a hundred million rows, on Spark; and one of a thousand million or more, on the local driver: without files,
# so it can be as large as the disk.
SCALE_50M = Workload("scale-50m", 50_000_000, 25_000_000, 50, heap_gb=4)
SCALE_LOCAL = Workload("scale-local", 500_000_000, 250_000_000, 200, heap_gb=0)

BAND_2M = Workload("band-2m", 2_000_000, 42_000_000, 20, heap_gb=6, reach=10)
# Most of such a batch is floor.
BAND_200K = Workload("band-200k", 200_000, 4_200_000, 20, heap_gb=4, reach=10)
BAND_CHECK = Workload("band-check", 200_000, 4_200_000, 8, heap_gb=4, reach=10)

SKEWED_KEYS = 100_000
# About 72M results each: the more skewed, the fewer rows.
ZIPF_1 = Workload("zipf-1", 80_000, SKEWED_KEYS, 20, heap_gb=6, alpha=1.0)
# 91M results in five large batches: what a result costs, where little else does.
ZIPF_1_LARGE = Workload("zipf-1-large", 90_000, SKEWED_KEYS, 5, heap_gb=6, alpha=1.0)
ZIPF_15 = Workload("zipf-1.5", 20_000, SKEWED_KEYS, 20, heap_gb=6, alpha=1.5)
ZIPF_2 = Workload("zipf-2", 13_400, SKEWED_KEYS, 20, heap_gb=6, alpha=2.0)
SKEW_CHECK = Workload("skew-check", 16_000, SKEWED_KEYS, 8, heap_gb=4, alpha=1.0)
# Every row meets every other: 36M results.
ONE_KEY = Workload("one-key", 6_000, 1, 20, heap_gb=4)

# What is measured task by task, without Spark. Enough rows for batches of a useful size, but no more
# than give this many results.
BALANCE_ALPHAS = tuple(step / 4 for step in range(9))
BALANCE_BATCHES = 10
MOST_BALANCE_ROWS, MOST_BALANCE_RESULTS = 1_000_000, 40_000_000
BALANCE_TASKS = (2, 16, 48)


def _balance_workload(alpha: float) -> Workload:
    rows = math.sqrt(MOST_BALANCE_RESULTS / meeting_share(SKEWED_KEYS, alpha))
    batch_rows = int(min(rows, MOST_BALANCE_ROWS)) // (100 * BALANCE_BATCHES) * 100
    return Workload(
        f"balance-{alpha:g}", batch_rows * BALANCE_BATCHES, SKEWED_KEYS, BALANCE_BATCHES, 0, alpha=alpha
    )


BALANCE = {alpha: _balance_workload(alpha) for alpha in BALANCE_ALPHAS}
BALANCE_ONE_KEY = Workload("balance-one-key", 6_000, 1, BALANCE_BATCHES, 0)

TABLE_4M = TableWorkload("table-4m", 2_000_000, 4_000_000, 20, heap_gb=6)
TABLE_4M_SORTED = TableWorkload("table-4m-sorted", 2_000_000, 4_000_000, 20, heap_gb=6, by_id=True)
# Batches of 500 rows: most pages hold no key of a batch.
TABLE_SMALL = TableWorkload("table-small", 500 * 20, 4_000_000, 20, heap_gb=6)
# Small row groups in order of the key: the table is read in place, until that has cost as much as a sorted copy.
TABLE_GROUPS = TableWorkload("table-groups", 3_000_000, 4_000_000, 30, heap_gb=6, group_rows=4_096, numbers=8)
TABLE_CHECK = TableWorkload("table-check", 200_000, 400_000, 8, heap_gb=4)

_EVERY: tuple[AnyWorkload, ...] = (
    *(UNIFORM_2M, UNIFORM_10M, SMALL, CHECK, SCALE_50M, SCALE_LOCAL),
    *(BAND_2M, BAND_200K, BAND_CHECK),
    *(ZIPF_1, ZIPF_1_LARGE, ZIPF_15, ZIPF_2, SKEW_CHECK, ONE_KEY),
    *(*BALANCE.values(), BALANCE_ONE_KEY),
    *(TABLE_4M, TABLE_4M_SORTED, TABLE_SMALL, TABLE_GROUPS, TABLE_CHECK),
    *(*GRAPHS, *Q5, Q5_CHECK),
    *EVENT_WORKLOADS,
    *(MINUTE, MINUTE_CHECK),
)
ALL = {workload.name: workload for workload in _EVERY}


def quick(workload: AnyWorkload) -> AnyWorkload:
    """The same shape at a tenth of the rows: shows that the harness works, proves no demand."""
    if isinstance(workload, Drawn):
        return workload.quick()
    if isinstance(workload, TableWorkload):
        return replace(
            workload,
            name=f"{workload.name}-quick",
            rows=workload.rows // 10,
            table_rows=workload.table_rows // 10,
            heap_gb=min(workload.heap_gb, 4),
        )
    if workload.alpha or workload.keys == 1:
        # The keys are the shape of such data. A tenth of the rows gives a hundredth of the results.
        return replace(
            workload,
            name=f"{workload.name}-quick",
            rows=workload.rows // 10,
            heap_gb=min(workload.heap_gb, 4),
        )
    if workload in (SMALL, CHECK):
        return replace(
            workload,
            name=f"{workload.name}-quick",
            rows=workload.rows // 4,
            keys=workload.keys // 4,
            batches=workload.batches // 4,
        )
    return replace(
        workload,
        name=f"{workload.name}-quick",
        rows=workload.rows // 10,
        keys=workload.keys // 10,
        heap_gb=min(workload.heap_gb, 4),
    )


def sized(workload: AnyWorkload, size: int) -> AnyWorkload:
    """The same shape over another number of events, or of rows of each input, in as many batches."""
    if isinstance(workload, EventWorkload):
        return workload.sized(size)
    if isinstance(workload, Workload):
        keys = max(1, workload.keys * size // workload.rows)
        return replace(workload, name=f"{workload.name}@{size}", rows=size, keys=keys)
    raise KeyError(f"{workload.name} has no other size")


def base_name(name: str) -> str:
    """The name of the workload that a small version, or one of another size, comes from."""
    return name.removesuffix("-quick").split("@")[0]


def by_name(name: str) -> AnyWorkload:
    """Look a workload up; `NAME-quick` is the small version of NAME, `NAME@100000` one of that size."""
    base = base_name(name)
    if base not in ALL:
        known = ", ".join(ALL)
        raise KeyError(f"no workload {name!r}; known: {known} (each also with -quick)")
    if "@" in name:
        return sized(ALL[base], int(name.split("@")[1]))
    return quick(ALL[base]) if name != base else ALL[base]
