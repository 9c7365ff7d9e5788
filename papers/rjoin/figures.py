"""Figures 2 to 9 of Idreos, Liarou, Koubarakis 2008: choose, run.

The paper's curves are in pictures without numbers, so what is compared are the sentences of its section 8. What counts as
agreement is our choice, beside each of them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from papers.rjoin import paper
from papers.rjoin.cases import FULL, QUICK, Runs, Size, needed, run_all
from papers.rjoin.growth import fig3, fig4
from papers.rjoin.moving import fig9
from papers.rjoin.sim.cases import RATE_WINDOW, THETA, VALID
from papers.rjoin.sim.workload import ATTRIBUTES, RELATIONS, VALUES
from papers.rjoin.strategies import fig2
from papers.rjoin.windows import fig7, fig8
from papers.rjoin.workloads import fig5, fig6
from papers.shared.exhibit import Exhibit
from papers.shared.plots import require_matplotlib
from papers.shared.reproduction import Session
from watersmeet import __version__

__all__ = ["EXHIBITS", "FULL", "QUICK", "RJoin"]

EXHIBITS: dict[str, Callable[[Runs, Size], Exhibit]] = {
    make.__name__: make for make in (fig2, fig3, fig4, fig5, fig6, fig7, fig8, fig9)
}


@dataclass(frozen=True, slots=True)
class RJoin:
    size: Size
    title = paper.TITLE
    exhibits = tuple(EXHIBITS)

    @property
    def facts(self) -> Sequence[str]:
        return [
            (
                f"{self.size.nodes:,} Chord nodes; {RELATIONS} relations of {ATTRIBUTES} attributes with {VALUES} values, chosen by Zipf's law "
                f"with skew {THETA:g}; {self.size.queries:,} 4-way chain joins unless a figure says otherwise."
            ),
            (
                f"A node tells the tuples of a key among the last {RATE_WINDOW:,} of all; a rate is used until it is {VALID:,} tuples old. "
                "Rewritten queries that a node sends to one key at a time share a message."
            ),
            "Every run without a window gave all answers, as counted by products of matrices; otherwise it would have ended with an error.",
            f"Watersmeet {__version__}, Python {platform.python_version()}, one run each, seeds fixed.",
        ]  # fmt: skip

    def require(self, names: Sequence[str]) -> None:
        require_matplotlib()

    def count_steps(self, names: Sequence[str]) -> int:
        return len(names) + len(needed(names, self.size))

    def run(self, names: Sequence[str], session: Session) -> list[Exhibit]:
        session.arm()
        runs = run_all(needed(names, self.size), session.watch, session.stop)
        return session.exhibits(names, lambda name: EXHIBITS[name](runs, self.size))
