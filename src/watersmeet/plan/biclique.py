"""The join-biclique of BiStream: one half of the units stores the left input, the other half the right one.

Source: Lin et al.: Scalable Distributed Stream Join Processing (SIGMOD 2015). Units are organised into groups; keys
are spread over the groups by hash. Within a group a row is stored by one unit of its side, whichever (here by a hash
of its place in the stream), and meets the rows stored by all units of the other side:

    a unit that stores left rows    joins   its left rows, old and fresh   x   fresh right rows of the group
    a unit that stores right rows   joins   fresh left rows of the group   x   its old right rows

Every pair of a batch meets exactly once: in the unit that stores the older row, or the left one of two fresh rows.
With one unit a side in each group nothing is spread within a group, and a hot key is as much on one unit as in a hash
join; with one group every row meets every unit of the other side, and none can be hot.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.errors import UsageError
from watersmeet.model.cube import BicliquePlan
from watersmeet.model.facts import KEY_SPACE, KeyRange, Layout
from watersmeet.plan.shares import SectionRange

# Parts for each unit where their number is no power of two: so many that the last ones make little difference.
_PARTS_PER_UNIT = 8


@dataclass(frozen=True, slots=True)
class UnitShare:
    """What one unit works on: a range of keys, and of the rows that it stores these sections."""

    stores_left: bool
    range: KeyRange
    sections: tuple[SectionRange, ...]


def plan_biclique(tasks: int, groups: int | None) -> BicliquePlan:
    """As many units as tasks, or the next number that the groups divide evenly into two sides.

    >>> plan_biclique(48, 24)
    BicliquePlan(units=48, groups=24)
    >>> plan_biclique(5, 2)
    BicliquePlan(units=8, groups=2)
    """
    if groups is None:
        groups = max(1, tasks // 2)
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise UsageError(f"groups={groups!r}: units are organised into one group at least")
    return BicliquePlan(-(-tasks // (2 * groups)) * 2 * groups, groups)


def layout_of(plan: BicliquePlan) -> Layout | None:
    """How runs are cut: not at all where one unit stores all rows of its group."""
    if plan.members == 1:
        return None
    power = 1 << (plan.members - 1).bit_length()
    return Layout((1,), power if power == plan.members else power * _PARTS_PER_UNIT)


def shares_of_biclique(plan: BicliquePlan, layout: Layout | None, tasks: int, task: int) -> list[UnitShare]:
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
