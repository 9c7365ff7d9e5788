"""How a command ends: one readable message and an exit code; a traceback only for `--debug`."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

import typer

from watersmeet.errors import WatersmeetError
from watersmeet.jobs.failure import QueryError

FAILED = 1
REFUSED = 2
BROKEN_OFF = 130


def say_error(message: str) -> None:
    typer.echo(f"{typer.style('error:', fg=typer.colors.RED, bold=True)} {message}", err=True)


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
