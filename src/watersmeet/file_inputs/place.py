"""Where one file of an input is: the input's address and the file's path below it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pyarrow import fs

from watersmeet.tables.places import place_of
from watersmeet.tables.spec import Address


@dataclass(frozen=True, slots=True, repr=False)
class Place:
    """One file. `path` is below the address; it is empty if the address is the file itself.

    >>> Place(Address("s3://key:secret@bucket/orders"), "day=1/a.parquet")
    s3://***@bucket/orders/day=1/a.parquet
    """

    address: Address
    path: str = ""

    def on_filesystem(self) -> tuple[fs.FileSystem, str]:
        """The filesystem, and the file's whole path on it."""
        filesystem, base = _filesystem_of(self.address, self.address.uri)
        return filesystem, f"{base}/{self.path}" if self.path else base

    def __repr__(self) -> str:
        return f"{self.address!r}/{self.path}" if self.path else repr(self.address)


def name_of(filesystem: fs.FileSystem, base: str) -> str:
    """Where a directory is, without credentials and options, however the user wrote it.

    >>> name_of(fs.LocalFileSystem(), "/data/orders")
    '/data/orders'
    """
    return base if isinstance(filesystem, fs.LocalFileSystem) else f"{filesystem.type_name}://{base}"


@functools.lru_cache(maxsize=16)
def _filesystem_of(address: Address, uri: str) -> tuple[fs.FileSystem, str]:
    """A client of an object store is costly, and a worker reads many files of one. `uri` changes with the variable."""
    return place_of(address)
