"""Starts of the query: each claims the next number, once, and records the first batch that reached the operator.

The number is the run sequence of all manifests of the start. The first ingest task claims it, with the same atomic
creation that publishes manifests, and sends it to the join tasks in its descriptor. A join task claims only if it
received no descriptor: a late task of an old start must not become the newest start.

A start takes one more than the highest number in `starts` and in the names of the manifests. So losing the folder
`starts` does not make an old manifest look newer than a new one. Numbers are consecutive, so a claim is found by name,
one above the other, even if a listing does not show it yet.

The order is not guaranteed for two starts whose first tasks run at the same moment, or for a start that hung before its
claim. The latter takes a higher number than the live one, and is refused before it publishes anything if the live one
has done later batches meanwhile (`parents.check_not_overtaken`). The live one ends too; its next start continues.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from watersmeet import failpoints
from watersmeet.errors import CorruptFile, StateInUse
from watersmeet.log.codec import decode_checked, encode_checked
from watersmeet.log.manifests import list_manifests
from watersmeet.log.names import ManifestName, start_number
from watersmeet.log.storage import FileInfo, Files
from watersmeet.model.facts import Start

STARTS = "starts"

# A claim is kept for a day even if no retained manifest belongs to its start: a late task that finds its own claim
# does not make another. No task lives that long.
KEPT_CLAIM_S = 86_400.0
# A query that crashes at every start makes many claims in a day. A new start reads all that are kept.
KEPT_CLAIMS = 100

# Format 3 and older: only the run id.
_BARE_RUN = re.compile(rb"[\w.-]+")


# The run id of a start that settles (engine/settle.py) begins so. Spark's run ids are UUIDs.
_SETTLING = "settling-"


def settling_run(unique: str) -> str:
    """The run id of a start that settles."""
    return f"{_SETTLING}{unique}"


def is_settling(run: str) -> bool:
    return run.startswith(_SETTLING)


def search_start(files: Files, run: str) -> tuple[Start | None, int]:
    """The start that a run has claimed, or None, and the highest number of any start, including late-listed ones.

    The name of a manifest says whose its start is. Only claims without a manifest are read.
    """
    names = list_manifests(files)
    numbers = _numbers(files)
    highest = _highest(numbers, names)
    runs: dict[int, set[str]] = {}
    for name in names:
        runs.setdefault(name.run_seq, set()).add(name.run)
    # The listing of claims may be older than the listing of manifests.
    unlisted = range(max((*numbers, highest - KEPT_CLAIMS, -1)) + 1, highest + 1)
    for number in sorted({*numbers, *unlisted}, reverse=True):
        if run in runs.get(number, {run}):
            found = _read_if_whole(files, number, may_be_mine=number in runs or number == highest)
            if found is not None and found.run == run:
                return found, highest
    for found in starts_above(files, highest):
        if found.run == run:
            return found, highest
        highest = found.number
    return None, highest


def claim_start(files: Files, run: str, batch: int, highest: int | None = None) -> Start:
    """The start of this run: the one that it has claimed, or the next number with `batch` as its first batch.

    `highest` is the number that `search_start` returned if it did not find the run.
    """
    if highest is None:
        found, highest = search_start(files, run)
        if found is not None:
            return found
    # Try each number above those that were searched, to meet a claim by another task of this start.
    for number in itertools.count(highest + 1):
        mine = Start(number, run, batch)
        if files.publish(path_of(number), encode_checked(mine)):
            failpoints.reach("start-written")
            return mine
        # Another task of this start was faster, or another start, or the listing was late.
        other = read_start(files, number)
        if other is not None and other.run == run:
            return other
    raise AssertionError("numbers do not end")


def next_number(files: Files) -> int:
    """One more than the highest number of a start, including one that a late listing does not show."""
    listed = _highest(_numbers(files), list_manifests(files))
    return listed + 1 + sum(1 for _ in starts_above(files, listed))


def read_start(files: Files, number: int) -> Start | None:
    """Read a claim by its number; None if it is missing, CorruptFile if it is damaged."""
    path = path_of(number)
    try:
        content = files.read(path)
    except FileNotFoundError:
        return None
    if _BARE_RUN.fullmatch(content):
        return Start(number, content.decode(), None)
    found = decode_checked(Start, content, f"the claim {path} of a start in {files.place}", _ADVICE)
    if found.number != number:
        raise CorruptFile(f"the claim {path} in {files.place} belongs to start {found.number}. {_ADVICE}")
    return found


def check_current(files: Files, start: Start) -> None:
    """Raise if a later start of the same query has taken over: it may be at the same batch.

    Otherwise two drivers on one checkpoint would both publish, and the next start could build on the one that Spark
    did not commit. The claims are opened by name: a listing may be late.
    """
    mine = read_start(files, start.number)
    if mine is None:
        raise CorruptFile(
            f"the claim {path_of(start.number)} of this start is missing in {files.place}: the state directory was "
            "changed while the query ran. Start the query again"
        )
    if mine.run != start.run or next(starts_above(files, start.number), None) is not None:
        raise StateInUse(
            f"another start of this query has taken over its state in {files.place}: two drivers must not run on "
            "one checkpoint. Stop this one, or stop the other and start again"
        )


def forget_starts_before(
    files: Files, number: int, now_s: float, listed: Sequence[FileInfo] | None = None
) -> None:
    """Remove old claims of starts that no retained manifest belongs to."""
    gone = []
    for info in files.entries(STARTS) if listed is None else listed:
        claimed = start_number(info.name)
        if claimed is not None and claimed < number:
            aged = info.modified_s < now_s - KEPT_CLAIM_S
            if aged or claimed < number - KEPT_CLAIMS:
                gone.append(f"{STARTS}/{info.name}")
    for _ in files.delete_many(gone):
        failpoints.reach("clean-start-removed")


def starts_before(files: Files, number: int, names: Sequence[ManifestName]) -> Iterator[Start]:
    """The starts below a number, newest first: by their claims, or by their manifests if a claim is lost."""
    runs = {name.run_seq: name.run for name in names}
    oldest = min(runs, default=number)
    for below in range(number - 1, -1, -1):
        try:
            found = read_start(files, below)
        except CorruptFile:
            found = None
        if found is None and below in runs:
            found = Start(below, runs[below], None)
        if found is not None:
            yield found
        elif below < oldest:
            return


def path_of(number: int) -> str:
    return f"{STARTS}/{number:06d}"


def _numbers(files: Files) -> list[int]:
    found = (start_number(info.name) for info in files.entries(STARTS))
    return [number for number in found if number is not None]


def _highest(numbers: Sequence[int], names: Sequence[ManifestName]) -> int:
    return max((*numbers, *(name.run_seq for name in names)), default=-1)


def starts_above(files: Files, number: int) -> Iterator[Start]:
    """The claims above a number, by name, up to the first missing one."""
    for later in itertools.count(number + 1):
        found = read_start(files, later)
        if found is None:
            return
        yield found


def _read_if_whole(files: Files, number: int, *, may_be_mine: bool) -> Start | None:
    """A claim; None if it is gone, or damaged and certainly not that of the wanted run.

    Without manifests, which would name its run, a claim may be ours only if there is no later start.
    """
    try:
        return read_start(files, number)
    except CorruptFile:
        if may_be_mine:
            raise
        return None


_ADVICE = "Make sure that no driver of this query runs, remove the file and start the query again"
