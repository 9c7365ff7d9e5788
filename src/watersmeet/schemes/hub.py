"""The plan of a hub's batch: which catalogue its queries are in, and which one its commands have made of it.

It is no way of sharing a join, so it is in no register of them. Every task walks a share of the fresh rows, and any
task can read every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from watersmeet.model.facts import SchemePlan


@dataclass(frozen=True, slots=True)
class HubPlan(SchemePlan):
    """The runs of two catalogues, by path: the queries `in_force` in the batch, and those `after` its commands.

    They are the same run if there were no commands.
    """

    kind: ClassVar[str] = "hub"
    in_force: str
    after: str
