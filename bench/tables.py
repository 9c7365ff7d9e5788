"""What is demanded of a stream against a table, and what its batches need of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.report import (
    ADAPTIVE,
    CACHED,
    CHOSEN,
    HYBRID,
    IN_PLACE,
    INDEX,
    MB,
    MESH,
    SHUFFLED,
    STATIC,
    Finding,
    Results,
    Run,
    at_most,
    check_equal,
    markdown_table,
    memory,
    times_faster,
)
from bench.workloads import CORES, TABLE_4M, TABLE_4M_SORTED, TABLE_GROUPS, TABLE_SMALL
from watersmeet.engine.kept_table import PAGE_MEMORY

OF_SPARK = 5.0
# What workers have beside the pages that they keep: Python, Arrow and the code, 146 MB for two workers that pass rows
# through and do nothing else (the floor of the equality joins), and as much again for the rows of the batch.
BASE_BYTES = 300 * MB
BUDGET_BYTES = CORES * PAGE_MEMORY + BASE_BYTES
BUDGET_TEXT = f"pages {CORES} x {PAGE_MEMORY / MB:.0f}, all else {BASE_BYTES / MB:.0f}"

WORKLOADS = (TABLE_4M.name, TABLE_4M_SORTED.name, TABLE_SMALL.name)
PREPARED = (*WORKLOADS, TABLE_GROUPS.name)


def demands(results: Results) -> list[Finding]:
    return [
        check_equal(results, HYBRID),
        times_faster(results, TABLE_4M.name, STATIC, OF_SPARK, HYBRID),
        times_faster(results, TABLE_4M.name, ADAPTIVE, OF_SPARK, HYBRID),
        times_faster(results, TABLE_4M_SORTED.name, STATIC, OF_SPARK, HYBRID),
        settled(results, TABLE_GROUPS.name, 3.0),
        at_most(results, TABLE_GROUPS.name, IN_PLACE, 1.0, CHOSEN, "always in place"),
        memory(results, TABLE_4M.name, BUDGET_BYTES, HYBRID, BUDGET_TEXT),
        *(needed(results, workload) for workload in WORKLOADS),
        *(strays(results, workload) for workload in WORKLOADS),
    ]


def settled(results: Results, workload: str, times: float) -> Finding:
    """Batches that read the copy, against Spark's; how many there were before, and the whole run with those."""
    demand, target = f"{workload}: against {STATIC}, once the copy is there", f">= {times:g}x faster"
    runs, theirs = results.timed(workload, CHOSEN), results.seconds_per_batch(workload, STATIC)
    if not runs or theirs is None:
        return Finding(demand, target, "-", None)
    settled = [
        [
            batch["seconds"]
            for batch, page in zip(run["batches"], run["needed"], strict=True)
            if page["copied"]
        ]
        for run in runs
    ]
    if not all(settled):
        return Finding(demand, target, "no copy was made", False)
    ours = statistics.median(statistics.fmean(seconds) for seconds in settled)
    batches = len(runs[0]["batches"])
    whole = results.seconds_per_batch(workload, CHOSEN)
    assert whole is not None, "there are runs"
    measured = (
        f"{theirs / ours:.2f}x ({ours:.3f} s against {theirs:.3f} s, in the last {len(settled[0])} of {batches}); "
        f"all batches {theirs / whole:.2f}x ({whole:.3f} s)"
    )
    return Finding(demand, target, measured, theirs / ours >= times)


def needed(results: Results, workload: str) -> Finding:
    """What the status says of every batch, with and without Spark, against what the keys say."""
    demand, target = f"{workload}: pages needed, by the status", "those that hold keys of the batch"
    batches = results.paging(workload, HYBRID)
    runs = results.timed(workload, HYBRID)
    if not batches or not runs:
        return Finding(demand, target, "-", None)
    holding = [batch["holding"] for batch in batches]
    said = [[batch["needed"] for batch in batches], *([b["pages"] for b in run["needed"]] for run in runs)]
    wrong = sum(one != holding for one in said)
    if wrong:
        return Finding(demand, target, f"other numbers in {wrong} of {len(said)} runs", False)
    measured = f"equal in {len(holding)} batches: {_spread(holding)} of {batches[0]['pages']:,}"
    return Finding(demand, target, measured, True)


def strays(results: Results, workload: str) -> Finding:
    """Every read of a page, and every row answered: a join that reads nothing has no stray either."""
    demand, target = f"{workload}: pages read that hold no key of the batch", "0"
    batches = results.paging(workload, HYBRID)
    if not batches:
        return Finding(demand, target, "-", None)
    stray, reads = (sum(batch[what] for batch in batches) for what in ("stray", "reads"))
    unanswered = sum(batch["rows"] - batch["results"] for batch in batches)
    measured = f"{stray:,} of {reads:,} reads"
    if unanswered:
        measured += f"; {unanswered:,} rows without a result"
    return Finding(demand, target, measured, not stray and not unanswered)


def tables(results: Results) -> list[str]:
    """How long a table takes to be ready, and what batches need of it."""
    return [*_preparation(results), *_pages(results)]


def _preparation(results: Results) -> list[str]:
    rows = [
        [workload, name, f"{statistics.median(run['prepare_s'] for run in runs):.1f}"]
        for workload in PREPARED
        for name in (CHOSEN, IN_PLACE, HYBRID, MESH, INDEX, STATIC, ADAPTIVE, SHUFFLED, CACHED)
        if (runs := results.timed(workload, name))
    ]
    legend = (
        "Before the first batch: seconds until the query can start. Ours writes the sorted copy of the table, once for "
        "all queries that use it. `spark-static-cached` puts the table into Spark's cache, at every start. "
        "`spark-static` prepares nothing: its time is Spark's own start, which is in all others too."
    )
    return [legend, markdown_table(("workload", "competitor", "ready after s"), rows)] if rows else []


def _pages(results: Results) -> list[str]:
    rows = [
        _page_row(workload, name, batches)
        for workload in WORKLOADS
        for name in (HYBRID, MESH)
        if (batches := results.paging(workload, name))
    ]
    legend = (
        "Pages per batch, smallest and largest number. Exact counts, without Spark: pages that hold keys of the batch, "
        "pages that the status reports as needed, and pages that were read because they were not kept from earlier "
        f"batches (at most {PAGE_MEMORY / MB:.0f} MB are kept)."
    )
    head = ("workload", "strategy", "pages", "with keys", "needed", "MB needed", "read", "without a key")
    return [legend, markdown_table(head, rows)] if rows else []


def _page_row(workload: str, name: str, batches: Sequence[Run]) -> list[str]:
    return [
        workload,
        name.removeprefix("watersmeet-"),
        f"{batches[0]['pages']:,}",
        *(_spread([batch[what] for batch in batches]) for what in ("holding", "needed")),
        _spread([round(batch["needed_bytes"] / MB) for batch in batches]),
        *(_spread([batch[what] for batch in batches]) for what in ("reads", "stray")),
    ]


def _spread(numbers: Sequence[int]) -> str:
    """
    >>> _spread([3, 1000]), _spread([7, 7])
    ('3 to 1,000', '7')
    """
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
