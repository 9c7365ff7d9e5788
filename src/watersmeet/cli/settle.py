"""`watersmeet settle`: pay what a query owes after it has ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.outcome import BROKEN_OFF, reported, say_error


def settle(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.TOML", help="The job file of the query.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="FOLDER", help="A folder or URI that does not exist yet, for the results."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print how much is owed; change nothing.")
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Settle the rest if a damaged run cannot be read.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines even on a terminal.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Pay what a query with memory= owes after it has ended, into a folder, and mark its state as settled.

    The results are written with the format of the job's sink if that writes files, otherwise as Parquet. Together
    with the results of the sink they are the full join. A later start of the query goes on from there: it does not pay
    them again, and new rows meet all rows before them.

    Stop the query first. Any driver of it that is still at work stops. The settling is refused if Spark has not
    committed the last batch of the state: let `watersmeet run JOB.TOML --once` finish it.

    It may be killed at any time and run again. The folder appears when everything is written. It must not be the
    folder of a streaming file sink: Spark's readers would not see the files.

    Examples:

      watersmeet settle job.toml --dry-run         how much is owed
      watersmeet settle job.toml --to late         pay it into the folder late
      watersmeet status state                      says what was settled

    Exit code: 0 settled, now or before, or a dry run; 1 Spark failed; 2 refused; 130 aborted.
    """
    from watersmeet.jobs.file import load_job
    from watersmeet.jobs.secrets import scrub, secrets_of

    try:
        with reported(debug=debug):
            if to is None and not dry_run:
                raise typer.BadParameter("give a folder that does not exist yet", param_hint="--to")
            job = load_job(job_file)
        secrets = secrets_of(job, os.environ)
        with reported(debug=debug, clean=lambda text: scrub(text, secrets)):
            from watersmeet.cli.settling import Aborted, print_debts, settle_job

            try:
                if dry_run or to is None:
                    print_debts(job, plain=plain)
                else:
                    settle_job(job, to, accept_loss=accept_loss, plain=plain)
            except Aborted:
                raise KeyboardInterrupt from None
    except KeyboardInterrupt:
        say_error("aborted; run it again: it begins anew, or ends what was paid completely")
        raise typer.Exit(BROKEN_OFF) from None
