"""The parent of a batch: the manifest whose state it builds on. A wrong one would lose rows without an error.

Within a start every batch leaves a manifest, even if no input brought a row. So from the second batch that reached the
operator on, the parent of batch b is b - 1 of the same start. It is opened by name, since a listing may be late (NFS
caches directories for up to a minute). If it is missing, the rows of its batch are lost.

The first batch of a start builds on an earlier start. Its parent is, of all manifests older than the batch, the one
with the highest start, then the highest batch:

- A crash between publishing b and Spark's commit of b: the new start replays b, and the b of the old start is not older
  than b.
- A sink that has already committed b skips the replay of b without evaluating it: the first batch is b + 1, and its
  parent the b of the old start.
- A checkpoint rolled back by hand to b, even several times: the old starts' manifests of b and later are not older than
  b. From b + 1 on the new start has its own, and no other start has a number as high.
- A start that ended before it published anything has no manifest: the search continues below it.
- A zombie of an old start that publishes late has a lower number than the new one.
- A start that settled (engine/settle.py) has one manifest, of the batch before: that of the same state, which owes
  nothing. A checkpoint that was rolled back behind it is refused, or the same results would come out again.

Here too the expected manifest is opened by name: the claims say which start it must belong to. The listing matters only
if the expected one is missing. Then the batch is refused, unless the user accepted exactly these batches.

Nothing is guaranteed if the directory is edited by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.errors import StateBehind, StateError, StateInUse, StateMissing
from watersmeet.log.manifests import list_manifests, open_manifest, read_if_there
from watersmeet.log.names import MANIFESTS, ManifestName
from watersmeet.log.seen import Seen
from watersmeet.log.starts import is_settling, search_start, starts_before
from watersmeet.log.storage import Files
from watersmeet.model.facts import BatchId, BatchSpan, Manifest, Start

ACCEPT_GAP = "spark.watersmeet.acceptGap"

# A late listing hides only the newest manifests: those of a minute on NFS, and a batch takes a tenth of a second or
# more. This many names are tried above the newest listed one, and as many below the checkpoint's batch. Without a
# bound, a checkpoint far ahead of the state would cost a request for each batch in between.
HIDDEN_MANIFESTS = 1_000


def find_parent(
    files: Files,
    batch: BatchId,
    start: Start,
    accepted: Sequence[BatchSpan] = (),
    seen: Seen | None = None,
) -> Manifest | None:
    """The parent's manifest; None for a new query. Raise if a batch between the two is missing."""
    seen = seen or Seen()
    first = batch.number if start.first_batch is None else start.first_batch
    if batch.number < first:
        raise StateError(
            f"a task of batch {batch.number} ran after the first batch of this start, {first}, in {files.place}: it "
            "is too late, and its results are not used"
        )
    for number in range(batch.number - 1, first - 1, -1):
        name = ManifestName(start.number, number, start.run)
        found = read_if_there(files, name, seen) or _read_after_listing(files, name, seen)
        if found is not None:
            return found
        if not _is_accepted(number, accepted):
            raise StateBehind(_lost_in_start(files, name, batch))
    return _parent_of_first(files, first, start, accepted, seen)


def find_attempt(files: Files, batch: BatchId, start: Start, parent: Manifest | None) -> Manifest | None:
    """The manifest that an earlier start published for this very batch on the same parent, if this is a replay.

    Results of that attempt may have reached the sink, so decisions that depend on the clock must be repeated.
    """
    if batch.number != start.first_batch:
        return None
    for earlier in starts_before(files, start.number, list_manifests(files)):
        if is_settling(earlier.run):
            continue
        found = read_if_there(files, ManifestName(earlier.number, batch.number, earlier.run))
        if found is not None and found.parent == (None if parent is None else parent.batch):
            return found
        if earlier.first_batch is None or earlier.first_batch < batch.number:
            # Earlier starts can have this batch only on another parent.
            return None
    return None


def planned_by_another(files: Files, batch: BatchId) -> bool:
    """Whether another start of the query has published a manifest for this batch: results of it may be out."""
    names = list_manifests(files)
    if any(name.batch == batch.number and name.run != batch.run for name in names):
        return True
    # By name too: the listing may be late.
    mine, highest = search_start(files, batch.run)
    earlier = starts_before(files, highest + 1 if mine is None else mine.number, names)
    expected = (ManifestName(one.number, batch.number, one.run) for one in earlier)
    return any(read_if_there(files, name) is not None for name in expected)


def check_not_overtaken(files: Files, batch: BatchId, start: Start, built_ms: int) -> None:
    """Refuse a start whose first task hung while another start did later batches: it would take over their state.

    It claims its number late, so it looks like the newest start. It differs from a checkpoint rolled back by hand in
    one way: the later batches were done after its join was built.
    """
    if batch.number != start.first_batch:
        return
    names = list_manifests(files)
    later = {name for name in names if name.batch > batch.number and name.run_seq < start.number}
    for earlier in starts_before(files, start.number, names):
        later.add(ManifestName(earlier.number, batch.number + 1, earlier.run))
        if earlier.first_batch is None or earlier.first_batch <= batch.number:
            break
    for name in sorted(later, reverse=True):
        found = read_if_there(files, name)
        if found is not None and found.written_ms > built_ms:
            raise StateInUse(
                f"another start of this query has done batch {name.batch} in {files.place} since this join was built, "
                f"and this one is at batch {batch.number}: two drivers must not run on one checkpoint. If you rolled "
                "the checkpoint back by hand, call wm.join again and start that"
            )
        if found is not None:
            return


def choose_parent(names: Sequence[ManifestName], batch: int) -> ManifestName | None:
    """The listed manifest that a start beginning with this batch would build on."""
    return max((name for name in names if name.batch < batch), default=None)


def _parent_of_first(
    files: Files, batch: int, start: Start, accepted: Sequence[BatchSpan], seen: Seen
) -> Manifest | None:
    names = list_manifests(files)
    for earlier in starts_before(files, start.number, names):
        _check_not_settled(files, earlier, batch, seen)
        found = _newest_of(files, earlier, batch, names, accepted, seen)
        if found is not None:
            return found
    missing = _not_accepted(0, batch, accepted)
    if missing is not None:
        raise StateMissing(
            f"the checkpoint is at batch {batch}, but there is no state of an earlier batch in {files.place}. "
            f"{_OTHER_PLACE} {_causes_and_remedy(missing)}"
        )
    return None


def _check_not_settled(files: Files, start: Start, batch: int, seen: Seen) -> None:
    """Refuse a batch whose rows were among those that an earlier start settled."""
    if not is_settling(start.run) or start.first_batch is None or start.first_batch < batch:
        return
    name = ManifestName(start.number, start.first_batch, start.run)
    found = read_if_there(files, name, seen)
    if found is not None and is_settled(found):
        done = found.settlements[-1]
        raise StateError(
            f"the checkpoint is at batch {batch}, but what the query owed after batch {done.batch} was settled: "
            f"{done.rows} results are in {done.folder}. They would come out again. If the checkpoint was rolled back "
            f"by hand, remove that folder and {name.path} in {files.place}, and start again"
        )


def is_settled(manifest: Manifest) -> bool:
    """Whether all that a batch owed was paid outside of the query, and no batch came after that."""
    return any(one.run == manifest.batch.run for one in manifest.settlements)


def _newest_of(
    files: Files,
    start: Start,
    batch: int,
    names: Sequence[ManifestName],
    accepted: Sequence[BatchSpan],
    seen: Seen,
) -> Manifest | None:
    """The newest manifest of a start before a batch; None if the start published none."""
    if start.first_batch is not None and start.first_batch >= batch:
        return None
    expected = read_if_there(files, ManifestName(start.number, batch - 1, start.run), seen)
    if expected is not None:
        return expected
    newest = _newest_before(files, start, batch - 1, names)
    if newest is None:
        return None
    missing = _not_accepted(newest.batch + 1, batch, accepted)
    if missing is not None:
        raise StateBehind(_behind(files, batch, start, newest, names, missing))
    return open_manifest(files, newest, seen)


def _newest_before(
    files: Files, start: Start, batch: int, names: Sequence[ManifestName]
) -> ManifestName | None:
    """The newest manifest of a start before a batch. It is tried by name, since a late listing may hide it."""
    listed = max(
        (name for name in names if name.run_seq == start.number and name.batch < batch), default=None
    )
    first = start.first_batch if listed is None else listed.batch + 1
    if first is not None:
        unlisted = range(batch - 1, first - 1, -1)
        below, above = unlisted[:HIDDEN_MANIFESTS], unlisted[HIDDEN_MANIFESTS:][-HIDDEN_MANIFESTS:]
        for number in (*below, *above):
            name = ManifestName(start.number, number, start.run)
            if files.exists(name.path):
                return name
    return listed


def _read_after_listing(files: Files, name: ManifestName, seen: Seen) -> Manifest | None:
    """Read again after a listing: a filesystem that caches absent names asks again once the folder was listed."""
    list_manifests(files)
    return read_if_there(files, name, seen)


def _is_accepted(batch: int, accepted: Sequence[BatchSpan]) -> bool:
    return any(batch in span for span in accepted)


def _not_accepted(first: int, behind: int, accepted: Sequence[BatchSpan]) -> BatchSpan | None:
    """All batches from `first` up to, not including, `behind`; None if all of them are accepted."""
    if all(_is_accepted(number, accepted) for number in range(first, behind)):
        return None
    return BatchSpan(first, behind - 1)


def _lost_in_start(files: Files, name: ManifestName, batch: BatchId) -> str:
    return (
        f"batch {name.batch} left no manifest, so batch {batch.number} would lose its rows: {name.path} is missing in "
        f"{files.place}. {_causes_and_remedy(BatchSpan(name.batch, name.batch))}"
    )


def _behind(
    files: Files,
    batch: int,
    start: Start,
    newest: ManifestName,
    names: Sequence[ManifestName],
    missing: BatchSpan,
) -> str:
    older = max((n for n in names if n.run_seq < start.number and n.batch == batch - 1), default=None)
    if older is not None:
        # A late driver looks like the newest start. Continuing without its batches would lose rows.
        return (
            f"the checkpoint is at batch {batch}, but the newest start in {files.place}, {start.number}, ended with "
            f"batch {newest.batch}, while start {older.run_seq} did batch {older.batch}. If two drivers ran on this "
            f"checkpoint and you want to keep the results of start {older.run_seq}, move the manifests of "
            f"start {start.number} ({MANIFESTS}/{start.number:06d}-*) away and start "
            f"again. If not: {_causes_and_remedy(missing)}"
        )
    return (
        f"the checkpoint is at batch {batch}, but the newest state in {files.place} is of batch {newest.batch}: "
        f"{batch - 1 - newest.batch} batch(es) are missing. {_OTHER_DIRECTORY} {_causes_and_remedy(missing)}"
    )


_OTHER_DIRECTORY = (
    "If this is not the checkpoint's state directory, restore that one, or start with a new checkpoint."
)


# A new alias of an input is enough to be here: nothing has gone, and nothing needs to be restored.
_OTHER_PLACE = (
    "If it is elsewhere, give the state= and name= of the earlier starts; by default the name is made of the inputs' "
    "names, in their order. If it was there, restore it, or start with a new checkpoint."
)


def _causes_and_remedy(missing: BatchSpan) -> str:
    return (
        f"Likely causes: a foreachBatch function did not evaluate its DataFrame in batch {missing}, or an evaluation "
        "that Spark cuts short, such as limit(0); the folder of a file sink has batches of another checkpoint, which "
        "Spark skips; a shared filesystem shows new files late; or files were deleted. "
        "Remove the cause and start again: if the files are there by then, nothing is lost. If not, roll the "
        f"checkpoint back to batch {missing.first} and start again: Spark reads the missing rows again. Only if the "
        f"join may continue without them, set {ACCEPT_GAP}={missing}"
    )
