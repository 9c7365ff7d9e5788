"""What the join tasks of a hub add to its state: runs, and receipts that announce them to the next manifest.

    answered    the answers of DISTINCT queries that came out, and what these queries keep (engine/hub_distinct.py)
    kept        what the other queries keep (engine/hub_kept.py)

A task writes the runs of its part of a batch and publishes one receipt for them. The next manifest takes the runs of all
receipts. If one is missing, as its task was stopped or its receipt is damaged, whoever plans makes the part again: all of
it follows from the manifest before. So a manifest never goes on without one of them, and a replayed batch, which has the
same manifest before it, has the same rows.

A receipt is named by the runs of its manifest and the number of its parts, as another attempt of the batch may have other
rows, or share them out in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from watersmeet.engine.window import time_marks
from watersmeet.kernel.rows import Sorted
from watersmeet.log.codec import checksum
from watersmeet.log.receipts import publish_receipt, read_receipts
from watersmeet.log.runs import attempt_id, write_run
from watersmeet.log.storage import Files
from watersmeet.model.closed import ClosedSet
from watersmeet.model.facts import Manifest, Receipt, Run
from watersmeet.model.window import AT
from watersmeet.schemes.hub import HubPlan


class Added(ClosedSet):
    """What a receipt announces."""

    ANSWERED = "~answered"
    KEPT = "~kept"


def write_part(files: Files, input_: str, batch: int, part: int, rows: Sorted) -> Run:
    """Store rows that a part adds."""
    run = write_run(files, input_, batch, f"d{part:05d}-{attempt_id()}", rows)
    return replace(run, times=time_marks([rows.rows.column(AT).to_numpy()]))


def announce(files: Files, manifest: Manifest, added: Added, part: int, runs: Iterable[Run]) -> Receipt:
    """Publish a receipt for all runs that a part adds."""
    receipt = Receipt(_name_of(manifest, added), part, tuple(runs))
    publish_receipt(files, receipt, attempt_id())
    return receipt


def announced_runs(
    files: Files, manifest: Manifest, added: Added, parts: tuple[int, ...], again: Callable[[int], Receipt]
) -> tuple[Run, ...]:
    """The runs that all parts of a batch have added. `again` makes a part once more."""
    if not parts:
        return ()
    name = _name_of(manifest, added)
    found = {one.part: one for one in read_receipts(files, lambda merge, _: merge == name)}
    return tuple(run for part in parts for run in (found.get(part) or again(part)).output)


def _name_of(manifest: Manifest, added: Added) -> str:
    assert isinstance(manifest.plan.scheme, HubPlan), "a hub's plan"
    content = "\n".join([str(manifest.plan.scheme.tasks), *sorted(run.path for run in manifest.live)])
    return f"{added}-{manifest.batch.number:010d}-{checksum(content.encode())}"
