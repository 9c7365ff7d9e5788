"""The points of one of Figures 4 to 7 along its x axis: times and balance of the operators, as tables and pictures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from papers.hypercube.cases import AXES, Axis, Size, cases_for
from papers.hypercube.measure import CaseRun, Measured
from papers.hypercube.operators import JB, JBS, PHJ, SHC, TASKS, THREE, Operator
from papers.shared.exhibit import Lines, Series, Table
from papers.shared.timed import CORES


@dataclass(frozen=True, slots=True)
class Curves:
    """The runs of one figure, along its x axis."""

    axis: Axis
    x: Sequence[float]
    runs: Sequence[CaseRun]

    def parallel_s(self, operator: Operator) -> list[float]:
        return [run.tasks[operator].parallel_s for run in self.runs]

    def balance(self, operator: Operator) -> list[float]:
        return [run.tasks[operator].balance for run in self.runs]

    @property
    def bicliques(self) -> list[Operator]:
        """JB in all settings that ran at every point."""
        return [o for o in self.runs[0].tasks if o.strategy == JB.strategy]

    @property
    def tries_all(self) -> bool:
        """Whether JB ran in all of its settings: only then the fastest of them is its best."""
        return {*JBS} <= {*self.bicliques}

    @property
    def rival(self) -> str:
        """What JB in the settings of `best` is called."""
        return "JB with its best y" if self.tries_all else f"JB with the fastest of {len(self.bicliques)} y"

    @property
    def best(self) -> list[Operator]:
        """At each point the setting of JB that takes the least time, of those that ran."""
        return [
            min(
                ((run.tasks[o].parallel_s, -n, o) for n, o in enumerate(self.bicliques)), key=lambda t: t[:2]
            )[2]
            for run in self.runs
        ]

    def best_s(self) -> list[float]:
        return [run.tasks[o].parallel_s for run, o in zip(self.runs, self.best, strict=True)]

    def times(self, name: str) -> list[float]:
        """Seconds of PHJ, SHC or the best setting of JB, 48 workers."""
        return self.best_s() if name == JB.name else self.parallel_s(PHJ if name == PHJ.name else SHC)

    def among(self, low: float, high: float) -> Curves:
        """Only the points from `low` to below `high`."""
        return self.where([low <= x < high for x in self.x])

    def where(self, wanted: Sequence[bool]) -> Curves:
        points = list(itertools.compress(zip(self.x, self.runs, strict=True), wanted))
        return Curves(self.axis, [x for x, _ in points], [run for _, run in points])

    def by_x(self, values: Sequence[float], form: str = "{:.2f}") -> str:
        """The values as a sentence has them, each with its x."""
        pairs = zip(self.x, values, strict=True)
        return ", ".join(f"{form.format(value)} at {self.axis.text(x)}" for x, value in pairs)


def curves_of(figure: str, measured: Measured, size: Size) -> Curves:
    cases = cases_for(figure, size)
    return Curves(AXES[figure], [case.x for case in cases], [measured[case] for case in cases])


def _label(operator: Operator) -> str:
    return f"JB y={operator.groups}" if operator.groups is not None else operator.name


def tables_of(curves: Curves) -> list[Table]:
    axis, operators = curves.axis, (PHJ, *curves.bicliques, SHC)
    points = list(zip(curves.x, curves.runs, curves.best, strict=True))
    spark = [
        [
            axis.value(x),
            f"{sum(run.spark_rows):,}",
            f"{run.spark_results:,}",
            *(f"{run.spark_s[o]:.2f}" for o in THREE),
            *(f"{run.spark_s[o] / run.spark_s[SHC]:.2f}" for o in (PHJ, JB)),
        ]
        for x, run, _ in points
    ]
    many = [
        [
            axis.value(x),
            f"{sum(run.rows):,}",
            f"{run.results:,}",
            f"{run.heaviest:.1%}",
            *(f"{run.tasks[o].parallel_s:.3f}" for o in operators),
            str(best.groups),
            *(f"{run.tasks[o].parallel_s / run.tasks[SHC].parallel_s:.2f}" for o in (PHJ, best)),
        ]
        for x, run, best in points
    ]
    balance = [[axis.value(x), *(f"{run.tasks[o].balance:.2f}" for o in operators)] for x, run, _ in points]
    join = [
        [
            axis.value(x),
            *(f"{run.tasks[o].join_s:.3f}" for o in operators),
            f"{run.tasks[SHC].plan_s.sum():.3f}",
        ]
        for x, run, _ in points
    ]
    labels = [_label(o) for o in operators]
    fastest = "best" if curves.tries_all else "fastest"
    handing_ns = 1e9 * curves.runs[0].tasks[SHC].handing_s
    return [
        Table(
            f"seconds of {TASKS} workers (computed)",
            [axis.sign, "rows", "results", "heaviest key", *(f"{label} s" for label in labels), f"{fastest} y", "PHJ / SHC", f"{fastest} JB / SHC"],
            many,
            f"Heaviest key: its share of all rows. {handing_ns:.0f} ns of the seconds for each result of a worker are what Spark takes for it.",
        ),
        Table(
            f"balance of the work of {TASKS} tasks",
            [axis.sign, *labels],
            balance,
            "Busiest task / mean; 1 is best.",
        ),
        Table(
            f"{TASKS} workers (computed), the join alone, results handed to nobody",
            [axis.sign, *(f"{label} s" for label in labels), "SHC's plan s"],
            join,
            "SHC's plan: of its seconds those in which all tasks wait for the plan.",
        ),
        Table(
            f"seconds on Spark, {CORES} tasks (measured)",
            [axis.sign, "rows", "results", *(f"{o.name} s" for o in THREE), "PHJ / SHC", "JB / SHC"],
            spark,
            f"No statement of the paper is about {CORES} tasks. The first rows of the case. JB has one group: one task stores R, "
            "the other S. With two tasks the busier one has at most twice the mean, and while its Python joins, Spark's JVM takes its "
            "results over on the other core.",
        ),
    ]  # fmt: skip


def charts_of(number: str, curves: Curves) -> list[Lines]:
    names = [curves.axis.value(x) for x in curves.x]

    def lines(title: str, ylabel: str, series: list[Series], *, log_y: bool) -> Lines:
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

    best_balance = [run.tasks[o].balance for run, o in zip(curves.runs, curves.best, strict=True)]
    return [
        lines(
            f"time of {TASKS} workers, computed from tasks run one by one",
            "seconds (log)",
            [
                *(Series(_label(o), o.name, curves.x, curves.parallel_s(o)) for o in THREE),
                Series(curves.rival, "JB best", curves.x, curves.best_s()),
            ],
            log_y=True,
        ),
        lines(
            f"balance of {TASKS} tasks",
            "busiest task / mean (log)",
            [
                *(Series(_label(o), o.name, curves.x, curves.balance(o)) for o in THREE),
                Series(curves.rival, "JB best", curves.x, best_balance),
            ],
            log_y=True,
        ),
    ]
