"""An Iceberg table at one snapshot, read through `pyiceberg`.

The library reads metadata and manifests: which files count, which rows positional deletes remove, the columns by
their ids (so renamed, added and dropped columns are right) and partition values that are not in the files. Every
row goes through its scan, and the table is always sorted into the state.

The current metadata file is what a catalogue says it is, so a table is named in one of three ways:

    iceberg://prod/shop.products                       by its catalogue, configured for pyiceberg
    /lake/shop/products                                a directory whose files are numbered v1, v2, ... (Hadoop
                                                       tables): there the highest number is the committed one
    /lake/shop/products/metadata/00003-x.metadata.json one fixed version

In a directory of a catalogue (`00003-<uuid>.metadata.json`) the newest file may belong to a commit that failed or is
still under way. It is refused, since its rows may never be part of the table.

Refused, because the library does not read them or reads them wrongly: equality deletes, format 3, UUID columns (Spark
gives text for them), and old timestamps (INT96) in imported files, which overflow before 1677 and after 2262.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from watersmeet.errors import TableError
from watersmeet.log.codec import checksum
from watersmeet.tables.address import Address
from watersmeet.tables.columns import conform, table_type
from watersmeet.tables.logs import is_metadata
from watersmeet.tables.parquet_files import place_of, plain_uri, reading
from watersmeet.tables.source import NotSupported

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.table import Table as PyIcebergTable

CATALOGUE_SCHEME = "iceberg"

_LAST_FORMAT = 2
_NUMBERED = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")

# What the library says of deletes, file formats and types that it does not read.
_UNSUPPORTED = re.compile(r"not (?:yet )?support|unsupported", re.IGNORECASE)
# Behind these words the library puts what it was configured with.
_CREDENTIALS = re.compile(r" from the uri| with the following properties")
_COMPRESSED = (".gz.metadata.json", ".metadata.json.gz")

_AS_FRAME = 'Pass it as a DataFrame: wm.table(spark.table("catalogue.namespace.table"), key=...)'


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
        with _reading(self.address, f"the schema of table {self.address!r}"):
            columns = self.table.schema().as_arrow()
        return pa.schema([pa.field(f.name, table_type(f.type)) for f in columns])

    def rows(self) -> None:
        """Not known: delete files would have to be read."""

    def batches(self, label: str) -> Iterator[pa.RecordBatch]:
        self._refuse_old_timestamps()
        with _reading(self.address, label):
            for batch in self.table.scan().to_arrow_batch_reader():
                yield conform(batch, self.schema, label)

    def _refuse_old_timestamps(self) -> None:
        """Only files that Iceberg did not write can have them, and for those a table maps names to ids."""
        if self.table.name_mapping() is None:
            return
        with _reading(self.address, f"table {self.address!r}"):
            paths = [task.file.file_path for task in self.table.scan().plan_files()]
            old = next((path for path in paths if self._has_old_timestamps(path)), None)
        if old is not None:
            raise NotSupported(
                f"table {self.address!r} has a file with old timestamps (INT96), which cannot be read correctly as "
                f"Iceberg: {self.address.scrub(old)}. Rewrite the file (rewrite_data_files). {_AS_FRAME}"
            )

    def _has_old_timestamps(self, path: str) -> bool:
        if not path.endswith(".parquet"):
            return False
        with self.table.io.new_input(path).open() as source:
            columns = pq.ParquetFile(source).schema
            return any(columns.column(n).physical_type == "INT96" for n in range(len(columns.names)))


def open_directory(address: Address) -> IcebergSnapshot:
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


def open_named(address: Address) -> IcebergSnapshot:
    """A table by its catalogue, or one version of it by its metadata file."""
    if address.scheme != CATALOGUE_SCHEME:
        return _open_metadata(address, place_of(address)[1])
    _need_pyiceberg(address)
    from pyiceberg.catalog import load_catalog

    catalogue, _, name = address.uri.partition("://")[2].partition("/")
    if not catalogue or "." not in name:
        raise TableError(f'table {address!r}: write it as "iceberg://catalogue/namespace.table"')
    with _reading(address, f"table {address!r}"):
        with _configured(address, catalogue):
            loaded = load_catalog(catalogue)
        found = loaded.load_table(name)
    return _checked(IcebergSnapshot(address, found))


def _open_metadata(address: Address, path: str) -> IcebergSnapshot:
    _need_pyiceberg(address)
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.serializers import NOOP_COMPRESSOR, FromByteStream, GzipCompressor
    from pyiceberg.table import StaticTable

    location = f"{urlsplit(plain_uri(address)).scheme}://{path}" if address.scheme else path
    with _reading(address, f"table {address!r}"):
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
    if metadata.format_version > _LAST_FORMAT:
        raise NotSupported(
            f"table {found.address!r} is an Iceberg table of format {metadata.format_version}; formats 1 and "
            f"{_LAST_FORMAT} can be read here. {_AS_FRAME}"
        )
    uuids = [
        schema.find_column_name(number)
        for number, field in index_by_id(schema).items()
        if isinstance(field.field_type, UUIDType)
    ]
    if uuids:
        raise NotSupported(
            f"table {found.address!r} has UUID columns, which cannot be read here: {', '.join(map(str, uuids))}. "
            f"{_AS_FRAME}"
        )
    return found


def _need_pyiceberg(address: Address) -> None:
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise TableError(
            f"table {address!r} is an Iceberg table, which needs the package pyiceberg: pip install "
            f"'watersmeet[iceberg]', with refresh= also on the executors. {_AS_FRAME}"
        ) from error


@contextmanager
def _reading(address: Address, what: str) -> Iterator[None]:
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        # The library's errors have no common class: missing files, unreachable catalogues, unsupported deletes.
        said = address.scrub(str(error))
        if _is_unsupported(error):
            raise NotSupported(
                f"{what} is an Iceberg table that cannot be read here: {said}. {_AS_FRAME}"
            ) from None
        raise TableError(
            f"{what} cannot be read as an Iceberg table: {said}. Check that the table and its catalogue are reachable, "
            f"that its files are whole, and that its snapshot was not expired. {_AS_FRAME}"
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
            # An answer of the catalogue that makes no sense: the next one may.
            raise
        # To try again does not help: the library reads its configuration once.
        said = _CREDENTIALS.split(str(error))[0]
        raise NotSupported(
            f"table {address!r}: pyiceberg cannot open the catalogue {catalogue}: {said}. Configure "
            f"it in .pyiceberg.yaml or in environment variables such as PYICEBERG_CATALOG__{catalogue.upper()}__URI, on "
            "the driver, and with refresh= on the executors too"
        ) from None
