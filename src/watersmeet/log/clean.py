"""Remove what nothing can ever read again: old manifests, unreachable runs, used receipts.

A file goes only if no retained manifest and no receipt names it *and* it is older than the grace period
*and* its batch is older than the current one: age alone would take the runs of a slow task, reachability
alone those that a running task has written but not described yet. Manifests go first, then runs: a crash
in between leaves orphans for the next time, never a manifest with a missing run.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet import failpoints
from watersmeet.errors import CorruptFile
from watersmeet.log.files import FileInfo, Files
from watersmeet.log.manifests import (
    MANIFESTS,
    RECEIPTS,
    ManifestName,
    choose_parent,
    list_manifests,
    read_all_receipts,
    read_manifest,
    receipt_part,
)
from watersmeet.log.runs import RUNS, batch_of
from watersmeet.log.starts import STARTS, forget_starts_before
from watersmeet.model.facts import Manifest

# Longer than any task that may still be writing; Spark's own default task time-outs are below this.
GRACE_S = 600.0


# The files of a batch join serve one execution, which nobody sees the end of: a day is longer than any.
STALE_BATCH_S = 86_400.0
BATCH_FOLDER = "batch-"


@dataclass(frozen=True, slots=True)
class Cleaned:
    manifests: int = 0
    runs: int = 0
    bytes: int = 0


class Cleaner:
    """Cleans one state directory; remembers which runs a manifest names, since manifests never change."""

    def __init__(self, files: Files):
        self._files = files
        self._named: dict[ManifestName, frozenset[str]] = {}

    def clean(self, current: Manifest, *, retain: int, now_s: float, grace_s: float = GRACE_S) -> Cleaned:
        names = list_manifests(self._files)
        oldest = current.batch.number - retain
        # Batches may have passed by the join: the state on which the oldest one would build can be much older.
        base = choose_parent(names, oldest + 1)
        outdated = [name for name in names if name.batch < oldest and name != base]
        for name in outdated:
            self._files.delete(name.path)
            self._named.pop(name, None)
        failpoints.reach("clean-half-done")
        kept = [name for name in names if name not in outdated]
        reachable = self._reachable(kept)
        removed = [] if reachable is None else self._remove_runs(current, reachable, now_s - grace_s)
        self._remove_receipts(current, now_s - grace_s)
        self._remove_drafts(now_s - grace_s)
        forget_starts_before(self._files, min((name.run_seq for name in kept), default=0))
        return Cleaned(len(outdated), len(removed), sum(info.bytes for info in removed))

    def _reachable(self, names: list[ManifestName]) -> frozenset[str] | None:
        """The runs that a retained manifest or a receipt names; None if one of the manifests is damaged.

        A damaged manifest of an older batch need not stop the query, but then nothing is known to be garbage.
        """
        for name in names:
            if name not in self._named:
                try:
                    self._named[name] = read_manifest(self._files, name).named_paths
                except CorruptFile:
                    return None
        # Of two receipts for one part either may be the one that is left to be found after a crash.
        receipts = read_all_receipts(self._files)
        return frozenset().union(
            *(self._named[name] for name in names), (run.path for r in receipts for run in r.output)
        )

    def _remove_runs(self, current: Manifest, reachable: frozenset[str], before_s: float) -> list[FileInfo]:
        removed = []
        reachable |= current.named_paths
        for spec in current.signature.inputs:
            for info in self._files.entries(f"{RUNS}/{spec.name}"):
                path = f"{RUNS}/{spec.name}/{info.name}"
                old = info.modified_s < before_s and batch_of(info.name) < current.batch.number
                if old and path not in reachable:
                    self._files.delete(path)
                    failpoints.reach("clean-run-removed")
                    removed.append(info)
        return removed

    def _remove_receipts(self, current: Manifest, before_s: float) -> None:
        wanted = {merge.id for merge in current.merges}
        for info in self._files.entries(RECEIPTS):
            used = not info.name.startswith(".") and receipt_part(info.name)[0] not in wanted
            if used and info.modified_s < before_s:
                self._files.delete(f"{RECEIPTS}/{info.name}")

    def _remove_drafts(self, before_s: float) -> None:
        """Half-written manifests and receipts of processes that died: their names begin with a dot."""
        for folder in (MANIFESTS, RECEIPTS, STARTS):
            for info in self._files.entries(folder):
                if info.name.startswith(".") and info.modified_s < before_s:
                    self._files.delete(f"{folder}/{info.name}")


def remove_stale_batches(files: Files, now_s: float) -> int:
    """Remove what batch joins left behind below an operator's folder; streaming queries are not touched."""
    removed = 0
    for name in files.folders():
        if name.startswith(BATCH_FOLDER):
            below = files.under(name)
            folders = [MANIFESTS, STARTS, *(f"{RUNS}/{name}" for name in below.under(RUNS).folders())]
            found = [info for folder in folders for info in below.entries(folder)]
            if found and all(info.modified_s < now_s - STALE_BATCH_S for info in found):
                files.delete_folder(name)
                removed += 1
    return removed
