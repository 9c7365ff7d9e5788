"""Hand the answers of a hub out: a folder for each query, and one query read back with its own columns.

    place/answers/query=ID/batch=N     oldest, newest, answer (JSON)
    place/events/batch=N               query, event, message

A batch replaces its own folders (`partitionOverwriteMode=dynamic`), so one that Spark repeats appears once. Folders that
an earlier attempt wrote and a later one does not write again would stay. That cannot happen: a replayed batch has the
catalogue and the rows of its first attempt, so its answers are the same.

The answers of a batch are kept in memory and on disk while they are written, since there are two writes: each of them
would run the join again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from watersmeet.engine.hub_status import HubState
from watersmeet.errors import UsageError
from watersmeet.hubs.answers import ANSWER
from watersmeet.hubs.catalogue import folder_of
from watersmeet.hubs.language import Template
from watersmeet.spark.frames import quoted

# Formats of files that keep a text as it is.
FORMATS: Final = ("parquet", "orc", "json")

# What stands before the columns of a query.
_BESIDE: Final = ("batch", "oldest", "newest")
_STORED: Final = "oldest timestamp, newest timestamp, answer string, batch bigint"


def check_format(format: str) -> None:
    if format.lower() not in FORMATS:
        raise UsageError(f"answers cannot be delivered as {format!r}: use {', '.join(FORMATS)}")


@dataclass(frozen=True)
class HubDelivery:
    """Writes a batch of answers and events, in `tasks` tasks. Spark Connect pickles it to the server."""

    place: str
    format: str = "parquet"
    tasks: int = 1

    def __post_init__(self) -> None:
        check_format(self.format)

    def __call__(self, frame: DataFrame, number: int) -> None:
        kept = frame.persist()
        try:
            answers = kept.where(F.col("event") == ANSWER)
            self._write(
                answers.select("query", "batch", "oldest", "newest", "answer").repartition(
                    self.tasks, "query"
                ),
                "answers",
                "query",
                "batch",
            )
            events = kept.where(F.col("event") != ANSWER)
            self._write(events.select("query", "event", "message", "batch").coalesce(1), "events", "batch")
        finally:
            kept.unpersist()

    def _write(self, rows: DataFrame, folder: str, *by: str) -> None:
        (
            rows.write.format(self.format)
            .partitionBy(*by)
            .mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .save(f"{self.place.rstrip('/')}/{folder}")
        )


def read_answers(
    found: HubState, spark: SparkSession, id_: str, place: str, sql: str | None, format: str
) -> DataFrame:
    """The delivered answers of one query, in its own columns; see `Hub.read`."""
    check_format(format)
    live = found.find(id_)
    if live is None and sql is None:
        raise UsageError(
            f"there is no query {id_!r} in the hub {found.name}. If it was removed, give its text as sql="
        )
    rows = _delivered(spark, f"{place.rstrip('/')}/answers/{folder_of(id_)}", format)
    if live is not None:
        # An id may have been added again: older answers are of another text.
        of_live = sql is None or sql.strip() == live.sql
        rows = rows.where((F.col("batch") > live.since) if of_live else (F.col("batch") <= live.since))
    text = live.sql if sql is None and live is not None else sql or ""
    template = found.reader().read(text).template
    return _typed(rows, template, found)


def _delivered(spark: SparkSession, folder: str, format: str) -> DataFrame:
    """The stored rows of a folder; none if no batch has written it yet.

    Only this folder is listed, not those of all queries. Its name never becomes a value, so that an id such as 007 stays
    a text.
    """
    try:
        rows = spark.read.format(format).schema(_STORED).load(folder)
        # On Spark Connect the folder is looked at when the columns are asked for.
        _ = rows.columns
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], _STORED)
    return rows


def _typed(rows: DataFrame, template: Template, found: HubState) -> DataFrame:
    schemas = found.schemas
    fields = [
        StructField(item.name, DataType.fromDDL(str(schemas[template.streams[item.input]][item.column])))
        for item in template.items
    ]
    own = {field.name.lower() for field in fields}
    shown = rows.select(*_BESIDE, F.from_json(F.col("answer"), StructType(fields)).alias("answer"))
    return shown.select(
        *(F.col(name).alias(f"_{name}" if name in own else name) for name in _BESIDE),
        *(F.col(f"answer.{quoted(field.name)}").alias(field.name) for field in fields),
    )
