"""What tests of reading files share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.file_inputs.ddl import parse_schema
from watersmeet.file_inputs.place import Place
from watersmeet.file_inputs.read import read_rows
from watersmeet.file_inputs.schema import schema_of_file
from watersmeet.file_inputs.spec import FileFormat
from watersmeet.file_inputs.where import parse_where
from watersmeet.tables.spec import Address


def format_of(path: Path) -> FileFormat:
    return FileFormat(
        next(suffix for suffix in (s.strip(".") for s in path.suffixes) if suffix in list(FileFormat))
    )


def written(path: Path, content: Any, **options: Any) -> Path:
    """A file with this content: bytes, text, or a table for Parquet and Arrow."""
    if isinstance(content, pa.Table) and path.suffix == ".arrow":
        with pa.ipc.new_file(path, content.schema) as writer:
            writer.write_table(content, **options)
    elif isinstance(content, pa.Table):
        pq.write_table(content, path, **options)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(
    path: Path,
    schema: object = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    **options: Any,
) -> pa.Table:
    """All rows of a file, as `wm.files` would read them."""
    place, format = Place(Address(str(path))), format_of(path)
    known = schema_of_file(place, format) if schema is None else parse_schema(schema)
    names = known.names if columns is None else list(columns)
    condition = None if where is None else parse_where(where, known)
    batches = list(read_rows(place, format, known, names, condition, **options))
    lower = {field.name.lower(): field.type for field in known}
    return pa.Table.from_batches(batches, pa.schema([(name, lower[name.lower()]) for name in names]))
