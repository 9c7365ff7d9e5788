"""Do the parts of merges that the plan gave to one task, and leave a receipt for each."""

from __future__ import annotations

from watersmeet import failpoints
from watersmeet.kernel.sorted import Sorted, concatenate, cut
from watersmeet.log.files import Files
from watersmeet.log.manifests import publish_receipt
from watersmeet.log.runs import RunReader, attempt_id, write_run
from watersmeet.model.facts import Assignment, Manifest, Merge, Receipt, Run
from watersmeet.plan.merges import PART_BYTES, PART_ROWS


def merge_assigned(files: Files, reader: RunReader, manifest: Manifest, task: int) -> int:
    """Merge this task's parts; returns the rows that it wrote."""
    merges = {merge.id: merge for merge in manifest.merges}
    written = 0
    for job in manifest.plan.assignments:
        if job.task == task:
            output = _merge_part(files, reader, manifest, merges[job.merge], job)
            failpoints.reach("merge-written")
            columns = _columns(manifest, merges[job.merge].input)
            publish_receipt(files, Receipt(job.merge, job.part, output, columns), attempt_id())
            written += sum(run.rows for run in output)
    return written


def _merge_part(
    files: Files, reader: RunReader, manifest: Manifest, merge: Merge, job: Assignment
) -> tuple[Run, ...]:
    columns = _columns(manifest, merge.input)
    part = merge.parts[job.part].range
    sources = [run for run in manifest.history if run.path in set(merge.runs) and part.overlaps(run)]
    slices = [piece for run in sources if len(piece := reader.read(run, part, columns))]
    output = []
    row_bytes = max((s.rows.nbytes // len(s) + 1 for s in slices), default=1)
    limit = max(1, min(PART_ROWS, PART_BYTES // row_bytes))
    for range_ in cut([slices], [1], limit):
        for piece in _bounded([s.between(range_) for s in slices], limit):
            failpoints.reach("merge-part")
            # Two merges may give the same rows, and a part several pieces: here a name is never shared.
            label = f"m{job.part:05d}-{attempt_id()}"
            output.append(write_run(files, merge.input, manifest.batch.number, label, piece, merge.id))
    return tuple(output)


def _columns(manifest: Manifest, input_name: str) -> tuple[str, ...]:
    spec = next(spec for spec in manifest.signature.inputs if spec.name == input_name)
    return tuple(column.name for column in spec.stored)


def _bounded(slices: list[Sorted], limit: int) -> list[Sorted]:
    """One sorted piece; or, where a single heavy key does not fit one, several pieces of that key."""
    slices = [s for s in slices if len(s)]
    if sum(len(s) for s in slices) <= 2 * limit:
        return [concatenate(slices)] if slices else []
    return [s.slice(at, min(at + limit, len(s))) for s in slices for at in range(0, len(s), limit)]
