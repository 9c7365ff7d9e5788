"""`watersmeet reproduce`: published experiments, run again on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.help import help_text
from watersmeet.cli.outcome import BROKEN_OFF, reported, say_error
from watersmeet.cli.signals import BrokenOff, StopRequest

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Run the experiments of a paper again and show them next to the published figures.",
)


def adaptive(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where page, pictures and figures go.")
    ] = Path("reproduce-adaptive"),
    scale: Annotated[
        float | None,
        typer.Option(
            "--scale", metavar="SF", help="TPC-H scale factor on Spark. \\[default: 0.5, quick: 0.05]"
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under two minutes: less data, two skews; times prove nothing.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this one, repeatable: table2, fig5a to fig5l."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="Keep the TPC-H tables here. \\[default: data in DIR of --out]"
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of the live display.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run Table 2 and Figures 5a to 5l of "Scalable and Adaptive Online Joins" (VLDB 2014).

    Times are measured on Spark, on two cores, over TPC-H data with skew. What needs 16 machines and more is
    simulated at the paper's sizes, with the planner that also runs on Spark. Every table stands next to the
    published figures, with a line on what agrees and what does not. Takes about five minutes on two cores.
    Needs: pip install 'watersmeet[reproduce]'

    Examples:

      watersmeet reproduce adaptive --quick
      watersmeet reproduce adaptive --out results --scale 1
      watersmeet reproduce adaptive --only fig5k --only fig5l

    Exit code: 0, whether the figures agree or not; 1 a query failed; 2 refused; 130 broken off.
    """
    try:
        with StopRequest() as stop, reported(debug=debug):
            from watersmeet.cli.reproduce_show import show

            done = show(out=out, scale=scale, quick=quick, only=only or [], data=data, plain=plain, stop=stop)
    except (BrokenOff, KeyboardInterrupt):
        done = False
    if not done:
        say_error("broken off; no page was written")
        raise typer.Exit(BROKEN_OFF)


app.command(name="adaptive", help=help_text(adaptive))(adaptive)


# With one command alone typer would leave its name out: `watersmeet reproduce --quick`.
@app.callback()
def main() -> None:
    pass
