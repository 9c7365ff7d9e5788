"""Rows per second with 10,000 queries: of 100 templates, and of random shapes.

Two hubs on the same rows take turns, batch by batch. So others on the machine disturb both alike, and the medians of the
rounds are compared. Both tasks run one after the other in one process: a rate is rows per second of CPU of all tasks.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.hub_load import (
    GROUPS,
    SEED,
    STREAMS,
    VARIANTS,
    Load,
    domain_for,
    grouped_queries,
    shape_queries,
    template_queries,
)
from bench.hub_local import TASKS, MeasuredHub, Timed
from bench.many_state import scratch
from bench.report import Finding

BATCH_ROWS, TEMPLATES = 20_000, 100
# Batches before the first that is measured.
HISTORY = 6
LEAST_TEMPLATE_RATE, MOST_AGAINST_FEW = 20_000, 1.5
LEAST_SHAPE_RATE, MOST_AGAINST_TENTH = 2_000, 3.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """`chains` is how many chains without a constant have as many answers as the queries."""

    name: str
    chains: float
    compared: bool
    rounds: int
    rows: int = BATCH_ROWS

    @property
    def mean_rows(self) -> int:
        """Rows before a measured batch, in the middle of the rounds."""
        return round(self.rows * (HISTORY + 0.1 + (self.rounds - 1) / 2))

    @property
    def load(self) -> Load:
        return Load(domain_for(self.rows, self.chains, self.rows, self.mean_rows), self.rows, self.compared)

    def say(self) -> str:
        domain = self.load.domain
        found = (self.mean_rows + self.rows) / STREAMS / domain
        among = (
            "; one row in 40 of a template's first stream is for one of its queries" if self.compared else ""
        )
        return (
            f"{self.name}: {STREAMS} streams of 10 attributes (bigint), batches of {self.rows:,} rows, uniform values "
            f"below {domain:,}, seed {SEED}, history of {HISTORY} batches and a short one: a value finds {found:.2f} rows "
            f"of another stream{among}. {TASKS} tasks in one process, {self.rounds} rounds"
        )


def templates(quick: bool, say: Say) -> list[Finding]:
    """10,000 queries of 100 templates, against a query of each template that has the answers of its hundred."""
    count = 10 if quick else TEMPLATES
    setting = Setting("templates", count / GROUPS, True, 2 if quick else 5, 2_000 if quick else BATCH_ROWS)
    many, few = template_queries(count), grouped_queries(count)
    found = _in_turn(setting, {"many": many, "few": few}, say)
    return [
        _rate(f"{len(many):,} queries of {count} templates", found["many"], setting, LEAST_TEMPLATE_RATE),
        _same_answers(found, len(many), len(few)),
        _ratio(
            f"{len(many):,} queries against {len(few)} with the same answers",
            found["many"],
            found["few"],
            MOST_AGAINST_FEW,
        ),
    ]


def shapes(quick: bool, say: Say) -> list[Finding]:
    """10,000 queries of random shapes, against a tenth of them."""
    count = 200 if quick else 10_000
    setting = Setting("shapes", count, False, 2 if quick else 3, 2_000 if quick else BATCH_ROWS)
    many = shape_queries(count)
    tenth = dict(list(many.items())[: count // 10])
    found = _in_turn(setting, {"many": many, "tenth": tenth}, say)
    return [
        _rate(f"{count:,} queries of random shapes", found["many"], setting, LEAST_SHAPE_RATE),
        _ratio(
            f"{count:,} random shapes against {len(tenth):,} of them",
            found["many"],
            found["tenth"],
            MOST_AGAINST_TENTH,
        ),
    ]


def _in_turn(setting: Setting, hubs: Mapping[str, Mapping[str, str]], say: Say) -> dict[str, list[Timed]]:
    say(setting.say())
    with scratch() as folder:
        running = {name: _running(folder / name, setting, queries) for name, queries in hubs.items()}
        found: dict[str, list[Timed]] = {name: [] for name in hubs}
        for number in range(setting.rounds):
            for name in list(hubs)[:: 1 if number % 2 else -1]:
                found[name].append(running[name].timed())
    for name, batches in found.items():
        say(
            f"{setting.name}, {len(hubs[name]):,} queries, medians of CPU ms a batch: "
            f"rows in {_median(batches, 'ingest_s'):,.0f}, plan {_median(batches, 'plan_s'):,.0f}, answers of the "
            f"slower task {1e3 * statistics.median(max(one.answer_s) for one in batches):,.0f}, all "
            f"{_median(batches, 'cpu_s'):,.0f}. Answers: {', '.join(f'{one.found:,}' for one in batches)}"
        )
    return found


def _running(folder: Path, setting: Setting, queries: Mapping[str, str]) -> MeasuredHub:
    hub = MeasuredHub(folder, setting.load, queries)
    hub.history(HISTORY)
    hub.short()
    return hub


def _median(batches: list[Timed], what: str) -> float:
    return 1e3 * statistics.median(getattr(one, what) for one in batches)


def _rate(demand: str, batches: list[Timed], setting: Setting, least: int) -> Finding:
    rates = [setting.rows / one.cpu_s for one in batches]
    rate, spread = statistics.median(rates), f"{min(rates):,.0f} to {max(rates):,.0f}"
    both = statistics.median(setting.rows / one.spread_s for one in batches)
    answers = sum(one.found for one in batches) / (setting.rows * len(batches))
    return Finding(
        demand,
        f">= {least:,} rows/s of CPU",
        f"{rate:,.0f} ({spread}; a core for each task {both:,.0f}; {answers:.2f} answers a row)",
        rate >= least,
    )


def _ratio(demand: str, mine: list[Timed], other: list[Timed], most: float) -> Finding:
    ratios = [one.cpu_s / two.cpu_s for one, two in zip(mine, other, strict=True)]
    ratio = statistics.median(ratios)
    return Finding(
        demand,
        f"<= {most:g}x the CPU of a batch",
        f"{ratio:.2f}x ({_median(mine, 'cpu_s'):,.0f} and {_median(other, 'cpu_s'):,.0f} ms; rounds "
        f"{min(ratios):.2f} to {max(ratios):.2f})",
        ratio <= most,
    )


def _same_answers(found: Mapping[str, list[Timed]], many: int, few: int) -> Finding:
    mine, other = ([one.found for one in batches] for batches in found.values())
    return Finding(
        f"answers of {many:,} queries and of {few} that cover {VARIANTS} each",
        "equal numbers in each batch",
        f"equal: {sum(mine):,}" if mine == other else f"differ: {mine} and {other}",
        mine == other,
    )
