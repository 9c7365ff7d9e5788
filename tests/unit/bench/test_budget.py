"""The benchmark of a budget of memory: its limit on memory, its runs, its section."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.budget import section
from bench.budget_run import Run, measure
from bench.report import Finding
from bench.residency import PAGE, STRETCH_BYTES, Residency, resident_pages

FILES, FILE_BYTES = 3, 4 * STRETCH_BYTES


def on_a_disk(path: Path) -> bool:
    """Whether pages of files can be dropped: those of tmpfs cannot."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    under = [(place, kind) for place, kind in mounts if path.resolve().is_relative_to(place)]
    return max(under, key=lambda one: len(one[0]))[1] not in ("tmpfs", "ramfs")


def resident(folder: Path) -> int:
    return sum(sum(byte & 1 for byte in resident_pages(path)) * PAGE for path in folder.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="mincore is of Linux")
def test_what_is_over_the_limit_leaves_memory_also_where_it_is_mapped(tmp_path):
    if not on_a_disk(tmp_path):
        pytest.skip("pages of tmpfs cannot be dropped")
    import pyarrow as pa

    for number in range(FILES):
        (tmp_path / str(number)).write_bytes(bytes(FILE_BYTES))
    mapped = pa.memory_map(str(tmp_path / "0")).read_buffer()
    assert sum(memoryview(mapped)[::PAGE]) == 0 and resident(tmp_path) == FILES * FILE_BYTES
    limit = Residency(tmp_path, 5 * STRETCH_BYTES)
    assert limit.enforce() == FILES * FILE_BYTES
    assert resident(tmp_path) <= 5 * STRETCH_BYTES and limit.dropped_bytes == 7 * STRETCH_BYTES
    assert limit.enforce() <= 5 * STRETCH_BYTES and limit.dropped_bytes == 7 * STRETCH_BYTES
    assert sum(memoryview(mapped)[::PAGE]) == 0, "a dropped page is read again"


@pytest.mark.skipif(sys.platform != "linux", reason="mincore is of Linux")
def test_what_was_unused_for_longest_leaves_memory_and_what_every_batch_uses_stays(tmp_path):
    if not on_a_disk(tmp_path):
        pytest.skip("pages of tmpfs cannot be dropped")
    import pyarrow as pa

    for number in range(FILES):
        (tmp_path / str(number)).write_bytes(bytes(FILE_BYTES))
    used, unused = (memoryview(pa.memory_map(str(tmp_path / name)).read_buffer()) for name in "01")
    limit = Residency(tmp_path, 2 * FILE_BYTES)
    # Half of the first file is used in every batch, the second one only in the second batch.
    half, batches = FILE_BYTES // 2, 5
    for batch in range(batches):
        assert sum(used[:half:PAGE]) == 0
        if batch == 1:
            assert sum(unused[::PAGE]) == 0
        limit.limit_bytes = [4, 3, 2, 1, 1][batch] * FILE_BYTES
        limit.enforce()
        pages = {name: resident_pages(tmp_path / name) for name in "012"}
        here = {name: sum(byte & 1 for byte in mine) * PAGE for name, mine in pages.items()}
        assert sum(byte & 1 for byte in pages["0"][: half // PAGE]) * PAGE == half, "what is used was dropped"
        if batch == 2:
            assert here["1"] == FILE_BYTES and here["2"] < FILE_BYTES, "the older one goes first"
    assert here["0"] + here["1"] + here["2"] <= FILE_BYTES


def test_a_run_has_all_results_and_fewer_with_a_budget(tmp_path):
    whole, bounded = (
        measure(Run(str(tmp_path / str(memory)), 4000, 4, 10, memory)) for memory in (None, 60_000)
    )
    assert whole.results == whole.expected == bounded.expected
    assert 0 < bounded.results < whole.results
    assert whole.state_bytes > 3 * 4000 * 10 and whole.fetched_bytes == 0


def test_the_section_has_every_demand_with_its_verdict():
    findings = [Finding("faster", "<= 0.5x", "0.4x", True), Finding("fewer bytes", "<= 33%", "40%", False)]
    text = section(findings, [("limited", "no budget", "1", "100%", "1.0", "1.0", "1 MB", "")], "2026-01-01")
    assert "| faster | <= 0.5x | 0.4x | met |" in text and "| fewer bytes | <= 33% | 40% | NOT MET |" in text
    assert "Measured 2026-01-01" in text and "| limited | no budget |" in text
