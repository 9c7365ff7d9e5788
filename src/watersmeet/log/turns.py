"""Who plans a batch: the turns of its tasks, while others wait for a manifest.

Every task can plan, and the first manifest counts. Where all descriptors travel in the shuffle, all tasks plan at once.
If 200 tasks did so with published descriptors, they would read 40,000 files. So a task whose batch has some waits for
its turn and looks for the manifest meanwhile. Task 0 does not wait. The next ones plan after half a second, twice as
many after another, and so on; after two seconds every task plans. No task depends on another: Spark may run task 0 late
or never. The last task is among the first to plan, since `tail` begins with it.

On an object store a planner fetches the keys of all live runs that its machine lacks. The process that planned the batch
before has them but for those of a batch, so it plans the next one at once, whatever its task, and all others give it a
little time. A manifest says who planned it (`Manifest.planner`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum

from watersmeet.log.descriptors import Notice, Told
from watersmeet.log.storage import Files

# Seconds between the turns of tasks to plan: longer than planning takes, with hundreds of descriptors on an object
# store.
TURN_S = 0.5
# The last turn: a batch whose first tasks are dead waits two seconds for it.
LAST_TURN = 4
# How much later the turns begin in other processes of the machine that planned the batch before, which holds the keys of
# nearly all runs, and elsewhere: the process that planned may get its task a little later. Other processes of its machine
# take turns too: if they planned at once, they would slow it down and fetch the same keys. Elsewhere it is longer than a
# plan takes on an object store (bench/cluster.py: 0.5 to 0.6 s), or each batch would have two planners.
BESIDE_S, ELSEWHERE_S = 0.1, 0.7


class PlannedBefore(Enum):
    """Who planned the batch before this one, seen from a process that may plan this one."""

    UNKNOWN = "unknown"
    HERE = "this process"
    BESIDE = "another process of this machine"
    ELSEWHERE = "another machine"


_LATER_S = {PlannedBefore.BESIDE: BESIDE_S, PlannedBefore.ELSEWHERE: ELSEWHERE_S}


def planned_before(planner: str | None, files: Files) -> PlannedBefore:
    """Who planned a batch, by `Manifest.planner`; None if this process has not seen that manifest."""
    if not files.machine or planner == "":
        return PlannedBefore.UNKNOWN
    if planner is None or planner.rpartition(".")[0] != files.machine:
        return PlannedBefore.ELSEWHERE
    return PlannedBefore.HERE if planner == planner_mark(files) else PlannedBefore.BESIDE


def planner_mark(files: Files) -> str:
    """What a manifest says of the process that planned it; nothing where every machine can map every run."""
    return f"{files.machine}.{os.getpid()}" if files.machine else ""


def patience_s(
    task: int, tasks: int, told: Sequence[Told], before: PlannedBefore = PlannedBefore.UNKNOWN
) -> float:
    """How long a task waits for another one's manifest before it plans the batch itself.

    >>> notice = Notice("l", 0, 1, 0, 0, 0, 0, "", "")
    >>> [patience_s(task, 200, [notice]) for task in (0, 1, 2, 7, 100, 199)]
    [0.0, 0.5, 1.0, 1.5, 2.0, 0.5]
    >>> [patience_s(7, 200, [notice], before) for before in PlannedBefore]
    [1.5, 0.0, 1.6, 2.2]
    """
    if not any(isinstance(one, Notice) for one in told) or before is PlannedBefore.HERE:
        return 0.0
    rank = min(task, tasks - task)
    return TURN_S * min(LAST_TURN, rank.bit_length()) + _LATER_S.get(before, 0.0)
