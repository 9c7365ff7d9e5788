"""The demo's live display: fits 80 columns and 24 lines, and uses more columns where there are more."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import bar, clock, count, size
from watersmeet.cli.meters import Meters, rate_rows
from watersmeet.jobs.model import Join

# The keys shown, and the width of the words and figures beside a key's bar.
HEAVIEST = 6
_BESIDE_BAR = 18
# The state's table, with its gap to the keys.
_STATE_COLUMNS = 40


@dataclass
class DemoPanel:
    """Drawn from the meters; `heaviest` and `phase` are set from outside."""

    join: Join
    titles: dict[str, str]
    seconds: float
    meters: Meters
    heaviest: list[tuple[str, int]] = field(default_factory=list)
    phase: str | None = None

    def draw(self, width: int, *, ascii_only: bool) -> RenderableType:
        rule = Rule(style="dim", characters="-" if ascii_only else "─")
        body = Table.grid()
        body.add_column(width=_STATE_COLUMNS, no_wrap=True)
        body.add_column(no_wrap=True)
        body.add_row(self._state(), self._keys(width - _STATE_COLUMNS, ascii_only))
        return Group(
            rule,
            self._head(width, ascii_only),
            Text(f"on {self.join.on}", style="dim", no_wrap=True, overflow="ellipsis"),
            "",
            rate_rows(self.meters, width, ascii_only=ascii_only),
            "",
            body,
            rule,
        )

    def _head(self, width: int, ascii_only: bool) -> RenderableType:
        elapsed = min(self.meters.elapsed_s, self.seconds)
        time = self.phase or f"{clock(elapsed)} of {clock(self.seconds)}"
        title = " and ".join(self.titles.values()) + ", joined live"
        room = max(0, width - len(title) - len(time) - 4)
        done = round(room * elapsed / max(1, self.seconds))
        full, empty = ("=", " ") if ascii_only else ("━", "─")
        return Text.assemble(
            (title, "bold"), "  ", (full * done, "blue"), (empty * (room - done), "dim"), "  ", time
        )

    def _state(self) -> RenderableType:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column()
        for _ in range(3):
            table.add_column(justify="right")
        dim = ("state", "rows", "bytes", "runs")
        table.add_row(*(Text(word, style="dim") for word in dim))
        state = self.meters.state
        if state is None or not state.inputs:
            return table
        for one in state.inputs:
            table.add_row(
                self.titles.get(one.name, one.name), count(one.rows), size(one.bytes), count(one.runs)
            )
        table.add_row("on disk", "", size(state.disk_bytes), "")
        table.add_row("to merge", count(state.pending_rows), "", count(state.pending_parts))
        return table

    def _keys(self, width: int, ascii_only: bool) -> RenderableType:
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column()
        table.add_column(justify="right")
        table.add_column()
        table.add_row(Text("symbol", style="dim"), Text("results", style="dim"), "")
        top = self.heaviest[0][1] if self.heaviest else 0
        for key, results in self.heaviest:
            drawn = bar(results, top, width - _BESIDE_BAR, ascii_only=ascii_only)
            table.add_row(key, count(results), Text(drawn, style="magenta"))
        return table
