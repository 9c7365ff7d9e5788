"""Figures 3 to 7 of Qiu, Papadias, Yi 2019: choose, run.

The paper prints curves without numbers, so what is compared are the sentences of its section 4.3. What counts as
agreement is our choice, beside each of them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from papers.hypercube import paper
from papers.hypercube.cases import MANY_MANY, Case, Size, cases_for
from papers.hypercube.curves import fig4, fig5, fig6, fig7
from papers.hypercube.example import fig3
from papers.hypercube.measure import Measured, count_steps, measure
from papers.hypercube.operators import TASKS
from papers.shared.exhibit import Exhibit
from papers.shared.plots import require_matplotlib
from papers.shared.queries import SEED
from papers.shared.reproduction import Session
from papers.shared.timed import CORES
from watersmeet import __version__

EXHIBITS: dict[str, Callable[[Measured, Size], Exhibit]] = {
    make.__name__: make for make in (fig3, fig4, fig5, fig6, fig7)
}

# Few batches on Spark: what each of them costs it by itself, some 0.3 s, is the same for all operators and hides the join.
FULL = Size(
    alphas={0.0: 2_000_000, 0.5: 800_000, 1.0: 90_000, 1.5: 30_000, 2.0: 20_000},
    inputs=(90_000, 180_000, 360_000),
    scales={0.0: 2.0, 1.0: 2.0, 2.0: 6.0},
    radii={0.01: 330_000, 0.02: 132_000, 0.04: 54_000, 0.08: 18_000},
    batches=4,
    rounds=2,
    once=frozenset({Case("fig4", 0.0), Case("fig5", 360_000), Case("fig6", 2.0), Case("fig7", 0.01)}),
    spark_batches=2,
    spark_results=50_000_000,
    spark_rows=1_000_000,
    one_key_rows=(1_000, 7_000),
    one_key_rounds=4,
)
QUICK = Size(
    alphas={0.0: 100_000, 1.0: 10_000, 2.0: 10_000},
    inputs=(10_000, 30_000),
    scales={1.0: 0.1, 2.0: 0.1},
    radii={0.01: 10_000, 0.08: 5_000},
    batches=2,
    rounds=1,
    once=frozenset(),
    spark_batches=2,
    spark_results=2_000_000,
    spark_rows=100_000,
    one_key_rows=(1_000, 4_000),
    one_key_rounds=2,
)

_COMPUTED = (
    f"{TASKS} workers, the paper's p: computed, from {TASKS} tasks of the same operator that ran one after the other in one "
    "process without Spark. The time is that of as many workers side by side: in each batch the plan, then the slowest "
    "task, with what Spark takes for each of its results (measured on Spark, by a join of one key with three columns); without "
    "ingest, network and Spark's other parts. What the join takes by itself is shown beside it."
)


@dataclass(frozen=True, slots=True)
class Hypercube:
    size: Size
    title = paper.TITLE
    exhibits = tuple(EXHIBITS)

    @property
    def facts(self) -> Sequence[str]:
        return [
            (
                f"On Spark: measured, {CORES} tasks on {CORES} cores, one run each, over the first rows of each case that have up to "
                f"{self.size.spark_results:,} results. The paper has no such setting."
            ),
            _COMPUTED,
            f"Balance: the work of the busiest of {TASKS} tasks against the mean, work being rows looked up and results given out.",
            f"Watersmeet {__version__}, Python {platform.python_version()}, {self.size.batches} micro-batches, seed {SEED}.",
        ]

    def require(self, names: Sequence[str]) -> None:
        require_matplotlib()

    def count_steps(self, names: Sequence[str]) -> int:
        return len(names) + count_steps(self._cases(names), self.size)

    def run(self, names: Sequence[str], session: Session) -> list[Exhibit]:
        measured = measure(
            self._cases(names), self.size, session.scratch, session.watch, session.stop, session.arm
        )
        return session.exhibits(names, lambda name: EXHIBITS[name](measured, self.size))

    def _cases(self, names: Sequence[str]) -> list[Case]:
        cases = {case for name in names for case in cases_for(name, self.size)}
        if "fig6" in names:
            # Its statement on many-to-many joins compares with these.
            cases |= {MANY_MANY, Case("fig4", self.size.strongest)}
        return sorted(cases)
