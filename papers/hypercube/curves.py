"""Figures 4 to 7: execution time of the three operators as skew, input and distance grow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from papers.hypercube.cases import ALPHA, AXES, KEYS, MANY_MANY, Axis, Case, Size, cases_for
from papers.hypercube.measure import CaseRun, Measured
from papers.hypercube.operators import JB, JB1, JB6, PHJ, SHC, TASKS, THREE, Operator
from papers.shared.exhibit import Exhibit, Lines, Series, Table, Verdict
from papers.shared.timed import CORES

# A difference below this counts as none. Runs of the same join differ by more at times: what is near it proves nothing.
NOISE = 0.05
# "Clearly outperforms": at the far end of the figure at least so many times as fast.
CLEARLY = 1.2


@dataclass(frozen=True, slots=True)
class Curves:
    """The runs of one figure, along its x axis."""

    axis: Axis
    x: Sequence[float]
    runs: Sequence[CaseRun]

    def spark_s(self, operator: Operator) -> list[float]:
        return [run.spark_s[operator] for run in self.runs]

    def parallel_s(self, operator: Operator) -> list[float]:
        return [run.tasks[operator].parallel_s for run in self.runs]

    def balance(self, operator: Operator) -> list[float]:
        return [run.tasks[operator].balance for run in self.runs]

    def gains(self, operator: Operator, *, spark: bool) -> list[float]:
        """How many times as long as SHC an operator takes."""
        times = self.spark_s if spark else self.parallel_s
        return [a / b for a, b in zip(times(operator), times(SHC), strict=True)]

    def among(self, low: float, high: float) -> Curves:
        """Only the points from `low` to below `high`."""
        return self.where([low <= x < high for x in self.x])

    def where(self, wanted: Sequence[bool]) -> Curves:
        points = itertools.compress(zip(self.x, self.runs, strict=True), wanted)
        x, runs = zip(*points, strict=True)
        return Curves(self.axis, x, runs)

    def by_x(self, values: Sequence[float], form: str = "{:.2f}") -> str:
        """The values as a sentence has them, each with its x."""
        pairs = zip(self.x, values, strict=True)
        return ", ".join(f"{form.format(value)} at {self.axis.text(x)}" for x, value in pairs)


def _curves(figure: str, measured: Measured, size: Size) -> Curves:
    cases = cases_for(figure, size)
    return Curves(AXES[figure], [case.x for case in cases], [measured[case] for case in cases])


def fig4(measured: Measured, size: Size) -> Exhibit:
    curves = _curves("fig4", measured, size)
    return Exhibit(
        "fig4",
        "Figure 4: Zipf, alpha varied",
        f"R(A, B) x S(B, C), {size.zipf_rows // 2:,} rows each, B over {KEYS:,} keys, the same ranks in both. {_HOW}",
        [*_tables(curves, THREE), _groups_table(measured[MANY_MANY])],
        [
            *_outperforms(curves.among(ALPHA, math.inf), f"with skew, alpha >= {ALPHA:g}"),
            *_outperforms(curves.among(0, ALPHA), f"with less skew, alpha < {ALPHA:g}"),
            _groups_verdict(measured[MANY_MANY]),
        ],
        _charts("4", curves, THREE),
    )


def fig5(measured: Measured, size: Size) -> Exhibit:
    curves = _curves("fig5", measured, size)
    return Exhibit(
        "fig5",
        "Figure 5: Zipf, input varied",
        f"As Figure 4, with alpha = {ALPHA:g}, which the paper does not give. {_HOW}",
        _tables(curves, THREE),
        _outperforms(curves, "whatever the input size"),
        _charts("5", curves, THREE),
    )


def fig6(measured: Measured, size: Size) -> Exhibit:
    curves = _curves("fig6", measured, size)
    operators = (*THREE, JB6, JB1)
    return Exhibit(
        "fig6",
        "Figure 6: TPC-H, alpha varied",
        f"Query 5's join of suppliers with lineitem, scale {size.scale:g}, lineitem's foreign keys by Zipf's law; a supplier is "
        f"one row of its input. {_HOW}",
        _tables(curves, operators),
        [
            _shapes_verdict(curves),
            _more_groups_verdict(curves),
            *(_hash_is_best(curves, spark=spark) for spark in (False, True)),
            _many_many_verdict(curves, measured),
        ],
        _charts("6", curves, operators),
    )  # fmt: skip


def fig7(measured: Measured, size: Size) -> Exhibit:
    curves = _curves("fig7", measured, size)
    heaviest = [run.heaviest for run in curves.runs]
    gains = curves.gains(PHJ, spark=False)
    return Exhibit(
        "fig7",
        "Figure 7: similar points, r varied",
        f"{size.points:,} generated colour histograms of 64 values in place of the paper's images, joined with themselves on the "
        f"codes of a (r, 10r, 0.9, 0.1)-sensitive family of hash functions: two tables of buckets for each point. {_HOW}",
        _tables(curves, THREE),
        [
            *_outperforms(curves, "in the similarity join"),
            Verdict(
                "it is better especially when r is large",
                f"PHJ against SHC, {TASKS} tasks: {curves.by_x(gains)}",
                gains[-1] > gains[0] * (1 + NOISE),
            ),
            Verdict(
                "a large r means a higher skew",
                f"share of the fullest bucket: {curves.by_x(heaviest, '{:.1%}')}",
                heaviest == sorted(heaviest) and heaviest[-1] > heaviest[0],
            ),
        ],
        _charts("7", curves, THREE),
    )  # fmt: skip


_TWO_TASKS = (
    "with two tasks on two cores there is little to win: the busier one has at most twice the mean, and while its Python "
    "joins, Spark's JVM takes its results over on the other core"
)
_HOW = f"Measured on Spark with {CORES} tasks; computed for {TASKS} workers from {TASKS} tasks that ran one after the other."


def _label(operator: Operator) -> str:
    return f"JB y={operator.groups}" if operator == JB else operator.name


def _tables(curves: Curves, operators: Sequence[Operator]) -> list[Table]:
    axis, labels = curves.axis, [_label(operator) for operator in operators]
    spark = [
        [axis.value(x), f"{run.results:,}", f"{run.heaviest:.1%}", *(f"{run.spark_s[o]:.2f}" for o in THREE)]
        for x, run in zip(curves.x, curves.runs, strict=True)
    ]
    many = [
        [
            axis.value(x),
            *(f"{run.tasks[o].parallel_s:.3f}" for o in operators),
            *(f"{run.tasks[o].balance:.2f}" for o in operators),
        ]
        for x, run in zip(curves.x, curves.runs, strict=True)
    ]
    join = [
        [
            axis.value(x),
            *(f"{run.tasks[o].join_s:.3f}" for o in operators),
            f"{run.tasks[SHC].plan_s.sum():.3f}",
        ]
        for x, run in zip(curves.x, curves.runs, strict=True)
    ]
    handing_ns = 1e9 * curves.runs[0].tasks[SHC].handing_s
    return [
        Table(
            f"seconds on Spark, {CORES} tasks (measured)",
            [axis.sign, "results", "heaviest key", *(f"{o.name} s" for o in THREE)],
            spark,
            "Heaviest key: its share of all rows. JB has one group: one task stores R, the other S.",
        ),
        Table(
            f"{TASKS} workers (computed), and the balance of their work",
            [axis.sign, *(f"{label} s" for label in labels), *(f"{label} balance" for label in labels)],
            many,
            f"Balance: busiest task / mean; 1 is best. Of the seconds {handing_ns:.0f} ns for each result of a worker are what Spark "
            "takes for it.",
        ),
        Table(
            f"{TASKS} workers (computed), the join alone, results handed to nobody",
            [axis.sign, *(f"{label} s" for label in labels), "SHC's plan s"],
            join,
            "SHC's plan: of its seconds those in which all tasks wait for the plan.",
        ),
    ]


def _charts(number: str, curves: Curves, operators: Sequence[Operator]) -> list[Lines]:
    def lines(title: str, ylabel: str, series: list[Series], *, log_y: bool) -> Lines:
        names = [curves.axis.value(x) for x in curves.x]
        return Lines(
            f"{number}: {title}",
            curves.axis.name,
            ylabel,
            series,
            log_x=curves.axis.log,
            log_y=log_y,
            ticks=curves.x,
            tick_names=names,
        )

    return [
        lines(
            f"time on Spark, {CORES} tasks, measured",
            "seconds",
            [Series(o.name, o.name, curves.x, curves.spark_s(o)) for o in THREE],
            log_y=False,
        ),
        lines(
            f"time of {TASKS} workers, computed from tasks run one by one",
            "seconds (log)",
            [Series(_label(o), o.name, curves.x, curves.parallel_s(o)) for o in operators],
            log_y=True,
        ),
        lines(
            f"balance of {TASKS} tasks",
            "busiest task / mean (log)",
            [Series(_label(o), o.name, curves.x, curves.balance(o)) for o in operators],
            log_y=True,
        ),
    ]


def _outperforms(curves: Curves, when: str) -> list[Verdict]:
    """Never slower, and clearly faster at the far end; against each of the others, in both settings."""
    verdicts = []
    for spark in (False, True):
        for other in (PHJ, JB):
            gains = curves.gains(other, spark=spark)
            wanted = [*[1 - NOISE] * (len(gains) - 1), CLEARLY]
            missed = [gain < least for gain, least in zip(gains, wanted, strict=True)]
            why = _TWO_TASKS if spark or not any(missed) else _fixed_costs(curves.where(missed), other)
            verdicts.append(
                Verdict(
                    f"SHC clearly outperforms {other.name} in execution time, {when}",
                    f"{_setting(spark)}: {other.name} takes {curves.by_x(gains)} times SHC's time",
                    not any(missed),
                    why if any(missed) else "",
                )
            )
    return verdicts


def _fixed_costs(curves: Curves, other: Operator) -> str:
    """Why SHC is not faster at these points although its work is spread evenly."""
    per_batch_ms = 1000 * max(float(run.tasks[SHC].plan_s.mean()) for run in curves.runs)
    return (
        f"{_and(curves)}: few results are given out within milliseconds, and SHC first makes a plan, up to {per_batch_ms:.0f} ms in "
        f"a batch, and opens more pieces of runs; its balance is {max(curves.balance(SHC)):.2f} at most, {other.name}'s up to "
        f"{max(curves.balance(other)):.1f}"
    )


def _and(curves: Curves) -> str:
    return " and ".join(curves.axis.text(x) for x in curves.x)


def _setting(spark: bool) -> str:
    return f"Spark, {CORES} tasks" if spark else f"{TASKS} workers"


def _groups_table(run: CaseRun) -> Table:
    rows = [
        [str(o.groups), f"{task.parallel_s:.3f}", f"{task.balance:.2f}", f"{task.rows_probed:,}"]
        for o in (JB, JB6, JB1)
        for task in [run.tasks[o]]
    ]
    return Table(
        f"JB by groups, alpha = {ALPHA:g}, {TASKS} workers (computed)",
        ["y", "seconds", "balance", "rows looked up"],
        rows,
    )


def _groups_verdict(run: CaseRun) -> Verdict:
    times = {o: run.tasks[o].parallel_s for o in (JB, JB6, JB1)}
    return Verdict(
        f"JB's best setting has {JB.groups} groups",
        f"alpha = {ALPHA:g}, {TASKS} workers: " + _by_groups(times),
        times[JB] <= min(times.values()) * (1 + NOISE),
        "fewer groups spread a heavy key over more tasks, but look every row up more often",
    )


def _by_groups(times: dict[Operator, float]) -> str:
    return ", ".join(f"{seconds:.3f} s with y = {o.groups}" for o, seconds in times.items())


def _shapes_verdict(curves: Curves) -> Verdict:
    shapes = {shape for run in curves.runs for shape in run.tasks[SHC].shapes}
    cells = sorted({shape[1] for shape in shapes})
    return Verdict(
        "SHC gives every heavy value a 1 x p(b) grid: the supplier is sent to all tasks of its lineitems",
        f"1 x {', '.join(map(str, cells))}" if shapes else "no key is heavy",
        bool(shapes) and all(shape[0] == 1 for shape in shapes),
    )


def _more_groups_verdict(curves: Curves) -> Verdict:
    times = {o: sum(curves.parallel_s(o)) for o in (JB, JB6, JB1)}
    return Verdict(
        "the more groups JB has, the less efficient it is",
        f"all alphas together, {TASKS} workers: {_by_groups(times)}",
        times[JB] > times[JB6] > times[JB1],
        "a row is looked up by the task that stores it and by all tasks of its group's other side: 1.5 times with 24 groups, "
        "24.5 times with one. What storing and sending cost the paper's system is not in these times",
    )


def _hash_is_best(curves: Curves, *, spark: bool) -> Verdict:
    times = curves.spark_s if spark else curves.parallel_s
    against = {o: [a / b for a, b in zip(times(PHJ), times(o), strict=True)] for o in (SHC, JB)}
    slower = {o: [ratio > 1 + NOISE for ratio in ratios] for o, ratios in against.items()}
    why = (
        "with two tasks all three take the same time, but for what two runs differ by"
        if spark
        else "; ".join(
            f"{operator.name} is faster at {_and(curves.where(points))}: {reason}"
            for operator, points, reason in (
                (SHC, slower[SHC], "its work is spread more evenly"),
                (JB, slower[JB], "it has two tasks for a key, one for each input"),
            )
            if any(points)
        )
    )
    agrees = not any(map(any, slower.values()))
    return Verdict(
        "PHJ seems to be the fastest",
        f"{_setting(spark)}: PHJ takes {curves.by_x(against[SHC])} times SHC's time, and {min(against[JB]):.2f} to "
        f"{max(against[JB]):.2f} times JB's",
        agrees,
        "" if agrees else why,
    )


def _many_many_verdict(curves: Curves, measured: Measured) -> Verdict:
    """Better there than here, and really faster, where the skew is strongest; the other alpha is shown beside it."""
    gains = {
        alpha: (gain, _gain(measured[Case("fig4", alpha)]))
        for alpha, gain in zip(curves.x, curves.gains(PHJ, spark=False), strict=True)
        if alpha in (ALPHA, curves.x[-1])
    }
    one, many = gains[curves.x[-1]]
    told = [f"{there:.2f} and {here:.2f} times at alpha = {a:g}" for a, (here, there) in gains.items()]
    return Verdict(
        "SHC is better on many-to-many joins, where both inputs are skewed",
        f"{TASKS} workers: in Figure 4 and here PHJ takes {', '.join(told)} SHC's time",
        many > max(1.0, one),
    )


def _gain(run: CaseRun) -> float:
    return run.tasks[PHJ].parallel_s / run.tasks[SHC].parallel_s
