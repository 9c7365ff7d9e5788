"""The suites: which competitors run which workloads, and what is demanded of the figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import graph_demands, nexmark, nexmark_demands, plot, scale_demands, skew, tables
from bench.graphs import (
    GRAPH_CHECKS,
    PATH_4,
    PATH_SWAP,
    STAR_5,
    TEN,
    THREE_2M,
    THREE_500K,
    TRIANGLE,
    ZIPF_THREE,
)
from bench.report import (
    ADAPTIVE,
    BICLIQUE,
    BUCKETS,
    CACHED,
    CHAIN,
    CHOSEN,
    CUBE,
    DEFAULT,
    DUCKDB,
    FILES,
    FLOOR,
    GRID,
    HASH,
    HYBRID,
    IN_PLACE,
    INDEX,
    MB,
    MESH,
    OURS,
    ROCKSDB,
    SHUFFLED,
    SOURCES,
    SPARK_CHAIN,
    STATIC,
    TUNED,
    Finding,
    Results,
    at_most,
    check_equal,
    growth,
    memory,
    over_floor,
    times_faster,
)
from bench.tpch import Q5, Q5_CHECK
from bench.windows import MINUTE, MINUTE_CHECK
from bench.workloads import (
    BALANCE,
    BALANCE_ONE_KEY,
    BAND_2M,
    BAND_200K,
    BAND_CHECK,
    CHECK,
    ONE_KEY,
    SCALE_50M,
    SCALE_LOCAL,
    SKEW_CHECK,
    SMALL,
    TABLE_4M,
    TABLE_4M_SORTED,
    TABLE_CHECK,
    TABLE_GROUPS,
    TABLE_SMALL,
    UNIFORM_2M,
    UNIFORM_10M,
    ZIPF_1,
    ZIPF_1_LARGE,
    ZIPF_2,
    ZIPF_15,
)


@dataclass(frozen=True, slots=True)
class Suite:
    """`checked` workloads are compared with an independent engine, `timed` ones measured; by competitor.

    Without Spark, tasks' work is counted on `balanced` workloads, pages read on `paged` ones, and the work of fixed orders
    on `ordered` ones. `driven` ones run on the local driver, and of `filled` ones all files are taken in at once. Results of `ours` are
    also compared on timed workloads but for `unverified` ones. `rounds` are repetitions that a workload has at least.
    """

    name: str
    checked: dict[str, tuple[str, ...]]
    timed: dict[str, tuple[str, ...]]
    demands: Callable[[Results], list[Finding]]
    ours: str = OURS
    balanced: dict[str, tuple[str, ...]] = field(default_factory=dict)
    paged: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ordered: dict[str, tuple[str, ...]] = field(default_factory=dict)
    driven: dict[str, tuple[str, ...]] = field(default_factory=dict)
    filled: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unverified: tuple[str, ...] = ()
    rounds: dict[str, int] = field(default_factory=dict)
    tables: Callable[[Results], Sequence[str]] = lambda results: ()
    draw: Callable[[Results, Sequence[str], Path, str], list[Path]] = plot.draw_batches

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(part for entries in self._entries for part in entries)

    @property
    def competitors(self) -> set[str]:
        return {c for entries in self._entries for entrants in entries.values() for c in entrants}

    @property
    def _entries(self) -> tuple[dict[str, tuple[str, ...]], ...]:
        return self.checked, self.balanced, self.paged, self.ordered, self.driven, self.filled, self.timed


def _equality_demands(results: Results) -> list[Finding]:
    return [
        check_equal(results),
        times_faster(results, "uniform-2m", DEFAULT, 8.0),
        times_faster(results, "uniform-2m", DEFAULT, 10.0, FILES),
        times_faster(results, "uniform-2m", ROCKSDB, 7.0),
        times_faster(results, "uniform-10m", DEFAULT, 12.0),
        times_faster(results, "uniform-10m", DEFAULT, 20.0, FILES),
        growth(results, "uniform-10m", 1.3),
        over_floor(results, "uniform-2m", 1.8),
        over_floor(results, "uniform-10m", 1.8),
        over_floor(results, "small", 1.1),
        *(
            at_most(results, workload, FLOOR, 0.8, FILES, "the floor of JVM readers")
            for workload in ("small", "uniform-2m", "uniform-10m")
        ),
        times_faster(results, "small", DEFAULT, 1.0),
        memory(results, "uniform-10m", 600 * MB),
    ]


def _band_demands(results: Results) -> list[Finding]:
    return [
        check_equal(results),
        *(times_faster(results, "band-2m", BUCKETS, 5.0, us) for us in (OURS, FILES)),
        times_faster(results, "band-2m", TUNED, 1.0),
        *(times_faster(results, "band-200k", BUCKETS, 4.0, us) for us in (OURS, FILES)),
        growth(results, "band-2m", 1.4),
        memory(results, "band-2m", 600 * MB),
    ]


EQUALITY = Suite(
    "equality",
    {CHECK.name: (OURS, FILES, DEFAULT, ROCKSDB)},
    # RocksDB on 10M rows takes a quarter of an hour and no demand asks for it.
    {
        UNIFORM_2M.name: (OURS, FILES, DEFAULT, ROCKSDB, FLOOR),
        UNIFORM_10M.name: (OURS, FILES, DEFAULT, FLOOR),
        SMALL.name: (OURS, FILES, DEFAULT, FLOOR),
    },
    _equality_demands,
)

BAND = Suite(
    "band",
    {BAND_CHECK.name: (OURS, FILES, GRID, BUCKETS, TUNED)},
    {
        BAND_2M.name: (OURS, FILES, GRID, BUCKETS, TUNED, FLOOR),
        BAND_200K.name: (OURS, FILES, BUCKETS, FLOOR),
    },
    _band_demands,
)

STRATEGIES = (HASH, CUBE, BICLIQUE)

SKEW = Suite(
    "skew",
    {SKEW_CHECK.name: (*STRATEGIES, DEFAULT)},
    {
        UNIFORM_2M.name: (HASH, CUBE),
        ZIPF_1.name: (*STRATEGIES, DEFAULT),
        ZIPF_1_LARGE.name: (*STRATEGIES, DEFAULT),
        ZIPF_15.name: (*STRATEGIES, DEFAULT),
        ZIPF_2.name: (*STRATEGIES, DEFAULT),
        ONE_KEY.name: (CUBE, HASH),
    },
    skew.demands,
    ours=CUBE,
    balanced={w.name: STRATEGIES for w in (*BALANCE.values(), BALANCE_ONE_KEY)},
    # Compared at a smaller size and with one key: to write and compare 70M results each would take minutes more.
    unverified=tuple(w.name for w in (UNIFORM_2M, ZIPF_1, ZIPF_1_LARGE, ZIPF_15, ZIPF_2)),
    # A tenth is at stake: one run each would not show it.
    rounds={w.name: 3 for w in (UNIFORM_2M, ZIPF_1, ZIPF_1_LARGE, ZIPF_15, ZIPF_2, ONE_KEY)},
    tables=skew.tables,
    draw=plot.draw_skew,
)

LOOKUPS, STATICS = (HYBRID, MESH, INDEX), (STATIC, ADAPTIVE, SHUFFLED, CACHED)

TABLES = Suite(
    "tables",
    {TABLE_CHECK.name: (*LOOKUPS, *STATICS)},
    {
        TABLE_4M.name: (HYBRID, MESH, *STATICS),
        TABLE_4M_SORTED.name: (HYBRID, MESH, STATIC),
        # By key each row reads its page again: 100,000 times in a batch of the others.
        TABLE_SMALL.name: (*LOOKUPS, STATIC),
        TABLE_GROUPS.name: (CHOSEN, IN_PLACE, HYBRID, STATIC),
    },
    tables.demands,
    ours=HYBRID,
    paged={w.name: (HYBRID, MESH) for w in (TABLE_4M, TABLE_4M_SORTED, TABLE_SMALL)},
    tables=tables.tables,
)


_ALL_GRAPHS = (OURS, CHAIN, SPARK_CHAIN)
# Beside what reading the sources takes.
_AND_SOURCES = (*_ALL_GRAPHS, FILES, SOURCES)

GRAPH = Suite(
    "graph",
    {workload.name: (*_ALL_GRAPHS, FILES) for workload in (*GRAPH_CHECKS, Q5_CHECK)},
    {
        THREE_500K.name: _AND_SOURCES,
        THREE_2M.name: (OURS, FILES, SPARK_CHAIN),
        PATH_4.name: _AND_SOURCES,
        STAR_5.name: _AND_SOURCES,
        TRIANGLE.name: _AND_SOURCES,
        TEN.name: (OURS, FILES, SOURCES),
        **{workload.name: (OURS, SPARK_CHAIN) for workload in Q5},
    },
    graph_demands.demands,
    balanced={ZIPF_THREE.name: (CUBE, HASH)},
    ordered={PATH_SWAP.name: (OURS,)},
    tables=graph_demands.tables,
)

NEXMARK = Suite(
    "nexmark",
    {workload.name: (OURS, FILES, DEFAULT) for workload in nexmark.CHECKS},
    {workload.name: (OURS, FILES, DEFAULT) for workload in nexmark.QUERIED},
    nexmark_demands.demands,
    driven={nexmark.DISK.name: (OURS,)},
    tables=nexmark_demands.rates,
)


def _window_demands(results: Results) -> list[Finding]:
    return [
        check_equal(results),
        times_faster(results, MINUTE.name, DEFAULT, 6.0, FILES),
        times_faster(results, MINUTE.name, ROCKSDB, 20.0, FILES),
        times_faster(results, MINUTE.name, DEFAULT, 4.0),
        times_faster(results, MINUTE.name, ROCKSDB, 12.0),
        growth(results, MINUTE.name, 1.2),
        memory(results, MINUTE.name, 600 * MB),
    ]


WINDOW = Suite(
    "window",
    {MINUTE_CHECK.name: (OURS, FILES, DEFAULT, ROCKSDB)},
    {MINUTE.name: (OURS, FILES, DEFAULT, ROCKSDB)},
    _window_demands,
)

SCALE = Suite(
    "scale",
    {},
    {SCALE_50M.name: (OURS, FILES)},
    scale_demands.demands,
    # Its 100M results have been compared at smaller sizes, by the suite `equality`.
    unverified=(SCALE_50M.name,),
    driven={SCALE_LOCAL.name: (OURS,)},
    filled={SCALE_50M.name: (FILES, DUCKDB)},
    tables=scale_demands.tables,
)

SUITES = {suite.name: suite for suite in (EQUALITY, BAND, SKEW, TABLES, GRAPH, NEXMARK, WINDOW, SCALE)}
