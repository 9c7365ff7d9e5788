"""Do the parts of merges that the plan gave to one task, and leave a receipt for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from watersmeet import failpoints
from watersmeet.kernel.hot import hot_keys
from watersmeet.kernel.sorted import Sorted, concatenate, cut
from watersmeet.log.files import Files
from watersmeet.log.manifests import publish_receipt
from watersmeet.log.runs import RunReader, attempt_id, write_run
from watersmeet.model.cube import HotKey
from watersmeet.model.facts import BY_HASH, Assignment, KeyRange, Manifest, Merge, Receipt, Run
from watersmeet.plan.hypercube import listing_floor
from watersmeet.plan.merges import PART_BYTES, PART_ROWS


def merge_assigned(files: Files, reader: RunReader, manifest: Manifest, task: int, tasks: int) -> int:
    """Merge this task's parts; returns the rows that it wrote."""
    merges = {merge.id: merge for merge in manifest.merges}
    written = 0
    for job in manifest.plan.assignments:
        if job.task == task:
            output = _merge_part(files, reader, manifest, merges[job.merge], job, tasks)
            failpoints.reach("merge-written")
            columns = _columns(manifest, merges[job.merge].input)
            publish_receipt(files, Receipt(job.merge, job.part, output, columns), attempt_id())
            written += sum(run.rows for run in output)
    return written


def _merge_part(
    files: Files, reader: RunReader, manifest: Manifest, merge: Merge, job: Assignment, tasks: int
) -> tuple[Run, ...]:
    columns = _columns(manifest, merge.input)
    part = merge.parts[job.part].range
    sources = [run for run in manifest.history if run.path in set(merge.runs) and part.overlaps(run)]
    found = [reader.read(run, part, columns) for run in sources]
    slices = [piece for sections in found for piece in sections.values()]
    output = []
    row_bytes = max((s.rows.nbytes // len(s) + 1 for s in slices), default=1)
    limit = max(1, min(PART_ROWS, PART_BYTES // row_bytes))
    marked = _order(manifest, merge.input) != BY_HASH
    # A key that is hot in the whole merge is hot in one of its sources, by the same measure: so its label is known.
    labels = {hot.key: hot.label for run in sources for hot in run.hot}
    floor = listing_floor(merge.rows, tasks)
    for range_ in cut([slices], [1], limit):
        for piece in _pieces(found, range_, limit, cut_=manifest.signature.layout is not None):
            failpoints.reach("merge-part")
            # Two merges may give the same rows, and a part several pieces: here a name is never shared.
            label = f"m{job.part:05d}-{attempt_id()}"
            hot, known = (
                ((), 0) if marked or not isinstance(piece, Sorted) else (_hot(piece, floor, labels), floor)
            )
            run = write_run(
                files,
                merge.input,
                manifest.batch.number,
                label,
                piece,
                merge.id,
                marked=marked,
                hot=hot,
                hot_floor=known,
            )
            output.append(run)
    return tuple(output)


def _hot(piece: Sorted, floor: int, labels: dict[int, str]) -> tuple[HotKey, ...]:
    begin, counts = hot_keys(piece.keys, floor)
    found = zip(piece.keys[begin].tolist(), counts.tolist(), strict=True)
    return tuple(HotKey(key, rows, labels.get(key, "")) for key, rows in found)


def _pieces(
    found: list[dict[int, Sorted]], range_: KeyRange, limit: int, *, cut_: bool
) -> Iterator[Sorted | dict[int, Sorted]]:
    """What goes into one run each: a sorted piece, or one for each section of runs that are cut."""
    if not cut_:
        yield from _bounded([s.between(range_) for sections in found for s in sections.values()], limit)
        return
    numbers = sorted({number for sections in found for number in sections})
    # All sections are held together: each has its share of the limit, also where one key fills them all.
    share = max(1, limit // max(1, len(numbers)))
    by_section = {
        number: _bounded([found_[number].between(range_) for found_ in found if number in found_], share)
        for number in numbers
    }
    for layer in itertools.zip_longest(*by_section.values()):
        piece = {number: rows for number, rows in zip(by_section, layer, strict=True) if rows is not None}
        if piece:
            yield piece


def _order(manifest: Manifest, input_name: str) -> str:
    return next(spec.order for spec in manifest.signature.inputs if spec.name == input_name)


def _columns(manifest: Manifest, input_name: str) -> tuple[str, ...]:
    spec = next(spec for spec in manifest.signature.inputs if spec.name == input_name)
    return tuple(column.name for column in spec.stored)


def _bounded(slices: list[Sorted], limit: int) -> list[Sorted]:
    """One sorted piece; or, where a single heavy key does not fit one, several pieces of that key."""
    slices = [s for s in slices if len(s)]
    if sum(len(s) for s in slices) <= 2 * limit:
        return [concatenate(slices)] if slices else []
    return [s.slice(at, min(at + limit, len(s))) for s in slices for at in range(0, len(s), limit)]
