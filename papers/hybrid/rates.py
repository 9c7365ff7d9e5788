"""Figures 10c and 10d: the service rate, as the relation and as the memory grows."""

from __future__ import annotations

from collections.abc import Sequence

from papers.hybrid import paper
from papers.hybrid.cases import MB, Size
from papers.hybrid.page_size import dense_k
from papers.hybrid.readings import Reading
from papers.hybrid.results import (
    ALGORITHMS,
    HYBRIDJOIN,
    INLJ,
    MESHJOIN,
    Case,
    Measured,
    Services,
    is_near_k,
    ratio,
)
from papers.shared.exhibit import Control, Exhibit, Lines, Series, Table, Verdict

# "Significantly better": at least this many times the rate, and an interval of the ratio above 1.
SIGNIFICANTLY = 1.2

_HOW = (
    "The stream is always ahead: its bursts wait outside, and what is measured is how fast rows are answered. Mean and 95 % "
    "confidence interval of {} readings, taken of all three at the same time, in slices by turns; ratios are those of readings taken "
    "together, pair by pair. Each algorithm has the page size that its cost model gives for the budget."
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
            equation2(names, services, size.relations, size.rows),
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
            equation2(names, services, [size.rows] * len(names), size.rows),
            *_margins(both),
        ],
        [_rate_chart("10d", "memory, MB (log)", [budget / MB for budget in size.budgets], names, services)],
    )  # fmt: skip


def rate_tables(head: str, names: Sequence[str], services: Sequence[Services], note: str = "") -> list[Table]:
    rates = [
        [
            name,
            *(f"{by[a].rate.mean:,.0f} ± {by[a].rate.spread:,.0f}" for a in ALGORITHMS),
            f"{_gain(by, MESHJOIN).mean:.2f} ± {_gain(by, MESHJOIN).spread:.2f}",
            f"{_gain(by, INLJ).mean:,.0f} ± {_gain(by, INLJ).spread:,.0f}",
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


def _gain(by: Services, other: str) -> Reading:
    return ratio(by, HYBRIDJOIN, other)


def _is_ahead(services: Sequence[Services], one: str, other: str, least: float) -> bool:
    gains = [ratio(by, one, other) for by in services]
    return all(gain.mean >= least and gain.low > 1 for gain in gains)


def _ahead(
    paper_says: str,
    names: Sequence[str],
    services: Sequence[Services],
    other: str,
    least: float = SIGNIFICANTLY,
) -> Verdict:
    gains = [_gain(by, other) for by in services]
    agrees = _is_ahead(services, HYBRIDJOIN, other, least)
    third = INLJ if other == MESHJOIN else MESHJOIN
    return Verdict(
        paper_says,
        f"times the rate of {other}, with the interval of the ratio: {_by_name(names, gains)}",
        agrees,
        "" if agrees else _why_not_ahead(names, gains, least),
        controls=[
            _in_its_place(names, services, third, other, agrees=_is_ahead(services, third, other, least))
        ],
    )


def _why_not_ahead(names: Sequence[str], gains: Sequence[Reading], least: float) -> str:
    short = [name for name, gain in zip(names, gains, strict=True) if gain.mean < least]
    unsure = [name for name, gain in zip(names, gains, strict=True) if gain.low <= 1]
    return "; ".join(
        [
            *([f"below {least:g} times at {', '.join(short)}"] if short else []),
            *([f"the interval holds 1 at {', '.join(unsure)}"] if unsure else []),
        ]
    )


def _in_its_place(
    names: Sequence[str], services: Sequence[Services], third: str, other: str, *, agrees: bool
) -> Control:
    """The algorithm that is in neither side of a comparison, in HYBRIDJOIN's place."""
    gains = [ratio(by, third, other).mean for by in (services[0], services[-1])]
    ends = dict(zip((names[0], names[-1]), gains, strict=False))
    told = ", ".join(f"{gain:.3g} times at {name}" for name, gain in ends.items())
    return Control(f"{third} in HYBRIDJOIN's place", agrees, told)


def _by_name(names: Sequence[str], values: Sequence[Reading]) -> str:
    return ", ".join(f"{value.text} at {name}" for name, value in zip(names, values, strict=True))


def _shrinks(names: Sequence[str], services: Sequence[Services], other: str) -> Verdict:
    gains = [_gain(by, other) for by in services]
    third = INLJ if other == MESHJOIN else MESHJOIN
    thirds = [ratio(by, third, other) for by in services]
    agrees = gains[-1].high < gains[0].low
    return Verdict(
        f"the factor of improvement over {other} decreases as the relation grows",
        _by_name(names, gains),
        agrees,
        "" if agrees else _WHY_GROWS if gains[-1].low > gains[0].high else "the intervals of the first and the last touch",
        controls=[_in_its_place(names, services, third, other, agrees=thirds[-1].high < thirds[0].low)],
    )  # fmt: skip


_WHY_GROWS = (
    "a read answers fewer rows for both, in proportion to the relation, and what is done for each row weighs less beside the "
    "read; and k grows, since the first pages of a larger relation have a smaller part of the stream"
)


def equation2(
    names: Sequence[str], services: Sequence[Services], relations: Sequence[int], rows: int
) -> Verdict:
    """One criterion for every figure that shows k. `rows` are those of the relation that all figures have in common."""

    def found(algorithm: str) -> list[float]:
        return [by[algorithm].k(of) for by, of in zip(services, relations, strict=True)]

    def told(algorithm: str) -> str:
        return ", ".join(f"k = {k:.2f} at {name}" for name, k in zip(names, found(algorithm), strict=True))

    return Verdict(
        f"equation 2: a read answers k x H_t x D_t / R_t rows, with k = {paper.K} in the paper's settings",
        told(HYBRIDJOIN),
        all(map(is_near_k, found(HYBRIDJOIN))),
        "k is no constant: by the law it is 2 / (1 + sum of the squared shares of the pages) where rows wait on every page, and "
        f"more where they do not. {paper.K} is what pages of {_page_of(rows) * paper.ROW_BYTES / MB:.2g} MB have",
        controls=[Control(MESHJOIN, all(map(is_near_k, found(MESHJOIN))), told(MESHJOIN))],
    )


def _page_of(rows: int) -> int:
    """The page size in rows at which k is the paper's, by halving."""
    low, high = 1, rows
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if dense_k(rows, middle) > paper.K else (low, middle)
    return low


def _margins(both: Sequence[Services]) -> list[Verdict]:
    """By how much: the text has no rates, but equations 2 to 4, at the setting of section 4.5.

    Against INLJ they say no more than equation 2 does: what a turn of either takes is measured.
    """
    verdicts = []
    for where, by in zip(("from the cache", "from the disk"), both, strict=True):
        said, gain = by[HYBRIDJOIN].equation_gain, _gain(by, MESHJOIN)
        agrees = gain.high >= said and gain.low > 1
        verdicts.append(
            Verdict(
                f"that makes, by equations 3 and 4 and the costs of this machine, {said:.2f} times the service rate of MESHJOIN at "
                "the same page size",
                f"pages {where}: {gain.text} times that of MESHJOIN at its own best page size",
                agrees,
                "as near as the interval tells"
                if agrees
                else "MESHJOIN has its own best page size, not that of HYBRIDJOIN",
                controls=[Control("a join that gains nothing, k = 1,", said <= 1, "1.00 times")],
            )
        )
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
