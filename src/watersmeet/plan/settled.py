"""The facts of a batch once all that it owed was paid outside of the query."""

from __future__ import annotations

from dataclasses import replace

from watersmeet.model.facts import BatchId, Manifest, Plan, Settlement, Start
from watersmeet.schemes.register import SCHEMES


def settle_manifest(manifest: Manifest, start: Start, settlement: Settlement) -> Manifest:
    """The mark of a settling: the same rows as after the batch, of which none owes anything.

    Merges that are pending go on as they were planned, as after a payment inside the query.
    """
    scheme = SCHEMES[manifest.signature.scheme]
    return replace(
        manifest,
        batch=BatchId(manifest.batch.query, start.run, manifest.batch.number),
        run_seq=start.number,
        instance=start.run,
        parent=manifest.batch,
        history=manifest.live,
        fresh=(),
        plan=Plan(scheme.settled(manifest.plan.scheme)),
        arrived={},
        written_ms=settlement.at_ms,
        pushes=(),
        paid=(),
        paying=(),
        settlements=(*manifest.settlements, settlement),
    )
