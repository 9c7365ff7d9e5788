"""The expected input against counted steps, and the best page against those tried by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from papers.hybrid.equations import CostConstants, Sizes, average_input, memory_cost, service_rate
from papers.hybrid.joins import HybridJoin, MeshJoin
from papers.hybrid.page_size import expected_input, tune, zipf_input, zipf_shares
from watersmeet.errors import UsageError
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.model.pages import PageIndex

CONSTANTS = CostConstants(
    seek_ns=1_000_000, byte_ns=5, probe_ns=100, output_ns=400, remove_ns=30, stream_ns=20, append_ns=50
)
SIZES = Sizes(stream_bytes=20, table_bytes=120, table_rows=2_000_000)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_shares_of_pages_are_those_of_drawn_keys(exponent):
    """The generator draws the inverse of the integral at an even number."""
    rows, page_rows, draws = 1_000, 30, 200_000
    shares = zipf_shares(rows, page_rows, exponent)
    even = np.random.default_rng(0).random(draws)
    if exponent == 1.0:
        keys = np.exp(even * np.log(rows + 1.0))
    else:
        power = 1.0 - exponent
        keys = (even * ((rows + 1.0) ** power - 1.0) + 1.0) ** (1.0 / power)
    counted = np.bincount((keys.astype(np.int64) - 1) // page_rows, minlength=34) / draws
    assert len(shares) == 34
    assert shares.sum() == pytest.approx(1)
    assert np.abs(shares - counted).max() < 0.004


class Source:
    """Pages of keys from 0 on; one cell in every row."""

    def __init__(self, rows: int, page_rows: int):
        first = np.arange(0, rows, page_rows)
        self.index = PageIndex(
            ("id",),
            pa.record_batch({"id": first}),
            pa.record_batch({"id": np.minimum(first + page_rows, rows) - 1}),
            np.full(len(first), page_rows),
            np.full(len(first), 8 * page_rows),
        )
        self.page_rows = page_rows

    def read(self, page: int) -> pa.RecordBatch:
        return pa.record_batch({"id": np.arange(page * self.page_rows, (page + 1) * self.page_rows)})


STREAM = pa.schema({"k": pa.int64()})
JOIN = LookupJoin((("k", "id"),), None, (OutputColumn("s", "k", "k"),), ("s", "t"))


def answered_each_step(machine: HybridJoin | MeshJoin, keys: np.ndarray, warm: int) -> float:
    """The rows that a step answers, counted over the second part of a stream that never ends."""
    rows = pa.RecordBatch.from_arrays([pa.array(keys)], schema=STREAM)
    at, start = 0, (0, 0)
    while at < len(keys):
        at += machine.offer(rows.slice(at, machine.room))
        machine.step()
        if at < warm:
            start = machine.counters.steps, machine.counters.answered
    return (machine.counters.answered - start[1]) / (machine.counters.steps - start[0])


def zipf_keys(rows: int, count: int) -> np.ndarray:
    return np.floor(np.exp(np.random.default_rng(7).random(count) * np.log(rows + 1.0))).astype(np.int64) - 1


@pytest.mark.parametrize(
    ("rows", "page_rows", "capacity"), [(20_000, 10, 500), (4_000, 8, 2_000), (20_000, 1_000, 5_000)]
)
def test_expected_input_under_zipf_is_what_is_counted(rows, page_rows, capacity):
    """The first page gets a quarter of the stream, or in the last case seven tenths."""
    keys = zipf_keys(rows, 20 * capacity)
    machine = HybridJoin(Source(rows, page_rows), JOIN, STREAM, capacity)
    counted = answered_each_step(machine, keys, 10 * capacity)
    assert expected_input(zipf_shares(rows, page_rows), capacity) == pytest.approx(counted, rel=0.05)


def test_expected_input_of_an_even_stream_is_what_is_counted():
    keys = np.random.default_rng(3).integers(0, 3_000, 30_000)
    counted = answered_each_step(HybridJoin(Source(3_000, 30), JOIN, STREAM, 1_000), keys, 10_000)
    assert expected_input(np.full(100, 0.01), 1_000) == pytest.approx(counted, rel=0.03)
    assert counted == pytest.approx(2 * 1_000 / 100, rel=0.05)


def test_meshjoin_takes_its_part_of_the_queue():
    machine = MeshJoin(Source(3_000, 30), JOIN, STREAM, 1_000)
    assert machine.input_rows == average_input(1_000, 30, 3_000, k=1)
    keys = np.random.default_rng(3).integers(0, 3_000, 6_000)
    assert answered_each_step(machine, keys, 3_000) == pytest.approx(machine.input_rows, rel=0.02)


def test_the_tuned_page_is_better_than_any_that_is_tried_by_hand():
    tuned = tune(50_000_000, CONSTANTS, SIZES)
    for page_rows in (10, 300, 1_000, 10_000, 100_000, 300_000):
        memory = memory_cost(50_000_000, page_rows * 120, SIZES)
        rate = service_rate(CONSTANTS, page_rows, SIZES, zipf_input(SIZES, memory.hash_rows, page_rows))
        assert tuned.rate >= rate
    assert tuned.rate == pytest.approx(service_rate(CONSTANTS, tuned.page_rows, SIZES, tuned.input_rows))


def test_tuning_by_equation_2_finds_its_maximum():
    """With w = k H D / R and H as much as fits, the rate as a function of the page's bytes has one maximum."""
    tuned = tune(
        50_000_000, CONSTANTS, SIZES, lambda hash_rows, page_rows: average_input(hash_rows, page_rows, 2e6)
    )

    def rate(page_rows: int) -> float:
        hash_rows = memory_cost(50_000_000, page_rows * 120, SIZES).hash_rows
        return service_rate(CONSTANTS, page_rows, SIZES, average_input(hash_rows, page_rows, 2e6))

    best = max(range(1_000, 200_000, 100), key=rate)
    assert tuned.rate == pytest.approx(rate(best), rel=1e-3)
    with pytest.raises(UsageError, match="no page of one row"):
        tune(100, CONSTANTS, SIZES)
