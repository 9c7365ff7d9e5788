"""Remove files that nothing can read again: old manifests, unreachable runs, bases and statistics, used receipts.

A file is removed only if no retained manifest and no receipt names it *and* it is older than the grace period *and*
its batch is older than the current one. Age alone would remove the runs of a slow task. Reachability alone would remove
runs that a task has written but not described yet. A file whose name is not one of ours (`log/names.py`) stays.

A run that this process has seen in a manifest needs no grace period: it was described, and the manifest that named it is
no longer kept. Batches of a second or less would otherwise leave ten minutes of merged runs on the disk. After a crash,
or in another process, the grace period holds for it as for all others.

*Order.* Manifests go first, then all else: a crash in between leaves orphans for the next time, never a manifest with a
missing run. The manifests of an old start go before those of later ones: otherwise a rollback, after a crash, to a
batch that is no longer kept could find a manifest of a start that was rolled back itself, and build on it without an
error. The manifests of one start go in any order, and so does all else: a rollback finds the one that it needs or is
refused. Within these steps an object store removes a thousand files in a request, of which a crash may leave any.

*Listings.* All folders are listed first, and at once. A file that appears later is not removed, whatever it is. A run
whose receipt appears later is younger than the grace period.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import xxhash

from watersmeet import failpoints
from watersmeet.errors import CorruptFile
from watersmeet.log.bases import name_of, paths_in_base
from watersmeet.log.manifests import manifests_among, named_by_each
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
from watersmeet.log.receipts import read_receipt, receipts_among
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
        # What retained manifests named when this process cleaned last.
        self._described: frozenset[str] = frozenset()

    def clean(self, current: Manifest, *, retain: int, now_s: float, grace_s: float = GRACE_S) -> Cleaned:
        oldest, before_s = current.batch.number - retain, now_s - grace_s
        run_folders = [f"{RUNS}/{spec.name}" for spec in current.signature.inputs]
        folders = [*_DRAFTS, TALLIES, *run_folders]
        listed = dict(zip(folders, self._files.each(self._files.entries, folders), strict=True))
        names = self._manifests(current, oldest, manifests_among(listed[MANIFESTS]))
        # Batches may have skipped the join: the state that the oldest one would build on can be much older.
        parent = choose_parent(names, oldest + 1)
        outdated = [name for name in names if name.batch < oldest and name != parent]
        for _, group in itertools.groupby(outdated, key=lambda name: name.run_seq):
            for _ in self._files.delete_many([name.path for name in group]):
                failpoints.reach("clean-manifest-removed")
        failpoints.reach("clean-half-done")
        kept = sorted({*names}.difference(outdated))
        by_manifests = self._named_by_manifests(kept)
        runs: list[FileInfo] = []
        if by_manifests is not None:
            described, self._described = self._described, by_manifests
            by_manifests |= current.named_paths
            self._read_receipts(receipts_among(listed[RECEIPTS]))
            # Before their runs: a rollback must not find a receipt without them.
            for _ in self._files.delete_many(self._forget_receipts(current, by_manifests, described)):
                failpoints.reach("clean-receipt-removed")
            named = by_manifests.union(*self._receipts.values())
            for folder in run_folders:
                unnamed = _unnamed_runs(folder, listed[folder], current, named, described, before_s)
                for _ in self._files.delete_many([f"{folder}/{info.name}" for info in unnamed]):
                    failpoints.reach("clean-run-removed")
                runs += unnamed
            bases = _batch_files(BASES, listed, current, named, before_s)
            for _ in self._files.delete_many(bases):
                failpoints.reach("clean-base-removed")
            statistics = _batch_files(STATISTICS, listed, current, named, before_s)
            for _ in self._files.delete_many(statistics):
                failpoints.reach("clean-statistic-removed")
        for _ in self._files.delete_many(_batch_files(DESCRIPTORS, listed, current, frozenset(), before_s)):
            failpoints.reach("clean-descriptor-removed")
        for _ in self._files.delete_many(_used_receipts(listed[RECEIPTS], current, before_s)):
            failpoints.reach("clean-receipt-removed")
        remove_tallies(self._files, current.run_seq, current.batch.number, listed[TALLIES])
        for _ in self._files.delete_many(_abandoned_drafts(listed, before_s)):
            failpoints.reach("clean-draft-removed")
        oldest_start = min((name.run_seq for name in kept), default=0)
        forget_starts_before(self._files, oldest_start, now_s, listed[STARTS])
        return Cleaned(len(outdated), len(runs), sum(info.bytes for info in runs))

    def _manifests(self, current: Manifest, oldest: int, listed: list[ManifestName]) -> list[ManifestName]:
        """All manifests, those that the current one builds on by name: a late listing must not hide what they need."""
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

    def _named_by_manifests(self, names: list[ManifestName]) -> frozenset[str] | None:
        """The files that a retained manifest names; None if a manifest or a base is damaged.

        A damaged manifest of an older batch need not stop the query, but then no file is known to be garbage.
        """
        try:
            unknown = [name for name in names if name not in self._named]
            known = self._named | named_by_each(self._files, unknown, self._seen)
            self._named = {name: known[name] for name in names}
            based = self._kept_of_bases()
        except CorruptFile:
            return None
        return frozenset(based).union(*(named.paths for named in self._named.values()))

    def _read_receipts(self, names: list[str]) -> None:
        """If a part has two receipts, either may be the one found after a crash. A damaged one is read again."""
        unread = [name for name in names if not self._receipts.get(name)]
        read = dict(zip(unread, self._files.each(self._outputs, unread), strict=True))
        self._receipts = {name: read[name] if name in read else self._receipts[name] for name in names}

    def _forget_receipts(
        self, current: Manifest, by_manifests: frozenset[str], described: frozenset[str]
    ) -> list[str]:
        """Forget the receipts whose runs were named by manifests and are no more, and return their paths.

        The manifests that their merge was pending in are older than those that named its runs.
        """
        wanted = {merge.id for merge in current.merges}
        used = [
            name
            for name, outputs in self._receipts.items()
            if outputs
            and (part := receipt_part(name))
            and part[0] not in wanted
            and described.issuperset(outputs)
            and by_manifests.isdisjoint(outputs)
        ]
        for name in used:
            del self._receipts[name]
        return [f"{RECEIPTS}/{name}" for name in used]

    def _kept_of_bases(self) -> set[str]:
        """The bases of retained manifests, and the files of their runs. A run that all of them have removed is gone."""
        removed: dict[str, frozenset[int]] = {}
        for named in self._named.values():
            if named.base is not None:
                removed[named.base] = removed.get(named.base, named.removed) & named.removed
        unread = [path for path in removed if path not in self._bases]
        read = self._files.each(lambda path: paths_in_base(self._files, path), unread)
        known = self._bases | dict(zip(unread, read, strict=True))
        self._bases = {path: known[path] for path in removed}
        kept = set(removed)
        for path, gone in removed.items():
            for place, paths in enumerate(self._bases[path]):
                if place not in gone:
                    kept.update(paths)
        return kept

    def _outputs(self, name: str) -> tuple[str, ...]:
        """The runs of a receipt. A damaged one names nothing, as its part is merged again."""
        receipt = read_receipt(self._files, name)
        return tuple(run.path for run in receipt.output) if receipt else ()


def _unnamed_runs(
    folder: str,
    infos: Sequence[FileInfo],
    current: Manifest,
    named: frozenset[str],
    described: frozenset[str],
    before_s: float,
) -> list[FileInfo]:
    """Runs of earlier batches that nothing names, if they are old or were named before."""
    return [
        info
        for info in infos
        if (info.modified_s < before_s or f"{folder}/{info.name}" in described)
        and (batch := run_batch(info.name)) is not None
        and batch < current.batch.number
        and f"{folder}/{info.name}" not in named
    ]


def _batch_files(
    folder: str,
    listed: Mapping[str, Sequence[FileInfo]],
    current: Manifest,
    named: frozenset[str],
    before_s: float,
) -> list[str]:
    """Old bases, statistics or descriptors of earlier batches that nothing names, but for those of a later start."""
    return [
        f"{folder}/{info.name}"
        for info in listed[folder]
        if info.modified_s < before_s
        and (found := batch_file(info.name)) is not None
        and found[0] <= current.run_seq
        and found[1] < current.batch.number
        and f"{folder}/{info.name}" not in named
    ]


def _used_receipts(infos: Sequence[FileInfo], current: Manifest, before_s: float) -> list[str]:
    """Old receipts of merges that are done or dropped."""
    wanted = {merge.id for merge in current.merges}
    return [
        f"{RECEIPTS}/{info.name}"
        for info in infos
        if info.modified_s < before_s and (part := receipt_part(info.name)) and part[0] not in wanted
    ]


def _abandoned_drafts(listed: Mapping[str, Sequence[FileInfo]], before_s: float) -> list[str]:
    """Half-written manifests, receipts, starts and others of dead processes."""
    return [
        f"{folder}/{info.name}"
        for folder, kind in _DRAFTS.items()
        for info in listed[folder]
        if info.modified_s < before_s and is_draft(info.name, kind)
    ]


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
