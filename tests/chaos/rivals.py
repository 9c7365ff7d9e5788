"""Processes that should not meet, meet: a cleaner and a publisher, two drivers, and one that wakes up late."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path

from tests.chaos.lives import SINK_BEFORE, SINK_WRITTEN, WEEK_S, Life, hook
from tests.chaos.processes import Child, Outcome, in_child
from tests.chaos.scenario import Scenario, Unit, Wrong, check_life, describe, finish, require_done
from watersmeet.errors import CorruptFile
from watersmeet.log.clean import Cleaner
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.runs import RunReader
from watersmeet.log.status import read_status
from watersmeet.model.facts import FULL_RANGE

RETAIN = 3


def run_cleaner(unit: Unit) -> Counter[str]:
    """One process publishes and merges, one cleans all the time, one reads all that the newest manifest names."""
    remote = unit.rng.random() < 0.05
    life = unit.life(remote=remote, retain=RETAIN, grace_s=_grace_s(remote), batches=14)
    others = [Child(lambda: _clean_always(life)), Child(lambda: _read_always(life))]
    outcome = in_child(life.drive)
    (life.folder / "end").touch()
    cleaned, read = (other.wait() for other in others)
    require_done(life, "beside a cleaner", outcome)
    for name, other in (("the cleaner", cleaned), ("the reader", read)):
        if not other.done:
            raise Wrong(f"{describe(life)}: {name} fails: {other}")
    check_life(life, "beside a cleaner")
    life.remove()
    return Counter({"lives": 1, "cleanings": cleaned.value, "readings": read.value})


def _clean_always(life: Life) -> int:
    files = life.files()
    cleaner, turns = Cleaner(files), 0
    while not (life.folder / "end").exists():
        names = list_manifests(files)
        if names:
            current = read_manifest(files, names[-1])
            if not life.is_remote:
                _age_all_but_drafts(life.root)
            cleaner.clean(current, retain=RETAIN, now_s=time.time(), grace_s=life.grace_s)
            turns += 1
    return turns


def _grace_s(remote: bool) -> float:
    """A grace period protects drafts, which only a local disk has: there everything else is made old instead."""
    return -1.0 if remote else 600.0


def _age_all_but_drafts(root: Path) -> None:
    old_s = time.time() - WEEK_S
    for folder, _, names in os.walk(root):
        for name in names:
            if not name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    os.utime(os.path.join(folder, name), (old_s, old_s))


def _read_always(life: Life) -> int:
    files = life.files()
    turns = 0
    while not (life.folder / "end").exists():
        names = list_manifests(files)
        if not names:
            continue
        try:
            manifest = read_manifest(files, names[-1])
            for run in manifest.live:
                RunReader(files).read(run, FULL_RANGE, ())
        except CorruptFile:
            # It was slow: what it read about is retained no more.
            newest = list_manifests(files)[-1].batch
            if newest <= names[-1].batch + RETAIN:
                raise
        read_status(life.state)
        turns += 1
    return turns


def run_drivers(unit: Unit) -> Counter[str]:
    """Two drivers at once on one checkpoint: the older one is refused, or both come to the same.

    Not with rows that wait: which rows a batch answers depends on the clock there, so that two drivers may each be right
    about the same batch with other rows.
    """
    rng = unit.rng
    life = unit.life(remote=rng.random() < 0.05, of=lambda case: not case.waits, retain=6)
    before = rng.randrange(3)
    require_done(life, "first start", in_child(lambda: life.drive(before)))
    pause_s = rng.random() * 0.1
    # Either may end before the other: the next start must not miss what the other has committed.
    ends = [rng.choice([life.batches, rng.randint(before + 1, life.batches)]) for _ in range(2)]
    drivers = [Child(partial(_drive_behind, life, pause_s * number, ends[number])) for number in range(2)]
    outcomes = [driver.wait() for driver in drivers]
    refused = sum(_may_be_refused(life, outcome) for outcome in outcomes)
    finish(life, "after two drivers at once")
    life.remove()
    return Counter({"pairs": 1, "refused": refused})


def _drive_behind(life: Life, pause_s: float, until: int) -> None:
    # Not to wait for anything: drivers that begin at different moments meet at different places.
    time.sleep(pause_s)
    life.drive(until)


def _may_be_refused(life: Life, outcome: Outcome) -> bool:
    if outcome.error == "StateInUse":
        return True
    if not outcome.done:
        raise Wrong(f"{describe(life)}, two drivers at once: {outcome}")
    return False


def run_zombies(unit: Unit) -> Counter[str]:
    """A process stops at a random place; the next start goes on; then the first wakes up. Nobody takes its results."""
    rng = unit.rng
    life = unit.life(remote=rng.random() < 0.05, retain=6)
    place, ahead = rng.choice(_SLEEPS), rng.randrange(1, 5)
    # A start claims once.
    turns = 0 if place == UNCLAIMED else rng.randrange(6 if place else 120)
    zombie = Child(lambda: _sleepwalk(life, place, turns))
    if not zombie.wait_until_stopped():
        check_life(life, "nobody stopped")
        life.remove()
        return run_zombies(unit)
    until = min(life.batches, life.committed() + ahead)
    third = None
    try:
        require_done(life, _while(place), in_child(lambda: life.drive(until, jitter_s=1.0)))
        # The zombie wakes up beside the third start, or before it.
        if rng.random() < 0.5:
            third = Child(lambda: life.drive(jitter_s=2.0))
        zombie.send(signal.SIGCONT)
        outcome = zombie.wait()
    except BaseException:
        zombie.send(signal.SIGKILL)
        raise
    if not (outcome.done or outcome.error):
        raise Wrong(f"{describe(life)}, a process that slept at {place}: {outcome}")
    if third is not None:
        beside = third.wait()
        # One that claims late looks like a later start: the running one ends, and the next must complete.
        if not (place in (UNCLAIMED, None) and beside.error == "StateInUse"):
            require_done(life, f"beside a process that woke up at {place or 'a random place'}", beside)
    finish(life, f"after a process woke up at {place or 'a random place'}", jitter_s=3.0)
    life.remove()
    return Counter({"zombies": 1, "refused": 1 if outcome.error else 0})


# Where a start is not known to anybody yet.
UNCLAIMED = "start-half-written"

# Where a process sleeps that another start overtakes; None: anywhere.
_SLEEPS = (
    None,
    None,
    UNCLAIMED,
    "start-written",
    "run-written",
    "descriptor-written",
    "statistic-written",
    "base-written",
    "manifest-before-write",
    "manifest-written",
    "result-emitted",
    "merge-written",
    "clean-half-done",
    "task-done",
    SINK_BEFORE,
    SINK_WRITTEN,
)


def _while(place: str | None) -> str:
    return f"while another process is stopped at {place or 'a random place'}"


def _sleepwalk(life: Life, place: str | None, turns: int) -> None:
    left = turns
    slept = False

    def reach(name: str) -> bool:
        nonlocal left, slept
        if slept and name in (SINK_BEFORE, SINK_WRITTEN):
            # Its driver is dead: its results go nowhere, and it commits nothing.
            raise _Fenced
        if place is None or name == place:
            left -= 1
            if left < 0 and not slept:
                slept = True
                os.kill(os.getpid(), signal.SIGSTOP)
                if name in (SINK_BEFORE, SINK_WRITTEN):
                    raise _Fenced
        return False

    hook(reach)
    try:
        life.drive()
    except _Fenced:
        return


class _Fenced(BaseException):
    pass


CLEANER = Scenario("cleaner", "cleaning, reading and publishing at once", "lives", 60, run_cleaner)
DRIVERS = Scenario("drivers", "two drivers at once on one checkpoint", "pairs", 100, run_drivers)
ZOMBIES = Scenario("zombies", "a stopped process wakes up late", "zombies", 150, run_zombies)
