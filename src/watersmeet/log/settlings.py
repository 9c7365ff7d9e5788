"""Starts that settle: they pay what a state owes outside of the query, and mark it as settled.

A settling takes a number like any start (log/starts.py), so every other driver of the query stops. Its *mark* is one
manifest, named after it, of the batch that Spark committed last: the same state, which owes nothing. Later starts find
it as the parent of their first batch like any other manifest. Nothing else makes a state settled.

Exactly one of a settling and a start that comes while it works wins, since a name is given once:

- Whoever takes a number above that of a settling without a mark first *closes* it: it publishes the state as it was
  under the name of the mark. A settling that finds its name taken has lost, and its results are not used.
- A driver of an earlier start may publish one more batch. It looks for a later claim between that and its first result
  (`Operator.agree_and_merge`); a settling looks for that batch after its claim. So one of the two stops.
"""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet import failpoints
from watersmeet.errors import CorruptFile, StateInUse
from watersmeet.log.manifests import list_manifests, open_manifest, publish_manifest, read_if_there
from watersmeet.log.names import ManifestName
from watersmeet.log.parents import find_parent, is_settled
from watersmeet.log.seen import Seen
from watersmeet.log.starts import claim_start, is_settling, next_number, read_start, starts_before
from watersmeet.log.statistics import complete
from watersmeet.log.storage import Files
from watersmeet.model.facts import BatchId, BatchSpan, Manifest, Start
from watersmeet.model.limits import DEFAULT_LIMITS


def claim_settling(
    files: Files, run: str, manifest: Manifest, accepted: Sequence[BatchSpan], seen: Seen
) -> Start:
    """Claim a start that settles what is owed after a batch. Repeated calls with one run have one claim."""
    start = claim_start(files, run, manifest.batch.number)
    close_settlings(files, start, manifest.batch.query, accepted, seen)
    return start


def close_settlings(
    files: Files, start: Start, query: str, accepted: Sequence[BatchSpan], seen: Seen
) -> None:
    """Decide all settlings just below a start that have no mark: they have lost. Older ones were closed before."""
    undecided = []
    for number in range(start.number - 1, -1, -1):
        try:
            found = read_start(files, number)
        except CorruptFile:
            break
        if found is None or not is_settling(found.run) or found.first_batch is None:
            break
        if read_if_there(files, _mark_of(found, found.first_batch), seen) is not None:
            break
        undecided.append(found)
    # A later one is closed with the state that an earlier one has left.
    for found in reversed(undecided):
        assert found.first_batch is not None
        below = Start(found.number, found.run, found.first_batch + 1)
        batch = BatchId(query, found.run, below.first_batch or 0)
        parent = find_parent(files, batch, below, accepted, seen)
        if parent is not None:
            parent = complete(files, seen, parent)
            name = _mark_of(found, found.first_batch)
            publish_manifest(files, seen, name, parent, parent, DEFAULT_LIMITS)


def publish_mark(files: Files, seen: Seen, start: Start, before: Manifest, settled: Manifest) -> Manifest:
    """Mark a state as settled, if it is not yet; StateInUse if another start has taken over."""
    name = _mark_of(start, settled.batch.number)
    failpoints.reach("mark-before-write")
    if publish_manifest(files, seen, name, settled, before, DEFAULT_LIMITS):
        failpoints.reach("mark-written")
        return settled
    found = open_manifest(files, name, seen)
    if not is_settled(found):
        raise StateInUse(
            f"another start of this query, or another settling, took over its state in {files.place} while this one "
            "was at work. Nothing was settled, and no folder was written. Stop the query, then settle again"
        )
    return found


def uncommitted_batch(files: Files, manifest: Manifest) -> int | None:
    """The batch after this one, if the state has it though Spark has not committed it."""
    number = manifest.batch.number + 1
    # By name: a listing may be late.
    for start in starts_before(files, next_number(files), list_manifests(files)):
        if files.exists(ManifestName(start.number, number, start.run).path):
            return number
        if start.number <= manifest.run_seq:
            break
    return None


def _mark_of(start: Start, batch: int) -> ManifestName:
    return ManifestName(start.number, batch, start.run)
