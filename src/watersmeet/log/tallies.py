"""Tallies as files: what tasks did in the last batches, for the next plan and for the status.

A tally is advisory. It is written once its task has emitted everything, without fsync and without a check that it is
the only one. A reader drops what is missing, damaged or of another version, and no result depends on what is left:
the plan that a tally has influenced is published like any other, so all attempts of a batch follow one plan, whatever
each of them has read.

Files cost more than counting does, so few are written. In a batch `WRITERS` tasks take turns: with 2 tasks both write
in every batch, with 200 each one in every 25th. Rows are shared out evenly, so the work of some tasks tells that of
all. On an object store a request takes as long as a small join: there a turn comes in every `REMOTE_EVERY`-th batch,
and a plan reads no file. It knows the tallies of its own process (engine/operator.py), which had a task of the batch
before as a rule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from watersmeet.errors import CorruptFile, StateError
from watersmeet.log.codec import decode_checked, encode_checked
from watersmeet.log.names import TALLIES, batch_stem, tally_parts
from watersmeet.log.storage import FileInfo, Files
from watersmeet.model.tally import TaskTally

# Tasks that write a tally in a batch: enough that a mean of them is good, few enough that writing and reading them
# takes less than 2 ms of a batch.
WRITERS = 8
# Batches between two turns on an object store: a request of 50 ms is then less than 1% of batches of a second.
REMOTE_EVERY = 8
# Batches that tallies are kept for: the status shows the last of each task, also where 200 tasks take turns.
KEPT_BATCHES = 32


def writers(batch: int, tasks: int, *, remote: bool = False) -> range | frozenset[int]:
    """The tasks that write a tally in this batch.

    >>> sorted(writers(7, 2)), sorted(writers(1, 20)), sorted(writers(2, 20))
    ([0, 1], [8, 9, 10, 11, 12, 13, 14, 15], [0, 1, 2, 3, 16, 17, 18, 19])
    >>> [len(writers(batch, 4, remote=True)) for batch in range(6, 10)]
    [0, 0, 4, 0]
    """
    if remote and batch % REMOTE_EVERY:
        return range(0)
    turn = batch // REMOTE_EVERY if remote else batch
    first = turn * WRITERS % tasks
    return frozenset((first + place) % tasks for place in range(min(WRITERS, tasks)))


def tally_path(run_seq: int, batch: int, task: int) -> str:
    return f"{TALLIES}/{batch_stem(run_seq, batch)}-{task:05d}.json"


def leave_tally(files: Files, run_seq: int, tally: TaskTally) -> None:
    """Write a tally. A failure is nobody's concern: what ails the storage shows where state is written."""
    with contextlib.suppress(StateError, OSError):
        files.leave(tally_path(run_seq, tally.batch, tally.task), encode_checked(tally))


def read_tallies(files: Files, run_seq: int, batch: int, tasks: Iterable[int]) -> tuple[TaskTally, ...]:
    """The tallies of these tasks, as many as can be read."""
    found = (_read(files, tally_path(run_seq, batch, task)) for task in tasks)
    return tuple(tally for tally in found if tally is not None)


def latest_tallies(files: Files, run_seq: int) -> tuple[TaskTally, ...]:
    """The last tally of each task in one start of a query, by task."""
    newest: dict[int, int] = {}
    for info in files.entries(TALLIES):
        found = tally_parts(info.name)
        if found is not None and found[0] == run_seq:
            newest[found[2]] = max(found[1], newest.get(found[2], 0))
    read = (_read(files, tally_path(run_seq, batch, task)) for task, batch in sorted(newest.items()))
    return tuple(tally for tally in read if tally is not None)


def _read(files: Files, path: str) -> TaskTally | None:
    try:
        return decode_checked(TaskTally, files.read(path), path)
    except (CorruptFile, StateError, OSError):
        return None


def remove_tallies(files: Files, run_seq: int, batch: int, listed: Sequence[FileInfo] | None = None) -> int:
    """Remove the tallies of batches that are long over, but for those of a later start."""
    gone = []
    for info in files.entries(TALLIES) if listed is None else listed:
        found = tally_parts(info.name)
        if found is None or found[0] > run_seq:
            continue
        if found[0] < run_seq or found[1] < batch - KEPT_BATCHES:
            gone.append(f"{TALLIES}/{info.name}")
    return sum(len(removed) for removed in files.delete_many(gone))
