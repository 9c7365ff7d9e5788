"""The columns of a file that says what they are, in the Arrow types in which Spark would hand them to Python."""

from __future__ import annotations

import pyarrow as pa

from watersmeet.errors import FileError, UsageError
from watersmeet.file_inputs.fit import find_fields
from watersmeet.file_inputs.parquet import schema_of_parquet
from watersmeet.file_inputs.place import Place
from watersmeet.file_inputs.spark_types import spark_schema
from watersmeet.file_inputs.spec import FileFormat
from watersmeet.file_inputs.unpack import open_arrow, open_parquet_file, reading_file


def schema_of_file(place: Place, format: FileFormat) -> pa.Schema:
    """The columns of a Parquet or Arrow file, in the types that Spark would infer."""
    assert format.has_schema, "wm.files asks for a schema"
    what = repr(place)
    with reading_file(place, format):
        try:
            found = _columns(place, format, what)
        except UsageError as error:
            raise FileError(f"{error}. Name the columns that you need in schema=") from error
    find_fields(list(found), list(found), "", what)
    return found


def _columns(place: Place, format: FileFormat, what: str) -> pa.Schema:
    if format is FileFormat.PARQUET:
        with open_parquet_file(place) as parquet:
            return schema_of_parquet(parquet, what)
    with open_arrow(place) as reader:
        return spark_schema(reader.schema, what)
