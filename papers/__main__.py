"""`python -m papers adaptive`: the experiments of a paper, run again on this machine.

`make reproduce PAPER=adaptive` runs the same with everything installed. As in `watersmeet.cli`, nothing heavy is
imported at the top: `--help` must be there at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.help import help_text
from watersmeet.cli.outcome import BROKEN_OFF, reported, say_error
from watersmeet.cli.signals import BrokenOff, StopRequest

if TYPE_CHECKING:
    from papers.shared.reproduction import Reproduction

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run the experiments of a paper again and show them next to the published figures.",
)

_Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where page, pictures and figures go.")]
_Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Keep the TPC-H tables here. \\[default: data in DIR of --out]"
    ),
]
_Plain = Annotated[bool, typer.Option("--plain", help="Plain lines instead of the live display.")]
_Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def adaptive(
    out: _Out = Path("reproduce-adaptive"),
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
        typer.Option(
            "--only",
            metavar="NAME",
            help="Only this one, repeatable: table2, fig5a to fig5l without fig5f and fig5j.",
        ),
    ] = None,
    data: _Data = None,
    plain: _Plain = False,
    debug: _Debug = False,
) -> None:
    """Run Table 2 and Figures 5a to 5l, without 5f and 5j, of "Scalable and Adaptive Online Joins" (VLDB 2014).

    Times are measured on Spark, on two cores, over TPC-H data with skew, and of Table 2 also without Spark, in 16 tasks one
    by one. What needs 16 machines and more is simulated at the paper's sizes, with the planner that also runs on Spark.
    Every table stands next to the published figures, with a line on what agrees and what does not, and on whether an
    operator that never adapts would agree too. Takes about eight minutes on two cores.
    Needs: pip install -e '.[spark,papers]'

    Examples:

      python -m papers adaptive --quick
      python -m papers adaptive --out results --scale 1
      python -m papers adaptive --only fig5k --only fig5l

    Exit code: 0, whether the figures agree or not; 1 a query failed; 2 refused; 130 aborted.
    """

    def prepared() -> Reproduction:
        from papers.adaptive.figures import adaptive

        return adaptive(scale, quick=quick)

    _run(prepared, out, only or [], data, plain=plain, debug=debug)


def hypercube(
    out: _Out = Path("reproduce-hypercube"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Under two minutes: less data, fewer points; times prove nothing.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this one, repeatable: fig3 to fig7."),
    ] = None,
    data: _Data = None,
    plain: _Plain = False,
    debug: _Debug = False,
) -> None:
    """Run Figures 3 to 7 of "Streaming HyperCube" (EDBT 2019).

    Hash join, join-biclique and hypercube side by side: timed on Spark with two tasks, and task by task with the
    paper's 48, run one after the other in this process. The paper prints curves without numbers: what it says of
    them stands next to what came out here, with a line on what agrees and what does not, and on whether another
    operator would agree too. Takes about ten minutes on two cores. Needs: pip install -e '.[spark,papers]'

    Examples:

      python -m papers hypercube --quick
      python -m papers hypercube --out results
      python -m papers hypercube --only fig3

    Exit code: 0, whether the figures agree or not; 1 a query failed; 2 refused; 130 aborted.
    """

    def prepared() -> Reproduction:
        from papers.hypercube.figures import FULL, QUICK, Hypercube

        return Hypercube(QUICK if quick else FULL)

    _run(prepared, out, only or [], data, plain=plain, debug=debug)


def hybrid(
    out: _Out = Path("reproduce-hybrid"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Under 90 seconds: a quarter of rows and memory; times prove nothing."),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Only this one, repeatable: fig3, fig6, fig8, fig9, fig10a to fig11.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="Keep the relations here. \\[default: data in DIR of --out]"
        ),
    ] = None,
    plain: _Plain = False,
    debug: _Debug = False,
) -> None:
    """Run Figures 3, 6, 8, 9, 10a to 10d and 11 of "HYBRIDJOIN for Near Real-time Data Warehousing" (2010).

    HYBRIDJOIN, MESHJOIN and index nested loop side by side, in one process without Spark, under the paper's memory budget:
    a bursty stream with Zipf keys against relations of up to 8 million rows in SQLite. The paper prints its curves without
    numbers: what it says of them stands next to what came out here, with a line on what agrees and what does not, and on
    whether another algorithm would agree too. Takes about a quarter of an hour on two cores and 2 GB of disk. Needs: pip install -e '.[papers]'

    Examples:

      python -m papers hybrid --quick
      python -m papers hybrid --out results
      python -m papers hybrid --only fig10c --only fig11

    Exit code: 0, whether the figures agree or not; 1 a run failed; 2 refused; 130 aborted.
    """

    def prepared() -> Reproduction:
        from papers.hybrid.figures import FULL, QUICK, Hybrid

        return Hybrid(QUICK if quick else FULL)

    _run(prepared, out, only or [], data, plain=plain, debug=debug)


def rjoin(
    out: _Out = Path("reproduce-rjoin"),
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="About a minute: fewer nodes, queries and tuples; numbers prove little."
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this one, repeatable: fig2 to fig9."),
    ] = None,
    plain: _Plain = False,
    debug: _Debug = False,
) -> None:
    """Run Figures 2 to 9 of "Continuous Multi-Way Joins over Distributed Hash Tables" (EDBT 2008).

    RJoin on a simulated Chord ring of 1,000 nodes, with 20,000 continuous joins of 4, 6 and 8 relations: messages, hits and
    stored items are counted, nothing is timed. Random, first and worst choices are counted beside it. The paper prints its
    curves without numbers: what it says of them stands next to what came out here, with a line on what agrees and what
    does not, and on whether another strategy would agree too. Takes about ten minutes on two cores and 4 GB of memory.
    Needs: pip install -e '.[papers]'

    Examples:

      python -m papers rjoin --quick
      python -m papers rjoin --out results
      python -m papers rjoin --only fig2 --only fig9

    Exit code: 0, whether the figures agree or not; 1 a run failed; 2 refused; 130 aborted.
    """

    def prepared() -> Reproduction:
        from papers.rjoin.figures import FULL, QUICK, RJoin

        return RJoin(QUICK if quick else FULL)

    _run(prepared, out, only or [], None, plain=plain, debug=debug)


def state(
    out: _Out = Path("reproduce-state"),
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Two minutes: a fifth of the rows, longer batches; times prove nothing."
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Only this one, repeatable: fig6, fig7, fig9 to fig12, fig14 to fig17, fig20, fig21.",
        ),
    ] = None,
    plain: _Plain = False,
    debug: _Debug = False,
) -> None:
    """Run Figures 6, 7, 9 to 12, 14 to 17, 20 and 21 of "Adapting State-Intensive Non-Blocking Queries" (WPI 2005).

    A three-way join whose state outgrows its memory, on the operator itself, in one process without Spark: the paper's
    stream under a virtual clock, one to five tasks as its machines. Which groups are pushed, how much of them, when groups
    move, and what the clean-up owes. The paper prints its curves without numbers: what it says of them stands next to what
    came out here, with a line on what agrees and what does not, and on whether another policy would agree too. Takes about
    ten minutes on two cores and 100 MB of disk. Needs: pip install -e '.[papers]'

    Examples:

      python -m papers state --quick
      python -m papers state --out results
      python -m papers state --only fig11 --only fig12

    Exit code: 0, whether the figures agree or not; 1 a run failed; 2 refused; 130 aborted.
    """

    def prepared() -> Reproduction:
        from papers.state.figures import FULL, QUICK, State

        return State(QUICK if quick else FULL)

    _run(prepared, out, only or [], None, plain=plain, debug=debug)


def _run(
    prepared: Callable[[], Reproduction],
    out: Path,
    only: list[str],
    data: Path | None,
    *,
    plain: bool,
    debug: bool,
) -> None:
    """`prepared` is called late: a reproduction loads Spark, which `--help` must not."""
    try:
        with StopRequest() as stop, reported(debug=debug):
            from papers.shared.show import show

            done = show(prepared(), out=out, only=only, data=data, plain=plain, stop=stop)
    except (BrokenOff, KeyboardInterrupt):
        done = False
    if not done:
        say_error("aborted; no page was written")
        raise typer.Exit(BROKEN_OFF)


for _command in (adaptive, hypercube, hybrid, rjoin, state):
    app.command(name=_command.__name__, help=help_text(_command))(_command)

if __name__ == "__main__":
    app(prog_name="python -m papers")
