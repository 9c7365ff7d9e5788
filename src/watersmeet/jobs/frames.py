"""A job's inputs, join and sink as Spark objects. Errors of Spark name the table of the job file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import watersmeet
from watersmeet.engine.options import AUTO, JoinOptions
from watersmeet.errors import ConfigError, FileError, TableError, UsageError
from watersmeet.file_inputs.spec import FileInput
from watersmeet.jobs.failure import plain_message
from watersmeet.jobs.model import AvailableNow, Every, HubJob, Job, Sink, Source, TableSource
from watersmeet.jobs.progress import METRIC, ROWS_OUT
from watersmeet.jobs.secrets import expand, expand_all
from watersmeet.spark.file_frames import OpenInputs, open_file_inputs
from watersmeet.spark.heartbeat import NO_AVAILABLE_NOW, beat_source
from watersmeet.spark.operator import PlannedJoin, join_planned, plan_join
from watersmeet.tables.spec import PATIENCE_S, Table

# Formats whose files hold their columns and types. A stream of them takes the schema of the present files.
_SELF_DESCRIBING = ("parquet", "orc", "avro")


def read_inputs(spark: SparkSession, job: Job, env: Mapping[str, str]) -> OpenInputs:
    frames: dict[str, DataFrame | Table | FileInput] = {}
    for source in job.inputs:
        with complaints(f"{job.file.name}: [inputs.{source.name}]"):
            if isinstance(source, TableSource):
                frames[source.name] = _table(source, env)
                continue
            options = expand_all(source.options, env, source.name)
            read = _files(source, options) if source.native else _read(spark, source, options)
            frames[source.name] = read
    with complaints(f"{job.file.name}: [inputs]"):
        return open_file_inputs(frames)


def read_streams(spark: SparkSession, job: HubJob, env: Mapping[str, str]) -> dict[str, DataFrame]:
    """The streams of a hub."""
    frames: dict[str, DataFrame] = {}
    for source in job.inputs:
        with complaints(f"{job.file.name}: [inputs.{source.name}]"):
            frames[source.name] = _read(spark, source, expand_all(source.options, env, source.name))
    return frames


def _files(source: Source, options: dict[str, str]) -> FileInput:
    most_files, most_bytes = options.get("maxFilesPerTrigger"), options.get("maxBytesPerTrigger")
    return watersmeet.files(
        source.path or "",
        source.format,
        schema=source.schema,
        columns=source.columns or None,
        where=source.where,
        max_files_per_batch=_whole("maxFilesPerTrigger", most_files),
        max_bytes_per_batch=_whole("maxBytesPerTrigger", most_bytes),
        order=options.get("order", "name"),
        header=_truth(options.get("header")),
        name=source.name,
        stream=True,
        moved_from=options.get("movedFrom"),
    )


def _whole(option: str, text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        raise ConfigError(f"option {option} must be a whole number, not {text!r}")
    return None if text is None else int(text)


def _truth(text: str | None) -> bool | None:
    if text is not None and text.lower() not in ("true", "false"):
        raise ConfigError(f"option header must be true or false, not {text!r}")
    return None if text is None else text.lower() == "true"


def _table(source: TableSource, env: Mapping[str, str]) -> Table:
    return watersmeet.table(
        expand(source.place.text, env, source.name),
        key=source.keys,
        table=source.table,
        refresh=source.refresh,
        in_place=source.in_place,
        page_rows=source.page_rows,
        page_bytes=source.page_bytes,
        patience=PATIENCE_S if source.patience is None else source.patience,
        name=source.name,
    )


def _read(spark: SparkSession, source: Source, options: dict[str, str]) -> DataFrame:
    reader = spark.readStream.format(source.format).options(**options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    elif source.format.lower() in _SELF_DESCRIBING:
        reader = reader.schema(_schema_of_files(spark, source, options))
    frame = reader.load(source.path) if source.path else reader.load()
    if source.where is not None:
        frame = frame.where(source.where)
    return frame.selectExpr(*source.columns) if source.columns else frame


def _schema_of_files(spark: SparkSession, source: Source, options: dict[str, str]) -> StructType:
    try:
        return spark.read.format(source.format).options(**options).load(source.path).schema
    except PySparkException as error:
        raise ConfigError(
            f"the columns of {source.path} cannot be read from its files ({plain_message(error)}): "
            'add them, such as schema = "id BIGINT, price DOUBLE"'
        ) from error


def join_job(job: Job, inputs: OpenInputs) -> tuple[PlannedJoin, DataFrame]:
    """The join of a job, planned and as a DataFrame."""
    with complaints(f"{job.file.name}: [join]"):
        plan = plan_join(inputs, _with_trigger(job))
        return plan, join_planned(plan)


def _with_trigger(job: Job) -> JoinOptions:
    """The join as the job asks for it, with its own trigger interval as what `defer = "auto"` stands for."""
    if job.join.defer != AUTO or not isinstance(job.trigger, Every) or job.trigger == Every():
        return job.join
    return replace(job.join, defer=job.trigger.interval)


def start_query(job: Job, joined: DataFrame, env: Mapping[str, str]) -> StreamingQuery:
    if isinstance(job.trigger, AvailableNow) and job.beats and beat_source() is None:
        raise ConfigError(f"{job.file.name}: [job]: {NO_AVAILABLE_NOW}")
    counted = joined.observe(METRIC, F.count(F.lit(1)).alias(ROWS_OUT))
    return start_writing(counted, job, job.sink, env)


def start_writing(
    counted: DataFrame, job: Job | HubJob, sink: Sink, env: Mapping[str, str]
) -> StreamingQuery:
    """Start the query of a job whose results go to a sink of Spark."""
    writer = triggered(counted, job).format(sink.format).outputMode("append")
    writer = writer.options(**expand_all(sink.options, env, "sink"))
    with complaints(f"{job.file.name}: [sink]"):
        return writer.start(sink.path) if sink.path else writer.start()


def triggered(counted: DataFrame, job: Job | HubJob) -> DataStreamWriter:
    """The writer of a job, with its name, checkpoint and trigger."""
    writer = counted.writeStream.queryName(job.name).option("checkpointLocation", job.checkpoint)
    if isinstance(job.trigger, AvailableNow):
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=job.trigger.interval)


@contextlib.contextmanager
def complaints(where: str) -> Iterator[None]:
    """Prefix an error with the part of the job file that caused it."""
    try:
        yield
    except (PySparkException, Py4JJavaError, UsageError, TableError, FileError) as error:
        raise ConfigError(f"{where}: {plain_message(error)}") from error
