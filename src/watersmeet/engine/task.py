"""A task's share of a batch: read what the plan assigns, and run the join's kernel on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.engine.source import RunSource
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.window import reader_for, tested_width
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import Manifest
from watersmeet.plan.window import reachable_history


@dataclass
class Tally:
    """Counter of a task: the fresh rows that it looked up."""

    probed: int = 0


def join_share(
    reader: RunReader, manifest: Manifest, spec: JoinSpec, task: int, tally: Tally
) -> Iterator[pa.RecordBatch]:
    """Yield all results of this task, in bounded batches."""
    assert not isinstance(spec.join, LookupJoin), "a table is joined by engine/lookup.py"
    source = RunSource(reader_for(reader, manifest), manifest, reachable_history(manifest))
    within = tested_width(manifest)
    names, tasks = manifest.signature.names, spec.settings.tasks
    for share in spec.scheme.shares(manifest.plan.scheme, names, task, tasks):
        sides = source.sides(share)
        tally.probed += sum(len(rows) for side in sides for rows in side.fresh)
        yield from spec.join.results(sides, within, spec.settings.limits)
