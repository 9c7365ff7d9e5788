"""Runs that are cut into sections: neighbours are read as one slice, and a task verifies what it reads and no more."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests import life
from watersmeet.engine.task import join_share
from watersmeet.errors import CorruptFile
from watersmeet.kernel.rows import MERGED_ROW_BYTES, Merged, Sections, Sorted, merge_sections, put_together
from watersmeet.local.join import LocalJoin
from watersmeet.log import sections
from watersmeet.log.codec import decode_checked, encode_checked
from watersmeet.log.files import LocalFiles
from watersmeet.log.runs import RunReader, write_run
from watersmeet.log.sections import SECTIONS
from watersmeet.model.facts import FULL_RANGE, BatchId, KeyRange, Receipt, Run
from watersmeet.model.limits import Limits
from watersmeet.model.tally import Tally

SIZES = (3, 0, 5, 4, 8)


@pytest.fixture
def files(tmp_path) -> LocalFiles:
    return LocalFiles(tmp_path / "state")


# Files of tests are so small that they are checked sooner as a whole.
BY_SECTION = Limits(bytes_per_section=0)


NESTED = pa.struct({"a": pa.list_(pa.string()), "b": pa.bool_()})
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integers": (pa.int32(), [1, None, 3]),
    "integers without nulls": (pa.int64(), [1, 2, 3]),
    "floats": (pa.float64(), [0.5, None]),
    "booleans": (pa.bool_(), [True, None, False]),
    "booleans without nulls": (pa.bool_(), [True, True, False]),
    "texts": (pa.string(), ["", "ab", None, "x" * 30]),
    "bytes": (pa.binary(), [b"", b"abc", None]),
    "large texts": (pa.large_string(), ["", "ab", None]),
    "decimals": (pa.decimal128(20, 2), [decimal.Decimal("1.25"), None]),
    "dates": (pa.date32(), [datetime.date(2026, 1, 2), None]),
    "times": (pa.timestamp("us", "UTC"), [datetime.datetime(2026, 1, 2), None]),
    "nothing": (pa.null(), [None]),
    "lists": (pa.list_(pa.int64()), [[], [1, None], None, [2, 3, 4]]),
    "lists of lists": (pa.list_(pa.list_(pa.string())), [[], [["a", None], None], None, [[], ["bc"]]]),
    "vectors": (pa.list_(pa.float32(), 3), [[1, 2, 3], None]),
    "structs": (NESTED, [None, {"a": ["x", None], "b": True}, {"a": None, "b": None}, {"a": [], "b": False}]),
    "maps": (pa.map_(pa.string(), pa.int32()), [[], [("a", 1), ("b", None)], None]),
}


def column(kind: str, count: int) -> pa.Array:
    type_, values = KINDS[kind]
    return pa.array([values[place % len(values)] for place in range(count)], type_)


def sectioned(sizes: tuple[int, ...] = SIZES, kinds: tuple[str, ...] = ("integers", "texts")) -> Sections:
    """Sections of random keys; the column `at` has the place of each row."""
    count, rng = sum(sizes), np.random.default_rng(3)
    parts = [np.sort(rng.integers(0, 50, size).astype(np.uint64)) for size in sizes]
    values = {"at": np.arange(count)} | {kind: column(kind, count) for kind in kinds}
    return Sections(np.concatenate(parts), pa.record_batch(values), sizes)


def in_separate_batches(files: LocalFiles, content: Sections) -> Run:
    """A run as format 5 wrote it: one record batch for each section that has rows."""
    run = write_run(files, "l", 1, "p00000", content)
    parts = content.parts().values()
    schema = pa.schema([pa.field("__wm_order", pa.uint64(), nullable=False), *content.rows.schema])
    batches = [
        pa.RecordBatch.from_arrays([pa.array(part.keys), *part.rows.columns], schema=schema) for part in parts
    ]
    old = files.write("runs/l/0000000001-p00001", schema, batches)
    return replace(run, path=old.path, bytes=old.bytes, checksum=old.checksum, frame_checksum="")


def rows_of(slice_: Any) -> list[tuple[int, int]]:
    """Keys, and the places of their rows."""
    rows = slice_.rewritten().rows if isinstance(slice_, Merged) else slice_.rows
    return list(zip(slice_.keys.tolist(), rows.column("at").to_pylist(), strict=True))


# --- Neighbours are one slice ------------------------------------------------------------------------------

WANTED = [
    pytest.param(None, id="all"),
    pytest.param([range(1)], id="one"),
    pytest.param([range(1, 2)], id="empty"),
    pytest.param([range(3)], id="neighbours"),
    pytest.param([range(1), range(3, 5)], id="apart"),
    pytest.param([range(2, 64)], id="behind the last"),
]


def expected(content: Sections, wanted: list[range] | None, range_: KeyRange) -> list[tuple[int, int]]:
    starts = content.starts
    numbers = [n for n in range(len(SIZES)) if wanted is None or any(n in one for one in wanted)]
    at = [place for n in numbers for place in range(starts[n], starts[n + 1])]
    pairs = [(int(content.keys[place]), place) for place in at]
    return sorted(pair for pair in pairs if range_.low <= pair[0] < range_.high)


@pytest.mark.parametrize("range_", [FULL_RANGE, KeyRange(10, 40)], ids=["all keys", "some keys"])
@pytest.mark.parametrize("wanted", WANTED)
def test_neighbouring_sections_are_one_sorted_slice(files, wanted, range_):
    content = sectioned()
    run = write_run(files, "l", 1, "p00000", content)
    reader = RunReader(files)
    for _ in range(2):
        found = list(reader.slices(run, range_, ("at",), wanted))
        assert len(found) <= 1
        for slice_ in found:
            assert slice_.keys.tolist() == sorted(slice_.keys.tolist())
            assert slice_.rows.schema.names == ["at"]
        assert sorted(pair for slice_ in found for pair in rows_of(slice_)) == expected(
            content, wanted, range_
        )


@pytest.mark.parametrize("wanted", WANTED)
def test_where_all_pairs_are_compared_neighbours_are_a_view(files, wanted):
    content = sectioned()
    run = write_run(files, "l", 1, "p00000", content)
    reader = RunReader(files)
    found = list(reader.slices(run, FULL_RANGE, ("at",), wanted, sort=False))
    assert len(found) <= (2 if wanted and len(wanted) > 1 else 1)
    assert sorted(pair for slice_ in found for pair in rows_of(slice_)) == expected(
        content, wanted, FULL_RANGE
    )
    (again,) = reader.slices(run, FULL_RANGE, ("at",), sort=False)
    first = again.rows.column(0).buffers()[1].address
    for slice_ in found:
        start = slice_.rows.column("at")[0].as_py()
        assert slice_.rows.column(0).buffers()[1].address == first and slice_.rows.column(0).offset == start


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("wanted", WANTED)
def test_a_run_of_an_older_format_is_read_section_by_section(files, wanted, sort):
    content = sectioned()
    run = in_separate_batches(files, content)
    found = list(RunReader(files).slices(run, FULL_RANGE, ("at",), wanted, sort=sort))
    assert sorted(pair for slice_ in found for pair in rows_of(slice_)) == expected(
        content, wanted, FULL_RANGE
    )
    by_number = RunReader(files).read(run, FULL_RANGE, ("at",), wanted)
    assert by_number.keys() == {
        n for n, size in enumerate(SIZES) if size and (wanted is None or any(n in one for one in wanted))
    }


def test_merged_keys_are_kept_until_the_run_is_gone(files, monkeypatch):
    merges = []

    def counted(keys: Any, stretches: Any) -> Any:
        merges.append(stretches)
        return merge_sections(keys, stretches)

    monkeypatch.setattr("watersmeet.log.runs.merge_sections", counted)
    run = write_run(files, "l", 1, "p00000", sectioned())
    other = write_run(files, "l", 1, "p00001", sectioned())
    reader = RunReader(files)
    for _ in range(3):
        list(reader.slices(run, FULL_RANGE, ("at",)))
        reader.forget_all_but([run.path, other.path])
    assert len(merges) == 1
    list(reader.slices(run, FULL_RANGE, ("at",), [range(4)]))
    assert len(merges) == 2, "other sections are another slice"
    reader.forget_all_but([other.path])
    list(reader.slices(run, FULL_RANGE, ("at",)))
    assert len(merges) == 3


def test_sections_beyond_the_limit_of_memory_are_searched_one_by_one(files):
    """Merged keys that this batch or the one before used stay; others make room."""
    content = sectioned()
    runs = [write_run(files, "l", 1, f"p0000{n}", content) for n in range(2)]
    reader = RunReader(files, Limits(merged_bytes=sum(SIZES) * MERGED_ROW_BYTES))

    def slices(run: Run) -> list[Any]:
        found = list(reader.slices(run, FULL_RANGE, ("at",)))
        assert sorted(pair for one in found for pair in rows_of(one)) == expected(content, None, FULL_RANGE)
        return found

    filled = sum(size > 0 for size in SIZES)
    assert len(slices(runs[0])) == 1
    assert len(slices(runs[1])) == filled
    alive = [run.path for run in runs]
    reader.forget_all_but([*alive, "of batch 1"])
    assert len(slices(runs[1])) == filled
    reader.forget_all_but([*alive, "of batch 2"])
    assert len(slices(runs[1])) == 1
    assert len(slices(runs[0])) == filled


# --- Checksums by section ----------------------------------------------------------------------------------


def damaged(whole: bytes, step: int = 1) -> Iterator[tuple[int, bytes]]:
    for at in range(0, len(whole), step):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        yield at, bytes(flipped)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_found_by_those_who_read_it_and_by_no_others(files, kind):
    """Bytes all over the file are damaged; every section is read each time.

    A section reads as it was written or is refused. A flip among the values is in one section at most.
    """
    content = sectioned(kinds=(kind,))
    run = write_run(files, "l", 7, "p00000", content)
    assert run.frame is not None
    path, columns = files.root / run.path, ("at", kind)
    whole = path.read_bytes()
    intact = {
        n: RunReader(files, BY_SECTION).read(run, FULL_RANGE, columns, [range(n, n + 1)])
        for n in range(len(SIZES))
    }
    before = {
        n: [(p.keys.tolist(), p.rows.to_pylist()) for p in found.values()] for n, found in intact.items()
    }
    refused_by = []
    for at, bytes_ in damaged(whole, 7):
        path.unlink()
        path.write_bytes(bytes_)
        refused = 0
        for number in range(len(SIZES)):
            try:
                found = RunReader(files, BY_SECTION).read(
                    run, FULL_RANGE, columns, [range(number, number + 1)]
                )
            except CorruptFile:
                refused += 1
            else:
                assert [(p.keys.tolist(), p.rows.to_pylist()) for p in found.values()] == before[number], at
        if not run.frame.start <= at < run.frame.end:
            assert refused == len(SIZES), "a damaged frame was trusted"
        else:
            # An offset ends one section and begins the next one.
            assert refused <= 2
        refused_by.append(refused)
    assert refused_by.count(1) >= run.rows, "most values have no checksum"


def test_a_whole_file_is_checked_where_that_is_faster_and_a_damaged_one_by_section(files, monkeypatch):
    run = write_run(files, "l", 7, "p00000", sectioned())
    assert run.frame is not None
    path = files.root / run.path
    whole = path.read_bytes()
    # The last key of the last section.
    at = run.frame.start + 8 * (run.rows - 1)
    flipped = bytearray(whole)
    flipped[at] ^= 1
    path.unlink()
    path.write_bytes(bytes(flipped))
    reader = RunReader(files)
    assert len(list(reader.slices(run, FULL_RANGE, ("at",), [range(4)]))) == 1
    with pytest.raises(CorruptFile, match="is damaged: the checksum of section 4 does not match"):
        list(reader.slices(run, FULL_RANGE, ("at",)))
    with pytest.raises(CorruptFile, match="section 4"):
        list(reader.slices(run, FULL_RANGE, ("at",), [range(4, 5)], sort=False))
    with pytest.raises(CorruptFile, match="section 4"):
        reader.read(run, FULL_RANGE, ("at",))
    monkeypatch.setattr(sections, "_checksums", lambda *a: pytest.fail("checked an intact file by section"))
    path.unlink()
    path.write_bytes(whole)
    assert len(list(RunReader(files).slices(run, FULL_RANGE, ("at",)))) == 1


def test_a_task_reads_no_more_bytes_for_checking_than_its_sections_have(files, monkeypatch):
    """One of 64 large sections: the checksum of the whole file is never computed."""
    rows = 64 * 4096
    content = Sections(
        np.tile(np.arange(4096, dtype=np.uint64), 64), pa.record_batch({"at": np.arange(rows)}), (4096,) * 64
    )
    run = write_run(files, "l", 1, "p00000", content)
    hashed = []
    real = sections._checksums

    def counted(rows: Any, starts: Any, numbers: Any) -> Any:
        hashed.extend(numbers)
        return real(rows, starts, numbers)

    monkeypatch.setattr(sections, "_checksums", counted)
    monkeypatch.setattr(sections, "checksum", lambda content: pytest.fail("checked the whole file"))
    reader = RunReader(files)
    for _ in range(2):
        list(reader.slices(run, FULL_RANGE, ("at",), [range(5, 7)]))
    list(reader.slices(run, FULL_RANGE, ("at",), [range(6, 8)], sort=False))
    assert hashed == [5, 6, 7]


def test_every_truncation_of_a_run_with_sections_is_found(files):
    run = write_run(files, "l", 7, "p00000", sectioned())
    path = files.root / run.path
    whole = path.read_bytes()
    for content in (*(whole[:cut] for cut in range(0, len(whole), 61)), whole + b"\0"):
        path.unlink()
        path.write_bytes(content)
        with pytest.raises(CorruptFile, match="is truncated or padded"):
            RunReader(files, BY_SECTION).read(run, FULL_RANGE, ("at",), [range(1)])


def test_a_run_without_checksums_of_sections_is_verified_whole(files):
    run = in_separate_batches(files, sectioned())
    path = files.root / run.path
    for _, content in damaged(path.read_bytes(), 31):
        path.unlink()
        path.write_bytes(content)
        with pytest.raises(CorruptFile, match="is damaged: its checksum does not match"):
            RunReader(files, BY_SECTION).read(run, FULL_RANGE, ("at",), [range(1)])


def test_a_column_that_cannot_be_told_apart_by_row_leaves_the_run_verified_whole(files):
    values = pa.array(["a", "b"] * 10).dictionary_encode()
    content = Sections(sectioned().keys, pa.record_batch({"at": np.arange(20), "d": values}), SIZES)
    run = write_run(files, "l", 7, "p00000", content)
    assert run.frame is None
    assert len(list(RunReader(files).slices(run, FULL_RANGE, ("at", "d")))) == 1
    path = files.root / run.path
    flipped = bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    path.unlink()
    path.write_bytes(bytes(flipped))
    with pytest.raises(CorruptFile, match="its checksum does not match"):
        RunReader(files).read(run, FULL_RANGE, ("at",), [range(1)])


@pytest.mark.parametrize("kind", KINDS)
def test_sections_that_were_slices_have_the_checksums_of_their_copies(files, kind):
    """Merges put together slices of larger runs, whose offsets do not begin at zero."""
    content = sectioned((30, 7, 9), (kind,))
    parts = {number: part.slice(2, len(part)) for number, part in content.parts().items()}
    for kept in (parts, {2: parts[2]}):
        run = write_run(files, "l", 7, "p00000", put_together(kept))
        assert run.frame is not None and run.sections == tuple(
            len(kept[n]) if n in kept else 0 for n in range(3)
        )
        found = RunReader(files, BY_SECTION).read(run, FULL_RANGE, ("at", kind))
        assert {n: part.rows.to_pylist() for n, part in found.items()} == {
            n: part.rows.to_pylist() for n, part in kept.items()
        }
    # Not copied either.
    whole = Sections(content.keys[5:], content.rows.slice(5), (25, 7, 9))
    run = write_run(files, "l", 8, "p00000", whole)
    assert RunReader(files, BY_SECTION).read(run, FULL_RANGE, ("at", kind)).keys() == {0, 1, 2}


def test_the_frame_is_part_of_the_stored_facts_and_rows_have_no_metadata(files):
    run = write_run(files, "l", 7, "p00000", sectioned())
    receipt = Receipt("m", 0, (run,))
    assert decode_checked(Receipt, encode_checked(receipt), "receipt") == receipt
    assert SECTIONS in pa.ipc.open_file(str(files.root / run.path)).schema.metadata
    for part in RunReader(files).read(run, FULL_RANGE, ("at",)).values():
        assert not part.rows.schema.metadata


def test_a_run_without_sections_has_no_frame(files):
    rows = Sorted(np.arange(3, dtype=np.uint64), pa.record_batch({"at": np.arange(3)}))
    assert write_run(files, "l", 7, "p00000", rows).frame is None


def test_two_attempts_over_the_same_sections_write_the_same_file(files):
    first, second = (write_run(files, "l", 0, "p00000", sectioned(kinds=tuple(KINDS))) for _ in range(2))
    assert first == second
    assert len(list(Path(files.root).rglob("*.arrow"))) == 1


# --- Tasks of a grid ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.k - r.k) <= 1", "l.k <> r.k"])
def test_a_damaged_section_fails_the_task_that_reads_it_and_no_other(tmp_path, on):
    """Under (1, 4) each task reads a quarter of the right input, and all of the left one."""
    schema = pa.schema({"k": pa.int64(), "id": pa.int64()})
    join = LocalJoin(
        {"l": schema, "r": schema},
        on=on,
        select=["l.id AS a", "r.id AS b"],
        state=str(tmp_path / "state"),
        tasks=4,
        strategy="grid",
        mapping=(1, 4),
    )

    def rows(count: int, seed: int) -> pa.Table:
        return pa.table([np.random.default_rng(seed).integers(0, 30, count), np.arange(count)], schema=schema)

    join.batch(l=rows(40, 1), r=rows(200, 2))
    batch = BatchId(join.query, join.run, 1)
    descriptors = [life.ingest(join, batch, "l", rows(50, 3))]
    manifest = [join.operator.agree_and_merge(batch, task, descriptors) for task in range(4)][-1]
    files = LocalFiles(tmp_path / "state" / join.name / join.query)

    def results(task: int) -> list[dict[str, Any]]:
        found = join_share(RunReader(files, BY_SECTION), manifest, join.operator.spec, task, Tally())
        return [row for part in found for row in part.to_pylist()]

    whole = [results(task) for task in range(4)]
    assert all(whole)
    (run,) = (run for run in manifest.history if run.input == "r")
    assert run.frame is not None and len(run.sections) == 4
    path, starts = files.root / run.path, np.cumsum((0, *run.sections))
    content = path.read_bytes()
    for damaged_task in range(4):
        flipped = bytearray(content)
        flipped[run.frame.start + 8 * int(starts[damaged_task])] ^= 1
        path.unlink()
        path.write_bytes(bytes(flipped))
        for task in range(4):
            if task == damaged_task:
                with pytest.raises(CorruptFile, match=f"the checksum of section {task} does not match"):
                    results(task)
            else:
                assert results(task) == whole[task]
