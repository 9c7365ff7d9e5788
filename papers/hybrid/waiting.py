"""Figure 10b: how long rows wait when they come slowly, on this machine and on disks that seek."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from papers.hybrid import paper
from papers.hybrid.cases import Size
from papers.hybrid.rates import megabytes, million
from papers.hybrid.results import ALGORITHMS, HYBRIDJOIN, INLJ, MESHJOIN, Measured
from papers.shared.exhibit import Control, Exhibit, Lines, Series, Table, Verdict

# MESHJOIN's formula holds within this share: the stream comes in bursts.
NEAR = 0.25
# A delay of this many times what it was is a backlog.
BACKLOG = 10

# By arrival rate.
Delays = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Waits:
    """Mean delays of all algorithms by arrival rate, by the seek time of the disk; 0 is this machine."""

    size: Size
    by_seek: Mapping[float, Delays]

    @property
    def names(self) -> list[str]:
        return [f"{rate:,}" for rate in self.size.rates]

    @property
    def judged(self) -> float:
        """The disk that is most like the paper's."""
        return self.size.seeks[0]

    def where(self, seek_s: float) -> str:
        return f"seeks of {1000 * seek_s:g} ms" if seek_s else "without seeks"


def fig10b(measured: Measured, size: Size) -> Exhibit:
    waits = Waits(
        size,
        {
            seek: {a: [measured.slow[seek, rate][a].delay_s for rate in size.rates] for a in ALGORITHMS}
            for seek in (0.0, *size.seeks)
        },
    )
    here, disk = waits.by_seek[0.0], waits.by_seek[waits.judged]
    collects = [measured.slow[0.0, rate][MESHJOIN].collect_s for rate in size.rates]
    return Exhibit(
        "fig10b",
        "Figure 10b: waiting time at low arrival rates",
        f"{million(size.rows)} rows, {megabytes(size.budget_bytes)}, a bursty stream. The algorithms run, with real reads, on a virtual "
        f"clock: a step takes what it was measured to take, and where there is nothing to do the clock goes on to the next "
        f"arrival, for MESHJOIN needs hours at the lowest rate. Delay: from a row's arrival to its answer. No read seeks here; a "
        f"disk of the paper's time is modelled: each read takes a seek and 80 MB/s longer on the clock, MESHJOIN's the latter only. "
        f"Page sizes are tuned for the disk.",
        [
            Table(
                "mean delay of a row, ms",
                ["rows/s", *ALGORITHMS, "MESHJOIN collects a step's rows"],
                [
                    [name, *(_ms(here[a][n]) for a in ALGORITHMS), _ms(collects[n])]
                    for n, name in enumerate(waits.names)
                ],
                f"{paper.ARRIVAL_RATES[0]} to {paper.ARRIVAL_RATES[1]:,} rows/s are the paper's. Where rows come faster than they are "
                f"answered the delay grows for as long as that lasts: here for {size.slow_rows:,} rows, above {4 * size.slow_rows:,} "
                "rows/s for a quarter of a second.",
            ),
            *(
                Table(
                    f"mean delay of a row, ms, {waits.where(seek)} (modelled)",
                    ["rows/s", *ALGORITHMS],
                    [
                        [name, *(_ms(waits.by_seek[seek][a][n]) for a in ALGORITHMS)]
                        for n, name in enumerate(waits.names)
                    ],
                )
                for seek in size.seeks
            ),
        ],
        [
            _mesh_waits(waits),
            _formula(measured, size, waits.names, collects),
            _slowest(waits),
            _faster(waits),
            _backlog(waits),
        ],
        [
            Lines(
                "10b: from arrival to answer",
                "arrivals a second (log)",
                "ms (log)",
                [
                    *(Series(a, a, size.rates, [d * 1000 for d in here[a]]) for a in ALGORITHMS),
                    *(
                        Series(f"{a}, {waits.where(waits.judged)}", a, size.rates, [d * 1000 for d in disk[a]], dashed=True)
                        for a in (HYBRIDJOIN, INLJ)
                    ),
                ],
                log_x=True,
                log_y=True,
                ticks=size.rates,
                tick_names=waits.names,
            )
        ],
    )  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.3g}" if seconds < 1 else f"{seconds * 1000:,.0f}"


def _mesh_waits(waits: Waits) -> Verdict:
    def least(other: str) -> float:
        """Over all disks and rates."""
        return min(
            m / o for by in waits.by_seek.values() for m, o in zip(by[MESHJOIN], by[other], strict=True)
        )

    here = waits.by_seek[0.0]
    ratios = [m / h for m, h in zip(here[MESHJOIN], here[HYBRIDJOIN], strict=True)]
    return Verdict(
        "the waiting time of MESHJOIN is greater than that of HYBRIDJOIN",
        ", ".join(f"{ratio:,.0f} times at {name}/s" for ratio, name in zip(ratios, waits.names, strict=True))
        + f" without seeks; at least {least(HYBRIDJOIN):,.1f} times on any disk",
        least(HYBRIDJOIN) > 1,
        controls=[
            Control(
                "INLJ in HYBRIDJOIN's place",
                least(INLJ) > 1,
                f"at least {least(INLJ):,.1f} times on any disk",
            )
        ],
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
        controls=[
            Control("whoever reads a page only when w rows have come", True, "the virtual clock goes on to that moment")
        ],
    )  # fmt: skip


def _longer(waits: Waits, seek_s: float, places: Sequence[int], one: str) -> bool:
    """Whether a row waits for longer in one algorithm than in INLJ, at all of these rates."""
    by = waits.by_seek[seek_s]
    return all(by[one][n] > by[INLJ][n] for n in places)


def _shorter(waits: Waits, seek_s: float, places: Sequence[int], one: str) -> bool:
    by = waits.by_seek[seek_s]
    return all(by[one][n] < by[INLJ][n] for n in places)


def _against_index(
    waits: Waits,
    paper_says: str,
    places: Sequence[int],
    holds: Callable[[Waits, float, Sequence[int], str], bool],
    why: str,
) -> Verdict:
    def shown(seek_s: float, one: str) -> str:
        by = waits.by_seek[seek_s]
        return ", ".join(
            f"{_ms(by[one][n])} ms to INLJ's {_ms(by[INLJ][n])} at {waits.names[n]}/s" for n in places
        )

    others = [seek for seek in waits.by_seek if seek != waits.judged]
    agrees = holds(waits, waits.judged, places, HYBRIDJOIN)
    return Verdict(
        paper_says,
        "; ".join(f"{waits.where(seek)} {shown(seek, HYBRIDJOIN)}" for seek in (waits.judged, *others)),
        agrees,
        f"judged by the first disk, which is most like the paper's{'' if agrees else f': {why}'}",
        controls=[
            Control(
                "MESHJOIN in HYBRIDJOIN's place",
                holds(waits, waits.judged, places, MESHJOIN),
                shown(waits.judged, MESHJOIN),
            )
        ],
    )


def _slowest(waits: Waits) -> Verdict:
    slow = [n for n, rate in enumerate(waits.size.rates) if rate < paper.SLOW_RATE]
    return _against_index(
        waits,
        f"below {paper.SLOW_RATE} rows/s HYBRIDJOIN keeps a row waiting for longer than INLJ, since its reads are larger",
        slow,
        _longer,
        "INLJ answers a row for each seek; bursts come faster than that, and their rows queue",
    )


def _faster(waits: Waits) -> Verdict:
    low, high = paper.SLOW_RATE, paper.ARRIVAL_RATES[1]
    return _against_index(
        waits,
        f"and above that for less long than INLJ, up to {high:,} rows/s",
        [n for n, rate in enumerate(waits.size.rates) if low <= rate <= high],
        _shorter,
        "HYBRIDJOIN's pages have the size that gives the highest service rate: smaller ones would keep a row waiting for less long",
    )


def _backlog(waits: Waits) -> Verdict:
    def grows(algorithm: str) -> bool:
        return waits.by_seek[0.0][algorithm][-1] > BACKLOG * waits.by_seek[0.0][algorithm][0]

    def shown(algorithm: str) -> str:
        delays = waits.by_seek[0.0][algorithm]
        return ", ".join(
            f"{_ms(delay)} ms at {name}/s" for delay, name in zip(delays, waits.names, strict=True)
        )

    return Verdict(
        "INLJ's delay appears as a backlog, which increases exponentially with the arrival rate",
        shown(INLJ),
        grows(INLJ),
        "steeply where the rate passes what INLJ can answer; below that it hardly changes",
        controls=[Control(a, grows(a), shown(a)) for a in (HYBRIDJOIN, MESHJOIN)],
    )
