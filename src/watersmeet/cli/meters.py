"""The common part of the displays of `run` and `demo`: totals, recent batches, and the lines that show them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import batches, seconds, sparkline
from watersmeet.jobs.progress import Batches, together
from watersmeet.log.status import JoinStatus
from watersmeet.model.figures import count, size

# The width of the widest sparkline: older batches need not be kept.
_KEPT_BATCHES = 200

# Columns that a line needs beside its sparkline.
_BESIDE_SPARKLINE = 48


@dataclass
class Meters:
    """Totals over the whole run and one value for each of the last batches."""

    rows_in: int = 0
    rows_out: int = 0
    batches: int = 0
    latest: Batches | None = None
    recent: deque[Batches] = field(default_factory=lambda: deque(maxlen=_KEPT_BATCHES))
    state: JoinStatus | None = None
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        return (self.ended_s or time.monotonic()) - self.started_s

    def end(self) -> None:
        """Stop the clock."""
        self.ended_s = time.monotonic()

    def add(self, new: Sequence[Batches], state: JoinStatus | None) -> None:
        self.state = state
        if not new:
            return
        total = together(new)
        self.rows_in += total.rows_in
        self.rows_out += total.rows_out
        self.batches += len(new)
        self.latest = new[-1]
        self.recent.extend(new)


def plain_line(new: Sequence[Batches], state: JoinStatus | None) -> str:
    """One line for the batches since the last line."""
    total = together(new)
    which = f"batch {total.last}" if total.count == 1 else f"batches {total.first}-{total.last}"
    return (
        f"{which}: {count(total.rows_in)} rows in ({count(total.in_per_s)}/s), "
        f"{count(total.rows_out)} out ({count(total.out_per_s)}/s), "
        f"{seconds(total.ms / len(new))} a batch; {state_words(state)}"
    )


def state_words(state: JoinStatus | None) -> str:
    if state is None:
        return "state not visible from here"
    return f"state {count(state.rows)} rows, {size(state.live_bytes)}; merging debt {count(state.pending_rows)} rows"


def rule(width: int, *, ascii_only: bool) -> Text:
    return Text(("-" if ascii_only else "─") * width, style="dim")


def rate_rows(meters: Meters, width: int, *, ascii_only: bool) -> Table:
    """Rows in, rows out and batch time, each with a sparkline."""
    grid = Table.grid(padding=(0, 2), expand=False)
    for justify in ("left", "right", "left", "left"):
        grid.add_column(justify=justify, no_wrap=True)
    room = max(8, width - _BESIDE_SPARKLINE)
    recent, latest = list(meters.recent), meters.latest

    def line(word: str, now: str, values: list[float], total: str, colour: str) -> None:
        drawn = sparkline(values, room, ascii_only=ascii_only).ljust(room)
        grid.add_row(word, Text(now, style="bold"), Text(drawn, style=colour), total)

    rate_in, rate_out = (latest.in_per_s, latest.out_per_s) if latest else (0.0, 0.0)
    all_in, all_out = f"{count(meters.rows_in)} in all", f"{count(meters.rows_out)} in all"
    took = seconds(latest.ms) if latest else "-"
    line("rows in", f"{count(rate_in)}/s", [b.in_per_s for b in recent], all_in, "cyan")
    line("rows out", f"{count(rate_out)}/s", [b.out_per_s for b in recent], all_out, "green")
    line("batch time", took, [float(b.ms) for b in recent], batches(meters.batches), "yellow")
    return grid
