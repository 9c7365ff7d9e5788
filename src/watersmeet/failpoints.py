"""Named places where a test can kill the process. Costs one dictionary look-up when unused.

`WATERSMEET_FAILPOINTS="run-half-written=kill@/tmp/once,merge-part=sleep:5"` says what happens at which place.

| action | effect |
|---|---|
| `kill` | the process kills itself |
| `kill-executor` | it kills the JVM above the Python worker, then itself |
| `kill-driver:FILE` | it kills the processes whose ids are in the file, then itself |
| `wait:FILE` | it waits until the file exists, at most two minutes |
| `sleep:SECONDS` | it waits |
| `raise:NUMBER` | OSError with that number |
| `mark` | nothing; with `@FILE` the file shows that the place was reached |

With `@FILE` it happens once over all processes: the one that creates the file does it.

`NAMES` lists every place: each file of the state appears or disappears next to one of them. The tests check that the
list is complete and that each place is reached.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

_VARIABLE = "WATERSMEET_FAILPOINTS"

# Every place, and the state of the files there.
NAMES = {
    "run-before-write": "no file of the run exists",
    "run-half-written": "the run's draft is cut off in the middle",
    "run-unnamed": "the run is whole, under the name of its draft",
    "run-written": "the run has its name; nothing refers to it",
    "start-half-written": "the draft of a start's claim is cut off",
    "start-linked": "the claim exists; its draft is not removed",
    "start-written": "the claim exists; the start has written nothing else",
    "descriptor-half-written": "the draft of a published descriptor is cut off",
    "descriptor-linked": "the descriptor exists; its draft is not removed",
    "descriptor-written": "the descriptor exists; no task knows its name",
    "manifest-before-write": "the manifest is decided, not written",
    "statistic-half-written": "the draft of a file of statistics is cut off",
    "statistic-linked": "the file of statistics exists; its draft is not removed",
    "statistic-written": "the file of statistics exists; no manifest names it",
    "base-half-written": "the draft of a base is cut off",
    "base-linked": "the base exists; its draft is not removed",
    "base-written": "the base exists; no manifest names it",
    "manifest-half-written": "the manifest's draft is cut off",
    "manifest-linked": "the manifest exists; its draft is not removed",
    "manifest-written": "the manifest exists; no result was emitted",
    "manifest-lost": "another task has published this batch's manifest first",
    "result-emitted": "some results of a task were emitted, the others were not",
    "merge-part": "a part of a merge is read, not written",
    "merge-written": "a part of a merge is written; there is no receipt",
    "receipt-half-written": "the receipt's draft is cut off",
    "receipt-linked": "the receipt exists; its draft is not removed",
    "receipt-written": "the receipt exists; the task is not done",
    "clean-manifest-removed": "a manifest is removed, others are still to go",
    "clean-half-done": "all old manifests are removed, no run is",
    "clean-run-removed": "a run is removed, others are still to go",
    "clean-base-removed": "a base is removed, others are still to go",
    "clean-statistic-removed": "a file of statistics is removed, others are still to go",
    "clean-descriptor-removed": "a published descriptor is removed, others are still to go",
    "clean-receipt-removed": "a receipt is removed, others are still to go",
    "clean-draft-removed": "an abandoned draft is removed, others are still to go",
    "clean-start-removed": "a start's claim is removed, others are still to go",
    "clean-batch-removed": "the folder of an old batch join is removed, others are still to go",
    "table-half-written": "the draft of a table's file is cut off",
    "table-linked": "a table's file exists; its draft is not removed",
    "table-part-written": "a part of a table exists; its index does not",
    "table-index-written": "a table's parts and index exist; its facts do not",
    "table-published": "the table is published; no batch refers to it",
    "table-orphan-removed": "a file of an abandoned preparation is removed, others are still to go",
    "table-half-dropped": "an unused table's facts are removed; its parts are not",
    "table-dropped": "an unused table is removed, others are still to go",
    "intake-half-written": "the draft of an intake is cut off",
    "intake-linked": "the intake exists; its draft is not removed",
    "intake-written": "the intake exists; no offset names it",
    "files-unread": "the offset names the files of a batch; none of them is read",
    "seen-half-written": "the draft of the names of all intakes is cut off",
    "seen-linked": "the names exist; their draft is not removed",
    "seen-written": "the names exist; the intakes that they repeat are still there",
    "clean-intake-removed": "an intake is removed, others are still to go",
    "reread-half-written": "the draft of a record is cut off, that a changed file was read",
    "reread-linked": "the record exists; its draft is not removed",
    "put-before-write": "remote state: the object does not exist",
    "put-half-written": "remote state: the request that creates the object is under way",
    "put-written": "remote state: the object exists",
    "fetch-before": "remote state: there is no local copy",
    "fetch-half-written": "remote state: the local copy's draft is cut off",
    "fetch-done": "remote state: the local copy is whole",
    "mark-before-write": "what is owed is written to a draft of the folder; the state is not marked",
    "mark-written": "the state is marked as settled; the results have the name of their draft",
    "settled-before-move": "the state is settled; the draft is about to get its name",
    "settled-file-moved": "remote folder: a file has its name, others are still to go",
    "settled-moved": "the results of a settled state have their name",
    "task-done": "a task of the batch is done",
    "answers-delivered": "driver: the answers of a hub's batch are delivered, what became of commands is not",
}

# A test that forgets a waiting process must not leave it behind.
_WAIT_LIMIT_S = 120.0
_POLL_S = 0.02


def _parse(text: str) -> dict[str, tuple[str, str | None]]:
    points = {}
    for item in filter(None, text.split(",")):
        name, _, action = item.partition("=")
        action, _, once = action.partition("@")
        points[name.strip()] = (action, once or None)
    return points


_POINTS = _parse(os.environ.get(_VARIABLE, ""))

# At these places the caller first prepares something (half a file), then calls `act` itself. Only `kill` and `raise`
# make sense there: a process that continued would leave a broken file.
_PREPARED = "-half-written"


def reach(name: str) -> bool:
    """Say that execution is at `name`. True if the caller must prepare the scene and then call `act`."""
    if not _POINTS or name not in _POINTS or not _is_due(name):
        return False
    if name.endswith(_PREPARED):
        return True
    act(name)
    return False


def act(name: str) -> None:
    action, _, argument = _POINTS[name][0].partition(":")
    if action == "kill":
        _kill_self()
    elif action == "kill-executor":
        _kill(_parent(os.getppid()))
        _kill_self()
    elif action == "kill-driver":
        with open(argument) as pids:
            for pid in pids.read().split():
                _kill(int(pid))
        _kill_self()
    elif action == "wait":
        _wait_for(argument)
    elif action == "sleep":
        time.sleep(float(argument))
    elif action == "raise":
        raise OSError(int(argument), os.strerror(int(argument)))
    elif action != "mark":
        raise ValueError(f"{_VARIABLE}: {name} has the unknown action {action!r}")


def _is_due(name: str) -> bool:
    once = _POINTS[name][1]
    if once is None:
        return True
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _wait_for(path: str) -> None:
    deadline = time.monotonic() + _WAIT_LIMIT_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear within {_WAIT_LIMIT_S:.0f} s")
        time.sleep(_POLL_S)


def _kill(pid: int) -> None:
    # Killing one process may end the next one too.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_self() -> None:
    _kill(os.getpid())


def _parent(pid: int) -> int:
    """The parent of a process. A worker's parent is the Python daemon, whose parent is the executor's JVM."""
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])
