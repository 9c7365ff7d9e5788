"""Decide whether a table is still read in place, or from a sorted copy of its files.

In place costs nothing to prepare, but each page is decoded whenever it is read. A sorted copy is decoded once, sorted
and written; its pages are mapped. How many batches will come is not known. So pages stay in place until decoding has
cost as much as the copy, and then the copy is made. Whatever comes, the two together cost at most twice as much as the
better choice made in advance (the ski rental problem). Pages that are seldom read, or that fit the memory of tasks,
never get there.

The cost is counted in bytes of the files, not in time: tallies say what the tasks have decoded, and the count is part
of each plan. So the decision does not depend on the clock, and it is published with the plan. A lost tally delays the
copy; no result depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from watersmeet.model.figures import size
from watersmeet.model.tally import TaskTally
from watersmeet.schemes.table.facts import Decoding


def count_decoding(
    before: Decoding | None,
    tallies: Sequence[TaskTally],
    *,
    copy_folder: str,
    limit_bytes: int,
    tasks: int,
    batch: int,
) -> Decoding:
    """What decoding has cost before this batch, and the decision to make a copy once that is too much.

    `before` is the record of the parent; one of another version of the table does not count. `tallies` are those of
    some of the `tasks` of the batch before.

    >>> tallies = [TaskTally(8, 0, 0, 0, 0, decoded_bytes=300)]
    >>> known = count_decoding(None, tallies, copy_folder="c", limit_bytes=1_000, tasks=2, batch=9)
    >>> known.decoded_bytes, known.chosen_in
    (600, -1)
    >>> count_decoding(known, tallies, copy_folder="c", limit_bytes=1_000, tasks=2, batch=10).chosen_in
    10
    """
    if before is None or before.copy_folder != copy_folder:
        # The tallies are of the version before, or of the join before its restart: they count all the same.
        before = Decoding(copy_folder, 0, limit_bytes)
    if before.is_chosen:
        return before
    spent = sum(tally.decoded_bytes for tally in tallies) * tasks // max(len(tallies), 1)
    known = replace(before, decoded_bytes=before.decoded_bytes + spent)
    # A table without a byte is never decoded.
    return replace(known, chosen_in=batch) if known.decoded_bytes > known.limit_bytes else known


def show_decoding(decoding: Decoding, version_folder: str) -> str:
    """What was decided about the files, and why.

    >>> show_decoding(Decoding("c", 1_000_000, 4_000_000), "t")
    'files read in place: 1.0 MB decoded so far, a sorted copy pays from 4.0 MB on'
    >>> show_decoding(Decoding("c", 5_000_000, 4_000_000, 7), "t")
    'files read in place until their sorted copy is ready: decided in batch 7, after 5.0 MB were decoded and 4.0 MB cost as much as a copy'
    >>> show_decoding(Decoding("c", 5_000_000, 4_000_000, 7, True), "t")
    'files read in place: a sorted copy would pay since batch 7, but workers were stopped before it was ready; in_place=False makes it before the first batch'
    """
    if decoding.is_given_up and version_folder != decoding.copy_folder:
        return (
            f"files read in place: a sorted copy would pay since batch {decoding.chosen_in}, but workers were stopped "
            "before it was ready; in_place=False makes it before the first batch"
        )
    if not decoding.is_chosen:
        return (
            f"files read in place: {size(decoding.decoded_bytes)} decoded so far, a sorted copy pays from "
            f"{size(decoding.limit_bytes)} on"
        )
    is_copy = version_folder == decoding.copy_folder
    what = (
        "files read from their sorted copy"
        if is_copy
        else "files read in place until their sorted copy is ready"
    )
    return (
        f"{what}: decided in batch {decoding.chosen_in}, after {size(decoding.decoded_bytes)} were decoded and "
        f"{size(decoding.limit_bytes)} cost as much as a copy"
    )
