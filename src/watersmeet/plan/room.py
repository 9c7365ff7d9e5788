"""Estimate the disk that merged runs still take, and the room that is left for further merges.

A merge writes its rows again, and the runs that it replaces stay as long as a retained manifest names them: a checkpoint
may be rolled back that far. In a stream of up to some hundred batches that is forever: with all tiers merged as soon as
they are full, the rows lie on the disk three times after 64 batches. So a merge of many bytes waits until what it
leaves behind fits, and then takes as many of the oldest sequences as fit. A look-up visits some more sequences
meanwhile.

Differs: LSM trees bound the space by the ratio of their levels, since they keep no old versions. Ours are kept by
batches, so the bound follows the age of merges.

*The estimate.* Only live runs are known here. A merged sequence that was written within the retained batches has left
its inputs behind, once. Sequences below those, merged in turn, have left theirs for each tier in between, but never more
than what arrived within the retained batches. Batches are taken to be even: a stream whose newest batches are much
larger than its older ones may exceed the bound.

Not guaranteed: evicted rows and runs of a rolled-back start are not counted, and neither is what is younger than the
grace period but no longer retained. Where batches come in many partitions, tiers fill up to the number of sequences that
is merged in any case: eight of them take up to three times the live runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from watersmeet.model.facts import Merge, Run
from watersmeet.model.limits import Limits

# The name of a merge, which is the group of its outputs: input, batch, tier, checksum (plan/merges.py).
_MERGE = re.compile(r".+-\d{10}-\d+-[0-9a-f]{16}")


def is_merged(group: Sequence[Run]) -> bool:
    return _MERGE.fullmatch(group[0].group) is not None


def size_of(group: Iterable[Run]) -> int:
    return sum(run.bytes for run in group)


def estimate_room_bytes(
    groups: Sequence[Sequence[Run]],
    pending: Iterable[Merge],
    batch: int,
    retained_batches: int,
    limits: Limits,
) -> float:
    """How many bytes the inputs of further merges may have, of one input whose sequences are `groups`.

    Below zero if retained runs exceed their share already; without bound while the input is small.
    """
    live_bytes = sum(map(size_of, groups))
    if live_bytes < limits.least_scarce_bytes:
        return math.inf
    paths = {path for merge in pending for path in merge.runs}
    under_way = sum(run.bytes for group in groups for run in group if run.path in paths)
    left = estimate_left_bytes(groups, batch, retained_batches + limits.clean_every_batches, limits)
    return limits.retained_share * live_bytes - left - under_way


def estimate_left_bytes(
    groups: Sequence[Sequence[Run]], batch: int, kept_batches: int, limits: Limits
) -> float:
    """The bytes of replaced runs that are still on the disk."""
    young = [group for group in groups if is_merged(group) and group[0].batch >= batch - kept_batches]
    if not young:
        return 0.0
    arrived = [sum(run.stored_rows for run in group) for group in groups if not is_merged(group)]
    mean_rows = sum(arrived) / len(arrived) if arrived else 0.0
    below = [_tiers_below(group, mean_rows, limits.fan_in) for group in young]
    recent_bytes = sum(map(size_of, groups)) * min(1.0, kept_batches / (batch + 1))
    further = sum(count * size_of(group) for count, group in zip(below, young, strict=True))
    return sum(map(size_of, young)) + min(further, max(below) * recent_bytes)


def _tiers_below(group: Sequence[Run], mean_rows: float, fan_in: int) -> int:
    """How many times the rows of a merged sequence had been merged before, if all tiers were full."""
    rows = sum(run.stored_rows for run in group)
    if not mean_rows or rows <= mean_rows:
        return 0
    # Half a tier more or less is not another one.
    return max(0, round(math.log(rows / mean_rows, fan_in)) - 1)


def oldest_that_fit(groups: Sequence[list[Run]], room_bytes: float, limits: Limits) -> list[list[Run]]:
    """Of a full tier the sequences to merge: all, or at least `fan_in` of the oldest ones, or none.

    Sequences are merged in any case if look-ups would suffer from their number.
    """
    if sum(map(size_of, groups)) <= room_bytes or len(groups) >= limits.most_tier_sequences:
        return list(groups)
    chosen: list[list[Run]] = []
    for group in sorted(groups, key=lambda group: (group[0].batch, group[0].group)):
        room_bytes -= size_of(group)
        if room_bytes < 0:
            break
        chosen.append(group)
    return chosen if len(chosen) >= limits.fan_in else []
