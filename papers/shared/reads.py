"""What each joiner read and holds, from the manifests that a run left behind.

A joiner is a cell of the grid, or a task where there is no grid. `fresh` is what it read of the rows that
arrived, batch by batch; each of them is stored by exactly the joiners that read it, until the mapping changes.
`held` is what it holds after a batch under the mapping of that batch: the input-load factor, in rows. `by_task` is what
each task read of the rows that arrived: of the cells that it has, what they share once.

For tasks without a grid these figures are averages: manifests do not say which keys are heavy, and so not how many
rows fall on each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.storage import Files
from watersmeet.model.facts import Manifest, Run
from watersmeet.schemes.grid.cells import CellShare, SectionRange, share_of, shares_of_task
from watersmeet.schemes.grid.facts import GridPlan

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BatchReads:
    """One batch: rows that each joiner read of what arrived, what it holds afterwards, the grid if there is one, and rows that
    each task read of what arrived.
    """

    batch: int
    fresh: Counts
    held: Counts
    grid: GridPlan | None
    by_task: Counts

    @property
    def shape(self) -> tuple[int, int] | None:
        return None if self.grid is None else (self.grid.shapes[0].rows, self.grid.shapes[0].cols)


def read_batches(state: Path, name: str, tasks: int) -> list[BatchReads]:
    """All batches of the one query whose state is in `state`, oldest first."""
    files = _files(state, name)
    return [_reads(read_manifest(files, found), tasks) for found in list_manifests(files)]


def last_manifest(state: Path, name: str) -> Manifest:
    files = _files(state, name)
    return read_manifest(files, list_manifests(files)[-1])


def _files(state: Path, name: str) -> Files:
    (query,) = (folder for folder in (state / name).iterdir() if folder.is_dir())
    return open_files(str(state)).under(name, query.name)


def cells_of(plan: GridPlan) -> list[CellShare]:
    """One share for each cell, by number. The cells of the first group come first."""
    return [share_of(plan, cell, 1) for cell in range(plan.cells)]


def _reads(manifest: Manifest, tasks: int) -> BatchReads:
    left, right = (spec.name for spec in manifest.signature.inputs)
    live = (*manifest.history, *manifest.fresh)
    grid = manifest.plan.scheme
    if not isinstance(grid, GridPlan):
        evenly = _evenly(manifest.fresh, tasks)
        return BatchReads(manifest.batch.number, evenly, _evenly(live, tasks), None, evenly)
    cells = cells_of(grid)
    fresh_rows = {name: _by_section(manifest.fresh, name, grid.sections) for name in (left, right)}
    held_rows = {name: _by_section(live, name, grid.sections) for name in (left, right)}
    fresh = np.array([_in(fresh_rows[left], c.left_all) + _in(fresh_rows[right], c.right_all) for c in cells])
    by_task = np.array(
        [
            sum(
                _in(fresh_rows[left], share.left_all) + _in(fresh_rows[right], share.right_all)
                for share in shares_of_task(grid, tasks, task)
            )
            for task in range(tasks)
        ]
    )
    held = np.array(
        [_in(held_rows[left], c.left_stored) + _in(held_rows[right], c.right_stored) for c in cells]
    )
    return BatchReads(manifest.batch.number, fresh, held, grid, by_task)


def _by_section(runs: Sequence[Run], name: str, sections: int) -> Counts:
    rows = np.zeros(sections)
    for run in runs:
        if run.input == name:
            rows[: len(run.sections)] += run.sections
    return rows


def _in(rows: Counts, ranges: Sequence[SectionRange]) -> float:
    return float(sum(rows[r.low : r.high].sum() for r in ranges))


def _evenly(runs: Sequence[Run], tasks: int) -> Counts:
    return np.full(tasks, sum(run.rows for run in runs) / tasks)
