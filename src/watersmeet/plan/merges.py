"""Plan size-tiered merging: which runs to merge, in which parts, and which task does what in this batch.

The sorted sequences of an input are put into tiers by size, and `fan_in` of one tier become one of the next (the
size-tiered compaction of log-structured stores). So a row is rewritten once a tier, and a look-up visits at most
`fan_in` - 1 sequences a tier. A merge is cut into parts by key range. Parts are assigned under a budget that follows
the batch's new rows, so that no batch pays the whole debt at once.

If rows expire (`plan/window.py`), merges drop them as they rewrite, and a sequence that is more than half expired is
rewritten by itself. So the state stays within about twice the window.

Rows that were pushed (plan/pushes.py) are left where they are, and their run stays for them alone. Of keys that owe
results no row is dropped, however old: it may owe a combination. So a sequence is rewritten if at least half of what is
rewritten can be dropped: else it would be due again in the next batch.

A remote run is fetched whole, also for a few active rows. So a remote sequence that is more than a third pushed is
rewritten by itself: its active rows go into a run of their own, and the rest is not fetched until it is paid.

Invariant: a run takes part in at most one merge, and leaves the live set only when all parts of that merge are
written, or when all its rows are expired. The debt is not guaranteed to reach zero.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

import xxhash

from watersmeet.errors import StateError
from watersmeet.model.facts import (
    KEY_SPACE,
    Assignment,
    KeyRange,
    Left,
    Merge,
    MergePart,
    Push,
    Receipt,
    Run,
)
from watersmeet.model.limits import DEFAULT_LIMITS, RETAIN_BATCHES, Limits
from watersmeet.model.ranges import Ranges
from watersmeet.plan.pushes import Holes, owing, prune, reduced, rename
from watersmeet.plan.room import estimate_room_bytes, oldest_that_fit, size_of
from watersmeet.plan.window import Floors, estimate_expired_rows
from watersmeet.schemes.balance import spread_of

# A remote sequence is rewritten if more than this share of it was pushed. A push takes 30 % of the active state: a lower
# share would rewrite all of it after each push. With a half, files hold up to twice what is active. In `bench memory` that
# fetches 40 % of the bytes without a budget, and a third fetches 31 %, for a quarter more bytes that are stored.
PUSHED_SHARE = 1 / 3

_NO_FLOORS: Floors = {}
_NO_HOLES = Holes(())


def tier_of(rows: int, limits: Limits = DEFAULT_LIMITS) -> int:
    """The tier of a sorted sequence: 0 for fewer than `fan_in` times the smallest tier's rows, then log by `fan_in`."""
    smallest = limits.smallest_tier_rows
    return int(math.log(rows / smallest, limits.fan_in)) if rows > smallest else 0


def accept_receipts(
    merges: Iterable[Merge], receipts: Iterable[Receipt], needed: Mapping[str, Set[str]]
) -> tuple[Merge, ...]:
    """Fill in the outputs of parts that are now written. A second receipt for a part is ignored.

    So is a receipt that lacks a column that its input needs: it comes from a start of the query with a narrower
    `select`, whose batch was never committed.
    """
    merges = tuple(merges)
    inputs = {merge.id: merge.input for merge in merges}
    arrived = {
        (receipt.merge, receipt.part): receipt
        for receipt in receipts
        if receipt.merge in inputs and needed[inputs[receipt.merge]] <= set(receipt.columns)
    }
    return tuple(
        replace(
            merge,
            parts=tuple(
                _with_receipt(part, arrived.get((merge.id, number)))
                for number, part in enumerate(merge.parts)
            ),
        )
        for merge in merges
    )


def _with_receipt(part: MergePart, receipt: Receipt | None) -> MergePart:
    if part.output is not None or receipt is None:
        return part
    return replace(part, output=receipt.output, dropped_rows=receipt.dropped_rows)


def apply_finished(
    runs: Sequence[Run], merges: Sequence[Merge], pushes: Sequence[Push] = ()
) -> tuple[tuple[Run, ...], tuple[Merge, ...], tuple[Push, ...]]:
    """Replace the inputs of every finished merge with its outputs, but for what it left in them.

    Return the live runs, the pending merges, and the pushes, which name the outputs where they named the inputs.
    """
    finished = [merge for merge in merges if all(part.output is not None for part in merge.parts)]
    for merge in finished:
        rows = sum(run.rows for part in merge.parts for run in part.output or ())
        dropped = sum(part.dropped_rows for part in merge.parts)
        if rows + dropped != merge.rows or (dropped and merge.floor is None):
            raise StateError(
                f"merge {merge.id} wrote {rows} rows and dropped {dropped}, but its runs have {merge.rows}: nothing "
                "was replaced"
            )
    retired = {path for merge in finished for path in merge.runs}
    left = {
        path: (one.ranges, rows)
        for merge in finished
        for one in merge.left
        for path, rows in zip(one.runs, one.rows, strict=True)
    }
    kept = [run for run in runs if run.path not in retired]
    # Behind the others: a base says in few words which of its runs are gone (log/bases.py).
    kept += [reduced(run, *left[run.path]) for run in runs if run.path in left]
    merged = [run for merge in finished for part in merge.parts for run in part.output or ()]
    live = (*kept, *merged)
    if finished and pushes:
        pushes = prune(rename(pushes, finished), live)
    return live, tuple(merge for merge in merges if merge not in finished), tuple(pushes)


def plan_merges(
    runs: Sequence[Run],
    pending: Sequence[Merge],
    tasks: int,
    batch: int,
    floors: Floors = _NO_FLOORS,
    limits: Limits = DEFAULT_LIMITS,
    holes: Holes = _NO_HOLES,
    retained_batches: int = RETAIN_BATCHES,
    *,
    remote: bool = False,
) -> tuple[Merge, ...]:
    """Plan merges for every full tier and for sequences that are mostly expired, or pushed to a third if runs are `remote`.

    Runs of pending merges take no part.

    A tier waits while the disk has no room for the runs that its merge leaves behind (plan/room.py), for as long as the
    manifests of `retained_batches` name them.
    `floors` are those of the next batch: no earlier batch can see what is merged now. `holes` are what pushes have set
    aside, those of this batch too.
    """
    busy = {path for merge in pending for path in merge.runs}
    free = [run for run in runs if run.path not in busy]
    left = {run.path: rows for run in free if (rows := holes.rows_left(run))} if holes.pushes else {}

    def rows_of(group: Iterable[Run]) -> int:
        return sum(run.stored_rows - left.get(run.path, 0) for run in group)

    tiers: dict[tuple[str, int], list[list[Run]]] = defaultdict(list)
    for group in _groups(run for run in free if rows_of([run])):
        tiers[group[0].input, tier_of(rows_of(group), limits)].append(group)
    merges = []
    sequences: dict[str, list[list[Run]]] = defaultdict(list)
    for group in _groups(runs):
        sequences[group[0].input].append(group)
    room = {
        name: estimate_room_bytes(groups, pending, batch, retained_batches, limits)
        for name, groups in sequences.items()
    }
    for (input_name, tier), groups in sorted(tiers.items()):
        floor = floors.get(input_name)
        chosen: list[list[Run]] = []
        if len(groups) >= limits.fan_in:
            fitting = oldest_that_fit(groups, room[input_name], limits)
            room[input_name] -= sum(map(size_of, fitting))
            chosen = [[run for group in fitting for run in group]] if fitting else []
        else:
            least_rows = limits.min_rewrite_rows
            chosen = [
                group
                for group in groups
                if (floor is not None and _mostly_expired(group, floor, least_rows, rows_of(group), holes))
                or (remote and _much_pushed(group, least_rows, rows_of(group)))
            ]
        for together in chosen:
            skipped = _left(together, left, holes)
            owed = owing(holes.pushes) if floor is not None else ()
            merges.append(
                _merge(
                    input_name, tier, batch, together, rows_of(together), tasks, floor, limits, skipped, owed
                )
            )
    return tuple(merges)


def _left(runs: Iterable[Run], rows: Mapping[str, int], holes: Holes) -> tuple[Left, ...]:
    """What a merge leaves in its runs. Most runs have the same holes."""
    found: dict[Ranges, list[str]] = defaultdict(list)
    for run in runs:
        if run.path in rows:
            found[holes.of(run)].append(run.path)
    return tuple(
        Left(ranges, tuple(paths), tuple(rows[path] for path in paths)) for ranges, paths in found.items()
    )


def _mostly_expired(group: Sequence[Run], floor: int, least_rows: int, rewritten: int, holes: Holes) -> bool:
    """Whether a rewriting of a sequence drops more than half of its rows, or of those that it does not leave behind."""
    rows = _stored_rows(group)
    expired = sum(estimate_expired_rows(run, floor) * run.stored_rows / max(1, run.rows) for run in group)
    if rows < least_rows or 2 * expired <= rows:
        return False
    return not holes.pushes or 2 * (expired - sum(map(holes.rows_owing, group))) > rewritten


def _much_pushed(group: Sequence[Run], least_rows: int, active: int) -> bool:
    rows = _stored_rows(group)
    return rows >= least_rows and rows - active > PUSHED_SHARE * rows


def _stored_rows(group: Iterable[Run]) -> int:
    return sum(run.stored_rows for run in group)


def _groups(runs: Iterable[Run]) -> list[list[Run]]:
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.input, run.group].append(run)
    return list(groups.values())


def _merge(
    input_name: str,
    tier: int,
    batch: int,
    runs: list[Run],
    rows: int,
    tasks: int,
    floor: int | None,
    limits: Limits,
    left: tuple[Left, ...],
    owe: Ranges,
) -> Merge:
    size = sum(run.bytes for run in runs) * rows / max(1, sum(run.rows for run in runs))
    count = max(
        math.ceil(rows / limits.part_rows),
        math.ceil(size / limits.part_bytes),
        min(tasks, rows // limits.min_part_rows),
        1,
    )
    spread = spread_of(runs)
    bounds = [0, *spread.bounds(count), KEY_SPACE]
    parts = tuple(
        MergePart(KeyRange(low, high), rows=round(spread.between(low, high)))
        for low, high in itertools.pairwise(bounds)
    )
    paths = tuple(run.path for run in runs)
    # A replayed batch may plan the same tier over other runs, in other parts, to another floor or with other rows left
    # out. The id covers them, so that a receipt fits only one.
    skipped = [repr((left, owe))] if left or owe else []
    content = xxhash.xxh3_64_hexdigest("\n".join([*paths, str(count), str(floor), *skipped]).encode())
    name = f"{input_name}-{batch:010d}-{tier}-{content}"
    return Merge(name, input_name, paths, rows, parts, floor, batch, left, owe)


def plan_assignments(
    merges: Sequence[Merge],
    runs: Sequence[Run],
    fresh_rows: int,
    tasks: int,
    before: Sequence[Assignment] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Assignment, ...]:
    """Assign pending parts to the least loaded tasks, small merges first, within the batch's budget.

    `before` are the parent's assignments. A part among them that is still pending was not done: its task was killed,
    or never ran because the consumer stopped early. It goes to the first and the last task in turn: `limit` and `show`
    run the first, `tail` the last. One task at a time: if listings are late, the part may be done already.
    """
    tiers = {tier_of(run.stored_rows, limits) for run in runs}
    budget = limits.min_budget_rows + fresh_rows * max(2, len(tiers))
    tried = {(job.merge, job.part): job.task for job in before}
    load = [0] * tasks
    assigned: list[Assignment] = []
    for merge in sorted(merges, key=lambda m: (m.rows, m.id)):
        for number, part in enumerate(merge.parts):
            if part.output is None and budget > 0:
                last = tried.get((merge.id, number))
                if last is None:
                    task = min(range(tasks), key=lambda t: (load[t], t))
                else:
                    task = tasks - 1 if last == 0 else 0
                assigned.append(Assignment(task, merge.id, number))
                load[task] += part.rows
                budget -= part.rows
    return tuple(assigned)
