"""A Delta table at one version, read through `deltalake`.

The library reads the log: which files count, which of their rows a deletion vector removes, the values of partition
columns, and the names that column mapping gives. Every row therefore goes through its scan, and the table is always
sorted into the state. A feature that the scan was not tested with is refused.

Refused because the scan would return wrong values:

- column mapping by id: the scan matches columns by physical name only, and gave nulls for columns that a file has
  under another name
- partition values of type `timestamp` without a time zone: Spark wrote them in the zone of its session, which the
  log does not record, and the scan takes them for UTC
- a path with a percent escape: the library decodes it once more, and reads the log of another directory

A column whose name in a file differs from the log in upper and lower case is read as null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from watersmeet.errors import TableError
from watersmeet.log.codec import checksum
from watersmeet.tables.address import Address
from watersmeet.tables.columns import conform, table_type
from watersmeet.tables.parquet_files import place_of, plain_uri
from watersmeet.tables.source import NotSupported

if TYPE_CHECKING:
    from deltalake import DeltaTable

# Reader features whose rows the tests have shown to be right. Beyond them a reader may see too many or too few rows.
_FEATURES = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"})
# From here on, what a reader must know is listed as features.
_LAST_READER = 3
_MAPPING_MODE = "delta.columnMapping.mode"
# How a timestamp with a zone ends: 2024-01-01T10:00:00.000000Z, 2024-01-01 10:00:00+02:00.
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")

_AS_FRAME = 'Pass it as a DataFrame: wm.table(spark.read.format("delta").load(path), key=...)'


@dataclass(frozen=True)
class DeltaVersion:
    """One version of a Delta table."""

    address: Address
    table: DeltaTable

    @property
    def fingerprint(self) -> str:
        """The table's own id is part of it: a table that was dropped and made anew counts from 0 again."""
        return checksum(
            repr(("delta", repr(self.address), self.table.metadata().id, self.table.version())).encode()
        )

    @cached_property
    def schema(self) -> pa.Schema:
        with _reading(self.address, f"the schema of table {self.address!r}"):
            columns = pa.schema(self.table.schema().to_arrow())
        return pa.schema([pa.field(f.name, table_type(f.type)) for f in columns])

    def rows(self) -> None:
        """Not known: the library counts rows that deletion vectors remove."""

    def batches(self, label: str) -> Iterator[pa.RecordBatch]:
        with _reading(self.address, f"{label}, version {self.table.version()},"):
            for batch in pa.RecordBatchReader.from_stream(self.table.scan()):
                yield conform(batch, self.schema, label)


def open_delta(address: Address) -> DeltaVersion:
    """The newest version of the table at an address."""
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise TableError(
            f"table {address!r} is a Delta table, which needs the package deltalake: pip install 'watersmeet[delta]', "
            f"with refresh= also on the executors. {_AS_FRAME}"
        ) from error
    _refuse_escapes(address)
    uri, options = _location(address)
    with _reading(address, f"table {address!r}"):
        found = DeltaVersion(address, DeltaTable(uri, storage_options=options))
    _refuse_unknown(found)
    _refuse_local_times(found)
    return found


def _refuse_escapes(address: Address) -> None:
    path = place_of(address)[1]
    if unquote(path) != path:
        raise NotSupported(
            f"table {address!r} is a Delta table in a directory whose name has a percent escape, which deltalake takes "
            f"for another directory: {unquote(path)}. Rename the directory, or read it with Spark. {_AS_FRAME}"
        )


def _refuse_unknown(found: DeltaVersion) -> None:
    protocol = found.table.protocol()
    unknown = set(protocol.reader_features or ()) - _FEATURES
    if unknown:
        raise NotSupported(
            f"table {found.address!r} is a Delta table with {', '.join(sorted(unknown))}, which is not supported here. "
            f"{_AS_FRAME}"
        )
    if protocol.min_reader_version > _LAST_READER:
        raise NotSupported(
            f"table {found.address!r} is a Delta table for readers of version {protocol.min_reader_version}, and "
            f"{_LAST_READER} is the newest that is supported here. {_AS_FRAME}"
        )
    if found.table.metadata().configuration.get(_MAPPING_MODE) == "id":
        raise NotSupported(
            f"table {found.address!r} is a Delta table that maps columns by id, which is not supported here. {_AS_FRAME}"
        )


def _refuse_local_times(found: DeltaVersion) -> None:
    """Refuse partition values that are moments in time but have no zone."""
    moments = [
        name for name in found.table.metadata().partition_columns if _is_moment(found.schema.field(name).type)
    ]
    if not moments:
        return
    with _reading(found.address, f"table {found.address!r}"):
        partitions = found.table.partitions()
    for name in moments:
        local = next((p[name] for p in partitions if p[name] and not _ZONE.search(p[name])), None)
        if local is not None:
            raise NotSupported(
                f"table {found.address!r} is a Delta table whose partition column {name}, a timestamp, has values without "
                f"a time zone, such as {local!r}: they are in the zone of the session that wrote them, which is not "
                f"known here. {_AS_FRAME}"
            )


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _location(address: Address) -> tuple[str, dict[str, str] | None]:
    """The table as `deltalake` names it: a path, or a URI with the options of `pyarrow.fs` apart."""
    if not address.scheme:
        return place_of(address)[1], None
    parts = urlsplit(plain_uri(address))
    plain = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if parts.scheme == "file":
        return unquote(parts.path), None
    if parts.scheme != "s3":
        # Google's credentials come from the environment.
        return plain, None
    return plain, _s3_options(parts.username, parts.password, parse_qs(parts.query))


def _s3_options(user: str | None, password: str | None, query: dict[str, list[str]]) -> dict[str, str]:
    given = {name: values[-1] for name, values in query.items()}
    endpoint, scheme = given.get("endpoint_override"), given.get("scheme")
    if endpoint and "://" not in endpoint:
        endpoint = f"{scheme or 'https'}://{endpoint}"
    found = {
        "aws_access_key_id": unquote(user) if user else None,
        "aws_secret_access_key": unquote(password) if password else None,
        "aws_region": given.get("region"),
        "aws_endpoint_url": endpoint,
        "aws_allow_http": "true" if endpoint and endpoint.startswith("http://") else None,
    }
    return {name: value for name, value in found.items() if value is not None}


@contextmanager
def _reading(address: Address, what: str) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, pa.ArrowException, OSError, ValueError) as error:
        # Not `from error` for a URI, which the library's message may hold whole.
        raise TableError(
            f"{what} cannot be read as a Delta table: {address.scrub(str(error))}. Check that it is reachable "
            f"and that no file of this version was removed (VACUUM). {_AS_FRAME}"
        ) from None
