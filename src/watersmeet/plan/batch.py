"""Compute the next manifest, as a pure function of the parent's and the batch's descriptors, for all schemes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from watersmeet.errors import StateError
from watersmeet.model.facts import (
    BatchId,
    BatchSpan,
    Descriptor,
    InputTotals,
    Manifest,
    Merge,
    Plan,
    Push,
    Receipt,
    Run,
)
from watersmeet.model.limits import RETAIN_BATCHES
from watersmeet.model.signature import JoinSignature
from watersmeet.plan.compatible import check_compatible
from watersmeet.plan.merges import accept_receipts, apply_finished, plan_assignments, plan_merges
from watersmeet.plan.pushes import (
    Holes,
    as_it_stands,
    held_keys,
    owing,
    payments_of,
    put_into_force,
    set_aside,
)
from watersmeet.plan.window import WindowState, advance_window, check_watermarks, evict, reachable
from watersmeet.schemes.scheme import BatchFacts, Circumstances, Scheme


def plan_batch(
    batch: BatchId,
    parent: Manifest | None,
    descriptors: Sequence[Descriptor],
    receipts: Sequence[Receipt],
    *,
    scheme: Scheme[Any],
    signature: JoinSignature,
    instance: str,
    run_seq: int,
    given: Circumstances,
    retained_batches: int = RETAIN_BATCHES,
) -> Manifest:
    """Plan a batch. History is what the parent left live, with finished merges applied; fresh is what arrived.

    `retained_batches` says how long manifests, and the runs that they name, are kept.
    """
    if parent is not None:
        check_compatible(parent.signature, signature)
    window = WindowState.after(parent, signature)
    own = scheme.window(given.outside)
    marks = own.watermarks if own else dict.fromkeys(signature.names, window.watermark)
    check_watermarks(descriptors, marks)
    scheme.check_located(descriptors, given.outside)
    history: tuple[Run, ...] = ()
    pending: tuple[Merge, ...] = ()
    pushes: tuple[Push, ...] = ()
    if parent is not None:
        history, pending, pushes = history_after(parent, receipts, signature)
        floors = own.floors if own else window.floors
        history, pending = evict(history, pending, floors, owing(pushes))
        carried = scheme.carried(parent, history, given.keys_of, given.outside)
        if len(carried) < len(history):
            history, pending = carried, _wholly_in(pending, carried)
    fresh = window.number(run for descriptor in descriptors for run in descriptor.runs)
    fresh = (*fresh, *scheme.added(given.outside))
    evicts = own is not None or signature.window is not None
    totals = _totals(parent, descriptors, history, signature, evicts=evicts)
    window = advance_window(window, fresh, totals)
    stands = tuple(map(as_it_stands, history))
    given = replace(given, keys_of=held_keys(given.keys_of, history))
    facts = BatchFacts(
        **given.by_name(),
        batch=batch.number,
        inputs=signature.names,
        before=parent.plan.scheme if parent else None,
        batch_before=parent.batch.number if parent else None,
        history=stands,
        reachable=reachable(signature.window, signature.names, stands, fresh, totals),
        fresh=fresh,
        windowed=signature.window is not None,
        pushes=pushes,
        paying=parent.paying if parent else (),
        merges=pending,
    )
    plan = scheme.plan(facts)
    decision = scheme.decide(plan, facts)
    decided_ms = given.now_ms if decision.at_ms is None else decision.at_ms
    forced = put_into_force(decision, pushes, history, batch.number, decided_ms, facts.paying)
    payments = payments_of(
        decision, facts.paying, lambda ranges: tuple(scheme.payments(plan, ranges, given.tasks))
    )
    holes = Holes(forced.pushes, given.keys_of)
    if decision.pushed:
        history = set_aside(history, holes)
    merges = pending
    if scheme.merges:
        # What this batch pushes is left alone from now on.
        planned = plan_merges(
            history,
            pending,
            given.tasks,
            batch.number,
            own.later if own else window.floors,
            given.limits,
            holes,
            retained_batches,
            remote=given.remote,
        )
        merges = (*pending, *planned)
    assignments = plan_assignments(
        merges,
        (*history, *fresh),
        sum(run.rows for run in fresh),
        given.tasks,
        parent.plan.assignments if parent else (),
        given.limits,
    )
    return Manifest(
        batch=batch,
        run_seq=run_seq,
        instance=instance,
        parent=None if parent is None else parent.batch,
        signature=signature,
        history=history,
        fresh=fresh,
        merges=merges,
        plan=Plan(plan, assignments, payments, decided_ms if decision.pushed or payments else 0),
        totals=totals,
        arrived=count_arrived(descriptors),
        gaps=gaps_after(parent, batch),
        written_ms=given.now_ms,
        newest=dict(window.newest),
        watermark=window.watermark,
        pushes=forced.pushes,
        paid=forced.paid,
        paying=forced.paying,
        settlements=parent.settlements if parent else (),
    )


def history_after(
    parent: Manifest, receipts: Sequence[Receipt], signature: JoinSignature
) -> tuple[tuple[Run, ...], tuple[Merge, ...], tuple[Push, ...]]:
    """The runs that the parent left live with finished merges applied, the merges that are left, and the pushes."""
    needed = {name: set(signature.columns(name)) for name in signature.names}
    merges = accept_receipts(parent.merges, receipts, needed)
    return apply_finished(parent.live, merges, parent.pushes)


def _wholly_in(merges: Sequence[Merge], runs: Sequence[Run]) -> tuple[Merge, ...]:
    """The merges whose runs are all there. Of others nothing is needed any more, whatever of them is done."""
    paths = {run.path for run in runs}
    return tuple(merge for merge in merges if paths.issuperset(merge.runs))


class Arrival(Protocol):
    """What an ingest task says of its partition: a descriptor, or what a join task is told of it."""

    @property
    def input(self) -> str: ...

    @property
    def arrived_rows(self) -> int: ...


def count_arrived(arrivals: Iterable[Arrival]) -> dict[str, int]:
    """The rows that each input brought, according to its ingest tasks."""
    arrived: dict[str, int] = {}
    for one in arrivals:
        arrived[one.input] = arrived.get(one.input, 0) + one.arrived_rows
    return arrived


def check_arrived(manifest: Manifest, arrivals: Iterable[Arrival]) -> None:
    """Raise if this task knows of rows that the agreed manifest lacks: no row may be lost between two tasks."""
    for name, rows in count_arrived(arrivals).items():
        if rows > manifest.arrived.get(name, 0):
            raise StateError(
                f"batch {manifest.batch.number}: this task was told of {rows} new rows of input {name}, but the "
                f"manifest has {manifest.arrived.get(name, 0)}. The batch was evaluated twice with different rows "
                "(is an input non-deterministic?), or not every task was told of every partition"
            )


def gaps_after(parent: Manifest | None, batch: BatchId) -> tuple[BatchSpan, ...]:
    """The batches whose rows are missing: those of the parent, and those between it and this batch.

    log/parents.py has checked that the user accepted the latter.
    """
    before = parent.gaps if parent else ()
    first = parent.batch.number + 1 if parent else 0
    return before if first == batch.number else (*before, BatchSpan(first, batch.number - 1))


def _totals(
    parent: Manifest | None,
    descriptors: Sequence[Descriptor],
    history: Sequence[Run],
    signature: JoinSignature,
    *,
    evicts: bool,
) -> dict[str, InputTotals]:
    """Update the totals. If rows are evicted, it is those that the history no longer has: merges keep all others."""
    before: Mapping[str, InputTotals] = parent.totals if parent else {}
    had = _rows(parent.live) if parent and evicts else {}
    has = _rows(history) if parent and evicts else {}
    stored = Counter[str]()
    for run in (run for one in descriptors for run in one.runs):
        stored[run.input] += run.rows
    by_input: dict[str, list[Descriptor]] = {}
    for one in descriptors:
        by_input.setdefault(one.input, []).append(one)
    totals = {}
    for name in signature.names:
        mine = by_input.get(name, ())
        old = before.get(name, InputTotals())
        totals[name] = InputTotals(
            rows=old.rows + stored[name],
            null_rows=old.null_rows + sum(d.null_rows for d in mine),
            late_rows=old.late_rows + sum(d.late_rows for d in mine),
            evicted_rows=old.evicted_rows + had.get(name, 0) - has.get(name, 0),
            absent_rows=old.absent_rows + sum(d.absent_rows for d in mine),
        )
    return totals


def _rows(runs: Iterable[Run]) -> Mapping[str, int]:
    """The rows in some runs, by input."""
    rows = Counter[str]()
    for run in runs:
        rows[run.input] += run.stored_rows
    return rows
