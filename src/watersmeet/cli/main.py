"""The command line: `watersmeet status`, `run`, `settle`, `hub` and `demo`.

Nothing here or in the command modules imports Spark, DuckDB or Arrow at the top: `--help` must be fast. Exit codes:
0 done or stopped on request; 1 the query failed, results differ or state is damaged; 2 refused before anything was
done; 130 aborted.
"""

from __future__ import annotations

from typing import Annotated

import typer

from watersmeet import __version__
from watersmeet.cli.demo.command import demo
from watersmeet.cli.help import help_text
from watersmeet.cli.hub import hub
from watersmeet.cli.run import run
from watersmeet.cli.settle import settle
from watersmeet.cli.status import status

app = typer.Typer(
    name="watersmeet",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"watersmeet {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Join streams on Apache Spark, with durable state: every result is emitted once, even after a crash."""


for _command in (demo, run, settle, status):
    app.command(help=help_text(_command))(_command)
app.add_typer(hub, name="hub")
