"""What is demanded of NEXMark's joins, and their events per second beside the published ones of Flink."""

from __future__ import annotations

from bench.nexmark import DISK, Q3, Q8, Q9, Q20, QUERIED, QUERIES, EventWorkload
from bench.report import DEFAULT, FILES, OURS, Finding, Results, check_equal, markdown_table, times_faster
from bench.scale_demands import disk
from bench.workloads import CORES


def demands(results: Results) -> list[Finding]:
    asked = {Q9.name: (4.0, 6.0), Q20.name: (4.0, 6.0), Q3.name: (1.0, 1.0), Q8.name: (1.0, 1.0)}
    return [
        check_equal(results),
        *(
            times_faster(results, name, DEFAULT, times, us)
            for name, both in asked.items()
            for us, times in zip((OURS, FILES), both, strict=True)
        ),
        *disk(results, DISK.name),
    ]


RATE_COLUMNS = ("query", "competitor", "events per second and core", "rows read per second and core")


def rates(results: Results) -> list[str]:
    """Events per second and core. Events that a query does not read count as events: its files do not have them."""
    rows = []
    for workload in QUERIED:
        for competitor in (DEFAULT, OURS, FILES):
            seconds = results.seconds_per_batch(workload.name, competitor)
            if seconds is not None:
                events, read = workload.batch_events, read_share(workload)
                rate = events / seconds / CORES
                rows.append([workload.name, competitor, f"{rate:,.0f}", f"{rate * read:,.0f}"])
        rows.append([workload.name, "Flink, published", f"{QUERIES[workload.query].flink:,}", "-"])
    return [
        (
            "Events per second and core, from the third batch on. All 50 events of an epoch count, also those that are in "
            "the directory of another kind and that the query does not read. Flink's figures are published ones, from other "
            "hardware, and its queries do more than the join: they show the order of size, no more."
        ),
        markdown_table(RATE_COLUMNS, rows),
    ]


def read_share(workload: EventWorkload) -> float:
    """The part of all events that is of the kinds that a query reads."""
    return workload.new_rows[0] / workload.batch_events
