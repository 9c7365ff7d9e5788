"""Receipts: a task's record that one part of a merge is written. The next planner puts the outputs in place.

A receipt is named `<merge>.<part>.<attempt>.json`. A part may have several, one for each attempt, and any of them is
right: they are of the same rows. A damaged one counts as absent, and its part is merged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from watersmeet import failpoints
from watersmeet.errors import CorruptFile
from watersmeet.log.codec import decode_checked, encode_checked
from watersmeet.log.names import RECEIPTS, receipt_part
from watersmeet.log.storage import FileInfo, Files
from watersmeet.model.facts import Receipt


def publish_receipt(files: Files, receipt: Receipt, attempt: str) -> None:
    files.publish(f"{RECEIPTS}/{receipt.merge}.{receipt.part:05d}.{attempt}.json", encode_checked(receipt))
    failpoints.reach("receipt-written")


def read_receipts(files: Files, wanted: Callable[[str, int], bool]) -> list[Receipt]:
    """The receipts of wanted parts: one for each part, the first by name that is whole."""
    parts = {name: receipt_part(name) for name in list_receipts(files)}
    names = [name for name, part in parts.items() if part and wanted(*part)]
    found: dict[tuple[str, int] | None, Receipt] = {}
    for name, receipt in zip(names, read_each(files, names), strict=True):
        if receipt is not None:
            found.setdefault(parts[name], receipt)
    return list(found.values())


def read_each(files: Files, names: Sequence[str]) -> list[Receipt | None]:
    """Each of some receipts, as `read_receipt` reads it."""
    return files.each(lambda name: read_receipt(files, name), names)


def read_receipt(files: Files, name: str) -> Receipt | None:
    """Read a receipt; None if it is damaged or was just removed. Its part is then merged again, which does no harm."""
    path = f"{RECEIPTS}/{name}"
    try:
        return decode_checked(Receipt, files.read(path), f"receipt {path} in {files.place}")
    except (CorruptFile, FileNotFoundError):
        return None


def list_receipts(files: Files) -> list[str]:
    """The names of all receipts, without drafts of dead processes and without foreign files."""
    return receipts_among(files.entries(RECEIPTS))


def receipts_among(infos: Iterable[FileInfo]) -> list[str]:
    return [info.name for info in infos if receipt_part(info.name)]
