"""Set voids aside: stretches of left keys where one input has no rows, and the other has many.

A void has no pairs, and a share in which one input has no rows is not joined. Inside a longer stretch the rows of a
void are looked up for nothing: the right rows that fall between two left values, or the left rows that no right row
faces. They may be more than all other work of a task, and they would all fall to one task. As a share of its own a void
costs nothing: a left row with few partners beside a hot right value that is no partner is an example.

    left     x  x x x                                 x x   x
    right     o     o   ooooooooooooooooooooo            o o
                        |------- void ------|
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from watersmeet.schemes.range.grains import LEAST_VOID_ROWS, Counts, Grains, Mask

# A void is set aside if it has more rows than this part of a task's work. The others are spread evenly enough.
VOID_SHARE = 1 / 4


def set_voids_aside(grains: Grains, right_rows: int, tasks: int) -> Grains:
    """Make each void with many rows one grain without work. `right_rows` are all fresh right rows.

    Behind a void, right rows are counted as if those inside it were not there.
    """
    no_left = (grains.new == 0) & (grains.old == 0)
    kinds = np.where(no_left, 1, np.where(grains.faces, 0, 2))
    begins = np.diff(kinds, prepend=-1) != 0
    begin, stretch = np.flatnonzero(begins), np.cumsum(begins) - 1
    no_left, no_right = no_left[begin], kinds[begin] == 2
    # The right rows that face neither the grain before a stretch nor the one after it.
    before = np.append(0, grains.reads_to)[begin]
    after = np.append(grains.reads_from, right_rows)[np.append(begin[1:], len(grains))]
    inside = np.where(no_left, np.maximum(after - before, 0), 0)
    chosen = _largest(
        np.where(no_right, np.add.reduceat(grains.new, begin), inside),
        float(grains.work.sum()) + right_rows,
        tasks,
    )
    if not chosen.any():
        return grains
    left_out = np.where(chosen, inside, 0)
    reached = np.cumsum(left_out)
    void, skipped = chosen[stretch], (reached - left_out)[stretch]
    return replace(
        grains,
        new=np.where(void, 0, grains.new),
        old=np.where(void, 0, grains.old),
        reads_from=np.where(void, (after - reached)[stretch], grains.reads_from - skipped),
        reads_to=np.where(void, before[stretch], grains.reads_to) - skipped,
        void=void,
    ).where(begins | ~void)


def _largest(rows: Counts, work: float, tasks: int) -> Mask:
    """The stretches to set aside: the largest ones, while the next has much of the work that is left of all `work`."""
    order = np.argsort(-rows, kind="stable")
    left = work - np.cumsum(rows[order]) + rows[order]
    enough = rows[order] > np.maximum(LEAST_VOID_ROWS, VOID_SHARE / tasks * left)
    chosen = np.zeros(len(rows), np.bool_)
    chosen[order[np.logical_and.accumulate(enough)]] = True
    return chosen
