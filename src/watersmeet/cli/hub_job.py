"""Run a hub on the terminal, with a line for each batch. This module imports Spark."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from watersmeet.cli.figures import batches, clock, harmless, seconds
from watersmeet.cli.job import log_file, with_log
from watersmeet.cli.meters import Meters
from watersmeet.cli.outcome import say
from watersmeet.cli.signals import StopRequest
from watersmeet.credentials import hide
from watersmeet.engine.hub_status import HubState
from watersmeet.jobs.failure import QueryError
from watersmeet.jobs.hub_runner import PreparedHub, RunningHub, prepare_hub, state_of
from watersmeet.jobs.model import Delivery, HubJob
from watersmeet.jobs.progress import Batches, together
from watersmeet.jobs.secrets import expand_all
from watersmeet.jobs.session import spark_session
from watersmeet.model.figures import count

# Refused commands of a batch that are printed. All of them are among the delivered events.
_SHOWN_REFUSALS = 10


def run_hub(job: HubJob, stop: StopRequest) -> None:
    """Run a hub until it ends or is stopped."""
    console = Console(highlight=False)
    settings = expand_all(job.spark, os.environ, f"{job.file.name}: [spark]")
    log = log_file(job)
    prints = not isinstance(job.sink, Delivery) and job.sink.format.lower() == "console"
    with spark_session(job.name, settings, log, show_stdout=prints) as session:
        prepared = prepare_hub(session.spark, job, os.environ)
        before = state_of(prepared.hub)
        # What became of earlier commands was told then.
        lines = HubLines(console, None if before is None else before.version)
        stop.arm()
        for words in _first_words(prepared):
            lines.say(words)
        try:
            running = RunningHub(prepared, os.environ)
            running.follow(lines.observe, stop.event)
            if stop.event.is_set():
                lines.say("stopping ...")
                running.stop()
        except QueryError as error:
            raise with_log(error, log) from error
    lines.meters.end()
    lines.say(_last_words(lines.meters, stopped=stop.event.is_set()))


class HubLines:
    """Prints a line for the batches since the last line, and the commands that were refused."""

    def __init__(self, console: Console, version: str | None = None) -> None:
        self._console = console
        self._version = version
        self.meters = Meters()

    def say(self, text: str) -> None:
        say(self._console, text)
        self._console.file.flush()

    def observe(self, new: Sequence[Batches], state: HubState | None) -> None:
        self.meters.add(new, None)
        self.say(_line(new, state))
        if state is not None and state.version != self._version:
            self._version = state.version
            self._tell_commands(state)

    def _tell_commands(self, state: HubState) -> None:
        events = Counter(event for _, event, _ in state.events)
        if events:
            self.say("commands: " + ", ".join(f"{count(events[event])} {event}" for event in sorted(events)))
        for one in state.refused[:_SHOWN_REFUSALS]:
            self.say(f"refused {harmless(one.query) or '(no id)'}: {one.message}")
        if len(state.refused) > _SHOWN_REFUSALS:
            self.say(f"and {count(len(state.refused) - _SHOWN_REFUSALS)} more refused")


def _line(new: Sequence[Batches], state: HubState | None) -> str:
    total = together(new)
    which = f"batch {total.last}" if total.count == 1 else f"batches {total.first}-{total.last}"
    live = "" if state is None else f"{count(len(state.catalogue))} queries live, "
    return (
        f"{which}: {count(total.rows_in)} rows in ({count(total.in_per_s)}/s), {live}"
        f"{count(total.rows_out)} answers ({count(total.out_per_s)}/s), {seconds(total.ms / len(new))} a batch"
    )


def _first_words(prepared: PreparedHub) -> list[str]:
    job = prepared.job
    begins = "starts from the checkpoint"
    if prepared.checkpoint is not None:
        fresh = prepared.checkpoint.fresh
        begins = (
            "starts from the beginning" if fresh else f"continues with batch {prepared.checkpoint.next_batch}"
        )
    words = [f"{job.name}: {begins}, state in {hide(job.state)}"]
    if prepared.hub.folder is not None:
        words.append(f"commands are read from {hide(prepared.hub.folder)}")
    return words


def _last_words(meters: Meters, *, stopped: bool) -> str:
    done = (
        f"{count(meters.rows_in)} rows in, {count(meters.rows_out)} answers, "
        f"{batches(meters.batches)} in {clock(meters.elapsed_s)}"
    )
    if stopped:
        return f"stopped: {done}; the next start continues from there"
    return f"done: {done}; all present input is answered"
