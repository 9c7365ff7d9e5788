"""`watersmeet demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.outcome import BROKEN_OFF, FAILED, reported, say_error
from watersmeet.cli.signals import BrokenOff, StopRequest


def demo(
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="How long the streams run.")] = 30,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of the live display.")] = False,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="DIR", help="Keep data, state, results and the job file in this new directory."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The seed of the simulated market.")] = 1,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Join two live streams on this machine, watch it, and check every result.

    A simulated market writes buy and sell offers as Parquet files. An embedded Spark joins each buy with the
    sells of the same lot that ask for no more. A few lots have most of the offers: watch how their keys become
    heavy and all tasks share them. At the end DuckDB joins the same files at once, and the two results are
    compared row by row. Ctrl-C ends it early; the results so far are still checked.

    Examples:

      watersmeet demo
      watersmeet demo --seconds 120 --keep /tmp/market
      watersmeet status /tmp/market/checkpoint/watersmeet
      watersmeet run /tmp/market/job.toml --once

    Exit code: 0; 1 if a result is wrong; 2 refused; 130 aborted with a second Ctrl-C.
    """
    try:
        with StopRequest() as stop, reported(debug=debug):
            from watersmeet.cli.demo.show import show

            equal = show(seconds=seconds, plain=plain, keep=keep, seed=seed, stop=stop)
    except (BrokenOff, KeyboardInterrupt):
        say_error("aborted; the results were not checked")
        raise typer.Exit(BROKEN_OFF) from None
    if not equal:
        raise typer.Exit(FAILED)
