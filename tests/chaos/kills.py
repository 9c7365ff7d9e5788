"""kill -9 at every failpoint: wherever a file appears or disappears, and around the sink's write.

A unit is one life. Its first kill is at a place that goes round with the unit's number, so that each place has its
share; further ones are at random places. Then the query is started unharmed: it must complete, with the right rows.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.chaos.cases import Case
from tests.chaos.lives import SINK_BEFORE, SINK_WRITTEN, Life, hook
from tests.chaos.processes import die_with_parent, in_child
from tests.chaos.scenario import Scenario, Unit, Wrong, describe, finish, require_done
from watersmeet import failpoints

# Places that no batch on the local driver comes by: Spark drives file inputs and delivers the answers of hubs, and
# settling comes after the query. tests/faults kills there (test_kill_driver.py, test_kill_hub.py, test_settle.py), and
# tests/model/test_places.py reaches each of them.
_ELSEWHERE = ("intake-", "files-", "seen-", "clean-intake-", "mark-", "settled-", "answers-")
PLACES = (
    *(place for place in failpoints.NAMES if not place.startswith(_ELSEWHERE)),
    SINK_BEFORE,
    SINK_WRITTEN,
)

# Of the units whose place is not that of a remote state only.
REMOTE_SHARE = 0.08
# A place that a start comes by often is struck at one of its first turns.
MOST_TURNS = 6
# Clocks of two starts differ by up to this time, longer than a row may wait.
CLOCKS_S = 8.0

# What must have happened a week before, so that a start comes by a place: a kill elsewhere, or batches committed by one
# start each.
_KILLED_BEFORE = {
    "clean-draft-removed": "manifest-half-written",
    "table-orphan-removed": "table-half-written",
}
_COMMITTED_BEFORE = {
    "clean-manifest-removed": (4,),
    "clean-run-removed": (4,),
    "clean-receipt-removed": (4,),
    "clean-base-removed": (5,),
    "clean-statistic-removed": (5,),
    "clean-descriptor-removed": (4,),
    "clean-start-removed": (2, 5),
    "clean-batch-removed": (1,),
    "table-half-dropped": (1,),
    "table-dropped": (1,),
    "fetch-before": (3,),
    "fetch-half-written": (3,),
    "fetch-done": (3,),
}
# Places that a start comes by once or twice.
_SELDOM = ("start-", "table-", "clean-", "fetch-", "manifest-lost")
_REMOTE_ONLY = ("put-", "fetch-")
# Drafts are of a local disk, and so is the passing of a week.
_LOCAL_ONLY = (
    "run-half-written",
    "run-unnamed",
    "manifest-lost",
    "clean-draft-removed",
    "clean-batch-removed",
    "table-orphan-removed",
    "table-half-dropped",
    "table-dropped",
    *(
        f"{kind}-{point}"
        for kind in ("start", "descriptor", "statistic", "base", "manifest", "receipt", "table")
        for point in ("half-written", "linked")
    ),
)


def run(unit: Unit) -> Counter[str]:
    # In another order each time: a short run does not come round.
    order = random.Random(unit.seed).sample(PLACES, len(PLACES))
    place = order[unit.index % len(PLACES)]
    rng = unit.rng
    remote = place.startswith(_REMOTE_ONLY) or (place not in _LOCAL_ONLY and rng.random() < REMOTE_SHARE)
    life = unit.life(
        remote=remote,
        of=_cases_for(place),
        # Nobody but one process writes here, so that a grace period protects nothing.
        grace_s=-1.0 if remote or rng.random() < 0.5 else 600.0,
        batch_joins=place == "clean-batch-removed",
        spare_tables=place.startswith("table-") and place.endswith("dropped"),
        in_place=rng.random() < 0.3,
        in_files=any(kind in place for kind in ("descriptor-", "statistic-", "base-")),
    )
    counts = _prepare(unit, life, place)
    often = 1 if place.startswith(_SELDOM) else MOST_TURNS
    more = rng.choices(_places_of(life), k=rng.choice([1, 1, 2, 3]))
    counts += strike(unit, life, place, rng.randrange(often))
    for name in more:
        counts += strike(unit, life, name, rng.randrange(MOST_TURNS))
    finish(life, f"after kills at {place} and {more}", jitter_s=rng.random() * 4)
    life.remove()
    return counts


def _prepare(unit: Unit, life: Life, place: str) -> Counter[str]:
    """What happened a week ago."""
    counts: Counter[str] = Counter()
    if place in _KILLED_BEFORE:
        counts += strike(unit, life, _KILLED_BEFORE[place], 0)
    for batches in _COMMITTED_BEFORE.get(place, ()):
        require_done(life, "before any kill", in_child(partial(life.drive, batches)))
    if not life.is_remote:
        life.age()
    return counts


def strike(unit: Unit, life: Life, place: str, turns: int) -> Counter[str]:
    """One start that kills itself at a place, if it comes by often enough; before it a week may pass."""
    rng = unit.rng
    if life.is_remote:
        # Another machine: it has no local copies.
        if place.startswith("fetch-") or rng.random() < 0.5:
            life.cache_name = f"cache-{rng.random()}"
    elif rng.random() < 0.4:
        life.age()
    jitter_s = rng.random() * 4
    outcome = in_child(lambda: drive_to_death(life, place, turns, jitter_s))
    if outcome.killed:
        return Counter({"kills": 1, f"at {place}": 1})
    if not outcome.done:
        raise Wrong(f"{describe(life)}, a start that was to be killed at {place}: {outcome}")
    return Counter()


def drive_to_death(
    life: Life, place: str, turns: int, jitter_s: float = 0.0, until: int | None = None
) -> None:
    arm(place, turns)
    life.drive(until, jitter_s=jitter_s)


def arm(place: str, turns: int) -> None:
    """Kill this process when it comes by a place for the time after `turns`."""
    left = turns

    def reach(name: str) -> bool:
        nonlocal left
        if place == "manifest-lost" and name == "manifest-before-write":
            _let_another_win()
        if name != place:
            return False
        left -= 1
        if left >= 0:
            return False
        if name.endswith("-half-written"):
            return True
        die(name)
        return False

    hook(reach, die)


def _let_another_win() -> None:
    """A twin of this process publishes its manifest, and is gone. Not beside a client of S3, whose threads it lacks."""
    twin = os.fork()
    if twin == 0:
        die_with_parent()
        hook(lambda name: os._exit(0) if name == "manifest-written" else False)
        return
    os.waitpid(twin, 0)


def die(name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _places_of(life: Life) -> list[str]:
    elsewhere = _LOCAL_ONLY if life.is_remote else _REMOTE_ONLY
    return [place for place in PLACES if not place.startswith(elsewhere)]


def _cases_for(place: str) -> Callable[[Case], bool] | None:
    if place.startswith("table-"):
        return lambda case: case.has_table
    if place == "clean-batch-removed":
        return lambda case: case.window is None and not case.has_table and not case.is_hub
    if place.startswith(("merge-", "receipt-", "clean-receipt", "base-", "clean-base")):
        return lambda case: not case.has_table
    if "statistic-" in place:
        return lambda case: case.name.startswith(("hash", "hypercube", "biclique"))
    return None


def run_replays(unit: Unit) -> Counter[str]:
    """Batches that the sink has are replayed at another time: the replay must do the same.

    So it is with joins whose rows wait, and with joins of many inputs. A sink that is idempotent by batch keeps the rows of the first attempt, and the state those of the last.
    """
    rng = unit.rng
    life = unit.life(of=lambda case: case.waits or len(case.inputs) > 2)
    replays = 0
    for _ in range(5):
        place = rng.choice([SINK_WRITTEN, SINK_WRITTEN, SINK_BEFORE, "manifest-written", "result-emitted"])
        turns, jitter_s = rng.randrange(3), rng.random() * CLOCKS_S
        outcome = in_child(partial(drive_to_death, life, place, turns, jitter_s))
        if not (outcome.killed or outcome.done):
            raise Wrong(f"{describe(life)}, a start that was to be killed at {place}: {outcome}")
        replays += outcome.killed
    finish(life, "after replays at other times", jitter_s=rng.random() * CLOCKS_S)
    life.remove()
    return Counter({"replays": replays})


REPLAYS = Scenario("replays", "batches in the sink are replayed at another time", "replays", 200, run_replays)
KILLS = Scenario("kills", "kill -9 wherever a file appears or disappears", "kills", 1000, run, share=4.0)
