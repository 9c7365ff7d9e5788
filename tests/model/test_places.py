"""Every failpoint is reached: a name that no run comes by would be a place that no crash test covers."""

from __future__ import annotations

import os
import re
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet
from tests import life
from watersmeet import failpoints, table
from watersmeet.file_inputs.file_log import SEEN_EVERY, FileLog
from watersmeet.file_inputs.listing import Directory
from watersmeet.file_inputs.offsets import BEGINNING, FilePart, IntakeLimit, Reread
from watersmeet.file_inputs.stream import FileStream
from watersmeet.file_inputs.taken import read_taken
from watersmeet.local.join import LocalJoin
from watersmeet.log.clean import remove_stale_batches
from watersmeet.log.files import LocalFiles
from watersmeet.log.names import draft_of
from watersmeet.model.limits import Limits
from watersmeet.tables.spec import Address

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})
WEEK_S = 7 * 86_400.0

# Places in a driver of Spark: tests/faults/test_kill_hub.py comes by.
_ON_SPARK = {"answers-delivered"}

# Files that `publish` creates: its points are named after the folder.
_PUBLISHED = (
    "start",
    "descriptor",
    "statistic",
    "base",
    "manifest",
    "receipt",
    "table",
    "intake",
    "seen",
    "reread",
)


def test_the_list_of_names_is_complete():
    source = "".join(path.read_text() for path in Path(watersmeet.__file__).parent.rglob("*.py"))
    found = set(re.findall(r'reach\("([a-z-]+)"\)', source))
    templates = set(re.findall(r'reach\((?:half := )?f"\{kind\}-([a-z-]+)"\)', source))
    assert templates == {"half-written", "linked"}
    found |= {f"{kind}-{template}" for kind in _PUBLISHED for template in templates}
    assert found == set(failpoints.NAMES)


@pytest.fixture
def reached(monkeypatch):
    """The names that were reached, and what to do when one is reached first."""
    seen: dict[str, object] = {}

    def reach(name: str) -> bool:
        first, seen[name] = seen.get(name), True
        if callable(first):
            first()
        return False

    monkeypatch.setattr(failpoints, "reach", reach)
    return seen


def rows(seed: int, count: int = 20) -> pa.Table:
    return pa.table({"k": [(seed + n) % 7 for n in range(count)], "x": range(count)}, schema=SCHEMA)


def join(place, how=SCHEMA, **more) -> LocalJoin:
    settings = {
        "grace_s": -1.0,
        "retain_batches": 1,
        "cache": more.pop("cache", None),
        "limits": Limits(
            fan_in=2,
            clean_every_batches=2,
            output_rows=5,
            least_base_runs=2,
            inline_values=0,
            inline_descriptor_bytes=0,
        ),
    }
    return life.start({"l": SCHEMA, "r": how}, place, select=["l.x"], settings=settings, **more)


def test_every_named_place_is_reached(tmp_path, bucket, reached):
    _live_and_restart(tmp_path / "streams")
    _lose_a_race(tmp_path / "race", reached)
    _prepare_and_drop_tables(tmp_path / "tables")
    _forget_batch_joins(tmp_path / "batches")
    _take_files(tmp_path / "files")
    _use_a_bucket(tmp_path / "cache", bucket)
    for number, folder in enumerate((str(tmp_path / "late"), f"{bucket}/late")):
        settled = join(tmp_path / f"settled-{number}")
        settled.batch(l=rows(0), r=rows(1))
        settled.settle(folder)
    assert set(reached) | _ON_SPARK == set(failpoints.NAMES)


def _live_and_restart(place: Path) -> None:
    running = join(place)
    for number in range(6):
        running.batch(l=rows(number), r=rows(number + 1))
    newest = max((life.files_of(place).root / "manifests").iterdir())
    newest.with_name(draft_of(newest.name, uuid.uuid4().hex)).touch()
    running = life.restarted(running)
    for number in range(6):
        running.batch(l=rows(number), r=rows(number + 1))


def _lose_a_race(place: Path, reached: dict[str, object]) -> None:
    one, other = join(place, run="a"), join(place, run="a")
    reached["manifest-before-write"] = lambda: other.batch(l=rows(0))
    one.batch(l=rows(0))


def _prepare_and_drop_tables(place: Path) -> None:
    place.mkdir()
    products = place / "products.parquet"
    later = {"clock": lambda: time.time() + WEEK_S}
    for number in range(2):
        pq.write_table(rows(number, 30 + number), products)
        running = join(
            place / "state", table(products, key="k", page_rows=4, in_place=False), name=f"j{number}", **later
        )
        running.batch(l=rows(0))
    # The second table's folder has a file that a killed preparation left; the first table's query is gone.
    used = running.operator.spec.table
    assert used is not None
    orphan = place / "state" / used.given.folder / f"part-00009-{'0' * 16}.arrows"
    orphan.touch()
    os.utime(orphan, (1, 1))
    LocalFiles(place / "state").delete_folder("j0")
    running = life.restarted(running)
    for _ in range(3):
        running.batch(l=rows(0))
    life.forget()


def _forget_batch_joins(place: Path) -> None:
    old = place / "batch-1" / "manifests" / "x"
    old.parent.mkdir(parents=True)
    old.touch()
    assert remove_stale_batches(LocalFiles(place), time.time() + WEEK_S) == 1


def _take_files(place: Path) -> None:
    (place / "in").mkdir(parents=True)
    stream = FileStream(
        Directory(Address(str(place / "in")), time.time), LocalFiles(place / "state"), time.time, retain=0
    )
    offset = BEGINNING
    for number in range(2 * SEEN_EVERY):
        (place / "in" / f"{number:04d}").write_text("x")
        before, offset = offset, stream.latest(offset, IntakeLimit())
        stream.commit(offset)
    parts = [FilePart(file) for file in stream.between(before, offset)]
    FileLog(LocalFiles(place / "state"), str(offset.log)).record(Reread(parts[0].file, parts[0].file))
    assert not list(
        read_taken(Address(str(place / "in")), parts, lambda place, part: iter(()), lambda part, was: True)
    )


def _use_a_bucket(cache: Path, bucket: str) -> None:
    running = join(f"{bucket}/state", cache=str(cache / "one"))
    running.batch(l=rows(0))
    life.forget()
    join(f"{bucket}/state", cache=str(cache / "two"), number=1).batch(r=rows(0))
    life.forget()
