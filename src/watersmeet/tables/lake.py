"""Delta and Iceberg tables, each at one version, read through the library of its format.

The library (`deltalake`, `pyiceberg`) reads the log: which files count, which rows are deleted, the values of partition
columns, and the columns by their ids or mapped names, so that renamed, added and dropped columns are right. Every row
goes through its scan, and the table is always sorted into the state.

What a scan would return wrongly, or was not tested with, is refused. Of Delta tables:

- reader features other than `_FEATURES`
- column mapping by id: the scan matches columns by physical name only, and gave nulls for columns that a file has
  under another name
- partition values of type `timestamp` without a time zone: Spark wrote them in the zone of its session, which the
  log does not record, and the scan takes them for UTC
- a path with a percent escape: the library decodes it once more, and reads the log of another directory

A column whose name in a file differs from the log in upper and lower case is read as null.

Of Iceberg tables: equality deletes, format 3, UUID columns (Spark gives text for them), and old timestamps (INT96) in
imported files, which overflow before 1677 and after 2262. The catalogue decides which metadata file of an Iceberg
table is current, so a table is named in one of three ways:

    iceberg://prod/shop.products                       by its catalogue, configured for pyiceberg
    /lake/shop/products                                a directory whose files are numbered v1, v2, ... (Hadoop
                                                       tables): there the highest number is the committed one
    /lake/shop/products/metadata/00003-x.metadata.json one fixed version

In a directory of a catalogue (`00003-<uuid>.metadata.json`) the newest file may belong to a commit that failed or is
still under way. It is refused, since its rows may never be part of the table.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from watersmeet.errors import TableError
from watersmeet.log.codec import checksum
from watersmeet.tables.columns import conform, select_fields, table_schema
from watersmeet.tables.parquet import int96_columns
from watersmeet.tables.places import LogFormat, is_metadata, place_of, plain_uri, reading
from watersmeet.tables.source import NotSupported
from watersmeet.tables.spec import Address

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.table import Table as PyIcebergTable

# Reader features of Delta whose rows the tests have shown to be right. With others a reader may see too many or too
# few.
_FEATURES = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"})
# From this reader version on, a table lists the features that a reader must know.
_LAST_READER = 3
_MAPPING_MODE = "delta.columnMapping.mode"
# How a timestamp with a zone ends: 2024-01-01T10:00:00.000000Z, 2024-01-01 10:00:00+02:00.
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")

CATALOGUE_SCHEME = "iceberg"
_LAST_ICEBERG_FORMAT = 2
_NUMBERED = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_COMPRESSED = (".gz.metadata.json", ".metadata.json.gz")
# What pyiceberg says of deletes, file formats and types that it does not read.
_UNSUPPORTED = re.compile(r"not (?:yet )?support|unsupported", re.IGNORECASE)
# After these words pyiceberg shows its configuration, which may hold a credential.
_CREDENTIALS = re.compile(r" from the uri| with the following properties")

_AS_FRAME = {
    LogFormat.DELTA: 'Pass it as a DataFrame: wm.table(spark.read.format("delta").load(path), key=...)',
    LogFormat.ICEBERG: 'Pass it as a DataFrame: wm.table(spark.table("catalogue.namespace.table"), key=...)',
    LogFormat.HUDI: 'Pass it as a DataFrame: wm.table(spark.read.format("hudi").load(path), key=...)',
}


def refused(address: Address, format: LogFormat, why: str) -> NotSupported:
    """The error for a table that would be read wrongly. It says how to join with the table nevertheless."""
    return NotSupported(f"table {address!r} is {format.a_table}{why}. {_AS_FRAME[format]}")


def _need(package: str, address: Address, format: LogFormat) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise TableError(
            f"table {address!r} is {format.a_table}, which needs the package {package}: pip install "
            f"'watersmeet[{format.lower()}]', with refresh= also on the executors. {_AS_FRAME[format]}"
        ) from error


@dataclass(frozen=True)
class DeltaVersion:
    """One version of a Delta table."""

    address: Address
    table: DeltaTable

    @property
    def fingerprint(self) -> str:
        """The table's own id is part of it: a table that was dropped and made anew counts from 0 again."""
        version = (self.table.metadata().id, self.table.version())
        return checksum(repr(("delta", repr(self.address), *version)).encode())

    @cached_property
    def schema(self) -> pa.Schema:
        with _reading_delta(self.address, f"the schema of table {self.address!r}"):
            columns = pa.schema(self.table.schema().to_arrow())
        return table_schema(columns)

    def rows(self) -> None:
        """Not known: the library counts rows that deletion vectors remove."""

    def batches(self, label: str) -> Iterator[pa.RecordBatch]:
        with _reading_delta(self.address, f"{label}, version {self.table.version()},"):
            for batch in pa.RecordBatchReader.from_stream(self.table.scan()):
                yield conform(batch, self.schema, label)


def open_delta(address: Address) -> DeltaVersion:
    """The newest version of the Delta table at an address."""
    _need("deltalake", address, LogFormat.DELTA)
    from deltalake import DeltaTable

    _refuse_escapes(address)
    uri, options = _delta_location(address)
    with _reading_delta(address, f"table {address!r}"):
        found = DeltaVersion(address, DeltaTable(uri, storage_options=options))
    _refuse_features(found)
    _refuse_local_times(found)
    return found


def _refuse_escapes(address: Address) -> None:
    path = place_of(address)[1]
    if unquote(path) != path:
        raise refused(
            address,
            LogFormat.DELTA,
            " in a directory whose name has a percent escape, which deltalake takes for another directory: "
            f"{unquote(path)}. Rename the directory, or read it with Spark",
        )


def _refuse_features(found: DeltaVersion) -> None:
    protocol = found.table.protocol()
    unknown = set(protocol.reader_features or ()) - _FEATURES
    why = None
    if unknown:
        why = f" with {', '.join(sorted(unknown))}, which is not supported here"
    elif protocol.min_reader_version > _LAST_READER:
        why = (
            f" for readers of version {protocol.min_reader_version}, and {_LAST_READER} is the newest that is "
            "supported here"
        )
    elif found.table.metadata().configuration.get(_MAPPING_MODE) == "id":
        why = " that maps columns by id, which is not supported here"
    if why:
        raise refused(found.address, LogFormat.DELTA, why)


def _refuse_local_times(found: DeltaVersion) -> None:
    """Refuse partition values that are moments in time but have no zone."""
    partitioned = select_fields(found.schema, found.table.metadata().partition_columns)
    moments = [field.name for field in partitioned if pa.types.is_timestamp(field.type) and field.type.tz]
    if not moments:
        return
    with _reading_delta(found.address, f"table {found.address!r}"):
        partitions = found.table.partitions()
    for name in moments:
        local = next((p[name] for p in partitions if p[name] and not _ZONE.search(p[name])), None)
        if local is not None:
            raise refused(
                found.address,
                LogFormat.DELTA,
                f" whose partition column {name}, a timestamp, has values without a time zone, such as {local!r}: they "
                "are in the zone of the session that wrote them, which is not known here",
            )


def _delta_location(address: Address) -> tuple[str, dict[str, str] | None]:
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
def _reading_delta(address: Address, what: str) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, pa.ArrowException, OSError, ValueError) as error:
        # Not `from error`: the library's message may hold the whole URI.
        raise TableError(
            f"{what} cannot be read as a Delta table: {address.scrub(str(error))}. Check that it is reachable "
            f"and that no file of this version was removed (VACUUM). {_AS_FRAME[LogFormat.DELTA]}"
        ) from None


@dataclass(frozen=True)
class IcebergSnapshot:
    """The current snapshot of one metadata file."""

    address: Address
    table: PyIcebergTable

    @property
    def fingerprint(self) -> str:
        metadata = self.table.metadata
        state = (metadata.current_snapshot_id, metadata.current_schema_id, metadata.last_updated_ms)
        return checksum(repr(("iceberg", repr(self.address), self.table.metadata_location, *state)).encode())

    @cached_property
    def schema(self) -> pa.Schema:
        with _reading_iceberg(self.address, f"the schema of table {self.address!r}"):
            columns = self.table.schema().as_arrow()
        return table_schema(columns)

    def rows(self) -> None:
        """Not known: delete files would have to be read."""

    def batches(self, label: str) -> Iterator[pa.RecordBatch]:
        self._refuse_old_timestamps()
        with _reading_iceberg(self.address, label):
            for batch in self.table.scan().to_arrow_batch_reader():
                yield conform(batch, self.schema, label)

    def _refuse_old_timestamps(self) -> None:
        """Only files that Iceberg did not write can have them, and for those a table maps names to ids."""
        if self.table.name_mapping() is None:
            return
        with _reading_iceberg(self.address, f"table {self.address!r}"):
            paths = [task.file.file_path for task in self.table.scan().plan_files()]
            old = next((path for path in paths if self._has_old_timestamps(path)), None)
        if old is not None:
            raise refused(
                self.address,
                LogFormat.ICEBERG,
                " with old timestamps (INT96) in a file, which cannot be read correctly: "
                f"{self.address.scrub(old)}. Rewrite the file (rewrite_data_files)",
            )

    def _has_old_timestamps(self, path: str) -> bool:
        if not path.endswith(".parquet"):
            return False
        with self.table.io.new_input(path).open() as source:
            return bool(int96_columns(pq.ParquetFile(source)))


def open_iceberg_folder(address: Address) -> IcebergSnapshot:
    """The newest version of a Hadoop table."""
    filesystem, base = place_of(address)
    with reading(address, f"table {address!r}"):
        listed = filesystem.get_file_info(fs.FileSelector(f"{base}/metadata"))
    names = [info.base_name for info in listed if is_metadata(info.base_name)]
    if not all(map(_NUMBERED.fullmatch, names)):
        raise TableError(
            f"table {address!r} is an Iceberg table of a catalogue, and only the catalogue knows its current version: "
            'name it by its catalogue, wm.table("iceberg://catalogue/namespace.table", key=...), or give the '
            f"metadata file of one version, such as {address!r}/metadata/{max(names)}"
        )
    return _open_metadata(address, f"{base}/metadata/{max(names, key=_age)}")


def _age(name: str) -> tuple[int, int]:
    """Orders the metadata files of a Hadoop table. Of one version Iceberg takes the file that is not compressed."""
    match = _NUMBERED.fullmatch(name)
    assert match is not None
    return int(match[1]), -len(name)


def open_iceberg(address: Address) -> IcebergSnapshot:
    """A table by its catalogue, or one version of it by its metadata file."""
    if address.scheme != CATALOGUE_SCHEME:
        return _open_metadata(address, place_of(address)[1])
    _need("pyiceberg", address, LogFormat.ICEBERG)
    from pyiceberg.catalog import load_catalog

    catalogue, _, name = address.uri.partition("://")[2].partition("/")
    if not catalogue or "." not in name:
        raise TableError(f'table {address!r}: write it as "iceberg://catalogue/namespace.table"')
    with _reading_iceberg(address, f"table {address!r}"):
        with _configured(address, catalogue):
            loaded = load_catalog(catalogue)
        found = loaded.load_table(name)
    return _checked(IcebergSnapshot(address, found))


def _open_metadata(address: Address, path: str) -> IcebergSnapshot:
    _need("pyiceberg", address, LogFormat.ICEBERG)
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.serializers import NOOP_COMPRESSOR, FromByteStream, GzipCompressor
    from pyiceberg.table import StaticTable

    location = f"{urlsplit(plain_uri(address)).scheme}://{path}" if address.scheme else path
    with _reading_iceberg(address, f"table {address!r}"):
        io = _file_io(address)
        # The library itself takes a name that ends with .metadata.json.gz for plain text.
        compressor = GzipCompressor() if location.endswith(_COMPRESSED) else NOOP_COMPRESSOR
        with io.new_input(location).open() as content:
            metadata = FromByteStream.table_metadata(content, compression=compressor)
        found = StaticTable(("table",), metadata, location, io, NoopCatalog("none"))
    return _checked(IcebergSnapshot(address, found))


def _file_io(address: Address) -> PyArrowFileIO:
    """Files as `pyarrow.fs` opens the address: its options and credentials hold for the data files as well."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = PyArrowFileIO()
    if address.scheme:
        ours, theirs = place_of(address)[0], io.fs_by_scheme
        kind = urlsplit(plain_uri(address)).scheme

        def choose(scheme: str, netloc: str | None = None) -> fs.FileSystem:
            same = scheme == kind or {scheme, kind} <= {"s3", "s3a", "s3n"}
            return ours if same else theirs(scheme, netloc)

        io.fs_by_scheme = choose
    return io


def _checked(found: IcebergSnapshot) -> IcebergSnapshot:
    from pyiceberg.schema import index_by_id
    from pyiceberg.types import UUIDType

    metadata, schema = found.table.metadata, found.table.schema()
    if metadata.format_version > _LAST_ICEBERG_FORMAT:
        why = f" of format {metadata.format_version}; formats 1 and {_LAST_ICEBERG_FORMAT} can be read here"
        raise refused(found.address, LogFormat.ICEBERG, why)
    uuids = [
        str(schema.find_column_name(number))
        for number, field in index_by_id(schema).items()
        if isinstance(field.field_type, UUIDType)
    ]
    if uuids:
        why = f" with UUID columns, which cannot be read here: {', '.join(uuids)}"
        raise refused(found.address, LogFormat.ICEBERG, why)
    return found


@contextmanager
def _reading_iceberg(address: Address, what: str) -> Iterator[None]:
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        # The library's errors have no common class: missing files, unreachable catalogues, unsupported deletes.
        said = address.scrub(str(error))
        if _is_unsupported(error):
            raise NotSupported(
                f"{what} is an Iceberg table that cannot be read here: {said}. {_AS_FRAME[LogFormat.ICEBERG]}"
            ) from None
        raise TableError(
            f"{what} cannot be read as an Iceberg table: {said}. Check that the table and its catalogue are reachable, "
            f"that its files are whole, and that its snapshot was not expired. {_AS_FRAME[LogFormat.ICEBERG]}"
        ) from None


def _is_unsupported(error: Exception) -> bool:
    """Whether the library does not know a feature. A damaged or half-written file may be whole at the next look."""
    if isinstance(error, pa.ArrowException | OSError):
        return False
    return isinstance(error, NotImplementedError) or (
        isinstance(error, ValueError) and _UNSUPPORTED.search(str(error)) is not None
    )


@contextmanager
def _configured(address: Address, catalogue: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError:
            # The catalogue's reply made no sense; the next one may.
            raise
        # Trying again does not help: the library reads its configuration once.
        said = _CREDENTIALS.split(str(error))[0]
        raise NotSupported(
            f"table {address!r}: pyiceberg cannot open the catalogue {catalogue}: {said}. Configure "
            f"it in .pyiceberg.yaml or in environment variables such as PYICEBERG_CATALOG__{catalogue.upper()}__URI, "
            "on the driver, and with refresh= on the executors too"
        ) from None
