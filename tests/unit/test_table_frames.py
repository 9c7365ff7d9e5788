"""How a static DataFrame is known again: by what its files look like, without Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from watersmeet.spark.table_frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def frame(*uris: str, plan: int = 7) -> SimpleNamespace:
    """What a DataFrame says of itself."""
    return SimpleNamespace(
        inputFiles=lambda: list(uris),
        semanticHash=lambda: plan,
        schema=SimpleNamespace(simpleString=lambda: "struct<id:int>"),
    )


def fingerprint(*uris: str, plan: int = 7) -> str:
    return Frames(cast("SparkSession", None)).fingerprint(frame(*uris, plan=plan))


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
    known = files[0].as_uri()
    assert fingerprint(known) == fingerprint(known)
    assert fingerprint(known, uri) != fingerprint(known, uri)
