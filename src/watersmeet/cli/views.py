"""Show a running query: a live panel on a terminal, plain lines everywhere else.

Both are context managers with `observe`, which is called about once a second when the meters have moved, and `say` for
a line that stays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, RenderableType
from rich.live import Live

from watersmeet.cli.meters import Meters, plain_line
from watersmeet.cli.outcome import say
from watersmeet.jobs.progress import Batches

# Often enough for a clock that shows seconds; more would only take CPU time from the join.
_REFRESH_PER_S = 4


class Panel(Protocol):
    """The content of a live view. It can be drawn at any time, from its meters."""

    def draw(self, width: int, *, ascii_only: bool) -> RenderableType: ...


class PlainView:
    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def observe(self, new: Sequence[Batches], meters: Meters) -> None:
        if new:
            self.say(plain_line(new, meters.state))

    def say(self, text: str) -> None:
        say(self._console, text)
        self._console.file.flush()


class LiveView:
    def __init__(self, panel: Panel, console: Console) -> None:
        self._panel = panel
        self._console = console
        self._live = Live(
            console=console,
            get_renderable=self._draw,
            refresh_per_second=_REFRESH_PER_S,
            vertical_overflow="crop",
        )

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def observe(self, new: Sequence[Batches], meters: Meters) -> None:
        pass

    def say(self, text: str) -> None:
        say(self._console, text)

    def _draw(self) -> RenderableType:
        # One column short: some terminals wrap a line that fills the last one.
        return self._panel.draw(self._console.width - 1, ascii_only=self._console.options.ascii_only)


View = PlainView | LiveView


def is_watched(console: Console, *, plain: bool) -> bool:
    """Whether the console is a terminal and a live display is wanted."""
    return (
        sys.stdout.isatty() and not console.is_dumb_terminal and not plain and not os.environ.get("NO_COLOR")
    )


def choose_view(panel: Panel, console: Console, *, plain: bool) -> View:
    return LiveView(panel, console) if is_watched(console, plain=plain) else PlainView(console)
