"""`watersmeet hub`: add, remove and look at the queries of a hub, and run the hub of a job file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.help import help_text
from watersmeet.cli.outcome import BROKEN_OFF, reported, say, say_error
from watersmeet.cli.signals import BrokenOff, StopRequest

if TYPE_CHECKING:
    from watersmeet.engine.hub_status import HubState

hub = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Many continuous queries over the same streams: add, remove, list and show them, or run a hub.",
)

_STATE = Annotated[
    str, typer.Argument(metavar="STATE", help="The directory or URI that was passed as state=.")
]
_ID = Annotated[str, typer.Argument(metavar="ID", help="The id of the query.")]
_NAME = Annotated[str | None, typer.Option("--name", help="The hub, if the state holds several.")]
_COMMANDS = Annotated[
    Path | None,
    typer.Option("--commands", metavar="DIR", help="The command folder, if it is not that of the state."),
]
_JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
_DEBUG = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def add(
    state: _STATE,
    query_id: _ID,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="The text of the query, in quotes.")],
    name: _NAME = None,
    commands: _COMMANDS = None,
    debug: _DEBUG = False,
) -> None:
    """Add a query to a hub, running or not.

    The command is a file in the command folder. It is read with the next batch, and the query counts the rows of the
    batches after that; with SINCE also earlier ones, as far as they are kept. If a batch has run, the text is checked
    here, against the columns of the streams. A text that only a session with spark.sql.caseSensitive can use is left to
    the hub.

    Examples:

      watersmeet hub add /data/state large "SELECT o.id FROM orders o"

    Exit code: 0; 2 if the text is refused or there is no command folder.
    """
    with reported(debug=debug):
        from watersmeet.engine.hub_commands import write_command
        from watersmeet.engine.hub_status import find_hub

        found = find_hub(state, name)
        folder = _folder(state, name, found, commands)
        note = _check(found, query_id, sql)
        write_command(folder, "add", query_id, sql)
    _told(query_id, note)


def remove(
    state: _STATE, query_id: _ID, name: _NAME = None, commands: _COMMANDS = None, debug: _DEBUG = False
) -> None:
    """Remove a query from a hub, running or not: it has no answers after the next batch.

    What only this query needs leaves the state. Its delivered answers stay.

    Examples:

      watersmeet hub remove /data/state large

    Exit code: 0; 2 if there is no command folder.
    """
    with reported(debug=debug):
        from watersmeet.engine.hub_commands import write_command
        from watersmeet.engine.hub_status import find_hub

        found = find_hub(state, name)
        write_command(_folder(state, name, found, commands), "remove", query_id)
    unknown = found is not None and found.find(query_id) is None
    _told(query_id, "it will be refused: no such query is live. Add it first" if unknown else None)


def list_queries(state: _STATE, name: _NAME = None, as_json: _JSON = False, debug: _DEBUG = False) -> None:
    """List the live queries of a hub.

    The JSON is a list of objects with id, sql, first_batch (the first one whose rows the query sees) and template (queries
    that differ in constants only have the same number).

    Examples:

      watersmeet hub list /data/state

    Exit code: 0; 2 if there is no hub.
    """
    with reported(debug=debug):
        from watersmeet.engine.hub_status import open_hub
        from watersmeet.log.codec import to_plain

        queries = open_hub(state, name).queries()
        if as_json:
            typer.echo(json.dumps(to_plain(queries), indent=2))
            return
        from watersmeet.cli.hub_view import print_queries

        print_queries(queries)


def show(
    state: _STATE,
    query_id: Annotated[str | None, typer.Argument(metavar="ID", help="One query.")] = None,
    name: _NAME = None,
    as_json: _JSON = False,
    debug: _DEBUG = False,
) -> None:
    """Show a hub: its streams, indexes, refused commands, and the queries that answer and cost most. Or one query.

    Answers and costs are those of the last batch. A cost is the number of rows that were looked at for a query; steps
    that queries share count for each of them.

    Examples:

      watersmeet hub show /data/state
      watersmeet hub show /data/state large

    Exit code: 0; 2 if there is no hub, or no such query.
    """
    with reported(debug=debug):
        from watersmeet.engine.hub_status import hub_status, open_hub
        from watersmeet.errors import UsageError
        from watersmeet.log.codec import to_plain

        found = open_hub(state, name)
        status = hub_status(found)
        from watersmeet.cli import hub_view

        if query_id is None:
            if as_json:
                typer.echo(json.dumps(hub_view.as_plain(status), indent=2))
            else:
                hub_view.print_hub(status)
            return
        live = found.find(query_id)
        if live is None:
            raise UsageError(
                f"there is no query {query_id!r} in the hub {found.name}: watersmeet hub list names all"
            )
        if as_json:
            typer.echo(json.dumps(to_plain(live), indent=2))
        else:
            hub_view.print_query(live, status)


def run(
    job_file: Annotated[Path, typer.Argument(metavar="HUB.TOML", help="The job file.")],
    once: Annotated[
        bool, typer.Option("--once", help="Answer over the present input and end, whatever the trigger.")
    ] = False,
    debug: _DEBUG = False,
) -> None:
    """Run the hub of a job file until Ctrl-C or the end of its input.

    A restart continues where it stopped, and every answer is delivered once. Queries are added and removed meanwhile with
    watersmeet hub add and remove. A query that cannot be used is refused with its reason, and stops no other.

    Examples:

      watersmeet hub run hub.toml            run; stop with Ctrl-C or SIGTERM
      watersmeet hub run hub.toml --once     answer over the present input, end

    All keys of a job file:

      [inputs.orders]                    # one table for each stream, with
      format = "parquet"                 # the keys of watersmeet run:
      path = "orders"                    # format, path, schema, where,
                                         # columns, options

      [hub]                              # as the arguments of wm.hub
      state = "state"                    # default: inside the checkpoint
      name = "alerts"                    # default: "hub"
      tasks = 4                          # default: the cores of the session
      time = { orders = "at" }           # columns with publication times
      lateness = "1 minute"              # how far their rows may be behind
      retain = "1 hour"                  # how much longer than queries need
                                         # them rows are kept, for SINCE; or
                                         # "all". Default: no longer
      commands = "commands"              # default: a folder in the state

      [queries]                          # from the first batch on
      large = "SELECT o.id FROM orders o WHERE o.amount > 900"

      [deliver]                          # a folder for each query
      path = "answers"
      format = "parquet"                 # or "orc", "json"

      [sink]                             # or one sink of Spark for all
      format = "console"                 # answers: any that appends

      [job]
      checkpoint = "checkpoint"
      trigger = "5 seconds"              # or "once"; default: as fast as possible
      name = "alerts"                    # default: the file's name

      [spark]
      spark.master = "local[4]"          # any spark.* setting

    The SQL in where and columns runs with the rights of the job. That of queries does not: it is parsed, and can only
    compare columns.

    Exit code: 0 ended or stopped; 1 the query failed; 2 refused; 130 aborted with a second Ctrl-C.
    """
    try:
        with StopRequest() as stop:
            _run(job_file, stop, once=once, debug=debug)
    except (BrokenOff, KeyboardInterrupt):
        say_error("aborted; the next start continues after the last finished batch")
        raise typer.Exit(BROKEN_OFF) from None


def _run(job_file: Path, stop: StopRequest, *, once: bool, debug: bool) -> None:
    from watersmeet.jobs.hub_file import load_hub_job
    from watersmeet.jobs.model import AvailableNow
    from watersmeet.jobs.secrets import scrub, secrets_of

    with reported(debug=debug):
        job = load_hub_job(job_file)
    if once:
        job = replace(job, trigger=AvailableNow())
    secrets = secrets_of(job, os.environ)
    with reported(debug=debug, clean=lambda text: scrub(text, secrets)):
        from watersmeet.cli.hub_job import run_hub

        run_hub(job, stop)


def _check(found: HubState | None, query_id: str, sql: str) -> str | None:
    """Raise what is wrong with a new query, or return what is to be said of it."""
    from watersmeet.engine.hub_commands import check_command
    from watersmeet.errors import PredicateError

    if found is None:
        check_command("add", query_id, sql)
        return "not checked: no batch of the hub has run yet. What cannot be used is refused then"
    note = None
    try:
        check_command("add", query_id, sql, found.reader())
    except PredicateError as error:
        try:
            found.reader(case_sensitive=True).read(sql)
        except PredicateError:
            raise error from None
        note = "not checked: only a session with spark.sql.caseSensitive can use it. Others refuse it"
    live = found.find(query_id)
    if live is None:
        gone = None if note else found.problem_with_since(sql)
        return note if gone is None else f"it will be refused: {gone}"
    if live.sql == sql.strip():
        return "it changes nothing: the same text is live"
    return "it will be refused: another text is live. Remove it first"


def _folder(state: str, name: str | None, found: HubState | None, commands: Path | None) -> Path:
    from watersmeet.engine.hub_commands import command_folder

    return commands or command_folder(state, found.name if found is not None else name)


def _told(query_id: str, note: str | None) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    say(console, f"{query_id}: command written: the next batch reads it")
    if note is not None:
        say(console, ("note: ", "bold yellow"), note)


_VERBS: dict[str, Callable[..., None]] = {
    "add": add,
    "remove": remove,
    "list": list_queries,
    "show": show,
    "run": run,
}
for _name, _command in _VERBS.items():
    hub.command(_name, help=help_text(_command))(_command)
