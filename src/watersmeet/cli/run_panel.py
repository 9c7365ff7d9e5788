"""The live display of `watersmeet run`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import clock, shortened
from watersmeet.cli.meters import Meters, rate_rows, rule
from watersmeet.cli.plans import latest_events, plan_table
from watersmeet.jobs.model import Job
from watersmeet.log.status import JoinStatus
from watersmeet.model.figures import count, size
from watersmeet.schemes.scheme import Shown

# Lines for the rows of a plan, such as the heaviest keys, and for its changes.
FIRST_ROWS, CHANGES = 5, 3

_HINT = "Ctrl-C stops; the next start continues from there"


class RunPanel:
    def __init__(self, job: Job, meters: Meters):
        self._job = job
        self._meters = meters

    def draw(self, width: int, *, ascii_only: bool) -> RenderableType:
        head = Table.grid(expand=True)
        head.add_column(no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        batch = f"batch {self._meters.latest.last}" if self._meters.latest else "first batch"
        time = f"{batch}   {clock(self._meters.elapsed_s)}"
        head.add_row(Text(shortened(self._job.name, width - len(time) - 2), style="bold"), time)
        return Group(
            rule(width, ascii_only=ascii_only),
            head,
            rate_rows(self._meters, width, ascii_only=ascii_only),
            *_state_lines(self._meters.state, width, ascii_only=ascii_only),
            Text(shortened(_HINT if self._meters.ended_s is None else "", width), style="dim"),
        )


def _state_lines(state: JoinStatus | None, width: int, *, ascii_only: bool) -> list[RenderableType]:
    if state is None:
        return [Text("state       not known yet", style="dim")]
    words = (
        f"state       {count(state.rows)} rows, {size(state.live_bytes)} in {count(state.runs)} runs; "
        f"merging debt {count(state.pending_rows)} rows"
    )
    lines: list[RenderableType] = [Text(shortened(words, width))]
    if state.shown is not None:
        lines += plan_lines(state.shown, width, ascii_only=ascii_only)
    return lines


def plan_lines(shown: Shown, width: int, *, ascii_only: bool, changes: int = CHANGES) -> list[RenderableType]:
    """The plan in a line, its first rows and latest changes, always of the same height."""
    lines: list[RenderableType] = [Text(shortened(shown.summary, width))]
    if not shown.columns:
        return lines
    table = plan_table(shown, FIRST_ROWS, width, ascii_only=ascii_only, lines=FIRST_ROWS)
    events = latest_events(shown, changes, width, ascii_only=ascii_only)
    return [*lines, "", table, "", *map(Text, events)]
