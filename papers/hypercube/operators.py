"""The three operators of the evaluation, as strategies of the join.

Source: Qiu, Papadias, Yi 2019, sections 2 and 4.3. PHJ hashes keys to tasks, SHC is the streaming hypercube, JB the
join-biclique with its tasks in y groups; the paper's best setting has as many groups as half the tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The paper's p.
TASKS = 48


@dataclass(frozen=True, slots=True)
class Operator:
    """`groups` is the paper's y, for p = 48; other numbers of tasks have as many in proportion."""

    name: str
    strategy: str
    groups: int | None = None

    def arguments(self, tasks: int) -> dict[str, Any]:
        """What `wm.join` and `LocalJoin` are called with."""
        more = {} if self.groups is None else {"groups": max(1, self.groups * tasks // TASKS)}
        return {"strategy": self.strategy, "tasks": tasks, **more}


PHJ = Operator("PHJ", "hash")
JB = Operator("JB", "biclique", TASKS // 2)
SHC = Operator("SHC", "hypercube")
JB6, JB1 = (Operator(f"JB y={groups}", "biclique", groups) for groups in (6, 1))

THREE = (PHJ, JB, SHC)
