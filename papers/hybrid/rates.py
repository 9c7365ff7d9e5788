"""Figures 10c and 10d: the service rate, as the relation and as the memory grows."""

from __future__ import annotations

from collections.abc import Sequence

from papers.hybrid import paper
from papers.hybrid.cases import MB, Size
from papers.hybrid.results import (
    ALGORITHMS,
    HYBRIDJOIN,
    INLJ,
    MESHJOIN,
    Case,
    Measured,
    Services,
)
from papers.shared.exhibit import Exhibit, Lines, Series, Table, Verdict

# "Significantly better": at least so many times the rate, and intervals that do not touch.
SIGNIFICANTLY = 1.2

_HOW = (
    "The stream is always ahead: its bursts wait outside, and what is measured is how fast rows are answered. Mean and 95 % "
    "confidence interval of {} readings, taken of all three at the same time, in slices by turns. Each algorithm has the page size that its cost model gives for the budget."
)


def million(rows: int) -> str:
    return f"{rows / 1e6:g}M"


def megabytes(number: int) -> str:
    return f"{number / MB:g} MB"


def fig10c(measured: Measured, size: Size) -> Exhibit:
    cases = [Case(rows, size.budget_bytes) for rows in size.relations]
    services = [measured.services[case] for case in cases]
    names = [million(rows) for rows in size.relations]
    return Exhibit(
        "fig10c",
        "Figure 10c: service rate, relation varied",
        f"Memory of {megabytes(size.budget_bytes)}. {_HOW.format(size.readings)}",
        rate_tables("R", names, services),
        [
            *(_ahead(f"for a small relation HYBRIDJOIN is significantly better than {other}",
                     names[:1], services[:1], other) for other in (MESHJOIN, INLJ)),
            *(_shrinks(names, services, other) for other in (MESHJOIN, INLJ)),
        ],
        [_rate_chart("10c", "rows of the relation (log)", size.relations, names, services)],
    )  # fmt: skip


def fig10d(measured: Measured, size: Size) -> Exhibit:
    services = [measured.services[Case(size.rows, budget)] for budget in size.budgets]
    names = [megabytes(budget) for budget in size.budgets]
    setting = Case(size.rows, size.budget_bytes)
    cold = Case(size.rows, size.budget_bytes, cold=True)
    both = [measured.services[setting], measured.services[cold]]
    return Exhibit(
        "fig10d",
        "Figure 10d: service rate, memory varied",
        f"Relation of {million(size.rows)} rows. {_HOW.format(size.readings)}",
        [
            *rate_tables("M", names, services),
            *rate_tables(
                f"pages at {megabytes(size.budget_bytes)}",
                ["from the cache", "from the disk"],
                both,
                "From the disk: the file is dropped from the operating system's cache before each read; the time of that is "
                "not counted.",
            ),
        ],
        [
            *(_ahead(f"HYBRIDJOIN is better than {other} for all memory budgets", names, services, other, least=1.0)
              for other in (MESHJOIN, INLJ)),
            *_margins(size, both),
        ],
        [_rate_chart("10d", "memory, MB (log)", [budget / MB for budget in size.budgets], names, services)],
    )  # fmt: skip


def rate_tables(head: str, names: Sequence[str], services: Sequence[Services], note: str = "") -> list[Table]:
    rates = [
        [
            name,
            *(f"{by[a].rate.mean:,.0f} ± {by[a].rate.spread:,.0f}" for a in ALGORITHMS),
            f"{_gain(by, MESHJOIN):.2f}",
            f"{_gain(by, INLJ):,.0f}",
        ]
        for name, by in zip(names, services, strict=True)
    ]
    turns = [
        [
            name,
            *(f"{by[a].page_rows:,}" for a in ALGORITHMS),
            *(f"{by[a].answered:,.1f}" for a in ALGORITHMS),
            *(f"{by[a].read_s * 1e6:,.0f} of {by[a].step_s * 1e6:,.0f}" for a in ALGORITHMS),
        ]
        for name, by in zip(names, services, strict=True)
    ]
    short = ("H", "M", "I")
    return [
        Table(
            f"rows answered a second, by {head}",
            [head, *ALGORITHMS, f"HYBRIDJOIN / {MESHJOIN}", f"HYBRIDJOIN / {INLJ}"],
            rates,
            note,
        ),
        Table(
            f"what a turn is made of, by {head}",
            [
                head,
                *(f"page rows {a}" for a in short),
                *(f"rows a read {a}" for a in short),
                *(f"read of turn us {a}" for a in short),
            ],
            turns,
            "H, M, I: HYBRIDJOIN, MESHJOIN, INLJ. Rows a read: stream rows that a page read answers, the paper's w. Read of turn: "
            "time of the read, of the whole turn.",
        ),
    ]


def _gain(by: Services, other: str) -> float:
    return by[HYBRIDJOIN].rate.mean / by[other].rate.mean


def _ahead(
    paper_says: str,
    names: Sequence[str],
    services: Sequence[Services],
    other: str,
    least: float = SIGNIFICANTLY,
) -> Verdict:
    gains = [_gain(by, other) for by in services]
    apart = all(by[HYBRIDJOIN].rate.low > by[other].rate.high for by in services)
    return Verdict(
        paper_says,
        f"times the rate of {other}: {_by_name(names, gains)}; intervals {'apart' if apart else 'that touch'}",
        min(gains) >= least and apart,
    )


def _by_name(names: Sequence[str], values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f} at {name}" for name, value in zip(names, values, strict=True))


def _shrinks(names: Sequence[str], services: Sequence[Services], other: str) -> Verdict:
    gains = [_gain(by, other) for by in services]
    return Verdict(
        f"the factor of improvement over {other} decreases as the relation grows",
        f"{_by_name(names, gains)}",
        gains[-1] < gains[0],
        _WHY_GROWS if other == MESHJOIN and gains[-1] >= gains[0] else "",
    )


_WHY_GROWS = (
    "a read answers fewer rows for both, in proportion to the relation, and what is done for each row weighs less beside the "
    "read; and k grows, since the first pages of a larger relation have a smaller part of the stream"
)


def _margins(size: Size, both: Sequence[Services]) -> list[Verdict]:
    """By how much: the text has no rates, but equations 2 to 4, at the setting of section 4.5."""
    verdicts = []
    for where, by in zip(("from the cache", "from the disk"), both, strict=True):
        hybrid, index = by[HYBRIDJOIN], by[INLJ]
        answered = paper.K * hybrid.held_rows * hybrid.page_rows / size.rows
        said = answered * index.step_s / hybrid.step_s
        verdicts += [
            Verdict(
                f"equation 2: a read answers {paper.K} x H_t x D_t / R_t rows, MESHJOIN's H_t x D_t / R_t",
                f"pages {where}: {hybrid.k(size.rows):.2f} x H_t x D_t / R_t, which is {hybrid.answered:,.0f} rows",
                hybrid.k(size.rows) >= paper.K,
            ),
            Verdict(
                f"that makes, by equations 3 and 4 and the costs of this machine, {hybrid.equation_gain:.2f} times the service rate "
                "of MESHJOIN at the same page size",
                f"pages {where}: {_gain(by, MESHJOIN):.2f} times that of MESHJOIN at its own best page size",
                _gain(by, MESHJOIN) >= hybrid.equation_gain,
            ),
            Verdict(
                f"and, with {answered:,.0f} rows a read where INLJ has one, {said:,.0f} times the service rate of INLJ by what a turn "
                "takes here",
                f"pages {where}: {_gain(by, INLJ):,.0f} times; counting the time of reads only, "
                f"{hybrid.answered * index.read_s / hybrid.read_s:,.0f} times",
                _gain(by, INLJ) >= said,
            ),
        ]
    return verdicts


def _rate_chart(
    number: str, xlabel: str, x: Sequence[float], names: Sequence[str], services: Sequence[Services]
) -> Lines:
    series = [
        Series(
            algorithm,
            algorithm,
            x,
            [by[algorithm].rate.mean for by in services],
            spread=[by[algorithm].rate.spread for by in services],
        )
        for algorithm in ALGORITHMS
    ]
    title = f"{number}: service rate, with 95 % confidence intervals"
    return Lines(
        title, xlabel, "rows a second (log)", series, log_x=True, log_y=True, ticks=x, tick_names=names
    )
