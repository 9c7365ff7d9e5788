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
from papers.shared.exhibit import Control, Exhibit, Lines, Series, Table, Verdict

# "Significantly smaller": at most this part.
SMALLER = 0.8
# MESHJOIN's formula holds, INLJ's time is constant, predictions "closely resemble" what is measured: within this share.
NEAR, CONSTANT, CLOSELY = 0.15, 0.25, 0.25


def _runs(measured: Measured, size: Size) -> tuple[list[str], list[Services]]:
    services = [measured.services[Case(rows, size.budget_bytes)] for rows in size.relations]
    return [million(rows) for rows in size.relations], services


def fig10a(measured: Measured, size: Size) -> Exhibit:
    names, services = _runs(measured, size)
    cycles = [_cycle_s(by[MESHJOIN], rows) for rows, by in zip(size.relations, services, strict=True)]
    table = [
        [
            name,
            *(f"{by[a].stay_s:.4g}" for a in ALGORITHMS),
            f"{cycle / 2:.4g}",
            f"{cycle:.4g}",
            f"{by[HYBRIDJOIN].held_rows:,}",
        ]
        for name, by, cycle in zip(names, services, cycles, strict=True)
    ]
    return Exhibit(
        "fig10a",
        "Figure 10a: processing time",
        f"From taking a row into memory to its match, on average, while the stream is always ahead; memory of "
        f"{megabytes(size.budget_bytes)}. In seconds of the algorithm's own work. A row of HYBRIDJOIN leaves with its match, one of "
        f"MESHJOIN stays in memory for a whole cycle.",
        [
            Table(
                "seconds from loading to matching",
                ["R", *ALGORITHMS, "half of MESHJOIN's cycle", "a row in MESHJOIN's memory", "rows in memory"],
                table,
            )
        ],
        [
            _smaller(names, services),
            _stay(names, services, cycles),
            _formula(names, services, cycles),
            _constant(names, services),
        ],
        [
            Lines(
                "10a: processing time",
                "rows of the relation (log)",
                "seconds (log)",
                [
                    *(Series(a, a, size.relations, [by[a].stay_s for by in services]) for a in ALGORITHMS),
                    Series("MESHJOIN, until the row leaves memory", MESHJOIN, size.relations, cycles, dashed=True),
                ],
                log_x=True,
                log_y=True,
                ticks=size.relations,
                tick_names=names,
            )
        ],
    )  # fmt: skip


def _cycle_s(mesh: Service, rows: int) -> float:
    """One turn over the relation: as long as a row stays in MESHJOIN's memory."""
    return mesh.step_s * -(-rows // mesh.page_rows)


def _by_name(values: Sequence[float], names: Sequence[str], form: str = "{:.2f}") -> str:
    return ", ".join(f"{form.format(value)} at {name}" for value, name in zip(values, names, strict=True))


def _smaller(names: Sequence[str], services: Sequence[Services]) -> Verdict:
    parts = {a: [by[a].stay_s / by[MESHJOIN].stay_s for by in services] for a in (HYBRIDJOIN, INLJ)}
    return Verdict(
        "the processing time of HYBRIDJOIN, from loading to matching, is significantly smaller than that of MESHJOIN",
        f"of MESHJOIN's time: {_by_name(parts[HYBRIDJOIN], names)}",
        max(parts[HYBRIDJOIN]) <= SMALLER,
        "by Little's law a row stays for rows in memory / service rate. With as many rows in memory and k times MESHJOIN's rate "
        "that is 1/k of MESHJOIN's cycle, and MESHJOIN finds a match after half of its cycle: the stay is shorter only if k is "
        f"above 2. It is below where a page has a large part of the stream, and with the paper's own k of {paper.K} it is "
        f"{1 / paper.K:.2f} of the cycle",
        controls=[Control(INLJ, max(parts[INLJ]) <= SMALLER, f"at most {max(parts[INLJ]):.4f} of it")],
    )


def _stay(names: Sequence[str], services: Sequence[Services], cycles: Sequence[float]) -> Verdict:
    parts = {
        a: [by[a].stay_s / cycle for by, cycle in zip(services, cycles, strict=True)]
        for a in (HYBRIDJOIN, INLJ)
    }
    return Verdict(
        "HYBRIDJOIN reduces the stay of every stream tuple in the join window",
        f"of a row's stay in MESHJOIN's memory, which goes on after its match: {_by_name(parts[HYBRIDJOIN], names)}",
        max(parts[HYBRIDJOIN]) <= SMALLER,
        "counted until the row leaves memory; the statement above counts until its match",
        controls=[Control(INLJ, max(parts[INLJ]) <= SMALLER, f"at most {max(parts[INLJ]):.4f} of it")],
    )


def _formula(names: Sequence[str], services: Sequence[Services], cycles: Sequence[float]) -> Verdict:
    ratios = {
        a: [2 * by[a].stay_s / cycle for by, cycle in zip(services, cycles, strict=True)]
        for a in (MESHJOIN, HYBRIDJOIN)
    }
    return Verdict(
        "MESHJOIN's average processing time is half of the time to access all of R",
        f"times that: {_by_name(ratios[MESHJOIN], names)}",
        _near_one(ratios[MESHJOIN]),
        controls=[
            Control(
                HYBRIDJOIN, _near_one(ratios[HYBRIDJOIN]), f"{_by_name(ratios[HYBRIDJOIN], names)} times that"
            )
        ],
    )


def _near_one(ratios: Sequence[float]) -> bool:
    return all(abs(ratio - 1) <= NEAR for ratio in ratios)


def _constant(names: Sequence[str], services: Sequence[Services]) -> Verdict:
    stays = {a: [by[a].stay_s for by in services] for a in (INLJ, HYBRIDJOIN)}
    agrees = _same(stays[INLJ])
    return Verdict(
        "the processing time of INLJ is constant even when the size of R changes",
        f"{_by_name([1e6 * stay for stay in stays[INLJ]], names, '{:.0f} us')}",
        agrees,
        ""
        if agrees
        else "an access goes through one more level of the index in a larger relation, and finds less of it in the processor's caches",
        controls=[
            Control(
                HYBRIDJOIN,
                _same(stays[HYBRIDJOIN]),
                f"{stays[HYBRIDJOIN][0]:.2g} s at {names[0]}, {stays[HYBRIDJOIN][-1]:.2g} s at {names[-1]}",
            )
        ],
    )


def _same(values: Sequence[float]) -> bool:
    return max(values) <= min(values) * (1 + CONSTANT)


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


_CALIBRATED = (
    "the constants come from a relation of a quarter of the rows: in a larger one an access goes through one more level of the "
    "index, and finds less of it in the processor's caches"
)


def _closely(names: Sequence[str], services: Sequence[Services], algorithm: str) -> Verdict:
    measured = [by[algorithm].step_s for by in services]
    ratios = [step_s / by[algorithm].predicted.step_s for step_s, by in zip(measured, services, strict=True)]
    # Without a model: what the relation in the middle took, for all of them.
    guessed = [step_s / measured[len(measured) // 2] for step_s in measured]
    return Verdict(
        f"the predicted cost of {algorithm} closely resembles the measured one",
        f"times it: {_by_name(ratios, names)}",
        _close(ratios),
        "" if _close(ratios) else _CALIBRATED,
        controls=[
            Control(
                f"no model, the cost at {names[len(names) // 2]} for every relation,",
                _close(guessed),
                f"{_by_name(guessed, names)} times that",
            )
        ],
    )


def _close(ratios: Sequence[float]) -> bool:
    return all(1 / (1 + CLOSELY) <= ratio <= 1 + CLOSELY for ratio in ratios)
