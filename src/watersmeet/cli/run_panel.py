"""The live display of `watersmeet run`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import clock, count, shortened, size
from watersmeet.cli.meters import Meters, rate_rows, rule
from watersmeet.jobs.model import Job
from watersmeet.log.status import JoinStatus

_HINT = "Ctrl-C stops; the next start goes on from there"


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
            _state_line(self._meters.state, width),
            Text(shortened(_HINT if self._meters.ended_s is None else "", width), style="dim"),
        )


def _state_line(state: JoinStatus | None, width: int) -> Text:
    if state is None:
        return Text("state       not known yet", style="dim")
    words = (
        f"state       {count(state.rows)} rows, {size(state.live_bytes)} in {count(state.runs)} runs; "
        f"merging debt {count(state.pending_rows)} rows"
    )
    return Text(shortened(words, width))
