"""Figures 6, 7, 9 to 12, 14 to 17, 20 and 21 of Liu, Rundensteiner 2005: choose, run.

The text gives statements, settings and some numbers; the values of its curves are in pictures and are not here. What
counts as agreement is our choice, beside each statement.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from papers.shared.exhibit import Exhibit
from papers.shared.plots import require_matplotlib
from papers.shared.reproduction import Session
from papers.state import paper
from papers.state.cases import CASES, FULL, QUICK, SEED, Size, cases_of
from papers.state.combined import fig20, fig21
from papers.state.curves import Runs
from papers.state.moved import fig14, fig15, fig16, fig17
from papers.state.partitioned import fig6, fig7
from papers.state.pushed import fig9, fig10, fig11, fig12
from papers.state.run import UNLIMITED_ROWS, Case, CaseRun, run_case
from watersmeet import __version__

__all__ = ["FULL", "QUICK", "State"]

EXHIBITS: dict[str, Callable[[Runs], Exhibit]] = {
    make.__name__: make
    for make in (fig6, fig7, fig9, fig10, fig11, fig12, fig14, fig15, fig16, fig17, fig20, fig21)
}
assert set(EXHIBITS) == set(CASES), "a figure has no runs"

_HOW = (
    "Run in one process without Spark, by the operator that also runs there: it stores, plans, pushes, moves and pays as on Spark. A "
    "machine is a task; tasks run one after the other. Time is virtual: a batch has the rows of some seconds of the stream. So results by "
    "time follow from the seed. Seconds are measured, those of the processor."
)
_EXACT = "After each run comes the clean-up. Both together have exactly the results of the whole join, or the run fails."


@dataclass(frozen=True, slots=True)
class State:
    size: Size
    title = paper.TITLE
    exhibits = tuple(EXHIBITS)

    @property
    def facts(self) -> Sequence[str]:
        share = "all" if self.size.rows == 1 else f"{self.size.rows:.0%}"
        return [
            _HOW,
            _EXACT,
            f"{share.capitalize()} of the paper's rows; {paper.PARTITIONS} partition groups.",
            f"Watersmeet {__version__}, Python {platform.python_version()}, seed {SEED}.",
        ]

    def require(self, names: Sequence[str]) -> None:
        require_matplotlib()

    def count_steps(self, names: Sequence[str]) -> int:
        return len(cases_of(names)) + len(names)

    def run(self, names: Sequence[str], session: Session) -> list[Exhibit]:
        session.arm()
        found: dict[Case, CaseRun] = {}
        for case in map(self.size.sized, cases_of(names)):
            session.watch.step(_named(case))
            folder = session.scratch / f"run-{len(found)}"
            found[case] = run_case(case, folder, session.watch, session.stop)
            shutil.rmtree(folder)
        runs = Runs(found, self.size)
        return session.exhibits(names, lambda name: EXHIBITS[name](runs))


def _named(case: Case) -> str:
    """A run in a few words, for the display of progress."""
    machines, how = f"{case.tasks} machine{'' if case.tasks == 1 else 's'}", case.pushing
    words = [machines, f"{case.minutes:g} minutes"]
    if case.strategy != "budget":
        words.append(case.strategy)
    elif case.memory_rows < UNLIMITED_ROWS:
        words += [str(how.policy), f"pushes {how.share:.0%}"]
    if how.balanced_share:
        words += [f"moves at {how.balanced_share:.0%} and {how.move_every_ms / 1000:g} s", str(how.disk)]
    return ", ".join(words)
