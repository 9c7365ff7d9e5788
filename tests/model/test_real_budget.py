"""The budget is real: what a batch makes resident, maps and fetches, measured from outside.

The rows are wide, and each batch has rows of all keys: it reads all of the history that it may.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.life import Clock, newest, start
from watersmeet.local.join import LocalJoin
from watersmeet.log.remote import RemoteFiles
from watersmeet.model.limits import Limits
from watersmeet.schemes.budget.facts import BudgetPlan
from watersmeet.schemes.budget.policy import Pushing

SCHEMA = pa.schema({"k": pa.int64(), "text": pa.string()})
PAGE = mmap.PAGESIZE
KEYS, WIDTH = 4096, 240
LIBC = ctypes.CDLL(None, use_errno=True)
DONTNEED = 4
linux = pytest.mark.skipif(sys.platform != "linux", reason="page tables are those of Linux")


def some(number: int, keys: int = KEYS) -> pa.Table:
    """A row of each key, wide enough for a page every few rows."""
    text = f"{number:0{WIDTH}d}"
    return pa.table([np.arange(keys), [text] * keys], schema=SCHEMA)


def join_of(state: Path | str, **how: Any) -> LocalJoin:
    return start(
        SCHEMA,
        state,
        # The rows of the first input are read too: a result has its text.
        "l.k = r.k AND l.text <= r.text",
        select=["l.k"],
        tasks=1,
        settings={"limits": Limits(min_rewrite_rows=1), **how.pop("settings", {})},
        pushing=Pushing(groups=16),
        clock=Clock(),
        **how,
    )


def run_files(state: Path) -> set[Path]:
    return set(state.glob("join/*/runs/*/*.arrow"))


def drop_pages(state: Path) -> None:
    """Have no page of a run in memory, nor in the page tables of this process. What is read ahead is up to the join."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    for line in maps:
        if str(state) in line and (found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)):
            low, high = int(found[1], 16), int(found[2], 16)
            assert LIBC.madvise(ctypes.c_void_p(low), ctypes.c_size_t(high - low), DONTNEED) == 0
    for path in run_files(state):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(paths: set[Path]) -> int:
    """The bytes of some files that are in memory."""
    pages = 0
    for path in paths:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapped = mmap.mmap(
                file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
            )
            state = (ctypes.c_ubyte * (-(-size // PAGE)))()
            here = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
            assert LIBC.mincore(ctypes.c_void_p(here), ctypes.c_size_t(size), state) == 0
            pages += int((np.frombuffer(bytes(state), np.uint8) & 1).sum())
    return pages * PAGE


def history_read(state: Path, **how: Any) -> tuple[int, int, int]:
    """What the last of some batches made resident of the history, the bytes of all history and of a batch."""
    join = join_of(state, **how)
    for number in range(8):
        before = run_files(state)
        if number == 7:
            drop_pages(state)
            assert resident(before) < 64 * PAGE, "the pages of the history cannot be dropped here"
        join.count(l=some(number), r=some(number))
    own = sum(run.bytes for run in newest(state).fresh)
    return resident(before), sum(path.stat().st_size for path in before), own


@linux
def test_a_batch_makes_no_more_pages_resident_than_its_budget(tmp_path):
    memory = 4 << 20
    found, history, own = history_read(tmp_path / "budget", memory=memory)
    plan = newest(tmp_path / "budget").plan.scheme
    assert isinstance(plan, BudgetPlan) and plan.loads[0].pushed_bytes > memory
    # What is searched for the bounds of groups, and the ends of each: some pages of each run.
    bounds = 16 * 4 * PAGE
    assert found <= memory + own + bounds, f"{found:,} of {history:,} bytes"
    assert found > memory / 4, "the batch read next to nothing: the pages are not counted"
    control, history, own = history_read(tmp_path / "control")
    assert control > 2 * memory + own, f"{control:,} of {history:,} bytes: any join passes this test"


# --- address space ------------------------------------------------------------------------------------------------------

# Most of a run: some state is there before the limit, and then there is room for about as much again.
ROOM = 24 << 20
LIMITED = """
import resource, sys
from pathlib import Path
from tests.model.test_real_budget import ROOM, join_of, some

state, memory = sys.argv[1], sys.argv[2]
join = join_of(state, memory=None if memory == "none" else memory)
for number in range(6):
    join.count(l=some(number), r=some(number))
size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, ((size << 10) + ROOM,) * 2)
for number in range(6, 30):
    join.count(l=some(number), r=some(number))
print("done")
"""


@linux
def test_a_process_without_room_for_the_history_goes_on_with_a_budget_only(tmp_path):
    """Thirty batches of 2 MB: the process may map 24 MB more than it had mapped after the first six."""
    ended = {}
    for memory in ("4 MB", "none"):
        arguments = [sys.executable, "-c", LIMITED, str(tmp_path / memory), memory]
        ended[memory] = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert ended["4 MB"].returncode == 0, ended["4 MB"].stderr[-2000:]
    assert ended["none"].returncode != 0, "there was room for all: any join passes this test"
    assert "emory" in ended["none"].stderr


# --- bytes from an object store -----------------------------------------------------------------------------------------


def test_a_small_cache_fetches_little_of_what_was_pushed(bucket, tmp_path, monkeypatch):
    """Budget and cache are a quarter of the state. Without a budget every batch fetches most of the history.

    A run that was pushed in part is fetched whole, until its active rows have a run of their own.
    """
    fetched: dict[int, int] = {}
    add = RemoteFiles._add

    def counted(self: RemoteFiles, copy: str, size: int, chunks: Callable[[], Iterable[bytes]]) -> pa.Buffer:
        """Runs, and keys of runs."""
        fetched[batch] = fetched.get(batch, 0) + size
        return add(self, copy, size, chunks)

    monkeypatch.setattr(RemoteFiles, "_add", counted)
    batches, keys, last = 24, 512, 6
    state_bytes = batches * 2 * keys * (WIDTH + 20)
    totals = []
    for memory in (state_bytes // 4, None):
        fetched.clear()
        settings = {"cache": str(tmp_path / str(memory)), "cache_bytes": state_bytes // 4}
        join = join_of(f"{bucket}/{memory}", memory=memory, settings=settings)
        for batch in range(batches):
            join.count(l=some(batch, keys), r=some(batch, keys))
        totals.append(sum(size for number, size in fetched.items() if number >= batches - last))
    # 0.12 to 0.15 of the bytes: which copies a full cache drops depends on times.
    assert 3 * totals[0] <= totals[1], f"{totals[0]:,} bytes with a budget, {totals[1]:,} without"
