"""Runs as the benchmarks record them."""

from __future__ import annotations


def timed_run(who: str, seconds: float, cold: float | None = None) -> dict:
    batches = [{"seconds": s, "cpu_s": s} for s in (9.0, 9.0, seconds, seconds)]
    run = {
        "workload": "uniform-2m",
        "competitor": who,
        "batches": batches,
        "usage": {"foreign_cpu_share": 0.0},
    }
    return run if cold is None else run | {"cold": [{"seconds": s} for s in (20.0, 9.0, cold, cold)]}
