"""What the queries of a hub keep, on the log: runs of each batch and part, which a receipt announces.

Every task keeps what its own fresh rows bind. In the first batch of a choice (hubs/keep.py) it also keeps the combinations
of old rows that begin with its hand of these: a walk over the past that goes as far as what is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from watersmeet.engine.hub_announced import write_part
from watersmeet.engine.hub_rows import fresh_positions, old_positions
from watersmeet.hubs.catalogue import HubCatalogue
from watersmeet.hubs.forest import Forest
from watersmeet.hubs.forest_builder import build_forest
from watersmeet.hubs.keep import begins_to_keep, queries_that_keep
from watersmeet.hubs.kept import KEPT, TAG, Keeper
from watersmeet.hubs.language import MOST_INPUTS
from watersmeet.hubs.rows import Rows, first_row
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.walk import Walk
from watersmeet.kernel.keys import Indices, Mask
from watersmeet.kernel.rows import Sorted
from watersmeet.log.storage import Files
from watersmeet.model.facts import Manifest, Run
from watersmeet.model.window import AT
from watersmeet.schemes.scheme import Deal


def batch_before(manifest: Manifest) -> int | None:
    return manifest.parent.number if manifest.parent else None


@dataclass
class KeptRuns:
    """Writes what a part of a batch keeps, while it walks."""

    files: Files
    attributes: Attributes
    batch: int
    part: int
    runs: list[Run] = field(default_factory=list)

    def write(self, rows: Sorted) -> None:
        self.runs.append(write_part(self.files, KEPT, self.batch, self.part, rows))

    def keeper(self, forest: Forest, rows: Rows) -> Keeper | None:
        """What takes the bindings of a walk; None if nothing of it is kept."""
        return Keeper(forest.keeping, rows, AT, self.write) if len(forest.keeping.number) else None

    def add_past(
        self, manifest: Manifest, catalogue: HubCatalogue, rows: Rows, deal: Deal | None = None
    ) -> None:
        """Keep the combinations of old rows that queries begin to keep: all, or those of a hand."""
        begin = begins_to_keep(catalogue, batch_before(manifest))
        if begin.any():
            forest = build_forest(catalogue, self.attributes, begin, keeps_of=begin)
            low = forest.keeping.low.min(initial=np.iinfo(np.uint64).max)
            begun = {
                stream: at[rows.streams[stream].numbers(at) >= low]
                for stream, at in old_positions(manifest, self.attributes.streams, deal).items()
                if len(at) and len(forest.roots[stream])
            }
            self._walk(manifest, forest, rows, begun)

    def add_fresh(
        self, manifest: Manifest, catalogue: HubCatalogue, rows: Rows, deal: Deal | None = None
    ) -> None:
        """Keep the combinations that fresh rows make, without looking for answers."""
        keeps = queries_that_keep(catalogue)
        if keeps.any():
            forest = build_forest(catalogue, self.attributes, before=batch_before(manifest), keeps_of=keeps)
            begun = fresh_positions(manifest, self.attributes.streams, deal)
            self._walk(manifest, forest, rows, begun)

    def _walk(self, manifest: Manifest, forest: Forest, rows: Rows, begun: Mapping[int, Indices]) -> None:
        keeper = self.keeper(forest, rows)
        fresh_from = first_row(np.array([manifest.batch.number]))[0]
        walk = Walk(forest, rows, fresh_from, AT, keeper=keeper)
        mine = {stream: at for stream, at in begun.items() if len(at) and len(forest.roots[stream])}
        for _ in walk.answers(mine):
            raise AssertionError("this walk only keeps")
        if keeper is not None:
            keeper.close()


def unneeded_rows(input_: str, rows: Sorted, numbers: Indices, floors: Indices) -> Mask:
    """Which rows of a run are combinations whose kept number is not among these, or that are below its floor."""
    if input_ != KEPT or not len(numbers):
        return np.full(len(rows), input_ == KEPT)
    number = rows.rows.column(TAG).to_numpy() // MOST_INPUTS
    at = np.minimum(np.searchsorted(numbers, number), len(numbers) - 1)
    gone: Mask = (numbers[at] != number) | (rows.rows.column(AT).to_numpy() < floors[at])
    return gone


def kept_parts(catalogue: HubCatalogue, tasks: int) -> tuple[int, ...]:
    """The parts that keep something: all tasks, if a query does."""
    return tuple(range(tasks)) if queries_that_keep(catalogue).any() else ()
