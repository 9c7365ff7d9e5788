"""Run units of scenarios in worker processes, and gather what they counted.

A worker is forked before anything runs, so that it is warm and has no threads; it forks the processes that join. A
unit's random numbers come from the seed, the scenario's name and the unit's number: each can be run again by itself.
"""

from __future__ import annotations

import os
import pickle
import random
import select
import shutil
import signal
import struct
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.lives import make_ready
from tests.chaos.processes import die_with_parent
from tests.chaos.scenario import Scenario, Unit, Wrong

# Longer than any unit takes, even on a busy machine.
UNIT_PATIENCE_S = 400.0


@dataclass(frozen=True)
class Job:
    scenario: int
    index: int


@dataclass(frozen=True)
class Done:
    job: Job
    counts: Counter[str]
    failure: str | None = None


@dataclass
class Tally:
    """What a scenario has done so far."""

    scenario: Scenario
    target: int
    units: int = 0
    started: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.counts[self.scenario.counts]

    @property
    def expected(self) -> float:
        """The count when all units that were started are done."""
        if not self.units:
            return float(self.started)
        return self.count + (self.started - self.units) * self.count / self.units


class Worker:
    """A process that runs units one after the other."""

    def __init__(self, scenarios: Sequence[Scenario], seed: int, folder: Path, cases: str):
        self._from, their_out = os.pipe()
        their_in, self._to = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._from)
            os.close(self._to)
            _serve(their_in, their_out, scenarios, seed, folder, cases)
            os._exit(0)
        os.close(their_in)
        os.close(their_out)
        self.busy: Job | None = None
        self.since = 0.0

    def fileno(self) -> int:
        return self._from

    def give(self, job: Job) -> None:
        self.busy, self.since = job, time.monotonic()
        _send(self._to, job)

    def take(self) -> Done:
        done: Done | None = _receive(self._from)
        job, self.busy = self.busy, None
        assert job is not None
        return done or Done(job, Counter(), "the worker process died")

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._from)
        os.close(self._to)


def _serve(
    source: int, sink: int, scenarios: Sequence[Scenario], seed: int, folder: Path, cases: str
) -> None:
    die_with_parent()
    make_ready()
    while (job := _receive(source)) is not None:
        _send(sink, run_unit(scenarios[job.scenario], job, seed, folder, cases))


def run_unit(scenario: Scenario, job: Job, seed: int, folder: Path, cases: str = "") -> Done:
    place = Path(tempfile.mkdtemp(prefix=f"{scenario.name}-{job.index}-", dir=folder))
    rng = random.Random(f"{seed}/{scenario.name}/{job.index}")
    try:
        counts = scenario.run(Unit(seed, job.index, rng, place, cases))
    except Wrong as error:
        return Done(job, Counter(), str(error))
    except Exception:
        return Done(job, Counter(), f"the test itself fails: {traceback.format_exc()}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Done(job, counts)


def run_all(
    tallies: Sequence[Tally],
    *,
    seed: int,
    jobs: int,
    folder: Path,
    seconds: float | None,
    unit: int | None,
    most_failures: int,
    cases: str,
    report: Callable[[], None],
) -> None:
    """Run units until every target is met, or the time is over, or enough has failed."""
    scenarios = [tally.scenario for tally in tallies]
    workers = [Worker(scenarios, seed, folder, cases) for _ in range(jobs)]
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        while True:
            over = sum(len(tally.failures) for tally in tallies) >= most_failures
            for worker in workers:
                if worker.busy is None and not over and (job := _next_job(tallies, deadline, unit)):
                    tallies[job.scenario].started += 1
                    worker.give(job)
            busy = [worker for worker in workers if worker.busy is not None]
            if not busy:
                return
            ready, _, _ = select.select(busy, [], [], 0.5)
            for worker in ready:
                _record(tallies, worker, worker.take())
            for number, worker in enumerate(workers):
                if worker.busy is not None and time.monotonic() - worker.since > UNIT_PATIENCE_S:
                    job = worker.busy
                    worker.stop()
                    _record(tallies, worker, Done(job, Counter(), f"it hangs for {UNIT_PATIENCE_S:.0f} s"))
                    workers[number] = Worker(scenarios, seed, folder, cases)
            report()
    finally:
        for worker in workers:
            worker.stop()


def _record(tallies: Sequence[Tally], worker: Worker, done: Done) -> None:
    tally = tallies[done.job.scenario]
    tally.units += 1
    tally.seconds += time.monotonic() - worker.since
    tally.counts += done.counts
    if done.failure is not None:
        tally.failures.append((done.job.index, done.failure))


def _next_job(tallies: Sequence[Tally], deadline: float | None, unit: int | None) -> Job | None:
    """The next unit: of the scenario that has had the least time for its share. None if there is none now."""
    if unit is not None:
        return next((Job(number, unit) for number, tally in enumerate(tallies) if not tally.started), None)
    if deadline is not None and time.monotonic() >= deadline:
        return None
    # Units that are under way may count for less than expected: then more are found when they are done.
    unmet = [number for number, tally in enumerate(tallies) if tally.expected < tally.target]
    if not unmet:
        return None
    number = min(unmet, key=lambda n: (tallies[n].seconds / tallies[n].scenario.share, tallies[n].started))
    return Job(number, tallies[number].started)


def _send(pipe: int, value: object) -> None:
    content = pickle.dumps(value)
    os.write(pipe, struct.pack("<I", len(content)))
    while content:
        content = content[os.write(pipe, content) :]


def _receive(pipe: int):
    head = _read(pipe, 4)
    if not head:
        return None
    return pickle.loads(_read(pipe, struct.unpack("<I", head)[0]))  # noqa: S301


def _read(pipe: int, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = os.read(pipe, size - len(content))
        if not part:
            return b""
        content += part
    return content
