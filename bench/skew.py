"""What is demanded of skewed joins, and the table of balances."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report import (
    BICLIQUE,
    CUBE,
    DEFAULT,
    HASH,
    MB,
    Finding,
    Results,
    at_most,
    check_equal,
    markdown_table,
    memory,
    times_faster,
)
from bench.workloads import (
    BALANCE,
    BALANCE_ONE_KEY,
    BALANCE_TASKS,
    ONE_KEY,
    UNIFORM_2M,
    ZIPF_1,
    ZIPF_1_LARGE,
    ZIPF_2,
    ZIPF_15,
    Workload,
)

# Busiest task against the mean one: for any skew, and with one key on all rows.
MOST_UNEVEN, MOST_UNEVEN_ONE_KEY = 1.25, 1.05
OF_HASH = 1.1
OF_SPARK = 5.0
ONE_KEY_BYTES = 600 * MB


def demands(results: Results) -> list[Finding]:
    return [
        check_equal(results, CUBE),
        counted(results),
        *(evenness(results, list(BALANCE.values()), tasks, MOST_UNEVEN) for tasks in BALANCE_TASKS),
        *(evenness(results, [BALANCE_ONE_KEY], tasks, MOST_UNEVEN_ONE_KEY) for tasks in BALANCE_TASKS),
        at_most(results, UNIFORM_2M.name, HASH, OF_HASH, CUBE),
        times_faster(results, ZIPF_1.name, DEFAULT, OF_SPARK, CUBE),
        times_faster(results, ZIPF_1_LARGE.name, DEFAULT, OF_SPARK, CUBE),
        *(
            times_faster(results, workload.name, peer, 1.0, CUBE)
            for workload in (ZIPF_1, ZIPF_1_LARGE, ZIPF_15, ZIPF_2)
            for peer in ((HASH, BICLIQUE, DEFAULT) if workload in (ZIPF_15, ZIPF_2) else (HASH, BICLIQUE))
        ),
        memory(results, ONE_KEY.name, ONE_KEY_BYTES, CUBE),
    ]


def counted(results: Results) -> Finding:
    """Every strategy, at every alpha, with any number of tasks."""
    runs = [r for r in results.runs if "balance" in r]
    wrong = [
        f"{r['competitor']} on {r['workload']} with {tasks} tasks"
        for r in runs
        for tasks, found in r["balance"].items()
        if found["emitted"] != r["results"]
    ]
    demand, target = "balance: results", "as many as the keys give"
    if not runs:
        return Finding(demand, target, "-", None)
    done = sum(len(r["balance"]) for r in runs)
    measured = f"differ: {', '.join(wrong)}" if wrong else f"equal in {done} runs of 2, 16 and 48 tasks"
    return Finding(demand, target, measured, not wrong)


def evenness(results: Results, workloads: Sequence[Workload], tasks: int, target: float) -> Finding:
    """The least even of the workloads decides; all of them must have run."""
    single = len(workloads) == 1
    what = "one key on all rows" if single else f"alpha {workloads[0].alpha:g} to {workloads[-1].alpha:g}"
    demand, wanted = f"balance: {what}, {tasks} tasks", f"busiest / mean <= {target:g}"
    runs = {w: results.balance(w.name, CUBE) for w in workloads}
    found = {w: run["balance"][str(tasks)] for w, run in runs.items() if run}
    if not found:
        return Finding(demand, wanted, "-", None)
    worst = max(found, key=lambda w: found[w]["run"])
    at = "" if single else f" at alpha {worst.alpha:g}"
    batch = max(one["worst_batch"] for one in found.values())
    measured = f"{found[worst]['run']:.3f}{at}, worst batch {batch:.2f}{_against(results, worst, tasks)}"
    met = found[worst]["run"] <= target
    return Finding(demand, wanted, measured, met if len(found) == len(workloads) or not met else None)


def _against(results: Results, workload: Workload, tasks: int) -> str:
    others = {name: results.balance(workload.name, name) for name in (HASH, BICLIQUE)}
    words = [
        f"{name.removeprefix('watersmeet-')} {run['balance'][str(tasks)]['run']:.2f}"
        for name, run in others.items()
        if run
    ]
    return f" ({', '.join(words)})" if words else ""


def tables(results: Results) -> list[str]:
    """Busiest / mean of every run: over all batches, and in the worst one."""
    head = ["workload", "rows a side", "results", "strategy", *(f"{tasks} tasks" for tasks in BALANCE_TASKS)]
    rows = [
        [
            workload.name,
            f"{workload.rows:,}",
            f"{run['results']:,}",
            name.removeprefix("watersmeet-"),
            *(_cell(run["balance"][str(tasks)]) for tasks in BALANCE_TASKS),
        ]
        for workload in (*BALANCE.values(), BALANCE_ONE_KEY)
        for name in (HASH, BICLIQUE, CUBE)
        if (run := results.balance(workload.name, name))
    ]
    legend = (
        "Busiest task / mean, by rows looked up and results emitted: over the whole run, in the worst batch in "
        "brackets. Exact counts, without Spark."
    )
    return [legend, markdown_table(head, rows)] if rows else []


def _cell(found: dict[str, float]) -> str:
    return f"{found['run']:.2f} ({found['worst_batch']:.2f})"
