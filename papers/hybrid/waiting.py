"""Figure 10b: how long rows wait when they come slowly."""

from __future__ import annotations

from collections.abc import Sequence

from papers.hybrid import paper
from papers.hybrid.cases import Size
from papers.hybrid.rates import megabytes, million
from papers.hybrid.results import ALGORITHMS, HYBRIDJOIN, INLJ, MESHJOIN, Measured
from papers.shared.exhibit import Exhibit, Lines, Series, Table, Verdict

# MESHJOIN's formula holds within so much: the stream comes in bursts.
NEAR = 0.25
# A delay of so many times what it was is a backlog.
BACKLOG = 10


def fig10b(measured: Measured, size: Size) -> Exhibit:
    slow = [measured.slow[rate] for rate in size.rates]
    delays = {a: [by[a].delay_s for by in slow] for a in ALGORITHMS}
    collects = [by[MESHJOIN].collect_s for by in slow]
    names = [f"{rate:,}" for rate in size.rates]
    return Exhibit(
        "fig10b",
        "Figure 10b: waiting time at low arrival rates",
        f"{million(size.rows)} rows, {megabytes(size.budget_bytes)}, a bursty stream. The algorithms run, with real reads, on a virtual "
        f"clock: a step takes what it was measured to take, and where there is nothing to do the clock goes on to the next "
        f"arrival, for MESHJOIN needs hours at the lowest rate. Delay: from a row's arrival to its answer.",
        [
            Table(
                "mean delay of a row, ms",
                ["rows/s", *ALGORITHMS, "MESHJOIN collects a step's rows"],
                [
                    [name, *(_ms(delays[a][n]) for a in ALGORITHMS), _ms(collects[n])]
                    for n, name in enumerate(names)
                ],
                f"{paper.ARRIVAL_RATES[0]} to {paper.ARRIVAL_RATES[1]:,} rows/s are the paper's. Where rows come faster than they are "
                f"answered the delay grows for as long as that lasts: here for {size.slow_rows:,} rows, above {4 * size.slow_rows:,} "
                "rows/s for a quarter of a second.",
            )
        ],
        [
            _mesh_waits(names, delays[MESHJOIN], delays[HYBRIDJOIN]),
            _formula(measured, size, names, collects),
            _slowest(size, names, delays),
            _faster(size, names, delays),
            _backlog(names, delays[INLJ]),
        ],
        [
            Lines(
                "10b: from arrival to answer",
                "arrivals a second (log)",
                "ms (log)",
                [Series(a, a, size.rates, [d * 1000 for d in delays[a]]) for a in ALGORITHMS],
                log_x=True,
                log_y=True,
                ticks=size.rates,
                tick_names=names,
            )
        ],
    )  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.3g}" if seconds < 1 else f"{seconds * 1000:,.0f}"


def _mesh_waits(names: Sequence[str], mesh: Sequence[float], hybrid: Sequence[float]) -> Verdict:
    ratios = [m / h for m, h in zip(mesh, hybrid, strict=True)]
    return Verdict(
        "the waiting time of MESHJOIN is greater than that of HYBRIDJOIN",
        ", ".join(f"{ratio:,.0f} times at {name}/s" for ratio, name in zip(ratios, names, strict=True)),
        min(ratios) > 1,
    )


def _formula(measured: Measured, size: Size, names: Sequence[str], collects: Sequence[float]) -> Verdict:
    by_formula = [measured.slow_input / rate for rate in size.rates]
    ratios = [found / said for found, said in zip(collects, by_formula, strict=True)]
    return Verdict(
        "MESHJOIN's average waiting time is w / lambda",
        f"w = {measured.slow_input:,}: "
        + ", ".join(f"{ratio:.2f} times that at {name}/s" for ratio, name in zip(ratios, names, strict=True))
        + "; that is the wait for the rows of one step, and a row is answered after half as many steps as there are pages",
        all(abs(ratio - 1) <= NEAR for ratio in ratios),
    )


def _slowest(size: Size, names: Sequence[str], delays: dict[str, list[float]]) -> Verdict:
    slow = [n for n, rate in enumerate(size.rates) if rate < paper.SLOW_RATE]
    shown = (f"{_ms(delays[HYBRIDJOIN][n])} ms, INLJ {_ms(delays[INLJ][n])} ms at {names[n]}/s" for n in slow)
    return Verdict(
        f"below {paper.SLOW_RATE} rows/s HYBRIDJOIN keeps a row waiting for longer than INLJ, since its reads are larger",
        ", ".join(shown),
        all(delays[HYBRIDJOIN][n] > delays[INLJ][n] for n in slow),
    )


def _faster(size: Size, names: Sequence[str], delays: dict[str, list[float]]) -> Verdict:
    low, high = paper.SLOW_RATE, paper.ARRIVAL_RATES[1]
    ahead = [n for n in range(len(names)) if delays[HYBRIDJOIN][n] < delays[INLJ][n]]
    wanted = [n for n, rate in enumerate(size.rates) if low <= rate <= high]
    agrees = set(wanted) <= set(ahead)
    return Verdict(
        f"and above that for less long than INLJ, up to {high:,} rows/s",
        f"HYBRIDJOIN is ahead from {names[ahead[0]]} rows/s on" if ahead else "HYBRIDJOIN is nowhere ahead",
        agrees,
        ""
        if agrees
        else "an access of INLJ takes below a millisecond here, and several on a disk that seeks; and HYBRIDJOIN's pages have the size "
        "that gives the highest service rate: smaller ones would keep a row waiting for less long",
    )


def _backlog(names: Sequence[str], delays: list[float]) -> Verdict:
    return Verdict(
        "INLJ's delay appears as a backlog, which increases exponentially with the arrival rate",
        ", ".join(f"{_ms(delay)} ms at {name}/s" for delay, name in zip(delays, names, strict=True)),
        delays[-1] > BACKLOG * delays[0],
        "steeply where the rate passes what INLJ can answer; below that it hardly changes",
    )
