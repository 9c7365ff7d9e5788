"""Table 2 and Figures 5a to 5l of Elseidy et al. 2014, without 5f and 5j: choose, run, write.

Times of wm.join are measured on Spark; 16 machines and more are simulated. Each exhibit says which is which.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from papers.adaptive import paper
from papers.adaptive.fluctuation import fig5k, fig5l
from papers.adaptive.mappings import fig5g, fig5h
from papers.adaptive.performance import fig5a, fig5b, fig5c, fig5d, fig5e
from papers.adaptive.scaling import fig5i
from papers.adaptive.table2 import table2
from papers.adaptive.trials import (
    FULL,
    QUICK,
    Measured,
    Size,
    Trial,
    count_steps,
    in_tasks_for,
    run_trials,
    trials_for,
)
from papers.shared.exhibit import Exhibit
from papers.shared.plots import require_matplotlib
from papers.shared.queries import SEED
from papers.shared.reproduction import Session
from papers.shared.tpch import find_generator
from watersmeet import __version__
from watersmeet.errors import UsageError

# Figures 5f and 5j are withdrawn. Latency would be messages and queues whose times are guesses; throughput with state on disk
# would be the factor that we set, and without it Figure 5i again.
EXHIBITS: dict[str, Callable[[Measured, Size], Exhibit]] = {
    make.__name__: make
    for make in (table2, fig5a, fig5b, fig5c, fig5d, fig5e, fig5g, fig5h, fig5i, fig5k, fig5l)
}
# Memory: lineitem is held whole while inputs are made, some 100 bytes a row.
MAX_SCALE = 10.0


@dataclass(frozen=True, slots=True)
class Adaptive:
    size: Size
    title = paper.TITLE
    exhibits = tuple(EXHIBITS)

    @property
    def facts(self) -> Sequence[str]:
        return [
            "Times are measured on Spark on two cores; what needs 16 machines and more is simulated, by the same planner.",
            f"Watersmeet {__version__}, Python {platform.python_version()}, TPC-H scale {self.size.scale:g}, seed {SEED}.",
        ]

    def require(self, names: Sequence[str]) -> None:
        require_matplotlib()
        if self._trials(names):
            find_generator()

    def count_steps(self, names: Sequence[str]) -> int:
        return len(names) + count_steps(self._trials(names), self._in_tasks(names), self.size)

    def run(self, names: Sequence[str], session: Session) -> list[Exhibit]:
        measured = run_trials(
            self._trials(names),
            self._in_tasks(names),
            self.size,
            session.data,
            session.scratch,
            session.watch,
            session.stop,
            session.arm,
        )
        return session.exhibits(names, lambda name: EXHIBITS[name](measured, self.size), "simulating")

    def _trials(self, names: Sequence[str]) -> set[Trial]:
        return {trial for name in names for trial in trials_for(name, self.size)}

    def _in_tasks(self, names: Sequence[str]) -> list[tuple[str, int]]:
        return [pair for name in names for pair in in_tasks_for(name)]


def adaptive(scale: float | None, *, quick: bool) -> Adaptive:
    """At the size that was asked for."""
    size = QUICK if quick else FULL
    if scale is None:
        return Adaptive(size)
    if not 0 < scale <= MAX_SCALE:
        raise UsageError(
            f"--scale {scale:g}: a scale factor above 0 and at most {MAX_SCALE:g}; 1 is about 1 GB"
        )
    return Adaptive(replace(size, scale=scale))
