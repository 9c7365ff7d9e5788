"""The answers of DISTINCT queries on the log: what came out is a run, which a receipt announces (engine/hub_announced.py).

A template belongs to one task, which evaluates its queries over all fresh rows. So no two tasks give the same answer,
and they need not speak with each other. The task leaves out what the runs of its manifest have, writes a run of the
answers that are new, publishes a receipt for it, and only then emits them. So nothing that came out is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from watersmeet.engine.hub_announced import Added, announce, write_part
from watersmeet.hubs.distinct import Answers, first_seen, gather, seen_rows
from watersmeet.hubs.forest import Queries
from watersmeet.hubs.stored import ANSWERED
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.rows import Keyed
from watersmeet.log.storage import Files
from watersmeet.model.facts import Manifest, Receipt, Run


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The DISTINCT queries of one part over a batch: their answers, in pieces, and what came out before.

    `oldest` is what `oldest_counted` says of each query. `kept` returns the runs of what the queries keep, when all
    answers have been taken.
    """

    parts: Iterator[Answers]
    seen: Sequence[Keyed]
    queries: Queries
    start: Indices
    oldest: Indices
    kept: Callable[[], Sequence[Run]]


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
    output = [*found.kept()]
    if new is not None and len(new):
        rows = seen_rows(new, found.queries, found.start)
        output.append(write_part(files, ANSWERED, manifest.batch.number, part, rows))
    return new, announce(files, manifest, Added.ANSWERED, part, output)
