"""Figures 4 to 7: execution time of the three operators as skew, input and distance grow, and the statements on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from papers.hypercube.cases import ALPHA, AXES, KEYS, Case, Size
from papers.hypercube.measure import Measured
from papers.hypercube.operators import JB, PHJ, READINGS, SHC, TASKS, Operator
from papers.hypercube.points import Curves, charts_of, curves_of, tables_of
from papers.shared.exhibit import Control, Exhibit, Verdict
from papers.shared.timed import CORES

# A difference below this counts as none. Runs of the same join differ by more at times: what is near it proves nothing.
NOISE = 0.05
# "Clearly outperforms": at the far end of the figure at least this many times as fast.
CLEARLY = 1.2


def fig4(measured: Measured, size: Size) -> Exhibit:
    curves = curves_of("fig4", measured, size)
    skewed, even = curves.among(ALPHA, math.inf), curves.among(0, ALPHA)
    return Exhibit(
        "fig4",
        "Figure 4: Zipf, alpha varied",
        f"R(A, B) x S(B, C), B over {KEYS:,} keys, the same ranks in both, as many rows at each alpha as it takes PHJ a second or more: "
        f"{_span(curves)}{_short(curves)}. {_HOW}",
        tables_of(curves),
        [
            *(_outperforms(skewed, other, f"with skew, alpha >= {ALPHA:g}") for other in (PHJ.name, JB.name)),
            *(_no_worse(even, other, f"with less skew, alpha < {ALPHA:g}") for other in (PHJ.name, JB.name)),
            *(_groups_verdict(curves, *reading) for reading in READINGS.items()),
        ],
        charts_of("4", curves),
    )  # fmt: skip


def fig5(measured: Measured, size: Size) -> Exhibit:
    curves = curves_of("fig5", measured, size)
    return Exhibit(
        "fig5",
        "Figure 5: Zipf, input varied",
        f"As Figure 4, with alpha = {ALPHA:g}, which the paper does not give. PHJ takes {_span(curves)}{_short(curves)}. {_HOW}",
        tables_of(curves),
        [_outperforms(curves, other, "whatever the input size") for other in (PHJ.name, JB.name)],
        charts_of("5", curves),
    )


def fig6(measured: Measured, size: Size) -> Exhibit:
    curves = curves_of("fig6", measured, size)
    return Exhibit(
        "fig6",
        "Figure 6: TPC-H, alpha varied",
        "Query 5's join of suppliers with lineitem, without its choice of a region; lineitem's suppliers by Zipf's law. "
        f"Scale {', '.join(f'{scale:g} at alpha = {alpha:g}' for alpha, scale in size.scales.items())}. PHJ takes {_span(curves)}{_short(curves)}. With "
        f"little skew no worker has enough of the rows for a second. A supplier is one row of its input. {_HOW}",
        tables_of(curves),
        [
            _shapes_verdict(curves),
            _more_groups_verdict(curves),
            _hash_is_best(curves),
            _many_many_verdict(curves, measured),
        ],
        charts_of("6", curves),
    )  # fmt: skip


def fig7(measured: Measured, size: Size) -> Exhibit:
    curves = curves_of("fig7", measured, size)
    heaviest = [run.heaviest for run in curves.runs]
    gains, jb_gains = (_gains(curves, PHJ.name, one) for one in (SHC.name, JB.name))
    return Exhibit(
        "fig7",
        "Figure 7: similar points, r varied",
        "Generated colour histograms of 64 values in place of the paper's images, joined with themselves on the codes of a (r, 10r, "
        "0.9, 0.1)-sensitive family of hash functions: two tables of buckets for each point. As many points at each r as it takes PHJ "
        f"a second or more ({_span(curves)}{_short(curves)}): {', '.join(f'{points:,} at r = {r:g}' for r, points in size.radii.items())}; the paper has "
        f"15,000. {_HOW}",
        tables_of(curves),
        [
            *(_outperforms(curves, other, "in the similarity join") for other in (PHJ.name, JB.name)),
            Verdict(
                "it is better especially when r is large",
                f"PHJ against SHC, {TASKS} tasks: {curves.by_x(gains)}",
                _grows(gains),
                controls=[
                    Control(f"{curves.rival} in SHC's place", _grows(jb_gains), curves.by_x(jb_gains)),
                ],
            ),
            Verdict(
                "a large r means a higher skew",
                f"share of the fullest bucket: {curves.by_x(heaviest, '{:.1%}')}",
                heaviest == sorted(heaviest) and heaviest[-1] > heaviest[0],
                controls=[Control("any operator", True, "the data alone decides")],
            ),
        ],
        charts_of("7", curves),
    )  # fmt: skip


_HOW = (
    f"Computed for {TASKS} workers from {TASKS} tasks that ran one after the other; measured on Spark with {CORES} tasks, which the paper "
    "has not."
)


def _span(curves: Curves) -> str:
    """Seconds of PHJ, from the least to the most."""
    seconds = curves.parallel_s(PHJ)
    return f"{min(seconds):.2f} to {max(seconds):.2f} s"


def _short(curves: Curves) -> str:
    """The points at which PHJ takes less than a second, which say less than the others."""
    short = curves.where([seconds < 1 for seconds in curves.parallel_s(PHJ)])
    return f"; less than a second: {short.by_x(short.parallel_s(PHJ))}" if short.x else ""


def _grows(gains: Sequence[float]) -> bool:
    return gains[-1] > gains[0] * (1 + NOISE)


def _gains(curves: Curves, other: str, one: str) -> list[float]:
    """How many times as long as one operator another takes, at each point."""
    return [a / b for a, b in zip(curves.times(other), curves.times(one), strict=True)]


def _clearly(gains: Sequence[float]) -> list[bool]:
    """Where an operator does not outperform: slower at all, or at the far end not clearly faster."""
    wanted = [*[1 - NOISE] * (len(gains) - 1), CLEARLY]
    return [gain < least for gain, least in zip(gains, wanted, strict=True)]


def _at_least(gains: Sequence[float]) -> list[bool]:
    return [gain < 1 - NOISE for gain in gains]


def _outperforms(curves: Curves, other: str, when: str) -> Verdict:
    return _compared(curves, other, f"SHC clearly outperforms {other} in execution time, {when}", _clearly)


def _no_worse(curves: Curves, other: str, when: str) -> Verdict:
    """Where no key is heavy there is nothing to win: asked is only that nothing is lost."""
    return _compared(curves, other, f"SHC is no worse than {other} in execution time, {when}", _at_least)


def _compared(
    curves: Curves, other: str, paper_says: str, missed_by: Callable[[Sequence[float]], list[bool]]
) -> Verdict:
    """SHC against another, with the third operator in its place as a control."""
    third = JB.name if other == PHJ.name else PHJ.name
    gains, third_gains = _gains(curves, other, SHC.name), _gains(curves, other, third)
    missed = missed_by(gains)
    ours = f"{other} takes {curves.by_x(gains)} times SHC's time"
    if other == JB.name:
        best = ", ".join(f"y = {o.groups}" for o in curves.best)
        ours = f"{curves.rival} ({best}) takes {curves.by_x(gains)} times SHC's time; " + "; ".join(
            f"y = 24 read as {reading}: {curves.by_x(_against(curves, operator))}"
            for reading, operator in READINGS.items()
        )
    return Verdict(
        paper_says,
        f"{TASKS} workers: {ours}",
        not any(missed),
        _why_not(curves.where(missed), other) if any(missed) else "",
        controls=[
            Control(
                f"{curves.rival if third == JB.name else third} in SHC's place",
                not any(missed_by(third_gains)),
                f"{curves.by_x(third_gains)} times its time",
            )
        ],
    )


def _against(curves: Curves, operator: Operator) -> list[float]:
    return [a / b for a, b in zip(curves.parallel_s(operator), curves.parallel_s(SHC), strict=True)]


def _why_not(curves: Curves, other: str) -> str:
    """What SHC takes its time for at these points, next to the other."""
    plan = max(float(run.tasks[SHC].plan_s.sum()) / run.tasks[SHC].parallel_s for run in curves.runs)
    rivals = curves.best if other == JB.name else [PHJ] * len(curves.runs)
    balance = [run.tasks[o].balance for run, o in zip(curves.runs, rivals, strict=True)]
    return (
        f"{_and(curves)}: SHC waits for its plan for up to {plan:.0%} of its time; its balance is {max(curves.balance(SHC)):.2f} at "
        f"most, {other}'s {max(balance):.2f}"
    )


def _and(curves: Curves) -> str:
    return " and ".join(curves.axis.text(x) for x in curves.x)


def _groups_verdict(curves: Curves, reading: str, operator: Operator) -> Verdict:
    """Whether a setting of JB is the best, over all points together."""
    times = {o: sum(curves.parallel_s(o)) for o in curves.bicliques}

    def is_best(o: Operator) -> bool:
        return times[o] <= min(times.values()) * (1 + NOISE)

    return Verdict(
        f"JB's best setting is y = 24, read as {reading}",
        f"all points together, {TASKS} workers: {_by_groups(times)}",
        is_best(operator),
        "fewer groups spread a heavy key over more tasks, but look every row up more often",
        controls=[
            Control(_groups(o), is_best(o), f"{times[o]:.2f} s") for o in curves.bicliques if o != operator
        ],
    )


def _by_groups(times: dict[Operator, float]) -> str:
    return ", ".join(f"{seconds:.2f} s with {_groups(o)}" for o, seconds in times.items())


def _groups(operator: Operator) -> str:
    return f"{operator.groups} group{'' if operator.groups == 1 else 's'}"


def _shapes_verdict(curves: Curves) -> Verdict:
    shapes = {shape for run in curves.runs for shape in run.tasks[SHC].shapes}
    cells = sorted({shape[1] for shape in shapes})
    return Verdict(
        "SHC gives every heavy value a 1 x p(b) grid: the supplier is sent to all tasks of its lineitems",
        f"1 x {', '.join(map(str, cells))}" if shapes else "no key is heavy",
        bool(shapes) and all(shape[0] == 1 for shape in shapes),
        controls=[Control("any planner that cuts by rows", True, "a supplier is one row, which no grid can cut")],
    )  # fmt: skip


def _more_groups_verdict(curves: Curves) -> Verdict:
    times = {o: sum(curves.parallel_s(o)) for o in curves.bicliques}
    seconds = list(times.values())
    return Verdict(
        "the more groups JB has, the less efficient it is",
        f"all alphas together, {TASKS} workers: {_by_groups(times)}",
        seconds == sorted(seconds, reverse=True) and seconds[0] > seconds[-1] * (1 + NOISE),
        "a row is looked up by the task that stores it and by all tasks of its group's other side: 1.5 times with 24 groups, "
        "12.5 times with two. What storing and sending cost the paper's system is not in these times",
        controls=[Control("PHJ and SHC", False, "they have no groups")],
    )


def _hash_is_best(curves: Curves) -> Verdict:
    against = {one: _gains(curves, PHJ.name, one) for one in (SHC.name, JB.name)}
    slower = {one: [ratio > 1 + NOISE for ratio in ratios] for one, ratios in against.items()}
    agrees = not any(map(any, slower.values()))
    rivals = {one: _gains(curves, JB.name, one) for one in (SHC.name, PHJ.name)}
    why = "; ".join(
        f"{name} is faster at {_and(curves.where(slower[name]))}: {reason}"
        for name, reason in (
            (SHC.name, "its work is spread more evenly"),
            (JB.name, "it has more tasks for a key, some for each input"),
        )
        if any(slower[name])
    )
    return Verdict(
        "PHJ seems to be the fastest",
        f"{TASKS} workers: PHJ takes {curves.by_x(against[SHC.name])} times SHC's time, and {curves.by_x(against[JB.name])} times that "
        f"of {curves.rival}",
        agrees,
        why,
        controls=[
            Control(
                f"{curves.rival} in its place",
                not any(ratio > 1 + NOISE for ratios in rivals.values() for ratio in ratios),
                f"{curves.by_x(rivals[SHC.name])} times SHC's time",
            )
        ],
    )  # fmt: skip


def _many_many_verdict(curves: Curves, measured: Measured) -> Verdict:
    """Better there than here, and really faster, where the skew is strongest; the other alpha is shown beside it."""
    alphas = [alpha for alpha in curves.x if alpha in (ALPHA, curves.x[-1])]
    there = Curves(AXES["fig4"], alphas, [measured[Case("fig4", alpha)] for alpha in alphas])
    here = curves.where([alpha in alphas for alpha in curves.x])

    def better(one: str) -> tuple[bool, str]:
        many, few = _gains(there, PHJ.name, one), _gains(here, PHJ.name, one)
        told = (
            f"{m:.2f} and {f:.2f} times at alpha = {a:g}" for a, m, f in zip(alphas, many, few, strict=True)
        )
        return many[-1] > max(1.0, few[-1]), ", ".join(told)

    agrees, told = better(SHC.name)
    return Verdict(
        "SHC is better on many-to-many joins, where both inputs are skewed",
        f"{TASKS} workers: in Figure 4 and here PHJ takes {told} SHC's time",
        agrees,
        controls=[Control(f"{curves.rival} in SHC's place", *better(JB.name))],
    )
