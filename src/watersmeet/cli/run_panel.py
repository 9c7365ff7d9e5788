"""The live display of `watersmeet run`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import clock, count, shortened, size
from watersmeet.cli.heavy import biclique_words, cube_words, heavy_table, latest_changes
from watersmeet.cli.meters import Meters, rate_rows, rule
from watersmeet.jobs.model import Job
from watersmeet.log.status import JoinStatus
from watersmeet.log.status_cube import CubeStatus

# Lines for the heaviest keys and for the changes of their grids.
HEAVIEST, CHANGES = 5, 3

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
    if state.biclique is not None:
        lines.append(Text(f"strategy    {biclique_words(state.biclique)}"))
    if state.hypercube is not None:
        names = [one.name for one in state.inputs]
        lines += hypercube_lines(state.hypercube, names, width, ascii_only=ascii_only)
    return lines


def hypercube_lines(
    cube: CubeStatus | None, inputs: Sequence[str], width: int, *, ascii_only: bool, changes: int = CHANGES
) -> list[RenderableType]:
    """Balance, heaviest keys and latest changes; always of the same height, so that nothing jumps."""
    heavy = cube.heavy[:HEAVIEST] if cube else ()
    return [
        Text(shortened(f"hypercube   {cube_words(cube)}" if cube else "", width)),
        "",
        heavy_table(heavy, inputs, width, ascii_only=ascii_only, lines=HEAVIEST),
        "",
        *map(Text, latest_changes(cube, changes, width, ascii_only=ascii_only)),
    ]
