"""File inputs beside DataFrames: opened when a join is made, and turned into DataFrames as the join needs them.

A `FileFrame` has what the join asks of a DataFrame: a schema, a session, and whether it streams. Its rows become a
DataFrame only where Spark must compute something of them. Otherwise they go straight into the state, and what Spark
sees is the descriptors (`spark/file_source.py`).

A file input streams if the DataFrames of the join do, and alone. `stream=` says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from watersmeet.config import read_sql_settings, read_tasks, session_conf
from watersmeet.engine.file_way import FileWay
from watersmeet.engine.spec import JoinSpec, Settings
from watersmeet.errors import FileError, UsageError
from watersmeet.file_inputs.listing import Directory
from watersmeet.file_inputs.offsets import IntakeLimit, ListedFile, pending_files, share_files
from watersmeet.file_inputs.place import Place
from watersmeet.file_inputs.read import check_text_types
from watersmeet.file_inputs.schema import schema_of_file
from watersmeet.file_inputs.spec import FileInput, FileOrder
from watersmeet.file_inputs.stream import StreamSpec
from watersmeet.file_inputs.where import Filter, parse_where
from watersmeet.predicate import normal_zone
from watersmeet.spark.file_task import FileTask
from watersmeet.spark.tasks import DESCRIPTOR_SCHEMA
from watersmeet.tables.spec import Table

# Sessions that know our source. Spark warns if a source is registered twice.
_READY: WeakSet[SparkSession] = WeakSet()


@dataclass(frozen=True)
class FileFrame:
    """A file input of a join that is being made. The names of `sparkSession` and `isStreaming` are those of DataFrames.

    `files_schema` are the columns of the files in canonical types, `columns` those that the user wants.
    """

    given: FileInput
    files_schema: pa.Schema
    columns: tuple[str, ...]
    where: Filter | None
    zone: str
    ansi: bool
    sparkSession: SparkSession  # noqa: N815
    isStreaming: bool  # noqa: N815
    schema: StructType = field(init=False)

    def __post_init__(self) -> None:
        fields = [self.files_schema.field(column) for column in self.columns]
        object.__setattr__(self, "schema", from_arrow_schema(pa.schema(fields)))

    def descriptors(self, spec: JoinSpec, way: FileWay) -> DataFrame:
        """Store the rows of each batch and return their descriptors."""
        task = replace(self._task(way.columns), spec=spec, arriving=way.arriving)
        return self._load(task, DESCRIPTOR_SCHEMA, spec.settings)

    def rows(self, columns: Sequence[str], spec: JoinSpec | None) -> DataFrame:
        """The rows as a DataFrame. `spec` is the join that stores them; a batch join by Spark alone has none."""
        task = replace(self._task(tuple(columns)), spec=spec)
        return self._load(task, self._fields(task.columns), spec.settings if spec is not None else None)

    def _fields(self, columns: Sequence[str]) -> StructType:
        return StructType([self.schema[column] for column in columns])

    def _task(self, columns: tuple[str, ...]) -> FileTask:
        # Spark asks for times in UTC.
        rows = to_arrow_schema(self._fields(columns), timezone="UTC")
        return FileTask(self.given, self.files_schema, columns, self.where, self.zone, rows)

    def _load(self, task: FileTask, schema: StructType | str, settings: Settings | None) -> DataFrame:
        source, spark = _source(), self.sparkSession
        if spark not in _READY:
            spark.dataSource.register(source.FileSource)
            _READY.add(spark)
        given, splits = self.given, self.given.format.splits
        if not self.isStreaming:
            tasks = settings.tasks if settings is not None else read_tasks(session_conf(spark), None)
            options = source.options_of(
                task.encode(), None, share_files(_list_all(given), tasks, splits=splits)
            )
            return spark.read.format(source.NAME).schema(schema).options(**options).load()
        assert settings is not None, "a stream is joined by an operator, which has a state"
        limit = IntakeLimit(given.max_files_per_batch, given.max_bytes_per_batch)
        stream = StreamSpec(
            given.address,
            settings.storage,
            limit,
            given.order is FileOrder.TIME,
            settings.tasks,
            splits,
            settings.retain_batches,
            given.moved_from,
        )
        options = source.options_of(task.encode(), stream, None)
        return spark.readStream.format(source.NAME).schema(schema).options(**options).load()


def _list_all(given: FileInput) -> list[ListedFile]:
    """All files of the directory, in the order in which they are taken."""
    found = Directory(given.address, time.time).new_files(())
    return pending_files(found or (), (), by_time=given.order is FileOrder.TIME)


# The inputs of a join, once file inputs are opened.
OpenInputs = Mapping[str, DataFrame | Table | FileFrame]


def _source() -> Any:
    try:
        from watersmeet.spark import file_source
    except ImportError:
        raise UsageError(
            "wm.files needs Spark 4.2 or newer: read the directory as a DataFrame, with spark.readStream"
        ) from None
    return file_source


def open_file_inputs(inputs: Mapping[str, DataFrame | Table | FileInput | FileFrame]) -> OpenInputs:
    """The inputs with each `wm.files` opened: its columns are known, and whether it streams."""
    if not isinstance(inputs, Mapping) or not any(isinstance(one, FileInput) for one in inputs.values()):
        return cast("OpenInputs", inputs)
    frames = [
        one
        for one in inputs.values()
        if not isinstance(one, (FileInput, Table)) and hasattr(one, "isStreaming")
    ]
    spark = frames[0].sparkSession if frames else _session()
    streams = bool(frames[0].isStreaming) if frames else None
    return {
        name: _open(name, one, spark, streams) if isinstance(one, FileInput) else one
        for name, one in inputs.items()
    }


def _session() -> SparkSession:
    found = SparkSession.getActiveSession()
    if found is None:
        raise UsageError(
            "wm.files needs a Spark session: make one first, with SparkSession.builder.getOrCreate()"
        )
    return found


def _open(name: str, given: FileInput, spark: SparkSession, streams: bool | None) -> FileFrame:
    schema = given.schema if given.schema is not None else _schema_of_first(name, given)
    sql = read_sql_settings(session_conf(spark))
    columns = (
        schema.names if given.columns is None else [_spelled(name, schema, one) for one in given.columns]
    )
    where = None
    if given.where is not None:
        where = parse_where(
            given.where, schema, ansi=sql.ansi, case_sensitive=sql.case_sensitive, zone=sql.zone
        )
    if not given.format.has_schema:
        read = dict.fromkeys([*columns, *(where.columns if where is not None else ())])
        check_text_types(given.format, pa.schema([schema.field(one) for one in read]), f"input {name}")
    if given.stream is not None:
        streams = given.stream
    return FileFrame(
        given,
        schema,
        tuple(columns),
        where,
        normal_zone(sql.zone),
        sql.ansi,
        spark,
        isStreaming=streams is not False,
    )


def _schema_of_first(name: str, given: FileInput) -> pa.Schema:
    files = _list_all(given)
    if not files:
        raise FileError(
            f"input {name}: {given.address!r} has no files yet, so its columns are not known: add schema=, such as "
            'schema="id BIGINT, at TIMESTAMP"'
        )
    return schema_of_file(Place(given.address, files[0].name), given.format)


def _spelled(name: str, schema: pa.Schema, column: str) -> str:
    """A column as the schema spells it."""
    for known in schema.names:
        if known.lower() == column.lower():
            return str(known)
    raise UsageError(f"input {name}: columns= names {column}, and its files have {', '.join(schema.names)}")
