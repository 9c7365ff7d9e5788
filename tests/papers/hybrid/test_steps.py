"""The step machines of the paper: every row answered once whatever arrives when, and Theorems 1 and 2."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.hybrid.joins import AHEAD_ROWS, HybridJoin, IndexJoin, MeshJoin, rows_within
from papers.hybrid.pending import TIERS, Tiers, row_bytes
from papers.hybrid.steps import StepJoin
from tests.property.pages_helpers import Paged
from watersmeet.errors import UsageError
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.lookup import LookupJoin, Page
from watersmeet.model.pages import PageIndex
from watersmeet.schemes.table.buffer import PageBuffer

STREAM = pa.schema({"k": pa.int64(), "n": pa.int64()})
TABLE = pa.schema({"k0": pa.int64(), "id": pa.int64()})
OUTPUT = (OutputColumn("s", "n", "n"), OutputColumn("t", "id", "id"))


class Source:
    """A table of whole numbers in memory."""

    def __init__(self, pages: list[list[int]]):
        self.table = Paged((pa.int64(),), [[(key,) for key in page] for page in pages])
        self.index: PageIndex = self.table.index
        self.starts = np.cumsum([0, *map(len, pages)]).tolist()

    def read(self, page: int) -> pa.RecordBatch:
        return self.table.batch(self.table.pages[page], start=self.starts[page])

    @property
    def keys(self) -> list[int]:
        return [key for page in self.table.pages for (key,) in page]


def cut(keys: list[int], rng: random.Random, most: int) -> list[list[int]]:
    pages, keys = [], sorted(keys)
    while keys:
        size = rng.randint(1, most)
        pages.append(keys[:size])
        keys = keys[size:]
    return pages


def stream_of(keys: Sequence[int | None]) -> pa.RecordBatch:
    columns = [pa.array(keys, pa.int64()), pa.array(range(len(keys)), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=STREAM)


# Small enough for tails, tiers and rows taken ahead to be used up.
SMALL = Tiers(tail_rows=4, fan_in=2)


def made(
    name: str,
    source: Source,
    left: bool,
    capacity: int,
    buffer: int,
    tiers: Tiers = TIERS,
    ahead_rows: int = AHEAD_ROWS,
) -> StepJoin:
    join = LookupJoin((("k", "k0"),), None, OUTPUT, ("s", "t"), left)
    if name == "hybrid":
        kept: PageBuffer[Page] | None = PageBuffer(buffer) if buffer else None
        return HybridJoin(source, join, STREAM, capacity, table=TABLE, buffer=kept, tiers=tiers)
    if name == "mesh":
        return MeshJoin(source, join, STREAM, max(capacity, len(source.index)), table=TABLE, tiers=tiers)
    return IndexJoin(source, join, STREAM, table=TABLE, ahead_rows=ahead_rows)


def drive(machine: StepJoin, rows: pa.RecordBatch, rng: random.Random | None = None) -> Counter:
    """Offer the rows, in pieces and with pauses if there is chance in it, else as many as there is room for."""
    found: Counter = Counter()
    at = ticks = 0
    while at < rows.num_rows or machine.pending_rows or machine.counters.answered < at:
        ticks += 1
        assert ticks < 50 * (rows.num_rows + 10) * 30, "no end"
        if at < rows.num_rows and (rng is None or rng.random() < 0.6):
            piece = rows.slice(at, rows.num_rows if rng is None else rng.randint(1, 9))
            taken = machine.offer(piece)
            assert 0 <= taken <= piece.num_rows
            at += taken
        if at == rows.num_rows:
            machine.end()
        for batch in machine.step():
            found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    for batch in machine.step():
        found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return found


@pytest.mark.parametrize("name", ["hybrid", "mesh", "index"])
@given(
    st.integers(0, 2**32),
    st.integers(0, 40),
    st.integers(0, 60),
    st.integers(1, 12),
    st.integers(1, 20),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
)
def test_every_row_is_answered_once(
    name, seed, table_rows, stream_rows, capacity, span, most, left, buffered
):
    rng = random.Random(seed)
    source = Source(cut([rng.randint(0, span) for _ in range(table_rows)], rng, most))
    keys = [None if rng.random() < 0.05 else rng.randint(-1, span + 1) for _ in range(stream_rows)]
    machine = made(name, source, left, capacity, 2_000 if buffered else 0, SMALL, ahead_rows=3)
    found = drive(machine, stream_of(keys), rng)
    expected = Counter(
        (n, i) for n, key in enumerate(keys) for i, other in enumerate(source.keys) if key == other
    )
    if left:
        expected.update((n, None) for n, key in enumerate(keys) if key not in source.keys)
    assert found == expected
    assert machine.counters.taken == machine.counters.answered == stream_rows


unique_tables = st.tuples(
    st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 80), st.integers(1, 25), st.integers(1, 8)
)


def drawn(case: tuple[int, int, int, int, int]) -> tuple[Source, pa.RecordBatch, int]:
    """A table with each key once, a stream with keys that are often small, and room for some rows."""
    seed, table_rows, stream_rows, capacity, most = case
    rng = random.Random(seed)
    source = Source(cut(list(range(table_rows)), rng, most))
    keys = [int(table_rows ** rng.random()) - 1 for _ in range(stream_rows)]
    return source, stream_of(keys), capacity


@given(unique_tables)
def test_theorem_1_no_page_is_read_more_often_than_meshjoin_reads_it(case):
    source, rows, capacity = drawn(case)
    capacity = max(capacity, len(source.index))
    hybrid, mesh = (made(name, source, False, capacity, 0) for name in ("hybrid", "mesh"))
    drive(hybrid, rows)
    drive(mesh, rows)
    assert (hybrid.counters.reads <= mesh.counters.reads).all()
    assert (hybrid.counters.reads <= math.ceil(rows.num_rows / capacity)).all()
    assert mesh.counters.reads.sum() == mesh.counters.steps


@given(unique_tables)
def test_theorem_1_between_two_reads_of_a_page_as_many_rows_pass_as_waited(case):
    """Whatever the arrivals: what is at the front when a page is read again came after all that waited then."""
    source, rows, capacity = drawn(case)
    rng = random.Random(case[0])
    machine = made("hybrid", source, False, capacity, 0)
    assert isinstance(machine, HybridJoin)
    last: dict[int, tuple[int, int]] = {}
    at = 0
    while at < rows.num_rows or machine.pending_rows:
        if rng.random() < 0.7:
            at += machine.offer(rows.slice(at, rng.randint(1, 12)))
        front, waiting, before = machine.front, machine.pending_rows, machine.counters.reads.copy()
        machine.step()
        if front is None:
            continue
        (page,) = np.flatnonzero(machine.counters.reads - before).tolist()
        if page in last:
            assert front >= sum(last[page])
        last[page] = front, waiting


@given(unique_tables)
def test_theorem_2_no_more_turns_to_the_table_than_rows(case):
    source, rows, capacity = drawn(case)
    hybrid, index = (made(name, source, False, capacity, 0) for name in ("hybrid", "index"))
    drive(hybrid, rows, random.Random(case[0]))
    drive(index, rows, random.Random(case[0]))
    assert hybrid.counters.steps == hybrid.counters.reads.sum() <= rows.num_rows
    assert index.counters.steps == index.counters.reads.sum() == rows.num_rows


def test_an_idle_stream_is_drained_by_hybridjoin_and_left_waiting_by_meshjoin():
    source = Source([[0, 1], [2, 3], [4, 5]])
    rows = stream_of([0, 2])
    hybrid, mesh = (made(name, source, False, 9, 0) for name in ("hybrid", "mesh"))
    for machine in (hybrid, mesh):
        assert machine.offer(rows) == 2
    assert [hybrid.step(), hybrid.step()] != [[], []]
    assert hybrid.pending_rows == 0
    assert [mesh.step() for _ in range(10)] == [[]] * 10
    assert mesh.pending_rows == 2


def test_a_page_in_the_buffer_is_not_read_again():
    source = Source([[0, 1], [2, 3]])
    machine = made("hybrid", source, False, 1, 10_000)
    drive(machine, stream_of([0, 1, 0, 3, 1]))
    assert machine.counters.reads.tolist() == [1, 1]
    assert machine.counters.steps == 5


def test_budgets_become_rows_and_too_small_ones_are_refused():
    source = Source([[0, 1], [2, 3]])
    assert rows_within(100 * row_bytes(STREAM) + 2, source, STREAM) == 100
    with pytest.raises(UsageError, match="larger budget"):
        made("hybrid", source, False, rows_within(3, source, STREAM), 0)
    join = LookupJoin((("k", "k0"),), None, OUTPUT, ("s", "t"))
    with pytest.raises(UsageError, match="a row for each of the 2 pages"):
        MeshJoin(source, join, STREAM, 1)
    with pytest.raises(UsageError, match="column x is string"):
        HybridJoin(source, join, pa.schema({"k": pa.int64(), "x": pa.string()}), 5)
