"""The next manifest, as a pure function of the parent's and of what the batch brought."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from watersmeet.errors import StateError
from watersmeet.model.facts import (
    BatchId,
    BatchSpan,
    Descriptor,
    InputTotals,
    JoinSignature,
    Manifest,
    Merge,
    Plan,
    Receipt,
    Run,
)
from watersmeet.model.window import OVER_ROWS, OVER_TIME
from watersmeet.plan.census import KeysOf
from watersmeet.plan.compatible import check_compatible
from watersmeet.plan.merges import accept_receipts, apply_finished, plan_assignments, plan_merges
from watersmeet.plan.placement import CubeStrategy, RangeStrategy, Strategy, place_batch
from watersmeet.plan.window import (
    amount_of,
    check_watermarks,
    evict,
    floors_of,
    live_grid,
    next_watermark,
    number_runs,
    reachable,
    rows_of,
    see_newest,
)


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
    keys_of: KeysOf,
) -> Manifest:
    """History is what the parent left live, with finished merges swapped in; fresh is what arrived."""
    window = signature.window
    left, right = names = _names(signature)
    history: tuple[Run, ...] = ()
    pending: tuple[Merge, ...] = ()
    watermark = parent.watermark if parent else None
    rows = rows_of(parent.totals) if parent else {}
    if parent is not None:
        check_compatible(parent.signature, signature)
        needed = {spec.name: {column.name for column in spec.stored} for spec in signature.inputs}
        history, pending = apply_finished(parent.live, accept_receipts(parent.merges, receipts, needed))
        history, pending = evict(history, pending, floors_of(window, names, watermark, rows))
    check_watermarks(descriptors, watermark)
    fresh = tuple(run for descriptor in descriptors for run in descriptor.runs)
    if window is not None and window.kind == OVER_ROWS:
        fresh = number_runs(fresh, rows)
    live = (*history, *fresh)
    totals = _totals(parent, descriptors, history, signature)
    newest = parent.newest if parent else {}
    if window is not None and window.kind == OVER_TIME:
        newest = see_newest(newest, fresh)
        watermark = next_watermark(window, names, newest, watermark)
    floors = floors_of(window, names, watermark, rows_of(totals))
    merges = (*pending, *plan_merges(history, pending, tasks, batch.number, floors))
    fresh_rows = sum(run.rows for run in fresh)
    drafted = Manifest(
        batch=batch,
        run_seq=run_seq,
        instance=instance,
        parent=None if parent is None else parent.batch,
        signature=signature,
        history=history,
        fresh=fresh,
        merges=merges,
        plan=Plan(()),
        totals=totals,
        arrived=count_arrived(descriptors),
        gaps=gaps_after(parent, batch),
        written_ms=now_ms,
        newest=newest,
        watermark=watermark,
    )
    # Where work is weighed, it is that of this batch: what its rows cannot meet would only hide the keys that they do.
    weighed = reachable(drafted) if isinstance(strategy, CubeStrategy | RangeStrategy) else history
    before = _plan_before(parent, history, signature)
    plan = place_batch(strategy, before, weighed, fresh, (left, right), tasks, batch.number, keys_of)
    tried = parent.plan.assignments if parent else ()
    assignments = plan_assignments(merges, live, fresh_rows, tasks, tried)
    return replace(drafted, plan=replace(plan, assignments=assignments))


def _names(signature: JoinSignature) -> tuple[str, str]:
    left, right = (spec.name for spec in signature.inputs)
    return left, right


def _plan_before(parent: Manifest | None, history: Sequence[Run], signature: JoinSignature) -> Plan | None:
    """The parent's plan; under a window its grid counts what is still there."""
    if parent is None or signature.window is None or parent.plan.grid is None:
        return parent.plan if parent else None
    left, right = (amount_of(run for run in history if run.input == name) for name in _names(signature))
    return replace(parent.plan, grid=live_grid(parent.plan.grid, left, right))


def count_arrived(descriptors: Sequence[Descriptor]) -> dict[str, int]:
    """The rows that each input brought, by what its ingest tasks say."""
    arrived: dict[str, int] = {}
    for descriptor in descriptors:
        dropped = descriptor.null_rows + descriptor.late_rows + descriptor.absent_rows
        rows = dropped + sum(run.rows for run in descriptor.runs)
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


def gaps_after(parent: Manifest | None, batch: BatchId) -> tuple[BatchSpan, ...]:
    """The batches whose rows are missing: those of the parent, and those between it and this batch.

    That the user accepted the last ones was checked when the parent was found (log/parents.py).
    """
    before = parent.gaps if parent else ()
    first = parent.batch.number + 1 if parent else 0
    return before if first == batch.number else (*before, BatchSpan(first, batch.number - 1))


def _totals(
    parent: Manifest | None,
    descriptors: Sequence[Descriptor],
    history: Sequence[Run],
    signature: JoinSignature,
) -> dict[str, InputTotals]:
    """Rows that the parent had and the history has no more were evicted: merges account for every row."""
    before = parent.totals if parent else {}
    totals = {}
    for name in _names(signature):
        mine = [d for d in descriptors if d.input == name]
        old = before.get(name, InputTotals())
        totals[name] = InputTotals(
            rows=old.rows + sum(run.rows for d in mine for run in d.runs),
            null_rows=old.null_rows + sum(d.null_rows for d in mine),
            late_rows=old.late_rows + sum(d.late_rows for d in mine),
            evicted_rows=old.evicted_rows + _rows(parent.live if parent else (), name) - _rows(history, name),
        )
    return totals


def _rows(runs: Iterable[Run], name: str) -> int:
    return sum(run.rows for run in runs if run.input == name)
