"""The demo's live display: fits 80 columns and 24 lines, and uses more columns where there are more."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import bar, clock, count, shortened, size
from watersmeet.cli.meters import Meters, rate_rows, rule
from watersmeet.jobs.model import Join

_HINT = "Ctrl-C ends it early; what was joined is still checked"

# Before the clock starts; later phases are the caller's words.
WARMING_UP = "warming up"

# The keys shown, and the width of the words and figures beside a key's bar.
HEAVIEST = 6
_BESIDE_BAR = 18
# The state's table, with its gap to the keys.
_STATE_COLUMNS = 44


@dataclass
class DemoPanel:
    """Drawn from the meters; what is not in them is set from outside."""

    join: Join
    titles: dict[str, str]
    seconds: float
    meters: Meters
    heaviest: list[tuple[str, int]] = field(default_factory=list)
    phase: str | None = WARMING_UP

    def draw(self, width: int, *, ascii_only: bool) -> RenderableType:
        body = Table.grid()
        body.add_column(width=_STATE_COLUMNS, no_wrap=True)
        body.add_column(no_wrap=True)
        body.add_row(self._state(), self._keys(width - _STATE_COLUMNS, ascii_only))
        return Group(
            rule(width, ascii_only=ascii_only),
            self._head(width, ascii_only),
            Text(shortened(f"on {self.join.on}", width), style="dim"),
            "",
            rate_rows(self.meters, width, ascii_only=ascii_only),
            "",
            body,
            "",
            # Not as wide as the terminal: the echo of a Ctrl-C at the end of a full line would tear the display.
            Text(_HINT if self.meters.ended_s is None else "", style="dim"),
        )

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
        """Always of the same height, so that nothing jumps."""
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
        on_disk = size(state.disk_bytes) if state else ""
        debt = f"{count(state.pending_rows)} rows in {count(state.pending_parts)} parts" if state else ""
        return Group(table, "", f"on disk       {on_disk}", f"merging debt  {debt}")

    def _keys(self, width: int, ascii_only: bool) -> RenderableType:
        """The heaviest keys by results; as many lines as there will ever be."""
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(min_width=len("symbol"))
        table.add_column(justify="right", min_width=len("results"))
        table.add_column()
        table.add_row(Text("symbol", style="dim"), Text("results", style="dim"), "")
        top = self.heaviest[0][1] if self.heaviest else 0
        for key, results in self.heaviest:
            drawn = bar(results, top, width - _BESIDE_BAR, ascii_only=ascii_only)
            table.add_row(key, count(results), Text(drawn, style="magenta"))
        for _ in range(HEAVIEST - len(self.heaviest)):
            table.add_row("", "", "")
        return table
