"""Spark's work for a table before the query starts: write a static DataFrame, and show the progress of sorting."""

from __future__ import annotations

import string
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, cast
from urllib.parse import quote, unquote, urlsplit
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from watersmeet.errors import TableError
from watersmeet.log.codec import checksum
from watersmeet.tables.parquet import DataFile
from watersmeet.tables.places import log_above, place_of
from watersmeet.tables.source import Report, TableProgress, no_report
from watersmeet.tables.spec import Address

# Names for DataFrames that only this process knows. Not `id()`: a later DataFrame may get the same one.
_NAMES: WeakKeyDictionary[DataFrame, str] = WeakKeyDictionary()

# Spark's names for inputs of a plan that cannot change.
_IN_MEMORY = ("LocalRelation", "LogicalRDD", "OneRowRelation", "Range")


class Frames:
    """Static DataFrames as Parquet files."""

    def __init__(self, spark: SparkSession):
        self._spark = spark

    def fingerprint(self, frame: object) -> str:
        """A fingerprint of the plan and of the files that it reads, with their sizes and times of change.

        A DataFrame whose rows are in memory has a name that only this process knows. The fingerprint is new each time
        if the files cannot be examined from here, if rows come from elsewhere, such as a database, if a table with a
        log may delete rows without a change to its files, if the plan is random, and always on Spark Connect, which
        shows no plan. It does not see changes of other sources that are read beside files, or of Python functions.
        """
        given = cast("DataFrame", frame)
        # Select again: a DataFrame's plan keeps the time of its first use.
        java = getattr(given.select("*"), "_jdf", None)
        if java is None:
            return _new()
        query = java.queryExecution()
        uris = sorted(given.inputFiles())
        inputs = _look_at(uris) if uris else _name(given, query.analyzed())
        if inputs is None or not query.analyzed().deterministic():
            return _new()
        # In the optimised plan the current date and time are values, even CAST('today' AS DATE).
        plan = query.optimizedPlan().semanticHash()
        return _checksum(given.schema.simpleString(), plan, inputs)

    def write(self, frame: object, place: str) -> None:
        cast("DataFrame", frame).write.parquet(place)


def _name(frame: DataFrame, plan: Any) -> str | None:
    """A name for a DataFrame whose rows are in memory and do not change; None for others."""
    leaves = plan.collectLeaves()
    if any(leaves.apply(place).nodeName() not in _IN_MEMORY for place in range(leaves.size())):
        return None
    return _NAMES.setdefault(frame, _new())


def _new() -> str:
    return uuid.uuid4().hex


def _checksum(*what: object) -> str:
    return checksum(repr(what).encode())


def _look_at(uris: Sequence[str]) -> list[DataFile] | None:
    """Sizes and times of files by their URIs as Spark writes them; None if they are unavailable or mean nothing."""
    found: list[DataFile] = []
    for _, group in groupby(uris, lambda uri: urlsplit(uri)[:2]):
        some = list(group)
        try:
            # Opened once for all files of a bucket or disk: that may mean asking a server. Spark does not escape
            # letters beyond ASCII, which Arrow does not accept in a URI.
            filesystem, first = place_of(Address(quote(some[0], safe=string.punctuation)))
            root = first.removesuffix(unquote(urlsplit(some[0]).path))
            paths = [root + unquote(urlsplit(uri).path) for uri in some]
            if log_above(filesystem, paths) is not None:
                return None
            infos = filesystem.get_file_info(paths)
        except (TableError, OSError, pa.ArrowException):
            return None
        if not all(info.is_file and info.mtime_ns for info in infos):
            return None
        found += [DataFile(uri, info.size, info.mtime_ns) for uri, info in zip(some, infos, strict=True)]
    return found


@contextmanager
def shown_progress() -> Iterator[Report]:
    """Show a bar on the terminal while a table is sorted; nothing if there is no terminal."""
    if not sys.stderr.isatty():
        yield no_report
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        shown: dict[str, int] = {}

        def report(progress: TableProgress) -> None:
            title = f"{progress.label}: {progress.phase}"
            if title not in shown:
                shown[title] = int(bars.add_task(title, total=progress.rows_in_all))
            bars.update(bars.tasks[shown[title]].id, completed=progress.rows, total=progress.rows_in_all)

        yield report
