"""The hash plan: every task joins one equal share of the order keys.

Order keys are mixed, so equal widths are equal shares as long as no key is heavy.
"""

from __future__ import annotations

import itertools

from watersmeet.model.facts import KEY_SPACE, KeyRange


def plan_ranges(tasks: int) -> tuple[KeyRange, ...]:
    """Cut the key space into `tasks` ranges that cover it exactly once.

    >>> [r.low >> 62 for r in plan_ranges(4)]
    [0, 1, 2, 3]
    """
    bounds = [KEY_SPACE * task // tasks for task in range(tasks + 1)]
    return tuple(KeyRange(low, high) for low, high in itertools.pairwise(bounds))
