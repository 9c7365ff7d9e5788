"""How a static DataFrame is known again: by what its files look like, without Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyarrow import fs

from watersmeet.spark.table_frames import Frames
from watersmeet.tables.places import log_above

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Frame:
    """What a DataFrame says of itself. Like one, it can be a key."""

    def __init__(self, **said: object) -> None:
        self.__dict__.update(said)


def frame(
    *uris: str, plan: int = 7, certain: bool = True, connect: bool = False, leaves: Sequence[str] = ()
) -> Frame:
    """`certain`: it gives the same rows each time; `leaves`: what its plan reads."""
    named = SimpleNamespace(
        size=lambda: len(leaves), apply=lambda place: SimpleNamespace(nodeName=lambda: leaves[place])
    )
    query = SimpleNamespace(
        analyzed=lambda: SimpleNamespace(deterministic=lambda: certain, collectLeaves=lambda: named),
        optimizedPlan=lambda: SimpleNamespace(semanticHash=lambda: plan),
    )
    java = {} if connect else {"_jdf": SimpleNamespace(queryExecution=lambda: query)}
    return Frame(
        inputFiles=lambda: list(uris),
        select=lambda _: SimpleNamespace(**java),
        schema=SimpleNamespace(simpleString=lambda: "struct<id:int>"),
    )


def known(given: Frame) -> str:
    return Frames(cast("SparkSession", None)).fingerprint(given)


def fingerprint(*uris: str, **how) -> str:
    return known(frame(*uris, **how))


@pytest.fixture
def files(tmp_path: Path) -> Sequence[Path]:
    found = [tmp_path / f"{name} %#é.csv" for name in "ab"]
    for file in found:
        file.write_text("1,2")
    return found


def test_the_same_files_are_known_again_whatever_their_order(files):
    one, two = (file.as_uri() for file in files)
    assert fingerprint(one, two) == fingerprint(two, one)
    assert len({fingerprint(one), fingerprint(two), fingerprint(one, two), fingerprint(one, plan=8)}) == 4


def test_letters_beyond_ascii_are_as_spark_writes_them(files):
    plain = [file.as_uri().replace("%C3%A9", "é") for file in files]
    assert all(uri.endswith("%20%25%23é.csv") for uri in plain)
    assert fingerprint(*plain) == fingerprint(*plain)


@pytest.mark.parametrize("place", [0, 1])
def test_a_file_that_changes_under_its_name_is_seen(files, place):
    uris = [file.as_uri() for file in files]
    before = fingerprint(*uris)
    stat = files[place].stat()
    files[place].write_text("1,2,3")
    os.utime(files[place], ns=(stat.st_atime_ns, stat.st_mtime_ns))
    larger = fingerprint(*uris)
    os.utime(files[place], ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))
    assert len({before, larger, fingerprint(*uris)}) == 3


@pytest.mark.parametrize("uri", ["mars://x/y.csv", "file:///not/there.csv"])
def test_files_that_cannot_be_looked_at_are_new_each_time(files, uri):
    here = files[0].as_uri()
    assert fingerprint(here) == fingerprint(here)
    assert fingerprint(here, uri) != fingerprint(here, uri)


@pytest.mark.parametrize("how", [{"certain": False}, {"connect": True}], ids=["uncertain", "Spark Connect"])
def test_a_plan_of_which_it_is_not_known_that_it_gives_the_same_is_new_each_time(files, how):
    here = files[0].as_uri()
    assert fingerprint(here, **how) != fingerprint(here, **how)


@pytest.mark.parametrize(
    "leaves, again",
    [(["Range", "LocalRelation"], True), (["Range", "Relation"], False)],
    ids=["memory", "database"],
)
def test_one_that_reads_no_file_is_known_again_only_if_its_rows_are_in_memory(leaves, again):
    kept = frame(leaves=leaves)
    assert (known(kept) == known(kept)) == again
    assert known(kept) != known(frame(leaves=leaves))


class Bucket:
    """A file system that counts its requests; `logs` are the folders with a log."""

    def __init__(self, *logs: str) -> None:
        self.logs, self.requests = logs, 0

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        self.requests += 1
        found = {f"{folder}/_delta_log" for folder in self.logs}
        kinds = {True: fs.FileType.Directory, False: fs.FileType.NotFound}
        return [fs.FileInfo(path, kinds[path in found]) for path in paths]


PARTITIONED = [
    f"bucket/lake/t/day={day}/hour={hour}/part-0.parquet" for day in range(100) for hour in range(24)
]


def test_the_log_above_many_partitions_costs_a_handful_of_requests():
    bucket = Bucket()
    assert log_above(bucket, PARTITIONED) is None
    assert bucket.requests < 20


@pytest.mark.parametrize(
    "table, files",
    [
        ("bucket/lake/t", PARTITIONED),
        ("bucket/lake/region=eu/t", ["bucket/lake/region=eu/t/day=1/a.parquet"]),
        ("bucket/lake/region=eu", ["bucket/lake/region=eu/a.parquet"]),
        ("bucket/lake/region=eu", [f"bucket/lake/region=eu/day={day}/a.parquet" for day in range(99)]),
        ("bucket/lake/t", ["bucket/lake/plain/a.parquet", "bucket/lake/t/ab/a.parquet"]),
    ],
    ids=["partitions", "below a partition", "a partition", "partitions of a partition", "one of two tables"],
)
def test_the_log_above_files_is_found(table, files):
    found = log_above(Bucket(table), files)
    assert found is not None and found.table == table


@pytest.mark.parametrize("log", ["_delta_log/0.json", ".hoodie/hoodie.properties"])
def test_a_table_with_a_log_is_new_each_time(tmp_path, log):
    """Such a table may delete rows without touching a file that it is read from."""
    here = tmp_path / "t" / "day=1" / "a.parquet"
    here.parent.mkdir(parents=True)
    here.write_text("x")
    assert fingerprint(here.as_uri()) == fingerprint(here.as_uri())
    (tmp_path / "t" / log).parent.mkdir()
    (tmp_path / "t" / log).write_text("{}")
    assert fingerprint(here.as_uri()) != fingerprint(here.as_uri())
