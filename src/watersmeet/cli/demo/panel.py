"""The demo's live display: fits 80 columns and 24 lines, and uses more columns if there are more."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import clock, shortened
from watersmeet.cli.meters import Meters, rate_rows, rule
from watersmeet.cli.run_panel import plan_lines
from watersmeet.engine.options import JoinOptions
from watersmeet.model.figures import count, size
from watersmeet.schemes.hypercube.facts import CubePlan
from watersmeet.schemes.hypercube.scheme import Hypercube
from watersmeet.schemes.scheme import Shown

_HINT = "Ctrl-C ends it early; the results so far are still checked"

# The phase before the clock starts. The caller sets later ones.
WARMING_UP = "warming up"

# Width of the state's table, with the gap to the text beside it.
_STATE_COLUMNS = 44
# One less than `run` shows: the display must fit 24 lines.
_CHANGES = 2


@dataclass
class DemoPanel:
    """Drawn from the meters; the caller sets the rest."""

    join: JoinOptions
    titles: dict[str, str]
    seconds: float
    meters: Meters
    phase: str | None = WARMING_UP

    def draw(self, width: int, *, ascii_only: bool) -> RenderableType:
        body = Table.grid()
        body.add_column(width=_STATE_COLUMNS, no_wrap=True)
        body.add_column(no_wrap=True)
        body.add_row(self._state(), self._disk())
        return Group(
            rule(width, ascii_only=ascii_only),
            self._head(width, ascii_only),
            Text(shortened(f"on {self.join.on}", width), style="dim"),
            rate_rows(self.meters, width, ascii_only=ascii_only),
            "",
            body,
            *plan_lines(self._plan(), width, ascii_only=ascii_only, changes=_CHANGES),
            # Narrower than the terminal: the echo of a Ctrl-C at the end of a full line would break the display.
            Text(_HINT if self.meters.ended_s is None else "", style="dim"),
        )

    def _plan(self) -> Shown:
        """The plan; before the first batch an empty one of the same height."""
        titles = tuple(self.titles.values())
        shown = self.meters.state.shown if self.meters.state else None
        if shown is None:
            return Hypercube.show(CubePlan(titles, ()), titles)
        heads = ("heavy key", *(f"rows of {title}" for title in titles))
        return replace(shown, columns=(*heads, *shown.columns[len(heads) :]))

    def _head(self, width: int, ascii_only: bool) -> RenderableType:
        elapsed = min(self.meters.elapsed_s, self.seconds) if self.phase != WARMING_UP else 0.0
        time = self.phase or f"{clock(elapsed)} of {clock(self.seconds)}"
        title = " and ".join(self.titles.values()) + ", joined live"
        room = max(0, width - len(title) - len(time) - 4)
        done = round(room * elapsed / self.seconds)
        full, empty = ("=", " ") if ascii_only else ("━", "─")
        return Text.assemble(
            (title, "bold"), "  ", (full * done, "blue"), (empty * (room - done), "dim"), "  ", time
        )

    def _state(self) -> RenderableType:
        """The state, always of the same height."""
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(min_width=max(map(len, self.titles.values())))
        for least in (9, 8, 4):
            table.add_column(justify="right", min_width=least)
        table.add_row(*(Text(word, style="dim") for word in ("state", "rows", "bytes", "runs")))
        state = self.meters.state
        inputs = {one.name: one for one in state.inputs} if state else {}
        for name, title in self.titles.items():
            one = inputs.get(name)
            table.add_row(
                title, *((count(one.rows), size(one.bytes), count(one.runs)) if one else ("", "", ""))
            )
        return table

    def _disk(self) -> RenderableType:
        state = self.meters.state
        on_disk = size(state.disk_bytes) if state else ""
        debt = f"{count(state.pending_rows)} rows" if state else ""
        return Group(f"on disk       {on_disk}", f"merging debt  {debt}")
