"""Merge the parts that the plan gave to one task, and leave a receipt for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from watersmeet import failpoints
from watersmeet.engine.hub_columns import read_columns
from watersmeet.engine.window import from_floor, numbered, stored_times, time_marks
from watersmeet.kernel.bounds import bounded, bundled, cut
from watersmeet.kernel.keys import Mask
from watersmeet.kernel.rows import Sections, Sorted, concatenate, put_together
from watersmeet.log.receipts import publish_receipt
from watersmeet.log.runs import RunReader, attempt_id, write_run
from watersmeet.log.seen import Seen
from watersmeet.log.statistics import complete_runs
from watersmeet.log.storage import Files
from watersmeet.model.facts import Assignment, KeyRange, Manifest, Merge, Receipt, Run, RunStats
from watersmeet.model.limits import Limits
from watersmeet.model.ranges import complement, intersected, subtracted
from watersmeet.model.signature import JoinSignature, Order
from watersmeet.model.window import AT
from watersmeet.schemes.register import SCHEMES
from watersmeet.schemes.scheme import NewRun, Serves

_NO_KEYS = np.zeros(0, np.uint64)

# Sections that are put into one run together. It takes huge rows to reach it: Arrow's 32-bit offsets end at twice this.
_MOST_TOGETHER_BYTES = 1 << 30


class Describes(Protocol):
    """What records something about a new run: a scheme."""

    def describe(self, run: NewRun, tasks: int) -> RunStats | None: ...


# Of some rows of an input those that nothing needs any more, though they are not expired. Asked only in the batch that
# planned the merge: a part may be used by a start that has gone back some batches.
Unneeded = Callable[[str, Sorted], Mask]


def merge_assigned(
    files: Files,
    reader: RunReader,
    seen: Seen,
    manifest: Manifest,
    scheme: Describes,
    task: int,
    tasks: int,
    limits: Limits,
    unneeded: Unneeded | None = None,
) -> int:
    """Merge this task's parts and return the number of rows written."""
    merges = {merge.id: merge for merge in manifest.merges}
    mine = [job for job in manifest.plan.assignments if job.task == task]
    reader.expect(lambda: [run for job in mine for run in _sources(manifest, merges[job.merge], job)])
    written = 0
    for job in mine:
        receipt = _merge_part(
            files, reader, seen, manifest, scheme, merges[job.merge], job, tasks, limits, unneeded
        )
        failpoints.reach("merge-written")
        publish_receipt(files, receipt, attempt_id())
        written += sum(run.rows for run in receipt.output)
    return written


def _sources(manifest: Manifest, merge: Merge, job: Assignment) -> list[Run]:
    """The runs that a part of a merge reads."""
    part, merged = merge.parts[job.part].range, set(merge.runs)
    return [run for run in manifest.history if run.path in merged and part.overlaps(run)]


def _merge_part(
    files: Files,
    reader: RunReader,
    seen: Seen,
    manifest: Manifest,
    scheme: Describes,
    merge: Merge,
    job: Assignment,
    tasks: int,
    limits: Limits,
    unneeded: Unneeded | None,
) -> Receipt:
    columns = manifest.signature.columns(merge.input)
    part = merge.parts[job.part].range
    sources = _sources(manifest, merge, job)
    found = _stored(reader, merge, sources, part, manifest.signature)
    read_rows = _rows(found)
    windowed = AT in columns
    if windowed:
        found = [_live(run, sections, merge) for run, sections in zip(sources, found, strict=True)]
    if unneeded is not None and merge.batch == manifest.batch.number:
        found = [_needed(merge.input, sections, unneeded) for sections in found]
    kept_rows = _rows(found)
    slices = [piece for sections in found for piece in sections.values()]
    output = []
    row_bytes = max((s.rows.nbytes // len(s) + 1 for s in slices), default=1)
    limit = max(1, min(limits.part_rows, limits.part_bytes // row_bytes))
    marked = manifest.signature.order(merge.input) != Order.HASH
    # Estimated rows after the merge, with this part as the sample: counting expired rows would hide hot keys.
    left_rows = merge.rows * kept_rows // max(1, read_rows)
    described = complete_runs(files, seen, sources)
    for range_ in cut([slices], [1], limit):
        for piece in _pieces(
            found, range_, limit, limits.part_bytes, cut_=manifest.signature.layout is not None
        ):
            failpoints.reach("merge-part")
            # Two merges may have the same rows, and a part several pieces, so the name must not depend on content.
            label = f"m{job.part:05d}-{attempt_id()}"
            keys = piece.keys if isinstance(piece, Sorted) else _NO_KEYS
            new = NewRun(keys, left_rows, merged_from=described, limits=limits)
            stats = scheme.describe(new, tasks)
            run = write_run(
                files,
                merge.input,
                manifest.batch.number,
                label,
                piece,
                merge.id,
                marked=marked,
                stats=stats,
            )
            output.append(replace(run, times=_times(piece)) if windowed else run)
    return Receipt(job.merge, job.part, tuple(output), columns, read_rows - kept_rows)


def _stored(
    reader: RunReader, merge: Merge, sources: Sequence[Run], part: KeyRange, signature: JoinSignature
) -> list[dict[int, Sorted]]:
    """The rows of a part of a merge in each run, by section, without those that it leaves there."""
    left = {path: one.ranges for one in merge.left for path in one.runs}
    columns = signature.columns(merge.input)
    mine = next(spec for spec in signature.inputs if spec.name == merge.input)
    changes = mine.is_given and SCHEMES[signature.scheme].serves == Serves.HUB
    found = []
    for run in sources:
        sections = (
            read_columns(reader, run, part, mine.stored) if changes else reader.read(run, part, columns)
        )
        taken = subtracted(run.held_ranges, left.get(run.path, ()))
        reader.read_ahead(run, intersected(taken, (part,)), columns)
        if run.held or run.path in left:
            kept = {number: rows.among(taken) for number, rows in sections.items()}
            sections = {number: rows for number, rows in kept.items() if len(rows)}
        found.append(sections)
    return found


def _live(run: Run, sections: dict[int, Sorted], merge: Merge) -> dict[int, Sorted]:
    """The rows that are not expired or whose keys owe results, with their window times unchanged."""
    kept = sections
    if merge.floor is not None and not merge.owe:
        kept = from_floor(run, sections, merge.floor)
    elif merge.floor is not None:
        # Such runs are never cut into sections: debts are of equality joins by ranges of keys.
        ((number, rows),) = sections.items() if sections else ((0, None),)
        if rows is not None:
            due, rest = rows.among(merge.owe), rows.among(complement(merge.owe))
            live = from_floor(run, {number: rest}, merge.floor).values()
            kept = {number: concatenate([due, *live])}
    return {number: numbered(part, run.base) for number, part in kept.items() if len(part)}


def _needed(input_: str, sections: dict[int, Sorted], unneeded: Unneeded) -> dict[int, Sorted]:
    found = {}
    for number, part in sections.items():
        gone = unneeded(input_, part)
        keys, rows = part.keys[~gone], part.rows.filter(pa.array(~gone)) if gone.any() else part.rows
        if len(keys):
            found[number] = Sorted(keys, rows)
    return found


def _rows(found: list[dict[int, Sorted]]) -> int:
    return sum(len(part) for sections in found for part in sections.values())


def _times(piece: Sorted | Sections) -> tuple[int, ...]:
    parts = [piece] if isinstance(piece, Sorted) else list(piece.parts().values())
    return time_marks([stored_times(part) for part in parts])


def _pieces(
    found: list[dict[int, Sorted]], range_: KeyRange, most_rows: int, most_bytes: int, *, cut_: bool
) -> Iterator[Sorted | Sections]:
    """The content of each new run: a sorted piece, or one piece for each section if runs are cut into sections."""
    if not cut_:
        slices = [s.between(range_) for sections in found for s in sections.values()]
        yield from bounded(slices, most_rows, most_bytes)
        return
    numbers = sorted({number for sections in found for number in sections})
    # All sections are in memory together: each gets a share of the limit, even if one key fills them all.
    share, size = (max(1, whole // max(1, len(numbers))) for whole in (most_rows, most_bytes))
    by_section = {
        number: bounded([found_[number].between(range_) for found_ in found if number in found_], share, size)
        for number in numbers
    }
    for layer in itertools.zip_longest(*by_section.values()):
        pieces = [(number, rows) for number, rows in zip(by_section, layer, strict=True) if rows is not None]
        for held in bundled(pieces, lambda _: 0, lambda piece: piece[1].nbytes, 0, _MOST_TOGETHER_BYTES):
            yield put_together(dict(held))
