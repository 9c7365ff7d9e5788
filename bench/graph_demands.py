"""What is demanded of joins of many inputs."""

from __future__ import annotations

from bench import warm
from bench.graphs import PATH_4, PATH_SWAP, STAR_5, TEN, THREE_2M, THREE_500K, TRIANGLE, ZIPF_THREE
from bench.orders import near_best
from bench.report import (
    CHAIN,
    CUBE,
    FILES,
    OURS,
    SOURCES,
    SPARK_CHAIN,
    Finding,
    Results,
    at_most,
    check_equal,
    growth,
    times_faster,
)
from bench.stored import state_bytes
from bench.tpch import Q5
from bench.workloads import BALANCE_TASKS

# Busiest task against the mean one, in the worst batch.
MOST_UNEVEN = 1.25
# A workload with intermediate results of this many times the answer shows that none is stored.
INTERMEDIATE = 50


def demands(results: Results) -> list[Finding]:
    return [
        check_equal(results),
        *(
            times_faster(results, workload.name, SPARK_CHAIN, times, us)
            for workload, times in ((THREE_500K, 5.0), (THREE_2M, 8.0))
            for us in (OURS, FILES)
        ),
        growth(results, THREE_2M.name, 1.2),
        *(
            finding
            for workload in (PATH_4, STAR_5, TRIANGLE)
            for finding in (
                times_faster(results, workload.name, SPARK_CHAIN, 5.0),
                times_faster(results, workload.name, SPARK_CHAIN, 5.0, FILES),
                times_faster(results, workload.name, CHAIN, 1.5),
                state_bytes(results, workload, INTERMEDIATE if workload is TRIANGLE else 0),
            )
        ),
        *near_best(results, PATH_SWAP.name),
        *(even(results, tasks) for tasks in BALANCE_TASKS),
        at_most(results, TEN.name, SOURCES, 1.3, OURS, "reading ten sources"),
        at_most(results, TEN.name, SOURCES, 1.3, FILES, "reading ten sources"),
        *(times_faster(results, workload.name, SPARK_CHAIN, 1.0) for workload in Q5),
    ]


def tables(results: Results) -> list[str]:
    timed = (THREE_500K, PATH_4, STAR_5, TRIANGLE, TEN)
    return warm.table(results, [workload.name for workload in timed])


def even(results: Results, tasks: int) -> Finding:
    """How evenly tasks are busy with hot keys on three inputs: counted, and all results must be there."""
    demand, target = f"{ZIPF_THREE.name}: {tasks} tasks", f"busiest / mean <= {MOST_UNEVEN:g} in every batch"
    run = results.balance(ZIPF_THREE.name, CUBE)
    if run is None:
        return Finding(demand, target, "-", None)
    found = run["balance"][str(tasks)]
    if found["emitted"] != run["results"]:
        return Finding(demand, target, f"{found['emitted']:,} results instead of {run['results']:,}", False)
    worst = found["worst_batch"]
    return Finding(
        demand, target, f"{worst:.2f} in the worst batch, {found['run']:.2f} over all", worst <= MOST_UNEVEN
    )
