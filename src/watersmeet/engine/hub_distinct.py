"""The answers of DISTINCT queries on the log: what came out is a run, and a receipt announces it to the next manifest.

A template belongs to one task, which evaluates its queries over all fresh rows. So no two tasks give the same answer,
and they need not speak with each other. The task leaves out what the runs of its manifest have, writes a run of the
answers that are new, publishes a receipt for it, and only then emits them.

The next manifest takes the runs of all receipts. If one is missing, as its task was stopped or its receipt is damaged,
whoever plans makes the run again: all of it follows from the manifest before. So nothing that came out is forgotten, and
a replayed batch, which has the same manifest before it, gives the same answers.

A receipt is named by the runs of its manifest, as another attempt of the batch may have other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from watersmeet.engine.window import time_marks
from watersmeet.hubs.distinct import Answers, first_seen, gather, seen_rows
from watersmeet.hubs.forest import Queries
from watersmeet.hubs.stored import ANSWERED
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.rows import Keyed
from watersmeet.log.codec import checksum
from watersmeet.log.receipts import publish_receipt, read_receipts
from watersmeet.log.runs import attempt_id, write_run
from watersmeet.log.storage import Files
from watersmeet.model.facts import Manifest, Receipt, Run
from watersmeet.model.window import AT


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The DISTINCT queries of one part over a batch: their answers, in pieces, and what came out before.

    `oldest` is what `oldest_counted` says of each query.
    """

    parts: Iterator[Answers]
    seen: Sequence[Keyed]
    queries: Queries
    start: Indices
    oldest: Indices


def write_answers(
    files: Files, manifest: Manifest, part: int, found: Evaluated
) -> tuple[Answers | None, Receipt]:
    """The new answers of a part, and the receipt that announces them: it is published."""
    gathered = gather(found.parts, found.queries)
    new = (
        None
        if gathered is None
        else first_seen(gathered, found.seen, found.queries, found.start, found.oldest)
    )
    output: tuple[Run, ...] = ()
    if new is not None and len(new):
        rows = seen_rows(new, found.queries, found.start)
        run = write_run(files, ANSWERED, manifest.batch.number, f"d{part:05d}-{attempt_id()}", rows)
        output = (replace(run, times=time_marks([rows.rows.column(AT).to_numpy()])),)
    receipt = Receipt(_name_of(manifest), part, output)
    publish_receipt(files, receipt, attempt_id())
    return new, receipt


def announced_runs(
    files: Files, manifest: Manifest, parts: tuple[int, ...], again: Callable[[int], Receipt]
) -> tuple[Run, ...]:
    """The runs of what came out in a batch, of all parts. `again` evaluates a part once more."""
    if not parts:
        return ()
    name = _name_of(manifest)
    found = {one.part: one for one in read_receipts(files, lambda merge, _: merge == name)}
    return tuple(run for part in parts for run in (found.get(part) or again(part)).output)


def _name_of(manifest: Manifest) -> str:
    content = "\n".join(sorted(run.path for run in manifest.live))
    return f"{ANSWERED}-{manifest.batch.number:010d}-{checksum(content.encode())}"
