"""The three operators of the evaluation, as strategies of the join.

Source: Qiu, Papadias, Yi 2019, sections 2 and 4.3. PHJ hashes keys to tasks, SHC is the streaming hypercube, JB the
join-biclique with its tasks in y groups. The paper's best setting is "JBx48-y24", which may be read in two ways: 24 groups of two
tasks, as its sentence says, or groups of 24 tasks, of which there are two.
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
JB12, JB6, JB3, JB2, JB1 = (Operator(f"JB y={groups}", "biclique", groups) for groups in (12, 6, 3, 2, 1))
# The settings of which the best one counts, and the two readings of the paper's own.
JBS = (JB, JB12, JB6, JB3, JB2, JB1)
READINGS = {"24 groups of two tasks": JB, "groups of 24 tasks, two of them": JB2}

THREE = (PHJ, JB, SHC)
