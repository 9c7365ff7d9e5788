"""What Spark does for a table before the query starts: write a static DataFrame, and show how far the rest is."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from watersmeet.log.codec import checksum
from watersmeet.tables.source import Progress, Report, no_report

# Names for DataFrames that only this process knows. Not by `id()`: the next one may get that of one that is gone.
_NAMES: WeakKeyDictionary[DataFrame, str] = WeakKeyDictionary()


class Frames:
    """Static DataFrames as Parquet files."""

    def __init__(self, spark: SparkSession):
        self._spark = spark

    def fingerprint(self, frame: object) -> str:
        """By its columns and the files that it is read from; one that is read from none is known to this process only.

        Not seen: files that are changed under the same name, and filters on them.
        """
        given = cast("DataFrame", frame)
        files = sorted(given.inputFiles())
        plan = given.semanticHash() if files else _NAMES.setdefault(given, uuid.uuid4().hex)
        return checksum(repr((given.schema.simpleString(), files, plan)).encode())

    def write(self, frame: object, place: str) -> None:
        cast("DataFrame", frame).write.parquet(place)


@contextmanager
def shown_progress() -> Iterator[Report]:
    """A bar on the terminal while a table is brought into order; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield no_report
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        shown: dict[str, int] = {}

        def report(progress: Progress) -> None:
            title = f"{progress.label}: {progress.stage}"
            if title not in shown:
                shown[title] = int(bars.add_task(title, total=progress.rows_in_all))
            bars.update(bars.tasks[shown[title]].id, completed=progress.rows, total=progress.rows_in_all)

        yield report
