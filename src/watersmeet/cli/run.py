"""`watersmeet run`: run the join of a job file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.outcome import BROKEN_OFF, reported, say_error
from watersmeet.cli.signals import BrokenOff, StopRequest


def run(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.TOML", help="The job file.")],
    once: Annotated[
        bool, typer.Option("--once", help="Join the present input and end, whatever the trigger.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Check and explain the job; start nothing.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines even on a terminal.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run the join of a job file until Ctrl-C or the end of its input.

    A restart continues where it stopped, and every result is emitted once. If the predicate, the keys or the
    columns no longer fit the state, the job is refused before the first batch.

    Examples:

      watersmeet run job.toml            run; stop with Ctrl-C or SIGTERM
      watersmeet run job.toml --once     join the present input, then end
      watersmeet run job.toml --check    print what would be done

    All keys of a job file:

      [inputs.o]                         # one table for each input
      format = "parquet"                 # any streaming source of Spark
      path = "orders"                    # relative to the job file
      schema = "id BIGINT, px DOUBLE"    # needed for CSV and JSON
      where = "px > 0"                   # optional Spark SQL
      columns = ["id", "px * 2 AS px2"]  # optional Spark SQL
      options = { maxFilesPerTrigger = 10 }

      [inputs.t]
      format = "kafka"
      columns = ["CAST(value AS STRING) AS v"]
      [inputs.t.options]
      subscribe = "trades"
      "kafka.bootstrap.servers" = "broker:9092"
      "kafka.sasl.jaas.config" = "${KAFKA_JAAS}"   # from the environment

      [inputs.f]                         # files that the join reads itself,
      format = "parquet"                 # as wm.files: parquet, arrow, csv
      path = "fills"                     # or json
      native = true                      # options: maxFilesPerTrigger,
                                         # maxBytesPerTrigger, header, order,
                                         # movedFrom

      [inputs.p]                         # or a table, found by its key; at
                                         # least one input is no table
      path = "products"                  # Parquet, a database URI or env:NAME
      key = "id"                         # or a list of columns
      table = "products"                 # in a database
      refresh = "10 minutes"             # optional, as are all below
      in_place = false                   # see wm.table
      page_bytes = 1000000               # or page_rows
      patience = "2 minutes"

      [join]                             # as the arguments of wm.join
      on = "o.id = t.id AND t.px <= o.px"
      select = ["o.id", "t.px"]          # optional, as are all below
      name = "fills"                     # default: the inputs' names
      tasks = 4                          # default: the cores of the session
      strategy = "grid"                  # default: "auto"
      cells = 8                          # of a grid; or mapping = [2, 4]
      groups = 2                         # of a biclique
      within = "10 minutes"              # a window, with lateness and
      time = { o = "ts", t = "ts" }      # the time column of each stream
      lateness = "1 minute"
      how = "left"                       # with tables; default: "inner"
      max_delay = "30 seconds"           # with tables
      memory = "200 MB"                  # a budget for each task
      pay_within = "10 minutes"          # the age of debts, at most
      defer = "auto"                     # push if batches take longer than
                                         # the trigger, or such a time

      [sink]
      format = "parquet"                 # any sink of Spark that appends
      path = "out"
      options = { compression = "zstd" } # mode = "append" may be added

      [job]
      checkpoint = "checkpoint"
      trigger = "5 seconds"              # or "once"; default: as fast as possible
      name = "fills"                     # default: the file's name
      state = "state"                    # default: inside the checkpoint

      [spark]
      spark.master = "local[4]"          # any spark.* setting

    The SQL in a job file runs with the rights of the job: treat the file as a program.

    Exit code: 0 ended or stopped; 1 the query failed; 2 refused; 130 aborted with a second Ctrl-C.
    """
    try:
        with StopRequest() as stop:
            _run(job_file, stop, once=once, check=check, plain=plain, debug=debug)
    except (BrokenOff, KeyboardInterrupt):
        say_error("aborted; the next start continues after the last finished batch")
        raise typer.Exit(BROKEN_OFF) from None


def _run(job_file: Path, stop: StopRequest, *, once: bool, check: bool, plain: bool, debug: bool) -> None:
    from watersmeet.jobs.file import load_job
    from watersmeet.jobs.model import AvailableNow
    from watersmeet.jobs.secrets import scrub, secrets_of

    with reported(debug=debug):
        job = load_job(job_file)
    if once:
        job = replace(job, trigger=AvailableNow())
    secrets = secrets_of(job, os.environ)
    with reported(debug=debug, clean=lambda text: scrub(text, secrets)):
        from watersmeet.cli.job import check_job, run_job

        if check:
            check_job(job)
        else:
            run_job(job, stop, plain=plain)
