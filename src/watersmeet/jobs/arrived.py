"""Count the rows that came in with a batch, from the manifests of the join.

Spark's reports count what passes through Spark. Of an input that the tasks read themselves that is a few descriptors,
so for such a job the manifests say how many rows came. Rows that `where` dropped are not among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from watersmeet.engine.spec import JoinSpec
from watersmeet.jobs.progress import Batches
from watersmeet.log.manifests import list_manifests, open_manifest
from watersmeet.log.seen import Seen
from watersmeet.log.storage import Files
from watersmeet.model.facts import Manifest


def count_rows_in(
    state: Files, stages: Iterable[JoinSpec], query: str, batches: Sequence[Batches]
) -> list[Batches]:
    """The batches with `rows_in` as the manifests have it. A batch without a manifest had nothing for the join.

    Later stages of a chain have rows of earlier ones as inputs, under the same names: each input counts once.
    """
    rows = dict.fromkeys((batch.first for batch in batches), 0)
    counted: set[str] = set()
    for spec in stages:
        names = {one.input for one in spec.signature.inputs} - counted
        for manifest in _manifests(state.under(spec.name, query), rows):
            rows[manifest.batch.number] += sum(manifest.arrived.get(name, 0) for name in names)
        counted |= names
    return [replace(batch, rows_in=rows[batch.first]) for batch in batches]


def _manifests(files: Files, numbers: Iterable[int]) -> list[Manifest]:
    """The last manifest of each of these batches: a batch that was repeated has several."""
    wanted = set(numbers)
    last = {name.batch: name for name in list_manifests(files) if name.batch in wanted}
    seen = Seen()
    return [open_manifest(files, name, seen) for name in last.values()]
