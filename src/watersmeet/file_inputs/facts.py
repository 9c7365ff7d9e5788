"""What a filesystem says of one file now: its size and its time of change, compared with what was said before."""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs

from watersmeet.file_inputs.offsets import ListedFile

_SECOND_NS = 10**9


def facts_of(filesystem: fs.FileSystem, path: str, name: str) -> ListedFile | None:
    """The file as it is now; None if it is gone. OSError, or an error of Arrow, if that cannot be asked."""
    if isinstance(filesystem, fs.LocalFileSystem):
        try:
            stat = Path(path).stat()
        except FileNotFoundError:
            return None
        return ListedFile(name, stat.st_size, stat.st_mtime_ns)
    info = filesystem.get_file_info(path)
    return ListedFile(name, info.size, info.mtime_ns) if info.is_file else None


def is_same(filesystem: fs.FileSystem, one: ListedFile, other: ListedFile) -> bool:
    """Whether both are of the same content, as far as size and time of change tell."""
    # A listing of an object store may show more digits of a time than a look at one object does.
    tick_ns = 1 if isinstance(filesystem, fs.LocalFileSystem) else _SECOND_NS
    return (one.bytes, one.modified_ns // tick_ns) == (other.bytes, other.modified_ns // tick_ns)
