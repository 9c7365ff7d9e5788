"""The cost model of section 4.4 with constants calibrated on this machine, and the page sizes that follow from it.

The equations are those of `papers.hybrid.equations`. The rows that a read answers follow from the law of the keys
(`page_size.py`), without the fitted k of equation 2.

Calibrated on runs of their own, on another relation: reading a page, by itself; taking rows and the rest of a turn, by least
squares over page sizes and budgets. c_S and c_A are measured together, and so are c_O and c_E.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from papers.hybrid import paper
from papers.hybrid.equations import (
    CostConstants,
    Sizes,
    average_input,
    fit_costs,
    loop_cost,
    service_rate,
)
from papers.hybrid.machines import STREAM
from papers.hybrid.page_size import tune, zipf_input
from papers.hybrid.pending import row_bytes
from papers.hybrid.results import HYBRIDJOIN, INLJ, MESHJOIN, Prediction

# A block of the file, which the database reads for a single row too.
INDEX_PAGE_ROWS = 4096 // paper.ROW_BYTES


@dataclass(frozen=True, slots=True)
class Observed:
    """Means over some turns of a machine, in seconds, with the rows of a page and the rows answered in a turn."""

    page_rows: int
    answered: float
    taking_s: float
    rest_s: float


def sizes_of(rows: int) -> Sizes:
    """All that a waiting row takes counts as hash table: equation 1 with a queue of its own weight gives the same rows."""
    return Sizes(row_bytes(STREAM), paper.ROW_BYTES, rows, hash_weight=1.0, queue_weight=0.0)


def expected(algorithm: str, rows: int, held_rows: int, page_rows: int) -> float:
    """Rows that a read answers."""
    if algorithm == HYBRIDJOIN:
        return zipf_input(sizes_of(rows), held_rows, page_rows)
    return average_input(held_rows, page_rows, rows, k=1.0) if algorithm == MESHJOIN else 1.0


def predict(
    algorithm: str, constants: CostConstants, rows: int, held_rows: int, page_rows: int
) -> Prediction:
    answered = expected(algorithm, rows, held_rows, page_rows)
    return Prediction(answered, loop_cost(constants, page_rows, sizes_of(rows), answered))


def equation_gain(constants: CostConstants, rows: int, held_rows: int, page_rows: int) -> float:
    """How many times the rate of MESHJOIN equations 2 to 4 give HYBRIDJOIN, with the paper's k: 1.36, against MESHJOIN's 1."""
    rates = (
        service_rate(constants, page_rows, sizes_of(rows), average_input(held_rows, page_rows, rows, k))
        for k in (paper.K, 1.0)
    )
    return next(rates) / next(rates)


def best_page(algorithm: str, constants: CostConstants, rows: int, budget_bytes: int) -> int:
    """Rows of a page by the model: the best of the budget for those that have something in memory."""
    if algorithm == INLJ:
        return INDEX_PAGE_ROWS
    found = tune(
        budget_bytes, constants, sizes_of(rows), lambda held, page: expected(algorithm, rows, held, page)
    )
    return found.page_rows


def fit_constants(reads: tuple[float, float], observed: Sequence[Observed]) -> CostConstants:
    """What a turn costs besides its read: a part of its own, one for each row of the page, one for each row answered."""
    ones = np.ones(len(observed))
    pages = np.array([float(turn.page_rows) for turn in observed])
    answered = np.array([turn.answered for turn in observed])
    taken = (
        fit_costs(np.stack([ones, answered], axis=1), np.array([turn.taking_s for turn in observed])) * 1e9
    )
    rest = (
        fit_costs(np.stack([ones, pages, answered], axis=1), np.array([turn.rest_s for turn in observed]))
        * 1e9
    )
    return CostConstants(
        seek_ns=reads[0] + float(taken[0] + rest[0]),
        byte_ns=reads[1],
        probe_ns=float(rest[1]),
        output_ns=float(rest[2]),
        remove_ns=0.0,
        stream_ns=0.0,
        append_ns=float(taken[1]),
    )


def with_reads(
    constants: CostConstants, before: tuple[float, float], now: tuple[float, float]
) -> CostConstants:
    """The same machine with other reads."""
    return replace(constants, seek_ns=constants.seek_ns - before[0] + now[0], byte_ns=now[1])
