"""The rows of a hub that a batch reads, and the positions that its walks begin with.

Of the past these are the runs with rows that a query can use, by the plan (`HubPlan.reads`): others are kept for SINCE.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from watersmeet.engine.hub_columns import whole_runs
from watersmeet.engine.spec import JoinSpec
from watersmeet.hubs.kept import KEPT, ROWS, TAG
from watersmeet.hubs.rows import Rows, StreamRows
from watersmeet.hubs.streams import HubStreams
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.rows import Sorted
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import FULL_RANGE, Manifest, Run
from watersmeet.model.signature import LOCATOR
from watersmeet.schemes.hub import HubPlan
from watersmeet.schemes.scheme import Deal

# Reads some columns of a run.
ReadRun = Callable[[Run, tuple[str, ...]], Sorted]


def read_rows(reader: RunReader, spec: JoinSpec, manifest: Manifest) -> Rows:
    """All rows and indexes of a batch: behind those of the past the fresh ones."""
    assert isinstance(spec.join, HubStreams), "a hub's streams"
    attributes = spec.join.attributes
    old, new = old_runs(manifest), _by_input(manifest.fresh)

    def runs(name: str) -> Sequence[Run]:
        return (*old.get(name, ()), *new.get(name, ()))

    streams = {
        number: StreamRows.of(whole_runs(reader, runs(name), spec.signature.stored(name)))
        for number, name in enumerate(attributes.streams)
    }
    indexes = {
        attribute: [
            reader.read(run, FULL_RANGE, (LOCATOR,))[0] for run in runs(attributes.index_of(attribute))
        ]
        for attribute in range(len(attributes.columns))
    }
    kept = [reader.read(run, FULL_RANGE, (TAG, *ROWS))[0] for run in runs(KEPT)]
    return Rows(attributes, streams, indexes, StreamRows.of(kept))


def old_runs(manifest: Manifest) -> dict[str, list[Run]]:
    """The runs of the past that a batch reads, by stream and index."""
    assert isinstance(manifest.plan.scheme, HubPlan), "a hub's plan"
    reads = manifest.plan.scheme.reads
    return _by_input(
        run for run in manifest.history if run.input in reads and run.times[-1] >= reads[run.input]
    )


def deal_of(spec: JoinSpec, task: int, tasks: int) -> Deal:
    """Which rows of each run one of the tasks begins with."""
    assert isinstance(spec.join, HubStreams), "a hub's streams"
    ((first, *_),) = spec.scheme.shares(None, spec.join.attributes.streams, task, tasks)
    assert first.fresh is not None and first.fresh.deal is not None, "a hub deals rows"
    return first.fresh.deal


def fresh_positions(
    manifest: Manifest, streams: Sequence[str], deal: Deal | None = None
) -> dict[int, Indices]:
    """The positions of the fresh rows of each stream: all, or those of a hand."""
    old, new = old_runs(manifest), _by_input(manifest.fresh)
    return {
        number: _positions(new.get(name, ()), deal, sum(run.rows for run in old.get(name, ())))
        for number, name in enumerate(streams)
    }


def old_positions(manifest: Manifest, streams: Sequence[str], deal: Deal | None = None) -> dict[int, Indices]:
    """The positions of the old rows of each stream: all, or those of a hand."""
    old = old_runs(manifest)
    return {number: _positions(old.get(name, ()), deal, 0) for number, name in enumerate(streams)}


def _positions(runs: Sequence[Run], deal: Deal | None, base: int) -> Indices:
    bases = itertools.accumulate((run.rows for run in runs), initial=base)
    parts = [
        base
        + (np.arange(run.rows) if deal is None else deal.positions(int(run.checksum or "0", 16), run.rows))
        for base, run in zip(bases, runs, strict=False)
    ]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def newest_stored(parent: Manifest | None, streams: Iterable[str]) -> Mapping[str, int]:
    """The newest publication time of the rows that are stored, by stream."""
    found: dict[str, int] = {}
    names = set(streams)
    for run in parent.live if parent else ():
        if run.input in names:
            found[run.input] = max(run.times[-1], found.get(run.input, run.times[-1]))
    return found


def _by_input(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.input, []).append(run)
    return found
