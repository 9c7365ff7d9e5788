"""What `wm.files` takes: a directory of files as an input, their format and schema, and how many files a batch takes.

Nothing is opened here, so a `FileInput` is cheap, immutable and can be pickled. `file_inputs/schema.py` finds the
columns of Parquet and Arrow files, `file_inputs/read.py` reads one file. An address is a path, a URI or `env:NAME`,
as for a table (`tables/spec.py`), and its credentials are blanked out in messages.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from watersmeet.errors import UsageError
from watersmeet.tables.spec import DATABASES, Address

if TYPE_CHECKING:
    import pyarrow as pa


class FileFormat(StrEnum):
    """The format of the files. The values are what users write, and they are stored."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    JSON = "json"

    @property
    def has_schema(self) -> bool:
        """Whether a file says what its columns are."""
        return self in (FileFormat.PARQUET, FileFormat.ARROW)

    @property
    def splits(self) -> bool:
        """Whether several tasks can share a file."""
        return self is FileFormat.PARQUET


class FileOrder(StrEnum):
    """The order in which new files are taken. The values are what users write, and they are stored."""

    NAME = "name"
    TIME = "time"


_Choice = TypeVar("_Choice", FileFormat, FileOrder)


@dataclass(frozen=True, slots=True, repr=False)
class FileInput:
    """Files as an input, as `wm.files` describes them.

    `schema` has canonical Arrow types (`model/types.py`); None says that the first file tells. `columns` are those to
    read, in this order; None says all. `where` is SQL over the columns of the schema, also those that are not read.
    `header` is for CSV: whether the first line of each file has the names of the columns. `stream` is None if the other
    inputs decide. `moved_from` is where the directory was when the query took its last files, if it was moved.
    """

    address: Address
    format: FileFormat
    schema: pa.Schema | None = None
    columns: tuple[str, ...] | None = None
    where: str | None = None
    max_files_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    order: FileOrder = FileOrder.NAME
    header: bool = False
    name: str | None = None
    stream: bool | None = None
    moved_from: str | None = None

    @property
    def label(self) -> str:
        """The input's name in messages."""
        return f"input {self.name}" if self.name else f"the {self.format} files of {self.address!r}"

    def __repr__(self) -> str:
        shown = [f"'{self.address!r}'", f"format={self.format.value!r}"]
        shown += [
            f"{name}={value!r}"
            for name, value in (("columns", self.columns and list(self.columns)), ("where", self.where))
            if value is not None
        ]
        return f"files({', '.join(shown)})"


def files(
    path: str | os.PathLike[str],
    format: str = "parquet",
    *,
    schema: object = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    max_files_per_batch: int | None = None,
    max_bytes_per_batch: int | None = None,
    order: str = "name",
    header: bool | None = None,
    name: str | None = None,
    stream: bool | None = None,
    moved_from: str | os.PathLike[str] | None = None,
) -> FileInput:
    """A directory of files to join as an input: `wm.join({"o": wm.files("/data/orders"), "t": trades}, ...)`.

    The executors read the files themselves; the rows do not pass through the JVM. They are the rows that Spark's own
    reader gives.

    Args:
        path: a directory (a path or a URI that `pyarrow.fs` knows), or `"env:NAME"` where the URI with its credentials
            is in the environment variable NAME, here and on the executors.
        format: `"parquet"`, `"arrow"` (IPC files), `"csv"` or `"json"` (one object a line).
        schema: the columns, as Spark's DDL text (`"id BIGINT, at TIMESTAMP"`), a `StructType` or a `pyarrow.Schema`.
            Required for CSV and JSON; for Parquet and Arrow files the default is what the first file has.
        columns: the columns to read, in this order. Default: all.
        where: a condition in Spark SQL over the columns, such as `"qty > 0"`; other rows are not read.
        max_files_per_batch, max_bytes_per_batch: how much one batch takes of a backlog; at least one file.
        order: `"name"` takes new files by path, `"time"` by time of change.
        header: for CSV, whether the first line of each file has the names of the columns. Default: no, as in Spark.
        name: the input's name in messages.
        stream: True: new files are joined as they come; False: the files that are there when the join is made are
            joined, as one batch. Default: as the DataFrames of the join, and True if it has none.
        moved_from: where the directory was, if it was moved with its files since the query last ran: as the error says
            that refuses another directory under the same checkpoint.

    Example:
        >>> files("/data/orders", columns=["id", "qty"], where="qty > 0")
        files('/data/orders', format='parquet', columns=['id', 'qty'], where='qty > 0')
    """
    kind = _choice("format", format, FileFormat)
    found = FileInput(
        address=_address(path),
        format=kind,
        schema=_schema(schema, kind),
        columns=_columns(columns),
        where=_where(where),
        max_files_per_batch=_count("max_files_per_batch", max_files_per_batch),
        max_bytes_per_batch=_count("max_bytes_per_batch", max_bytes_per_batch),
        order=_choice("order", order, FileOrder),
        header=_header(header, kind),
        name=name,
        stream=_stream(stream),
        moved_from=_moved_from(moved_from),
    )
    if found.schema is not None:
        _check_columns(found.schema.names, found.columns or ())
    return found


def _address(path: object) -> Address:
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"path must be a directory: a path, a URI or env:NAME, not {type(path).__name__}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip():
        raise UsageError("path must be a directory: a path, a URI or env:NAME")
    address = Address(text)
    # The variable of `env:NAME` may be set later.
    if address.variable is None and address.scheme in DATABASES:
        raise UsageError(f"{address!r} is a database: pass it as wm.table")
    return address


def _choice(what: str, given: object, choices: type[_Choice]) -> _Choice:
    words = [str(choice.value) for choice in choices]
    word = given.strip().lower() if isinstance(given, str) else ""
    if word in words:
        return choices(word)
    near = difflib.get_close_matches(word, words, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"{what} must be {', '.join(words[:-1])} or {words[-1]}, got {given!r}{hint}")


def _schema(given: object, format: FileFormat) -> pa.Schema | None:
    if given is None:
        if not format.has_schema:
            raise UsageError(
                f"{format} files do not say what their columns are: "
                'add schema=, such as schema="id BIGINT, at TIMESTAMP"'
            )
        return None
    # Imported here: `import watersmeet` loads this module, and must not load Arrow.
    from watersmeet.file_inputs.ddl import parse_schema

    return parse_schema(given)


def _columns(given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UsageError(f'columns={given!r}: name the columns as a list, such as ["id", "qty"]')
    seen = {name.lower() for name in names}
    if len(seen) < len(names):
        raise UsageError(f"columns={given!r} names a column twice")
    return names


def _check_columns(known: Sequence[str], columns: Sequence[str]) -> None:
    lower = [name.lower() for name in known]
    for column in columns:
        if column.lower() not in lower:
            near = difflib.get_close_matches(column.lower(), lower, 1)
            guess = f"did you mean {known[lower.index(near[0])]}?" if near else f"it has {', '.join(known)}"
            raise UsageError(f"columns= names {column}, which is not in schema=; {guess}")


def _where(given: object) -> str | None:
    if given is not None and (not isinstance(given, str) or not given.strip()):
        raise UsageError(f'where must be a condition in SQL, such as "qty > 0", got {given!r}')
    return given


def _header(given: object, format: FileFormat) -> bool:
    if given is None:
        return False
    if format is not FileFormat.CSV:
        raise UsageError(f"header= is for CSV, and these are {format} files: leave it out")
    if not isinstance(given, bool):
        raise UsageError(f"header must be True or False, got {given!r}")
    return given


def _stream(given: object) -> bool | None:
    if given is not None and not isinstance(given, bool):
        raise UsageError(f"stream must be True or False, got {given!r}")
    return given


def _moved_from(given: object) -> str | None:
    if given is None:
        return None
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"moved_from must be a directory, as a path or a URI, got {given!r}")
    return text


def _count(what: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{what} must be a whole number from 1 up, got {value!r}")
    return value
