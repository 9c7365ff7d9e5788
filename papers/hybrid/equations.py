"""The paper's equations: the costs of HYBRIDJOIN and MESHJOIN, and their service rate.

Source: Naeem, Dobbie, Weber 2010, section 4.4 and 4.5, equations 1 to 4, with the symbols of Table 1:

    (1)  memory of a budget M: a page of v_P bytes, and the rest divided between hash table and queue as alpha to beta
    (2)  w = k * H_t * D_t / R_t, the rows that a step joins and takes in, where k is fitted (1.36 there)
    (3)  c_loop = c_IO(v_P) + D_t * c_H + w * (c_O + c_E + c_S + c_A)
    (4)  mu = w / c_loop

MESHJOIN has equation 2 with k = 1: a queue of H_t rows has a part for each of the R_t / D_t pages, and a step takes
one part.

The equations do not hold for a stream that does not fill the hash table: then steps join fewer rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.errors import UsageError

Shares = npt.NDArray[np.float64]

# The paper's k, for its own stream and machine.
PAPER_K = 1.36

_NS = 1e-9


@dataclass(frozen=True, slots=True)
class CostConstants:
    """Nanoseconds, measured on the machine. Reading a page costs `seek_ns`, plus `byte_ns` for each of its bytes.

    The others are costs of one row: probe a row of the page (c_H), emit (c_O), remove from hash table and queue (c_E),
    read from the stream (c_S), append (c_A).
    """

    seek_ns: float
    byte_ns: float
    probe_ns: float
    output_ns: float
    remove_ns: float
    stream_ns: float
    append_ns: float

    def read_ns(self, page_bytes: float) -> float:
        return self.seek_ns + self.byte_ns * page_bytes

    @property
    def row_ns(self) -> float:
        return self.output_ns + self.remove_ns + self.stream_ns + self.append_ns


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a stream row in the hash table (v_S) and of a table row (v_R), rows of the table (R_t), and the weights
    that divide the memory beside the page between the hash table and the queue.
    """

    stream_bytes: float
    table_bytes: float
    table_rows: int
    hash_weight: float = 20.0
    queue_weight: float = 12.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Equation 1: the three parts in bytes, and the rows that fit the hash table."""

    page_bytes: float
    hash_bytes: float
    queue_bytes: float
    hash_rows: int

    @property
    def bytes(self) -> float:
        return self.page_bytes + self.hash_bytes + self.queue_bytes


def memory_cost(budget_bytes: float, page_bytes: float, sizes: Sizes) -> Memory:
    """Equation 1.

    >>> memory_cost(1_000, 200, Sizes(stream_bytes=20, table_bytes=100, table_rows=50, hash_weight=3, queue_weight=1))
    Memory(page_bytes=200, hash_bytes=600.0, queue_bytes=200.0, hash_rows=30)
    """
    if page_bytes >= budget_bytes:
        raise UsageError(f"a page of {page_bytes:.0f} bytes leaves nothing of a budget of {budget_bytes:.0f}")
    whole = sizes.hash_weight + sizes.queue_weight
    hash_bytes = (budget_bytes - page_bytes) * sizes.hash_weight / whole
    queue_bytes = (budget_bytes - page_bytes) * sizes.queue_weight / whole
    return Memory(page_bytes, hash_bytes, queue_bytes, int(hash_bytes // sizes.stream_bytes))


def average_input(hash_rows: float, page_rows: float, table_rows: float, k: float = PAPER_K) -> float:
    """Equation 2. With k = 1 it is that of MESHJOIN."""
    return k * hash_rows * page_rows / table_rows


def loop_cost(constants: CostConstants, page_rows: int, sizes: Sizes, input_rows: float) -> float:
    """Equation 3, in seconds."""
    page_ns = constants.read_ns(page_rows * sizes.table_bytes) + page_rows * constants.probe_ns
    return _NS * (page_ns + input_rows * constants.row_ns)


def service_rate(constants: CostConstants, page_rows: int, sizes: Sizes, input_rows: float) -> float:
    """Equation 4: rows joined in a second."""
    return input_rows / loop_cost(constants, page_rows, sizes, input_rows)


def fit_reads(page_bytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """The fixed nanoseconds of a read, and those of each byte."""
    seek, byte = fit_costs(np.array([[1.0, size] for size in page_bytes]), np.array(seconds)) / _NS
    return float(seek), float(byte)


def fit_costs(parts: Shares, seconds: Shares) -> Shares:
    """Fit the cost of each part by least squares of relative errors; `parts` has a row for each measured time.

    Costs are not negative: a negative one is set to 0, and the rest is fitted again.
    """
    kept = np.ones(parts.shape[1], np.bool_)
    seconds = np.maximum(seconds, _NS)
    while True:
        found = np.zeros(parts.shape[1])
        found[kept] = np.linalg.lstsq(parts[:, kept] / seconds[:, None], np.ones(len(seconds)), rcond=None)[0]
        if (found >= 0).all():
            return found
        kept &= found > 0
