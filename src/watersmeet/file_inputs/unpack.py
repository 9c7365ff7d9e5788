"""Open one file of an input, and turn what cannot be opened or read into a FileError that names it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from watersmeet.errors import FileError
from watersmeet.file_inputs.place import Place
from watersmeet.file_inputs.spec import FileFormat
from watersmeet.tables.parquet import open_parquet

_KINDS: Final = {
    FileFormat.PARQUET: "a whole Parquet file",
    FileFormat.ARROW: "a whole Arrow IPC file",
    FileFormat.CSV: "a CSV file",
    FileFormat.JSON: "a file of JSON lines",
}
# Text files are packed as a whole, and their names say how.
_PACKED: Final = {".gz": "gzip", ".bz2": "bz2"}
# Hadoop frames these in its own way, or needs a library that Spark does not bring.
_REFUSED: Final = (".zst", ".lz4", ".snappy", ".deflate", ".lzo", ".xz", ".zip")
_READ_BYTES: Final = 1 << 20


@contextmanager
def reading_file(place: Place, format: FileFormat) -> Iterator[None]:
    """Turn what Arrow raises while a file is read into a FileError."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileError(
            f"{place!r} was removed before it was read: restore it. Remove files only after the batch that reads them"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise FileError(
            f"{place!r} cannot be read as {_KINDS[format]}: {place.address.scrub(str(error))}. If it was still being "
            "written, start the query again when it is complete. If it is damaged or does not belong here, put a whole "
            "file in its place, without rows if there are none. Write files under another name, such as one that "
            "begins with _, and rename them when they are complete"
        ) from error


def open_parquet_file(place: Place) -> pq.ParquetFile:
    """A Parquet file, which is closed with its reader. Of a remote one a row group is fetched in few requests."""
    filesystem, path = place.on_filesystem()
    return open_parquet(filesystem, path, ahead=not isinstance(filesystem, fs.LocalFileSystem))


@contextmanager
def open_arrow(place: Place, fields: Sequence[int] | None = None) -> Iterator[pa.RecordBatchFileReader]:
    """An Arrow IPC file, with some of its columns by number, or all.

    Streams are refused: one that was cut off between two batches looks complete.

    A record batch may be as large as the file. A local file is mapped, so only what is used of it is in memory, unless
    it is compressed. If it is cut off meanwhile, the operating system ends the process; the task is tried again, and
    the error then says that the file has changed.
    """
    filesystem, path = place.on_filesystem()
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    local = isinstance(filesystem, fs.LocalFileSystem)
    with (
        pa.memory_map(path) if local else filesystem.open_input_file(path) as file,
        pa.ipc.open_file(file, options=options) as reader,
    ):
        yield reader


def is_mapped(place: Place) -> bool:
    """Whether batches of an Arrow file are views of it: it is a local one, and not compressed.

    Arrow does not tell how a file is compressed. The first batch is unpacked to find out, once for each file, and most
    of it must lie in the mapped file. If others are packed otherwise, they take more memory, and have the same rows.
    """
    filesystem, path = place.on_filesystem()
    if not isinstance(filesystem, fs.LocalFileSystem):
        return False
    options = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.memory_map(path) as file, pa.ipc.open_file(file, options=options) as reader:
        if not reader.num_record_batches:
            return True
        file.seek(0)
        whole = file.read_buffer()
        batch = reader.get_batch(0)
        buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
        end = whole.address + whole.size
        mapped_bytes = sum(buffer.size for buffer in buffers if whole.address <= buffer.address < end)
        return 2 * mapped_bytes >= sum(buffer.size for buffer in buffers)


@contextmanager
def open_text(place: Place) -> Iterator[pa.NativeFile]:
    """The text of a file, unpacked if its name says that it is packed."""
    filesystem, path = place.on_filesystem()
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _REFUSED:
        raise FileError(
            f"{place!r} is packed as {suffix}, which is not read here: pack it as {' or '.join(_PACKED)}, or not at all"
        )
    with filesystem.open_input_stream(
        path, compression=_PACKED.get(suffix), buffer_size=_READ_BYTES
    ) as stream:
        yield stream
