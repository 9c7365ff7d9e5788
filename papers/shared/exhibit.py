"""The exhibits of a reproduction: tables, pictures as plain numbers, and the paper's statements next to ours.

Nothing here draws or prints: the terminal, the pictures and the page are made from the same facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Where a figure's numbers come from; every exhibit says which.
MEASURED, MODELLED = "measured on Spark", "simulated"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Control:
    """Somebody without what a statement is about, asked the same: a static operator, another algorithm, no policy at all.

    If it agrees too, the statement does not speak for the paper's idea. `told` are its figures, from the same measurement and
    by the same criterion, or the argument where it was not run.
    """

    who: str
    agrees: bool
    told: str

    @property
    def text(self) -> str:
        return f"{self.who} {'agrees too' if self.agrees else 'does not'}: {self.told}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A statement of the paper, what came out here, whether they agree, and the reason if not (or if in part).

    `agrees` is None where the two cannot be compared. No statement is without a control.
    """

    paper: str
    ours: str
    agrees: bool | None
    why: str = ""
    controls: Sequence[Control] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not self.controls:
            raise ValueError(f"no control for: {self.paper}")

    @property
    def word(self) -> str:
        return "not comparable" if self.agrees is None else "agrees" if self.agrees else "differs"

    @property
    def alike(self) -> bool:
        """Whether it agrees for a control too, and so does not tell the two apart."""
        return bool(self.agrees) and any(control.agrees for control in self.controls)

    @property
    def control(self) -> str:
        return "; ".join(control.text for control in self.controls)


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart. `role` chooses the colour, so that an operator looks the same everywhere.

    `spread` is half the length of each point's confidence interval.
    """

    name: str
    role: str
    x: Sequence[float]
    y: Sequence[float]
    right: bool = False
    dashed: bool = False
    spread: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Lines:
    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    ylabel_right: str = ""
    log_x: bool = False
    log_y: bool = False
    # Spans of x to shade, and a value of the right axis (or of the only one) to mark.
    shaded: Sequence[tuple[float, float]] = ()
    shaded_name: str = ""
    bound: float | None = None
    bound_name: str = ""
    ticks: Sequence[float] = ()
    tick_names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Groups of bars, one bar for each role; None leaves a gap. `starred` are (group, role) with an asterisk."""

    title: str
    ylabel: str
    groups: Sequence[str]
    values: Mapping[str, Sequence[float | None]]
    log_y: bool = False
    starred: frozenset[tuple[str, str]] = frozenset()
    star_name: str = ""
    form: str = "{:.3g}"


@dataclass(frozen=True, slots=True)
class Board:
    """A grid of tasks that has grown: the first `old_rows` x `old_cols` were there before."""

    title: str
    rows: int
    cols: int
    old_rows: int
    old_cols: int


@dataclass(frozen=True, slots=True)
class Boards:
    """Grids of tasks side by side."""

    title: str
    boards: Sequence[Board]
    old_name: str
    new_name: str


Chart = Lines | Bars | Boards


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A table or figure of the paper: `how` says what was measured and what was simulated."""

    name: str
    title: str
    how: str
    tables: Sequence[Table]
    verdicts: Sequence[Verdict]
    charts: Sequence[Chart] = ()


def summarise(exhibits: Sequence[Exhibit]) -> str:
    """How many statements agree, for how many of these a control agrees too, and how many cannot be compared."""
    verdicts = [verdict for exhibit in exhibits for verdict in exhibit.verdicts]
    compared = [verdict for verdict in verdicts if verdict.agrees is not None]
    agree = [verdict for verdict in compared if verdict.agrees]
    alike = sum(verdict.alike for verdict in agree)
    text = f"{len(agree)} of {len(compared)} statements agree; for {alike} of these {len(agree)} a control agrees too"
    apart = len(verdicts) - len(compared)
    return text + (f"; {apart} more cannot be compared" if apart else "")
