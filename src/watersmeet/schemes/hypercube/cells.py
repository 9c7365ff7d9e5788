"""Cut heavy keys into cells, and estimate the work of a cell.

Every run is cut by itself, at whole rows, so the cells of a key may differ. Where they may differ much, the work of
each is counted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from watersmeet.model.facts import Run
from watersmeet.schemes.hypercube.allot import Lot
from watersmeet.schemes.hypercube.census import Amounts, Counts, KeyCounts, Stored, count_by_run
from watersmeet.schemes.hypercube.facts import HeavyKey
from watersmeet.schemes.hypercube.hot_keys import workers_of
from watersmeet.schemes.hypercube.shape import (
    attainable,
    desired_sides,
    first_shape,
    idle_shape,
    least_cells,
    next_shape,
)
from watersmeet.schemes.scheme import Keys, KeysOf

# The work of each cell is counted if they may differ by more than this part of the mean.
UNEVEN = 0.03


def cut_heavy(
    heavy: KeyCounts, were_heavy: Mapping[int, HeavyKey], tasks: int, heavy_share: float, all_rows: int
) -> list[Lot]:
    """Choose shapes for the heavy keys. Their part of the workers is `heavy_share`, their part of all work."""
    workers = workers_of(tasks)
    # If one input lacks the key, count as if it had one row.
    rows = np.maximum(heavy.total, 1)
    output, probed, emitted = rows.astype(np.float64).prod(axis=0), heavy.probed, heavy.emitted
    work = probed + emitted
    share = np.maximum(output / output.sum(), work / max(1.0, float(work.sum())))
    keys = heavy.keys.tolist()
    known = [were_heavy.get(key) for key in keys]
    idle = np.array([one is not None for one in known], np.bool_) & (probed == 0)
    # By all workers where idle: the light work of this batch says nothing about the batch that brings the key.
    cells = np.where(idle, workers * output / output.sum(), max(1, round(workers * heavy_share)) * share)
    cells = np.maximum(cells, least_cells(heavy.total.sum(axis=0), all_rows, tasks))
    shapes = []
    for before, stays, sides, per_cell in zip(
        known, idle.tolist(), rows.T.tolist(), (output / cells).tolist(), strict=True
    ):
        wanted = attainable(desired_sides(sides, per_cell, 1))
        if before is None:
            shapes.append(first_shape(wanted))
        else:
            shapes.append((idle_shape if stays else next_shape)(before.shape, wanted))
    parts = np.array(shapes, np.int64).reshape(len(shapes), len(rows)).T
    total = heavy.total
    cell_work = emitted / parts.prod(axis=0) + (heavy.new / parts).sum(axis=0)
    cell_rows = (total / parts).sum(axis=0)
    return [
        Lot(key, shape, work, tuple(old), read, tuple(live))
        for key, shape, work, old, read, live in zip(
            keys,
            shapes,
            cell_work.tolist(),
            heavy.old.T.tolist(),
            cell_rows.tolist(),
            total.T.tolist(),
            strict=True,
        )
    ]


def released_keys(light: KeyCounts, were_heavy: Mapping[int, HeavyKey]) -> list[Lot]:
    """The keys that are no longer heavy: all their rows go to the task whose range holds them."""
    whole = (1,) * len(light.new)
    return [
        Lot(key, whole, 0.0, tuple(light.old[:, place].tolist()))
        for place, key in enumerate(light.keys.tolist())
        if key in were_heavy
    ]


def with_unequal_cells(lots: Sequence[Lot], runs: Sequence[Stored], keys_of: KeysOf) -> list[Lot]:
    """Count the work of each cell where cells may differ much.

    Every run is cut by itself, at whole rows. With a row or two of a key in each of many runs, parts differ by the root
    of their rows.
    """
    # The most that a part may be off by, about: half a row in each run.
    off = [math.sqrt(len(one)) / 2 for one in runs]
    uneven = [lot for lot in lots if lot.cell_work and _unevenness(lot, off) > UNEVEN]
    if not uneven:
        return list(lots)
    keys = np.array([lot.key for lot in uneven], np.uint64)
    counted = [
        [(count_by_run(each, keys, keys_of), turns_of(each)) for each in (one.old, one.new)] for one in runs
    ]
    found = {}
    for place, lot in enumerate(uneven):
        old, new = (
            [
                rows_of_parts(sides[age][0][:, place], sides[age][1], of)
                for sides, of in zip(counted, lot.shape, strict=True)
            ]
            for age in (0, 1)
        )
        found[lot.key] = replace(lot, works=work_of_cells(old, new))
    return [found.get(lot.key, lot) for lot in lots]


def _unevenness(lot: Lot, off_rows: Sequence[float]) -> float:
    """The most that cells may differ by, as a share of their rows, if a part of each input is off by `off_rows`."""
    return sum(
        [
            off * of / max(1, rows)
            for off, of, rows in zip(off_rows, lot.shape, lot.rows, strict=True)
            if of > 1
        ]
    )


def rows_of_parts(counts: Counts, turns: Keys, of: int) -> Counts:
    """The rows in each of `of` parts, a power of two, of a key with `counts` rows in the runs, all runs together.

    `turns` are the checksums of the runs, by which `RowPart` rotates the cut.
    """
    turn = (
        (turns >> np.uint64(65 - of.bit_length())).view(np.int64)
        if of > 1
        else np.zeros(len(turns), np.int64)
    )
    cuts = (counts[:, None] * np.arange(of + 1) + turn[:, None]) // of
    rows: Counts = np.diff(cuts, axis=1).sum(axis=0)
    return rows


def work_of_cells(old: Sequence[Counts], new: Sequence[Counts]) -> Amounts:
    """The work of every cell, the last axis running fastest, from the rows of each part of each input."""
    whole = [a + b for a, b in zip(old, new, strict=True)]
    every, before = (
        functools.reduce(np.multiply.outer, [one.astype(np.float64) for one in side]) for side in (whole, old)
    )
    probed = functools.reduce(np.add.outer, new)
    work: Amounts = (every - before + probed).reshape(-1)
    return work


def turns_of(runs: Sequence[Run]) -> Keys:
    return np.array([int(run.checksum or "0", 16) for run in runs], np.uint64)
