"""The next manifest of a hub, as a pure function of the parent's, the batch's descriptors and the catalogues.

History is what the parent left live, with finished merges applied, without the runs that no live query needs. The
catalogue in force is part of it, so that cleaning keeps it as it keeps any run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.errors import StateMismatch
from watersmeet.model.facts import BatchId, Descriptor, InputTotals, Manifest, Merge, Plan, Receipt, Run
from watersmeet.model.limits import Limits
from watersmeet.model.signature import JoinSignature
from watersmeet.plan.batch import count_arrived, gaps_after, history_after
from watersmeet.plan.merges import plan_assignments, plan_merges
from watersmeet.schemes.hub import HubPlan


def plan_hub_batch(
    batch: BatchId,
    parent: Manifest | None,
    descriptors: Sequence[Descriptor],
    receipts: Sequence[Receipt],
    plan: HubPlan,
    catalogues: Sequence[Run],
    needed: Mapping[str, int],
    *,
    signature: JoinSignature,
    instance: str,
    run_seq: int,
    tasks: int,
    limits: Limits,
    now_ms: int,
) -> Manifest:
    """Plan a batch. `catalogues` are the runs that `plan` names and this batch has written.

    `needed` has the first batch whose rows are needed of each stream and index; all others are dropped.
    """
    history: tuple[Run, ...] = ()
    pending: tuple[Merge, ...] = ()
    if parent is not None:
        check_hub_signature(parent.signature, signature)
        live, pending, _ = history_after(parent, receipts, signature)
        written = {run.path for run in catalogues}
        history = tuple(
            run
            for run in live
            if (run.path == plan.in_force and run.path not in written)
            # A merged run has the batch of its merge, so it may stay longer than its rows are needed.
            or (run.input in needed and run.batch >= needed[run.input])
        )
    kept = {run.path for run in history}
    # A merge of runs that are not needed any more is not needed either, whatever of it is done.
    pending = tuple(merge for merge in pending if kept.issuperset(merge.runs))
    rows = [run for run in history if run.path != plan.in_force]
    merges = (*pending, *plan_merges(rows, pending, tasks, batch.number, limits=limits))
    fresh = (*(run for one in descriptors for run in one.runs), *catalogues)
    assignments = plan_assignments(
        merges,
        (*history, *fresh),
        sum(run.rows for run in fresh),
        tasks,
        parent.plan.assignments if parent else (),
        limits,
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
        plan=Plan(plan, assignments),
        totals=_totals(parent, descriptors),
        arrived=count_arrived(descriptors),
        gaps=gaps_after(parent, batch),
        written_ms=now_ms,
    )


def check_hub_signature(old: JoinSignature, new: JoinSignature) -> None:
    """Refuse streams with other columns than the state has: their rows and the texts of queries would not fit."""
    if old.scheme != new.scheme:
        raise StateMismatch("the state is not one of a hub: give the hub another name=, or a new checkpoint")
    before = {one.name: one for one in old.inputs if not one.of}
    after = {one.name: one for one in new.inputs if not one.of}
    for name in [*before, *after]:
        if before.get(name) != after.get(name):
            raise StateMismatch(
                f"stream {name} has not the columns that the state was written with "
                f"({_columns(before.get(name))}; now {_columns(after.get(name))}): start with a new checkpoint"
            )


def _columns(spec: object) -> str:
    stored = getattr(spec, "stored", ())
    return ", ".join(f"{one.name} {one.type}" for one in stored) or "none"


def _totals(parent: Manifest | None, descriptors: Sequence[Descriptor]) -> dict[str, InputTotals]:
    totals = dict(parent.totals) if parent else {}
    for one in descriptors:
        old = totals.get(one.input, InputTotals())
        totals[one.input] = InputTotals(
            rows=old.rows + sum(run.rows for run in one.runs if run.input == one.input),
            null_rows=old.null_rows + one.null_rows,
            absent_rows=old.absent_rows + one.absent_rows,
        )
    return totals
