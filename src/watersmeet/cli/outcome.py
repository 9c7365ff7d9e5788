"""How a command ends: one readable message and an exit code, with a traceback only for `--debug`."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

from watersmeet.errors import WatersmeetError
from watersmeet.jobs.failure import QueryError

if TYPE_CHECKING:
    from rich.console import Console

FAILED = 1
REFUSED = 2
BROKEN_OFF = 130


def say(console: Console, *parts: str | tuple[str, str]) -> None:
    """Print a line of texts or (text, style) pairs.

    A terminal wraps it between words. A file or a pipe gets one line, to be searched and parsed.
    """
    from rich.text import Text

    console.print(Text.assemble(*parts), soft_wrap=not console.is_terminal, highlight=False)


def say_error(message: str) -> None:
    from rich.console import Console

    say(Console(stderr=True), ("error:", "bold red"), f" {message}")


@contextlib.contextmanager
def reported(*, debug: bool, clean: Callable[[str], str] = str) -> Iterator[None]:
    """Turn the library's errors into a message and an exit code. `clean` may blank out parts of the message."""
    try:
        yield
    except (WatersmeetError, OSError) as error:
        if debug:
            typer.echo(clean("".join(traceback.format_exception(error))), err=True)
        say_error(clean(str(error)))
        raise typer.Exit(FAILED if isinstance(error, QueryError) else REFUSED) from error
