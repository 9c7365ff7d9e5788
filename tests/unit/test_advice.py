"""What the kernel is told about mapped runs: the right bytes, and nothing where no row was pushed."""

from __future__ import annotations

import ctypes
import datetime
from decimal import Decimal
from mmap import PAGESIZE

import numpy as np
import pyarrow as pa
import pytest

from tests.life import Clock, newest, start
from watersmeet.kernel.rows import Sorted
from watersmeet.log import advice
from watersmeet.log.advice import NORMAL, RANDOM, WILL_NEED, _stretches, addresses_of
from watersmeet.log.files import LocalFiles
from watersmeet.log.runs import RunReader, write_run
from watersmeet.model.facts import KeyRange
from watersmeet.model.limits import Limits
from watersmeet.schemes.budget.policy import Pushing

SCHEMA = pa.schema({"k": pa.int64(), "text": pa.string()})


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2, 3, 4], pa.int64(), (2).to_bytes(8, "little") + (3).to_bytes(8, "little")),
        ([1.0, None, 3.0, 4.0], pa.float32(), None),
        ([b"ab", b"cd", b"ef", b"gh"], pa.binary(2), b"cdef"),
        (["a", "bcd", None, "ef"], pa.string(), b"bcd"),
        (["a", "bcd", "ef", "g"], pa.large_string(), b"bcdef"),
        ([b"a", b"", b"xyz", b"g"], pa.binary(), b"xyz"),
        ([Decimal(1), Decimal(2), Decimal(3), Decimal(4)], pa.decimal128(9), None),
        ([datetime.date(2026, 1, 1)] * 4, pa.date32(), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("before", [0, 3])
def test_the_addresses_of_some_rows_are_those_of_their_values(values, kind, expected, before):
    column = pa.concat_arrays([pa.array(values[:before], kind), pa.array(values, kind)]).slice(before)
    found = list(_stretches(column, np.array([1]), np.array([3])))
    low, high = (int(one[0]) for one in found[-1])
    if expected is None:
        rest, width = column.slice(1, 2), kind.bit_width // 8
        expected = ctypes.string_at(rest.buffers()[1].address + rest.offset * width, 2 * width)
    assert ctypes.string_at(low, high - low) == expected
    # Values of any length are found by their offsets.
    assert len(found) == (2 if "string" in str(kind) or kind == pa.binary() else 1)


def test_bits_nested_values_and_rows_without_values_are_no_trouble():
    bits, lists = pa.array([True, False] * 20), pa.array([[1], [2, 3]] * 20)
    starts, stops = np.array([9]), np.array([17])
    ((low, high),) = _stretches(bits, starts, stops)
    assert (low[0], high[0]) == (bits.buffers()[1].address + 1, bits.buffers()[1].address + 3)
    assert addresses_of([lists, pa.nulls(40)], starts, stops) == []
    assert addresses_of([bits], starts, starts) == []
    assert addresses_of([pa.array([], pa.string())], np.array([0]), np.array([0])) == []


def test_all_pages_of_some_rows_are_asked_for_once_in_pieces_that_the_kernel_does_not_cut_off():
    column = pa.array(range(100_000), pa.int64())
    base = column.buffers()[1].address
    starts, stops = np.array([50, 60, 70_000, 1_000]), np.array([55, 61, 70_001, 50_000])
    found = addresses_of([column], starts, stops)
    assert all(0 < high - low <= 128 << 10 for low, high in found)
    pages = [page for low, high in found for page in range(low // PAGESIZE, high // PAGESIZE)]
    expected = {
        (base + byte) // PAGESIZE
        for low, high in zip(starts.tolist(), stops.tolist(), strict=True)
        for byte in range(8 * low, 8 * high, 8)
    }
    assert pages == sorted(expected)


@pytest.mark.parametrize("memory", [None, 100_000], ids=["no budget", "a budget"])
def test_only_runs_that_were_pushed_in_part_are_advised_on(tmp_path, monkeypatch, memory):
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(advice, "_madvise", lambda: lambda low, size, what: given.append((what, size)))
    join = start(
        SCHEMA,
        tmp_path,
        "l.k = r.k AND l.text <= r.text",
        select=["l.k"],
        tasks=1,
        settings={"limits": Limits(min_rewrite_rows=1)},
        pushing=Pushing(groups=4),
        memory=memory,
        clock=Clock(),
    )
    rows = pa.table([list(range(500)), ["x" * 200] * 500], schema=SCHEMA)
    for _ in range(4):
        join.count(l=rows, r=rows)
    kinds = {what for what, _ in given}
    if memory is None:
        assert not given
        return
    assert newest(tmp_path).pushes and {RANDOM, WILL_NEED} <= kinds


def test_a_run_is_read_ahead_again_when_all_its_rows_are_and_asked_for_once_in_a_batch(tmp_path, monkeypatch):
    given: list[int] = []
    monkeypatch.setattr(advice, "_madvise", lambda: lambda low, size, what: given.append(what))
    files, keys = LocalFiles(tmp_path), np.arange(20_000, dtype=np.uint64)
    rows = pa.RecordBatch.from_arrays([pa.array(keys)], names=["k"])
    run, reader = write_run(files, "l", 0, "one", Sorted(keys, rows)), RunReader(files)
    some = (KeyRange(0, 15_000),)
    reader.keys(run)
    reader.read_ahead(run, some, ("k",))
    assert not given, "all of it is read"
    reader.forget_all_but([run.path], partial=[run.path])
    assert given == [RANDOM]
    reader.read_ahead(run, some, ("k",))
    asked = given.count(WILL_NEED)
    assert asked
    reader.read_ahead(run, some, ("k",))
    assert given == [RANDOM, *[WILL_NEED] * asked]
    reader.forget_all_but([run.path], partial=[run.path])
    reader.read_ahead(run, some, ("k",))
    assert given.count(WILL_NEED) == 2 * asked, "memory may have been short since the last batch"
    reader.forget_all_but([run.path])
    assert given[-1] == NORMAL
    # All its rows are set aside, and then a payment opens it: at another address.
    reader.forget_all_but([run.path], unused=[run.path])
    given.clear()
    reader.keys(run)
    assert given[0] == RANDOM
