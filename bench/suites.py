"""The suites: which competitors run which workloads, and what is demanded of the figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.report import (
    BUCKETS,
    DEFAULT,
    FLOOR,
    GRID,
    MB,
    OURS,
    ROCKSDB,
    TUNED,
    Finding,
    Results,
    check_equal,
    growth,
    memory,
    over_floor,
    times_faster,
)
from bench.workloads import BAND_2M, BAND_CHECK, CHECK, SMALL, UNIFORM_2M, UNIFORM_10M


@dataclass(frozen=True, slots=True)
class Suite:
    """`checked` workloads are compared with an independent engine, `timed` ones measured; by competitor."""

    name: str
    checked: dict[str, tuple[str, ...]]
    timed: dict[str, tuple[str, ...]]
    demands: Callable[[Results], list[Finding]]

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.checked, *self.timed)

    @property
    def competitors(self) -> set[str]:
        return {c for entrants in (*self.checked.values(), *self.timed.values()) for c in entrants}


def _equality_demands(results: Results) -> list[Finding]:
    return [
        check_equal(results),
        times_faster(results, "uniform-2m", DEFAULT, 4.0),
        times_faster(results, "uniform-2m", ROCKSDB, 7.0),
        times_faster(results, "uniform-10m", DEFAULT, 6.0),
        growth(results, "uniform-10m", 1.3),
        over_floor(results, "uniform-2m", 1.8),
        over_floor(results, "uniform-10m", 1.8),
        times_faster(results, "small", DEFAULT, 1.0),
        memory(results, "uniform-10m", 600 * MB),
    ]


def _band_demands(results: Results) -> list[Finding]:
    return [
        check_equal(results),
        times_faster(results, "band-2m", BUCKETS, 5.0),
        times_faster(results, "band-2m", TUNED, 1.0),
        growth(results, "band-2m", 1.4),
        memory(results, "band-2m", 600 * MB),
    ]


EQUALITY = Suite(
    "equality",
    {CHECK.name: (OURS, DEFAULT, ROCKSDB)},
    # RocksDB on 10M rows takes a quarter of an hour and no demand asks for it.
    {
        UNIFORM_2M.name: (OURS, DEFAULT, ROCKSDB, FLOOR),
        UNIFORM_10M.name: (OURS, DEFAULT, FLOOR),
        SMALL.name: (OURS, DEFAULT, FLOOR),
    },
    _equality_demands,
)

BAND = Suite(
    "band",
    {BAND_CHECK.name: (OURS, GRID, BUCKETS, TUNED)},
    {BAND_2M.name: (OURS, GRID, BUCKETS, TUNED, FLOOR)},
    _band_demands,
)

SUITES = {suite.name: suite for suite in (EQUALITY, BAND)}
