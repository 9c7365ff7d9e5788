"""Manifests: which one is the parent of a batch, and how all tasks come to use the same one.

A manifest is named `<run sequence>-<batch>-<run id>.json`. The run sequence grows with every start of the
query (`log/starts.py`). The parent of batch b is the newest manifest older than b of the same run; in the first
batch of a run it is the one with the highest (run sequence, batch) of all that are older than b:

- a crash between publishing b and Spark's commit of b: the new run replays b, and every b of the old run is
  not older than b;
- a batch that did not reach the operator left no manifest: the one before it is the highest;
- a checkpoint rolled back by hand to b, even several times: the old runs' manifests of b and later are not
  older than b; from b + 1 on the new run has its own, and no other run has a sequence as high;
- a zombie of an old run that publishes late took its sequence before the new run began, so it is lower.

Not guaranteed: anything, if somebody edits the directory by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from watersmeet import failpoints
from watersmeet.errors import CorruptFile, StateBehind, StateInUse, StateMissing
from watersmeet.log.codec import decode_checked, encode_checked
from watersmeet.log.files import Files
from watersmeet.model.facts import BatchId, Manifest, Receipt

MANIFESTS = "manifests"
RECEIPTS = "receipts"

_NAME = re.compile(r"^(\d+)-(\d+)-(.+)\.json$")


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    run_seq: int
    batch: int
    run: str

    @property
    def path(self) -> str:
        return f"{MANIFESTS}/{self.run_seq:06d}-{self.batch:012d}-{self.run}.json"


def list_manifests(files: Files) -> list[ManifestName]:
    """All published manifests, ascending by run sequence, then batch."""
    matches = (_NAME.match(info.name) for info in files.entries(MANIFESTS))
    return sorted(ManifestName(int(m[1]), int(m[2]), m[3]) for m in matches if m)


def read_manifest(files: Files, name: ManifestName) -> Manifest:
    where = f"manifest {name.path} of batch {name.batch} in {files.place}"
    try:
        return decode_checked(Manifest, files.read(name.path), where)
    except FileNotFoundError as error:
        raise CorruptFile(f"{where} is missing") from error


def choose_parent(names: list[ManifestName], batch: int, run: str | None = None) -> ManifestName | None:
    """The newest manifest that batch `batch` can build on: one of its own run, if there is any."""
    older = [name for name in names if name.batch < batch]
    return max([name for name in older if name.run == run] or older, default=None)


def published(names: list[ManifestName], batch: BatchId) -> ManifestName | None:
    return next((name for name in names if name.batch == batch.number and name.run == batch.run), None)


def agree(
    files: Files,
    batch: BatchId,
    instance: str,
    decide: Callable[[Manifest | None], Manifest],
    *,
    accept_gap: bool = False,
) -> Manifest:
    """The one manifest of this batch: the published one, or else the one that this call publishes.

    `decide` turns the parent into the manifest of this batch; it must be a pure function of committed
    facts, but even if two tasks decide differently only one of the two is ever used.
    """
    names = list_manifests(files)
    mine = published(names, batch)
    if mine is None:
        parent = find_parent(files, names, batch, accept_gap=accept_gap)
        if parent is not None and parent.batch.run == batch.run:
            _check_instance(files, parent, instance)
        manifest = decide(parent)
        name = ManifestName(manifest.run_seq, batch.number, batch.run)
        failpoints.reach("manifest-before-write")
        if files.publish(name.path, encode_checked(manifest)):
            failpoints.reach("manifest-written")
            return manifest
        failpoints.reach("manifest-lost")
        mine = name
    manifest = read_manifest(files, mine)
    _check_instance(files, manifest, instance)
    return manifest


def _check_instance(files: Files, manifest: Manifest, instance: str) -> None:
    """Every manifest of one run must come from one operator."""
    if manifest.instance != instance:
        raise StateInUse(
            f"two joins of one query keep their state in {files.place}: give each its own name=, "
            'such as wm.join(..., name="orders-trades")'
        )


def find_parent(
    files: Files, names: list[ManifestName], batch: BatchId, *, accept_gap: bool
) -> Manifest | None:
    """The parent's manifest, after checking that the state is neither missing nor behind the checkpoint."""
    chosen = choose_parent(names, batch.number, batch.run)
    if chosen is None:
        if batch.number > 0 and not accept_gap:
            raise StateMissing(
                f"the checkpoint is at batch {batch.number}, but there is no state of an earlier batch in "
                f"{files.place}. Restore the state directory that belongs to this checkpoint, or start with "
                "a new checkpoint. If this join has had no input so far in this query, set "
                "spark.watersmeet.acceptGap to true for one start"
            )
        return None
    parent = read_manifest(files, chosen)
    missed = batch.number - 1 - chosen.batch
    if missed > 0 and chosen.run != batch.run and not parent.skips_batches and not accept_gap:
        raise StateBehind(
            f"the checkpoint is at batch {batch.number}, but the newest state in {files.place} is of batch "
            f"{chosen.batch}: {missed} batch(es) are missing. Restore the state directory that belongs to this "
            "checkpoint, or start with a new checkpoint. If this join had no input in those batches, set "
            "spark.watersmeet.acceptGap to true for one start"
        )
    return parent


def publish_receipt(files: Files, receipt: Receipt, attempt: str) -> None:
    files.publish(f"{RECEIPTS}/{receipt.merge}.{receipt.part:05d}.{attempt}.json", encode_checked(receipt))


def read_receipts(files: Files, wanted: Callable[[str, int], bool]) -> list[Receipt]:
    """The receipts of parts that are still wanted: one for each part, the first by name."""
    found: dict[tuple[str, int], Receipt] = {}
    for name in list_receipts(files):
        merge, part = receipt_part(name)
        if (merge, part) not in found and wanted(merge, part) and (receipt := _read_receipt(files, name)):
            found[merge, part] = receipt
    return list(found.values())


def read_all_receipts(files: Files) -> list[Receipt]:
    """Every receipt, also where a part has several."""
    return [receipt for name in list_receipts(files) if (receipt := _read_receipt(files, name))]


def _read_receipt(files: Files, name: str) -> Receipt | None:
    """None if it is damaged or was just removed: its part is then merged once more, which does no harm."""
    path = f"{RECEIPTS}/{name}"
    try:
        return decode_checked(Receipt, files.read(path), f"receipt {path} in {files.place}")
    except (CorruptFile, FileNotFoundError):
        return None


def list_receipts(files: Files) -> list[str]:
    """The names of all receipts; drafts that a dead process left begin with a dot and are not receipts."""
    return [info.name for info in files.entries(RECEIPTS) if not info.name.startswith(".")]


def receipt_part(name: str) -> tuple[str, int]:
    merge, part, _, _ = name.split(".")
    return merge, int(part)
