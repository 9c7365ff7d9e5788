"""The next manifest, as a pure function of the parent's and of what the batch brought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from watersmeet.errors import StateError
from watersmeet.model.facts import (
    BatchId,
    Descriptor,
    InputTotals,
    JoinSignature,
    Manifest,
    Merge,
    Receipt,
    Run,
)
from watersmeet.plan.compatible import check_compatible
from watersmeet.plan.merges import accept_receipts, apply_finished, plan_assignments, plan_merges
from watersmeet.plan.placement import Strategy, place_batch


def plan_batch(
    batch: BatchId,
    parent: Manifest | None,
    descriptors: Sequence[Descriptor],
    receipts: Sequence[Receipt],
    *,
    signature: JoinSignature,
    instance: str,
    run_seq: int,
    strategy: Strategy,
    tasks: int,
    now_ms: int,
) -> Manifest:
    """History is what the parent left live, with finished merges swapped in; fresh is what arrived."""
    fresh = tuple(run for descriptor in descriptors for run in descriptor.runs)
    history: tuple[Run, ...] = ()
    pending: tuple[Merge, ...] = ()
    if parent is not None:
        check_compatible(parent.signature, signature)
        needed = {spec.name: {column.name for column in spec.stored} for spec in signature.inputs}
        history, pending = apply_finished(parent.live, accept_receipts(parent.merges, receipts, needed))
    live = (*history, *fresh)
    merges = (*pending, *plan_merges(history, pending, tasks, batch.number))
    fresh_rows = sum(run.rows for run in fresh)
    left, right = (spec.name for spec in signature.inputs)
    before = parent.plan if parent else None
    plan = place_batch(strategy, before, history, fresh, (left, right), tasks, batch.number)
    return Manifest(
        batch=batch,
        run_seq=run_seq,
        instance=instance,
        parent=None if parent is None else parent.batch,
        signature=signature,
        history=history,
        fresh=fresh,
        merges=merges,
        plan=replace(plan, assignments=plan_assignments(merges, live, fresh_rows, tasks)),
        totals=_totals(parent, descriptors, signature),
        arrived=count_arrived(descriptors),
        skips_batches=_skips(parent, batch),
        written_ms=now_ms,
    )


def count_arrived(descriptors: Sequence[Descriptor]) -> dict[str, int]:
    """The rows that each input brought, by what its ingest tasks say."""
    arrived: dict[str, int] = {}
    for descriptor in descriptors:
        rows = descriptor.null_rows + sum(run.rows for run in descriptor.runs)
        arrived[descriptor.input] = arrived.get(descriptor.input, 0) + rows
    return arrived


def check_arrived(manifest: Manifest, descriptors: Sequence[Descriptor]) -> None:
    """Raise if this task knows of rows that the agreed manifest lacks: no row may fall between two tasks."""
    for name, rows in count_arrived(descriptors).items():
        if rows > manifest.arrived.get(name, 0):
            raise StateError(
                f"batch {manifest.batch.number}: this task was told of {rows} new rows of input {name}, the "
                f"manifest has {manifest.arrived.get(name, 0)}. The batch was evaluated twice with different rows "
                "(is an input non-deterministic?), or not every task was told of every partition"
            )


def _skips(parent: Manifest | None, batch: BatchId) -> bool:
    """Whether this query is known to have batches that leave no manifest. Once accepted, a gap is no surprise."""
    if parent is None:
        return batch.number > 0
    return parent.skips_batches or parent.batch.number < batch.number - 1


def _totals(
    parent: Manifest | None, descriptors: Sequence[Descriptor], signature: JoinSignature
) -> dict[str, InputTotals]:
    before = parent.totals if parent else {}
    totals = {}
    for spec in signature.inputs:
        mine = [d for d in descriptors if d.input == spec.name]
        old = before.get(spec.name, InputTotals())
        totals[spec.name] = InputTotals(
            rows=old.rows + sum(run.rows for d in mine for run in d.runs),
            null_rows=old.null_rows + sum(d.null_rows for d in mine),
        )
    return totals
