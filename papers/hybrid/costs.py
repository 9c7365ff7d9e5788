"""Figures 10a and 11: processing time, and the cost of one turn of the loop, measured and predicted."""

from __future__ import annotations

from collections.abc import Sequence

from papers.hybrid import paper
from papers.hybrid.cases import Size
from papers.hybrid.rates import megabytes, million
from papers.hybrid.results import (
    ALGORITHMS,
    HYBRIDJOIN,
    INLJ,
    MESHJOIN,
    Case,
    Measured,
    Service,
    Services,
)
from papers.shared.exhibit import Exhibit, Lines, Series, Table, Verdict

# "Significantly smaller": at most this part.
SMALLER = 0.8
# MESHJOIN's formula holds, INLJ's time is constant, predictions "closely resemble" what is measured: within so much.
NEAR, CONSTANT, CLOSELY = 0.15, 0.25, 0.25


def _runs(measured: Measured, size: Size) -> tuple[list[str], list[Services]]:
    services = [measured.services[Case(rows, size.budget_bytes)] for rows in size.relations]
    return [million(rows) for rows in size.relations], services


def fig10a(measured: Measured, size: Size) -> Exhibit:
    names, services = _runs(measured, size)
    half = [_half_cycle_s(by[MESHJOIN], rows) for rows, by in zip(size.relations, services, strict=True)]
    table = [
        [name, *(f"{by[a].stay_s:.4g}" for a in ALGORITHMS), f"{cycle:.4g}", f"{by[HYBRIDJOIN].held_rows:,}"]
        for name, by, cycle in zip(names, services, half, strict=True)
    ]
    return Exhibit(
        "fig10a",
        "Figure 10a: processing time",
        f"From taking a row into memory to its match, on average, while the stream is always ahead; memory of "
        f"{megabytes(size.budget_bytes)}. In seconds of the algorithm's own work.",
        [
            Table(
                "seconds from loading to matching",
                ["R", *ALGORITHMS, "half of MESHJOIN's cycle", "rows in memory"],
                table,
            )
        ],
        [_smaller(names, services), _formula(names, services, half), _constant(names, services)],
        [
            Lines(
                "10a: processing time",
                "rows of the relation (log)",
                "seconds (log)",
                [Series(a, a, size.relations, [by[a].stay_s for by in services]) for a in ALGORITHMS],
                log_x=True,
                log_y=True,
                ticks=size.relations,
                tick_names=names,
            )
        ],
    )  # fmt: skip


def _half_cycle_s(mesh: Service, rows: int) -> float:
    return mesh.step_s * -(-rows // mesh.page_rows) / 2


def _smaller(names: Sequence[str], services: Sequence[Services]) -> Verdict:
    parts = [by[HYBRIDJOIN].stay_s / by[MESHJOIN].stay_s for by in services]
    return Verdict(
        "the processing time of HYBRIDJOIN is significantly smaller than that of MESHJOIN",
        ", ".join(f"{part:.2f} of it at {name}" for part, name in zip(parts, names, strict=True)),
        max(parts) <= SMALLER,
        "by Little's law a row stays for rows in memory / service rate. With as many rows in memory and k times MESHJOIN's rate "
        "that is 1/k of MESHJOIN's cycle, and MESHJOIN finds a match after half of its cycle: the stay is shorter only if k is "
        f"above 2. It is below where a page has a large part of the stream, and with the paper's own k of {paper.K} it is "
        f"{1 / paper.K:.2f} of the cycle",
    )


def _formula(names: Sequence[str], services: Sequence[Services], half: Sequence[float]) -> Verdict:
    ratios = [by[MESHJOIN].stay_s / cycle for by, cycle in zip(services, half, strict=True)]
    return Verdict(
        "MESHJOIN's average processing time is half of the time to access all of R",
        ", ".join(f"{ratio:.2f} times that at {name}" for ratio, name in zip(ratios, names, strict=True)),
        all(abs(ratio - 1) <= NEAR for ratio in ratios),
    )


def _constant(names: Sequence[str], services: Sequence[Services]) -> Verdict:
    stays = [by[INLJ].stay_s for by in services]
    return Verdict(
        "the processing time of INLJ is constant even when the size of R changes",
        ", ".join(f"{stay * 1e6:.0f} us at {name}" for stay, name in zip(stays, names, strict=True)),
        max(stays) <= min(stays) * (1 + CONSTANT),
        "an access goes through one more level of the index in a larger relation, and finds less of it in the processor's caches"
        if max(stays) > min(stays) * (1 + CONSTANT)
        else "",
    )


def fig11(measured: Measured, size: Size) -> Exhibit:
    names, services = _runs(measured, size)
    return Exhibit(
        "fig11",
        "Figure 11: cost validation",
        f"One turn of the loop (equation 3) for each algorithm, with constants calibrated on this machine before the runs; "
        f"memory of {megabytes(size.budget_bytes)}. Rows that a read answers are not fitted, as in equation 2, but follow from "
        f"the law of the keys.",
        [_cost_table(names, services), _input_table(names, services)],
        [_closely(names, services, algorithm) for algorithm in ALGORITHMS],
        [
            Lines(
                "11: cost of a turn of the loop, measured and predicted",
                "rows of the relation (log)",
                "microseconds (log)",
                [
                    series
                    for a in ALGORITHMS
                    for series in (
                        Series(f"{a}, measured", a, size.relations, [by[a].step_s * 1e6 for by in services]),
                        Series(
                            f"{a}, predicted",
                            a,
                            size.relations,
                            [by[a].predicted.step_s * 1e6 for by in services],
                            dashed=True,
                        ),
                    )
                ],
                log_x=True,
                log_y=True,
                ticks=size.relations,
                tick_names=names,
            )
        ],
    )  # fmt: skip


def _cost_table(names: Sequence[str], services: Sequence[Services]) -> Table:
    return Table(
        "microseconds of a turn of the loop",
        ["R", *(f"{a} {what}" for a in ALGORITHMS for what in ("measured", "predicted"))],
        [
            [
                name,
                *(f"{s * 1e6:,.0f}" for a in ALGORITHMS for s in (by[a].step_s, by[a].predicted.step_s)),
            ]
            for name, by in zip(names, services, strict=True)
        ],
    )


def _input_table(names: Sequence[str], services: Sequence[Services]) -> Table:
    return Table(
        "rows that a read answers",
        ["R", *(f"{a} {what}" for a in ALGORITHMS for what in ("measured", "predicted"))],
        [
            [
                name,
                *(f"{w:,.1f}" for a in ALGORITHMS for w in (by[a].answered, by[a].predicted.answered)),
            ]
            for name, by in zip(names, services, strict=True)
        ],
    )


def _closely(names: Sequence[str], services: Sequence[Services], algorithm: str) -> Verdict:
    ratios = [by[algorithm].step_s / by[algorithm].predicted.step_s for by in services]
    return Verdict(
        f"the predicted cost of {algorithm} closely resembles the measured one",
        ", ".join(f"{ratio:.2f} times it at {name}" for ratio, name in zip(ratios, names, strict=True)),
        all(1 / (1 + CLOSELY) <= ratio <= 1 + CLOSELY for ratio in ratios),
    )
