"""Hand the answers of a hub out: a folder for each query, and one query read back with its own columns.

    place/answers/query=ID/batch=N     oldest, newest, answer (JSON), text (a number)
    place/events/batch=N               query, event, message
    place/query-id                     the id of the Spark query that delivers here

A batch replaces its own folders (`partitionOverwriteMode=dynamic`), so one that Spark repeats appears once. Folders that
an earlier attempt wrote and a later one does not write again would stay. That cannot happen: a replayed batch has the
catalogue and the rows of its first attempt, so its answers are the same.

A new checkpoint counts its batches from 0 again, so what an earlier query delivered would stay beside the new answers.
So a place belongs to the first query that delivers there, and another one is refused. Spark's writers cannot create a
file only if it is absent: two queries that start at the same moment may both write their id, and then both are refused.

The answers of a batch are kept in memory and on disk while they are written, since there are two writes: each of them
would run the join again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from watersmeet import failpoints
from watersmeet.credentials import hide
from watersmeet.engine.hub_status import HubState
from watersmeet.errors import UsageError
from watersmeet.hubs.answers import ANSWER
from watersmeet.hubs.catalogue import folder_of, text_numbers
from watersmeet.hubs.language import Template
from watersmeet.hubs.templates import TemplateReader
from watersmeet.spark.foreach_batch import query_id
from watersmeet.spark.frames import quoted

# Formats of files that keep a text as it is.
FORMATS: Final = ("parquet", "orc", "json")
# In JSON a timestamp is a text, which Spark cuts to milliseconds. In UTC, as offsets of old times have seconds.
_EXACT: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}

# What stands before the columns of a query.
_BESIDE: Final = ("batch", "oldest", "newest")
_STORED: Final = "oldest timestamp, newest timestamp, answer string, text bigint, batch bigint"

# The place's own file, which names its query.
_OWNER: Final = "query-id"


def check_format(format: str) -> None:
    if format.lower() not in FORMATS:
        raise UsageError(f"answers cannot be delivered as {format!r}: use {', '.join(FORMATS)}")


@dataclass
class HubDelivery:
    """Writes a batch of answers and events, in `tasks` tasks. Spark Connect pickles it to the server."""

    place: str
    format: str = "parquet"
    tasks: int = 1
    # The query that the place is known to belong to.
    _known: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_format(self.format)

    def __call__(self, frame: DataFrame, number: int) -> None:
        self._claim(frame.sparkSession)
        kept = frame.persist()
        try:
            answers = kept.where(F.col("event") == ANSWER)
            self._write(
                answers.select("query", "batch", "oldest", "newest", "answer", "text").repartition(
                    self.tasks, "query"
                ),
                "answers",
                "query",
                "batch",
            )
            failpoints.reach("answers-delivered")
            events = kept.where(F.col("event") != ANSWER)
            self._write(events.select("query", "event", "message", "batch").coalesce(1), "events", "batch")
        finally:
            kept.unpersist()

    def _claim(self, spark: SparkSession) -> None:
        """Refuse a place that another query delivers to. Spark names no query in a thread of the user's."""
        mine = query_id(spark)
        if mine is None or mine == self._known:
            return
        owners = self._owners(spark)
        if not owners:
            spark.createDataFrame([(mine,)], "value string").coalesce(1).write.mode("append").text(
                self._owner
            )
            owners = self._owners(spark)
        others = sorted(owners - {mine})
        if others:
            raise UsageError(
                f"{hide(self.place)} has the answers of another query, {others[0]}. This one is {mine}: with a new checkpoint "
                "the numbers of batches begin again, and old and new answers would be mixed. Deliver to a new folder"
            )
        self._known = mine

    def _owners(self, spark: SparkSession) -> set[str]:
        found = _read_if_there(spark, self._owner, "text", "value string")
        return set() if found is None else {row.value for row in found.collect()}

    @property
    def _owner(self) -> str:
        return f"{self.place.rstrip('/')}/{_OWNER}"

    def _write(self, rows: DataFrame, folder: str, *by: str) -> None:
        (
            rows.write.format(self.format)
            .options(**_EXACT)
            .partitionBy(*by)
            .mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .save(f"{self.place.rstrip('/')}/{folder}")
        )


def read_answers(
    found: HubState,
    reader: TemplateReader,
    spark: SparkSession,
    id_: str,
    place: str,
    sql: str | None,
    format: str,
) -> DataFrame:
    """The delivered answers of one query, in its own columns; see `Hub.read`."""
    check_format(format)
    live = found.find(id_)
    if live is None and sql is None:
        raise UsageError(
            f"there is no query {id_!r} in the hub {found.name}. If it was removed, give its text as sql="
        )
    rows = _delivered(spark, place.rstrip("/"), id_, format)
    text = live.sql if sql is None and live is not None else (sql or "").strip()
    # An id may have been added again with another text.
    rows = rows.where(F.col("text") == text_numbers(pa.array([text]))[0].as_py())
    template = reader.read(text).template
    return _typed(rows, template, found)


def _delivered(spark: SparkSession, place: str, id_: str, format: str) -> DataFrame:
    """The stored rows of a query; none if no batch has answered it yet.

    Only its folder is listed, not those of all queries. Its name never becomes a value, so that an id such as 007 stays
    a text.
    """
    rows = _read_if_there(spark, f"{place}/answers/{folder_of(id_)}", format, _STORED)
    if rows is not None:
        return rows
    # An owner is not known of each delivery, but each batch makes the folder.
    if all(
        _read_if_there(spark, f"{place}/{part}", "text", "value string") is None
        for part in (_OWNER, "answers")
    ):
        raise UsageError(
            f"nothing was delivered to {hide(place)}: give the place that deliver() got, once a batch has run"
        )
    return spark.createDataFrame([], _STORED)


def _read_if_there(spark: SparkSession, folder: str, format: str, schema: str) -> DataFrame | None:
    """The rows of a folder; None if there is none."""
    try:
        rows = spark.read.format(format).schema(schema).options(**_EXACT).load(folder)
        # On Spark Connect the folder is looked at when the columns are asked for.
        _ = rows.columns
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    return rows


def _typed(rows: DataFrame, template: Template, found: HubState) -> DataFrame:
    schemas = found.schemas
    fields = [
        StructField(item.name, DataType.fromDDL(str(item.type_of(lambda at: schemas[template.streams[at]]))))
        for item in template.items
    ]
    own = {field.name.lower() for field in fields}
    shown = rows.select(*_BESIDE, F.from_json(F.col("answer"), StructType(fields)).alias("answer"))
    return shown.select(
        *(F.col(name).alias(f"_{name}" if name in own else name) for name in _BESIDE),
        *(F.col(f"answer.{quoted(field.name)}").alias(field.name) for field in fields),
    )
