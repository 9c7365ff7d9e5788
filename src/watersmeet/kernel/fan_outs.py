"""Sample the fan-outs of a walk: how many rows of each input the fresh rows of another lead to.

Some fresh rows are looked up in the inputs beside theirs. Of the rows that they meet there some are taken again, each
as likely as a combination would meet it, and looked up in the inputs behind. So a fan-out far from the start is that of
rows which the start leads to, hot keys included, not that of any row.

Nothing is tested: conditions and windows are left out. These are estimates, for the order of a walk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.kernel.edges import Arranged
from watersmeet.kernel.emit import Picked
from watersmeet.kernel.gather import look_up
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.pieces import keyed_rows
from watersmeet.kernel.rows import Keyed, take_rows
from watersmeet.kernel.seek import Seeker, Sought
from watersmeet.kernel.walk import WalkJoin
from watersmeet.model.limits import Limits
from watersmeet.model.signature import LOCATOR
from watersmeet.model.tally import Work
from watersmeet.model.walks import FanOut


def sample_fan_outs(
    join: WalkJoin,
    start: str,
    fresh: Sequence[Keyed],
    stored: Mapping[str, Sequence[Keyed]],
    limits: Limits,
) -> tuple[FanOut, ...]:
    """The fan-outs that a sample of the fresh rows of `start` finds. `stored` has the rows of each arrangement."""
    filled = {name: [s for s in slices if len(s)] for name, slices in stored.items()}
    reached = [one for one in join.arranged if one.stored in filled]
    seeker = Seeker(join.edges, {one.name: filled[one.stored] for one in reached}, Work())
    rows = _spread(fresh, join.read(start, None), limits.sampled_rows)
    waiting, seen, found = deque([(start, rows)]), {start}, []
    while waiting:
        name, rows = waiting.popleft()
        if not rows.num_rows:
            continue
        candidates = {name: Picked(rows, np.arange(rows.num_rows))}
        for arranged in reached:
            if arranged.edge is None or arranged.input in seen or not _leads(join, name, arranged):
                continue
            seen.add(arranged.input)
            sought = seeker.look_up(arranged, candidates)
            counts = sought.counts
            everything = sum(map(len, seeker.slices[arranged.name]))
            found.append(
                FanOut(
                    arranged.input,
                    arranged.edge,
                    float(counts.mean()),
                    float((counts > 0).mean()),
                    everything,
                )
            )
            if _leads_on(join, arranged.input, seen):
                read = join.read(arranged.input, None)
                met = _met(sought, arranged, seeker.slices, read, limits.sampled_rows)
                waiting.append((arranged.input, met))
    return tuple(found)


def _leads(join: WalkJoin, name: str, arranged: Arranged) -> bool:
    """Whether rows of an input are looked up in an arrangement of another one."""
    edges = (arranged.edge, *arranged.also)
    return any(name in join.edges[edge].inputs for edge in edges if edge is not None)


def _leads_on(join: WalkJoin, name: str, seen: set[str]) -> bool:
    return any(
        one.input not in seen and _leads(join, name, one) for one in join.arranged if one.input != name
    )


def _spread(slices: Sequence[Keyed], columns: Sequence[str], most: int) -> pa.RecordBatch:
    """At most about this many rows, at even distances: the slices are sorted, so every key has its share."""
    filled = [s for s in slices if len(s)]
    step = max(1, -(-sum(map(len, filled)) // most))
    taken = [_rows_at(s, np.arange(min(step // 2, len(s) - 1), len(s), step), columns) for s in filled]
    return pa.concat_batches(taken)


def _rows_at(slice_: Keyed, at: Indices, columns: Sequence[str]) -> pa.RecordBatch:
    picked = keyed_rows("", slice_).picked(at)
    return take_rows(picked.rows.select(list(columns)), picked.at)


def _met(
    sought: Sought, arranged: Arranged, slices: Mapping[str, Sequence[Keyed]], columns: list[str], most: int
) -> pa.RecordBatch:
    """Some of the rows that combinations meet in an arrangement."""
    reached = np.cumsum(sought.counts)
    total = int(reached[-1])
    if not total:
        return pa.RecordBatch.from_pydict({})
    at = (np.arange(min(most, total)) * total + total // 2) // min(most, total)
    combination = np.searchsorted(reached, at, side="right")
    key, place = sought.of[combination], at - (reached - sought.counts)[combination]
    # Where each key is in each slice, and how many of its rows lie in the slices before.
    first, rows = np.zeros((2, len(sought.looked), len(sought.rows)), np.int64)
    for number, one in enumerate(sought.looked):
        first[number, one.at.found], rows[number, one.at.found] = one.at.start, one.at.rows
    end = np.cumsum(rows, axis=0)
    which = (place >= end[:, key]).sum(axis=0)
    where = first[which, key] + place - (end - rows)[which, key]
    wanted = columns if arranged.through is None else [LOCATOR]
    taken = pa.concat_batches(
        [
            _rows_at(one.slice, where[which == number], wanted)
            for number, one in enumerate(sought.looked)
            if (which == number).any()
        ]
    )
    if arranged.through is None:
        return taken
    return _located(taken.column(0).to_numpy().view(np.uint64), slices[arranged.through], columns)


def _located(locators: np.ndarray, slices: Sequence[Keyed], columns: list[str]) -> pa.RecordBatch:
    """One row for each locator; all rows with the same locator have the same keys."""
    keys, times = np.unique(locators, return_counts=True)
    left, taken = np.ones(len(keys), np.bool_), []
    for one in look_up(keys, slices):
        mine = left[one.at.found]
        at, owner = one.at.start[mine], one.at.found[mine]
        if len(at):
            left[owner] = False
            taken.append(_rows_at(one.slice, np.repeat(at, times[owner]), columns))
    return pa.concat_batches(taken) if taken else pa.RecordBatch.from_pydict({})
