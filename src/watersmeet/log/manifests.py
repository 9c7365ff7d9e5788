"""Manifests: their names, and how all tasks of a batch agree on one.

A manifest is named `<number of the start>-<batch>-<run id>.json`. Tasks know all three, so they open it by name and
never depend on a listing, which may be late on a shared filesystem. `log/parents.py` finds the parent of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watersmeet import failpoints
from watersmeet.errors import CorruptFile, StateInUse
from watersmeet.log.codec import decode_checked, encode_checked
from watersmeet.log.names import manifest_parts, receipt_part
from watersmeet.log.storage import Files
from watersmeet.model.facts import BatchId, Manifest, Receipt, Start

MANIFESTS = "manifests"
RECEIPTS = "receipts"


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
    found = (manifest_parts(info.name) for info in files.entries(MANIFESTS))
    return sorted(ManifestName(*parts) for parts in found if parts)


def read_manifest(files: Files, name: ManifestName) -> Manifest:
    found = read_if_there(files, name)
    if found is None:
        raise CorruptFile(f"{_where(files, name)} is missing")
    return found


def _where(files: Files, name: ManifestName) -> str:
    return f"manifest {name.path} of batch {name.batch} in {files.place}"


def read_if_there(files: Files, name: ManifestName) -> Manifest | None:
    """Open a manifest by name, which a listing may not show yet; None if it is missing."""
    try:
        content = files.read(name.path)
    except FileNotFoundError:
        return None
    return decode_checked(Manifest, content, _where(files, name))


def agree(
    files: Files,
    batch: BatchId,
    start: Start,
    instance: str,
    find_parent: Callable[[], Manifest | None],
    decide: Callable[[Manifest | None], Manifest],
) -> Manifest:
    """The one manifest of this batch: the published one, or else the one that this call publishes.

    `decide` turns the parent into the manifest of this batch. It must be a pure function of committed facts. But even
    if two tasks decide differently, only one result is ever used.
    """
    name = ManifestName(start.number, batch.number, batch.run)
    manifest = read_if_there(files, name)
    if manifest is None:
        parent = find_parent()
        if parent is not None and parent.batch.run == batch.run:
            _check_instance(files, parent, instance)
        manifest = decide(parent)
        failpoints.reach("manifest-before-write")
        if files.publish(name.path, encode_checked(manifest)):
            failpoints.reach("manifest-written")
            return manifest
        failpoints.reach("manifest-lost")
        manifest = read_manifest(files, name)
    _check_instance(files, manifest, instance)
    return manifest


def _check_instance(files: Files, manifest: Manifest, instance: str) -> None:
    """Check that one operator wrote every manifest of a run."""
    if manifest.instance != instance:
        raise StateInUse(
            f"two joins of one query keep their state in {files.place}: give each its own name=, "
            'such as wm.join(..., name="orders-trades")'
        )


def publish_receipt(files: Files, receipt: Receipt, attempt: str) -> None:
    files.publish(f"{RECEIPTS}/{receipt.merge}.{receipt.part:05d}.{attempt}.json", encode_checked(receipt))
    failpoints.reach("receipt-written")


def read_receipts(files: Files, wanted: Callable[[str, int], bool]) -> list[Receipt]:
    """The receipts of wanted parts: one for each part, the first by name."""
    found: dict[tuple[str, int], Receipt] = {}
    for name in list_receipts(files):
        key = receipt_part(name)
        if key and key not in found and wanted(*key) and (receipt := _read_receipt(files, name)):
            found[key] = receipt
    return list(found.values())


def read_all_receipts(files: Files) -> list[Receipt]:
    """All receipts, including several for one part."""
    return [receipt for name in list_receipts(files) if (receipt := _read_receipt(files, name))]


def _read_receipt(files: Files, name: str) -> Receipt | None:
    """Read a receipt; None if it is damaged or was just removed. Its part is then merged again, which does no harm."""
    path = f"{RECEIPTS}/{name}"
    try:
        return decode_checked(Receipt, files.read(path), f"receipt {path} in {files.place}")
    except (CorruptFile, FileNotFoundError):
        return None


def list_receipts(files: Files) -> list[str]:
    """The names of all receipts, without drafts of dead processes and without foreign files."""
    return [info.name for info in files.entries(RECEIPTS) if receipt_part(info.name)]
