"""The join-biclique of BiStream: one half of the units stores the left input, the other half the right one.

Source: Lin et al.: Scalable Distributed Stream Join Processing (SIGMOD 2015). Units form groups, and keys are spread
over the groups by hash. Within a group one unit of its side stores a row (chosen here by a hash of its place in the
stream). The row is matched against the rows stored by all units of the other side:

    a unit that stores left rows    joins   its left rows, old and fresh   x   fresh right rows of the group
    a unit that stores right rows   joins   fresh left rows of the group   x   its old right rows

Every pair of a batch meets exactly once: in the unit that stores the older row, or the left one of two fresh rows.
With one unit on each side of a group, a hot key stays on one unit, as in a hash join. With one group, every row meets
every unit of the other side, and no unit can be hot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from watersmeet.errors import UsageError
from watersmeet.model.facts import KEY_SPACE, KeyRange, SchemePlan
from watersmeet.model.signature import Layout
from watersmeet.schemes.hypercube.hot_keys import HotKeys, list_hot_keys
from watersmeet.schemes.scheme import (
    BatchFacts,
    InputShare,
    NewRun,
    Scheme,
    SchemeRequest,
    SectionRange,
    Share,
    Shown,
    Slice,
)

# Parts for each unit if the number of units is not a power of two: enough that one part more or less hardly matters.
_PARTS_PER_UNIT = 8


@dataclass(frozen=True, slots=True)
class BicliquePlan(SchemePlan):
    """Units in groups. One half of each group stores the left input, the other half the right one."""

    kind: ClassVar[str] = "biclique"
    units: int
    groups: int

    @property
    def members(self) -> int:
        """Units of a group on each side."""
        return self.units // (2 * self.groups)


@dataclass(frozen=True, slots=True)
class Biclique(Scheme[BicliquePlan]):
    name: ClassVar[str] = "biclique"
    plan_type = BicliquePlan
    stats_type = HotKeys

    arguments = ("groups",)

    units: BicliquePlan

    @classmethod
    def make(cls, request: SchemeRequest) -> Biclique:
        return cls(plan_biclique(request.tasks, request.groups))

    @property
    def layout(self) -> Layout | None:
        return layout_of(self.units)

    def describe(self, run: NewRun, tasks: int) -> HotKeys | None:
        return list_hot_keys(run, tasks) if self.layout is None else None

    def plan(self, facts: BatchFacts) -> BicliquePlan:
        return self.units

    def shares(self, plan: BicliquePlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        left, right = inputs
        for unit in units_of_task(plan, layout_of(plan), tasks, task):
            stored = Slice(unit.range, None if self.layout is None else unit.sections)
            anything = Slice(unit.range)
            if unit.stores_left:
                yield InputShare(left, stored, stored), InputShare(right, anything, None)
            else:
                yield InputShare(left, anything, None), InputShare(right, None, stored)

    def check(self, plan: BicliquePlan, tasks: int) -> None:
        """Check that one unit stores each part on each side of a group, and that groups cover every key once."""
        assert plan.units == 2 * plan.groups * plan.members > 0, "units do not fit the groups"
        layout = layout_of(plan)
        units = [unit for task in range(tasks) for unit in units_of_task(plan, layout, tasks, task)]
        assert len(units) == plan.units, f"{len(units)} of {plan.units} units have a task"
        groups = sorted({(unit.range.low, unit.range.high) for unit in units})
        assert [low for low, _ in groups] == [0, *(high for _, high in groups[:-1])], "groups leave a gap"
        assert groups[-1][1] == KEY_SPACE, "groups do not reach the last key"
        for low, _ in groups:
            for stores_left in (True, False):
                mine = (u for u in units if u.range.low == low and u.stores_left == stores_left)
                stored = sorted((part.low, part.high) for unit in mine for part in unit.sections)
                ends = [0, *(high for _, high in stored)]
                assert [low for low, _ in stored] == ends[:-1], "a part is stored by no unit, or by two"
                assert ends[-1] == (layout.parts if layout else 1), "the last part is stored by no unit"

    @classmethod
    def show(cls, plan: BicliquePlan, inputs: Sequence[str]) -> Shown:
        groups = f"{plan.groups} group{'' if plan.groups == 1 else 's'}"
        return Shown(f"biclique of {plan.units} units in {groups}")

    @classmethod
    def words_for_layout(cls, layout: Layout | None) -> str:
        if layout is None:
            return Scheme.words_for_layout(layout)
        return f"a biclique's units in {layout.parts} parts (by its tasks= and groups=)"


@dataclass(frozen=True, slots=True)
class UnitShare:
    """The work of one unit: a range of keys, and the sections of the rows that it stores."""

    stores_left: bool
    range: KeyRange
    sections: tuple[SectionRange, ...]


def plan_biclique(tasks: int, groups: int | None) -> BicliquePlan:
    """Plan as many units as tasks, or the next number that the groups divide evenly into two sides.

    >>> plan_biclique(48, 24)
    BicliquePlan(units=48, groups=24)
    >>> plan_biclique(5, 2)
    BicliquePlan(units=8, groups=2)
    """
    if groups is None:
        groups = max(1, tasks // 2)
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise UsageError(f"groups={groups!r}: give the number of groups, at least 1")
    return BicliquePlan(-(-tasks // (2 * groups)) * 2 * groups, groups)


def layout_of(plan: BicliquePlan) -> Layout | None:
    """How runs are cut into sections; None if one unit stores all rows of its group."""
    if plan.members == 1:
        return None
    power = 1 << (plan.members - 1).bit_length()
    return Layout((1,), power if power == plan.members else power * _PARTS_PER_UNIT)


def units_of_task(plan: BicliquePlan, layout: Layout | None, tasks: int, task: int) -> list[UnitShare]:
    """The units of one task."""
    parts = layout.parts if layout else 1
    return [_share(plan, parts, unit) for unit in range(task, plan.units, tasks)]


def _share(plan: BicliquePlan, parts: int, unit: int) -> UnitShare:
    group, place = divmod(unit, 2 * plan.members)
    member = place % plan.members
    return UnitShare(
        stores_left=place < plan.members,
        range=KeyRange(KEY_SPACE * group // plan.groups, KEY_SPACE * (group + 1) // plan.groups),
        sections=(SectionRange(parts * member // plan.members, parts * (member + 1) // plan.members),),
    )
