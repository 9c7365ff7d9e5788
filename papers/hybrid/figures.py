"""Figures 3, 6, 8, 9, 10a to 10d and 11 of Naeem, Dobbie, Weber 2010: choose, run.

The text gives statements and settings; the values of its figures are in pictures and are not here. What counts as
agreement is our choice, beside each statement.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from papers.hybrid import paper
from papers.hybrid.access import fig3
from papers.hybrid.cases import FULL, QUICK, SEED, Size
from papers.hybrid.costs import fig10a, fig11
from papers.hybrid.machines import STREAM
from papers.hybrid.measure import count_steps, measure, needs_relation
from papers.hybrid.pending import row_bytes
from papers.hybrid.rates import fig10c, fig10d, megabytes, million
from papers.hybrid.relation import require_driver
from papers.hybrid.results import Measured
from papers.hybrid.stream import fig8, fig9
from papers.hybrid.tuning import fig6
from papers.hybrid.waiting import fig10b
from papers.shared.exhibit import Exhibit
from papers.shared.plots import require_matplotlib
from papers.shared.reproduction import Session
from watersmeet import __version__

__all__ = ["FULL", "QUICK", "Hybrid"]

EXHIBITS: dict[str, Callable[[Measured, Size], Exhibit]] = {
    make.__name__: make for make in (fig3, fig6, fig8, fig9, fig10a, fig10b, fig10c, fig10d, fig11)
}


_HOW = (
    "Measured in one process without Spark: the algorithms step by step, with the kernels of the operator that runs on Spark; "
    "one step is one turn to the relation. Seconds are those of the processor, but where a line says that pages come from the disk."
)
_READS = (
    "The relation is in SQLite, rows of 120 bytes clustered by their key; a page is fetched through the index, as Arrow. The "
    "operating system's cache holds the file unless a line says that it comes from the disk: what a read costs is then what "
    "database and driver take. Figure 6 has the cost of both."
)
_ROW = f"a waiting row of 20 bytes takes {row_bytes(STREAM)} with its places in hash table and queue"


@dataclass(frozen=True, slots=True)
class Hybrid:
    size: Size
    title = paper.TITLE
    exhibits = tuple(EXHIBITS)

    @property
    def facts(self) -> Sequence[str]:
        size = self.size
        return [
            _HOW,
            _READS,
            f"Memory of {megabytes(size.budget_bytes)}, {million(size.rows)} rows of relation unless varied; {_ROW}.",
            f"Watersmeet {__version__}, Python {platform.python_version()}, {size.readings} readings, seed {SEED}.",
        ]

    def require(self, names: Sequence[str]) -> None:
        require_matplotlib()
        if needs_relation(names):
            require_driver()

    def count_steps(self, names: Sequence[str]) -> int:
        return count_steps(names, self.size) + len(names)

    def run(self, names: Sequence[str], session: Session) -> list[Exhibit]:
        session.arm()
        measured = measure(names, self.size, session.data, session.watch, session.stop)
        return session.exhibits(names, lambda name: EXHIBITS[name](measured, self.size))
