"""Remove files that nothing can read again: old manifests, unreachable runs, bases and statistics, used receipts.

A file is removed only if no retained manifest and no receipt names it *and* it is older than the grace period *and*
its batch is older than the current one. Age alone would remove the runs of a slow task. Reachability alone would remove
runs that a task has written but not described yet. Manifests go first, then runs: a crash in between leaves orphans for
the next time, never a manifest with a missing run. A file whose name is not one of ours (`log/names.py`) stays.

Bases and statistics are removed in the same way. A published descriptor serves the batch that it belongs to: once that
batch has a manifest, no task plans it again in this start, and another start publishes its own. The names of all three
have the number of their start: an old start that still cleans removes nothing of a later one.

A process reads each manifest at most once for this, and no base that it does not need: a manifest says what it adds to
its base.

Listings may be late. The manifests that a replay would build on are opened by name. Receipts are not, so the grace
period must be longer than a listing can be late.

A batch join leaves its folder behind, since nothing says when its result was last computed. Later joins remove folders
that are older than a day. Listing all of them at each join would cost as many listings as there were joins in a day,
times the folders inside. So each join examines LOOKS folders, picked by the hash of its own name, and about one in
LOOKS of all folders is an old one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import xxhash

from watersmeet import failpoints
from watersmeet.errors import CorruptFile
from watersmeet.log.bases import name_of, paths_in_base
from watersmeet.log.manifests import list_manifests, list_receipts, named_by, read_receipt
from watersmeet.log.names import (
    BASES,
    DESCRIPTORS,
    MANIFESTS,
    RECEIPTS,
    STATISTICS,
    TALLIES,
    ManifestName,
    batch_file,
    is_draft,
    manifest_parts,
    receipt_part,
    run_batch,
    start_number,
)
from watersmeet.log.parents import choose_parent
from watersmeet.log.runs import RUNS
from watersmeet.log.seen import Named, Seen
from watersmeet.log.starts import STARTS, forget_starts_before, starts_before
from watersmeet.log.storage import FileInfo, Files
from watersmeet.log.tallies import remove_tallies
from watersmeet.model.facts import Manifest, Start

# Longer than any task that may still be writing. Spark's default task time-outs are below this.
GRACE_S = 600.0


# The files of a batch join serve one execution, whose end is unknown. No execution takes a day.
STALE_BATCH_S = 86_400.0
BATCH_FOLDER = "batch-"
# Folders of earlier batch joins that a join examines: about a fifth of all folders are then old, for five listings.
LOOKS = 5


_DRAFTS: dict[str, Callable[[str], object]] = {
    MANIFESTS: manifest_parts,
    BASES: batch_file,
    STATISTICS: batch_file,
    DESCRIPTORS: batch_file,
    RECEIPTS: receipt_part,
    STARTS: start_number,
}


@dataclass(frozen=True, slots=True)
class Cleaned:
    manifests: int = 0
    runs: int = 0
    bytes: int = 0


class Cleaner:
    """Cleans one state directory. It remembers what manifests, bases and receipts name, since they never change."""

    def __init__(self, files: Files, seen: Seen | None = None):
        self._files = files
        self._seen = seen or Seen()
        self._named: dict[ManifestName, Named] = {}
        self._bases: dict[str, list[tuple[str, ...]]] = {}
        # The outputs of each receipt.
        self._receipts: dict[str, tuple[str, ...]] = {}

    def clean(self, current: Manifest, *, retain: int, now_s: float, grace_s: float = GRACE_S) -> Cleaned:
        oldest = current.batch.number - retain
        names = self._manifests(current, oldest)
        # Batches may have skipped the join: the state that the oldest one would build on can be much older.
        parent = choose_parent(names, oldest + 1)
        outdated = {name for name in names if name.batch < oldest and name != parent}
        for name in sorted(outdated):
            self._files.delete(name.path)
            failpoints.reach("clean-manifest-removed")
            self._named.pop(name, None)
        failpoints.reach("clean-half-done")
        kept = [name for name in names if name not in outdated]
        reachable = self._reachable(kept)
        removed = []
        if reachable is not None:
            removed = self._remove_runs(current, reachable, now_s - grace_s)
            for _ in self._remove_batch_files(BASES, current, reachable, now_s - grace_s):
                failpoints.reach("clean-base-removed")
            for _ in self._remove_batch_files(STATISTICS, current, reachable, now_s - grace_s):
                failpoints.reach("clean-statistic-removed")
        for _ in self._remove_batch_files(DESCRIPTORS, current, frozenset(), now_s - grace_s):
            failpoints.reach("clean-descriptor-removed")
        self._remove_receipts(current, now_s - grace_s)
        remove_tallies(self._files, current.run_seq, current.batch.number)
        self._remove_drafts(now_s - grace_s)
        forget_starts_before(self._files, min((name.run_seq for name in kept), default=0), now_s)
        return Cleaned(len(outdated), len(removed), sum(info.bytes for info in removed))

    def _manifests(self, current: Manifest, oldest: int) -> list[ManifestName]:
        """All manifests, those that the current one builds on by name: a late listing must not hide what they need."""
        listed = list_manifests(self._files)
        found = {*listed, name_of(current)}
        number = current.batch.number - 1
        mine = Start(current.run_seq, current.batch.run, None)
        for start in itertools.chain([mine], starts_before(self._files, mine.number, listed)):
            if number < oldest:
                break
            while number >= max(0, oldest):
                name = ManifestName(start.number, number, start.run)
                if name not in found and not self._files.exists(name.path):
                    break
                found.add(name)
                number -= 1
        return sorted(found)

    def _reachable(self, names: list[ManifestName]) -> frozenset[str] | None:
        """The files that a retained manifest or a receipt names; None if a manifest or a base is damaged.

        A damaged manifest of an older batch need not stop the query, but then no file is known to be garbage.
        """
        try:
            self._named = {
                name: self._named.get(name) or named_by(self._files, name, self._seen) for name in names
            }
            based = self._kept_of_bases()
        except CorruptFile:
            return None
        listed = list_receipts(self._files)
        # If a part has two receipts, either may be the one found after a crash.
        self._receipts = {name: self._outputs(name) for name in listed}
        return frozenset(based).union(
            *(named.paths for named in self._named.values()), *self._receipts.values()
        )

    def _kept_of_bases(self) -> set[str]:
        """The bases of retained manifests, and the files of their runs. A run that all of them have removed is gone."""
        removed: dict[str, frozenset[int]] = {}
        for named in self._named.values():
            if named.base is not None:
                removed[named.base] = removed.get(named.base, named.removed) & named.removed
        self._bases = {path: self._bases.get(path) or paths_in_base(self._files, path) for path in removed}
        kept = set(removed)
        for path, gone in removed.items():
            for place, paths in enumerate(self._bases[path]):
                if place not in gone:
                    kept.update(paths)
        return kept

    def _outputs(self, name: str) -> tuple[str, ...]:
        """The runs of a receipt. A damaged one is read again: it names nothing, as its part is merged again."""
        if known := self._receipts.get(name):
            return known
        receipt = read_receipt(self._files, name)
        return tuple(run.path for run in receipt.output) if receipt else ()

    def _remove_runs(self, current: Manifest, reachable: frozenset[str], before_s: float) -> list[FileInfo]:
        removed = []
        reachable |= current.named_paths
        for spec in current.signature.inputs:
            for info in self._files.entries(f"{RUNS}/{spec.name}"):
                path = f"{RUNS}/{spec.name}/{info.name}"
                batch = run_batch(info.name)
                old = info.modified_s < before_s and batch is not None and batch < current.batch.number
                if old and path not in reachable:
                    self._files.delete(path)
                    failpoints.reach("clean-run-removed")
                    removed.append(info)
        return removed

    def _remove_batch_files(
        self, folder: str, current: Manifest, reachable: frozenset[str], before_s: float
    ) -> Iterator[str]:
        """Remove bases, statistics or descriptors of earlier batches, but for those of a later start. Yield each."""
        for info in self._files.entries(folder):
            found = batch_file(info.name)
            if found is None or info.modified_s >= before_s or f"{folder}/{info.name}" in reachable:
                continue
            run_seq, batch = found
            if run_seq <= current.run_seq and batch < current.batch.number:
                self._files.delete(f"{folder}/{info.name}")
                yield info.name

    def _remove_receipts(self, current: Manifest, before_s: float) -> None:
        wanted = {merge.id for merge in current.merges}
        for info in self._files.entries(RECEIPTS):
            part = receipt_part(info.name)
            if part and part[0] not in wanted and info.modified_s < before_s:
                self._files.delete(f"{RECEIPTS}/{info.name}")
                failpoints.reach("clean-receipt-removed")

    def _remove_drafts(self, before_s: float) -> None:
        """Remove half-written manifests, receipts and starts of dead processes."""
        for folder, kind in _DRAFTS.items():
            for info in self._files.entries(folder):
                if is_draft(info.name, kind) and info.modified_s < before_s:
                    self._files.delete(f"{folder}/{info.name}")
                    failpoints.reach("clean-draft-removed")


def remove_stale_batches(files: Files, now_s: float, asking: str = "") -> int:
    """Remove old folders of batch joins below an operator's folder. Streaming queries are not touched.

    `asking` is the folder of the calling join. It picks which folders are examined, at most LOOKS.
    """
    names = [name for name in files.folders() if name.startswith(BATCH_FOLDER) and name != asking]
    first = xxhash.xxh3_64_intdigest(asking.encode()) % max(len(names), 1)
    removed = 0
    for name in (names[first:] + names[:first])[:LOOKS]:
        if _is_stale(files.under(name), now_s - STALE_BATCH_S):
            files.delete_folder(name)
            failpoints.reach("clean-batch-removed")
            removed += 1
    return removed


def mark_batch(files: Files, now_s: float) -> None:
    """Record that a batch join is computed now: on an object store, runs that exist already keep their age."""
    files.publish(f"{STARTS}/{int(now_s * 1000):016d}", b"")


def _is_stale(files: Files, before_s: float) -> bool:
    """Whether the folder has files, all of them older. One listing shows a young folder, unless its join still runs."""
    found = False
    for folder in _folders_in_order(files):
        infos = files.entries(folder)
        if any(info.modified_s >= before_s for info in infos):
            return False
        found = found or bool(infos)
    return found


def _folders_in_order(files: Files) -> Iterator[str]:
    """Manifests first: a finished join has one, and it is the last file that is always written."""
    yield from (MANIFESTS, STARTS, RECEIPTS, BASES, STATISTICS, DESCRIPTORS, TALLIES)
    yield from (f"{RUNS}/{name}" for name in files.under(RUNS).folders())
