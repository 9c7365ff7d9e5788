"""From what a user says of a table to a source that tasks can open: found, checked, and sorted if need be.

This runs on the driver before the query starts, and in a task that sees that files have changed. A table that was
prepared before is found by its fingerprint and used again.

A directory with the log of a table format is read through the library of that format, as one version, or refused. A
directory that contains such a table is refused, and so is a path inside one: its files may hold deleted rows.
"""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyarrow import fs

from watersmeet.errors import TableError
from watersmeet.log.files import open_files
from watersmeet.log.storage import Files
from watersmeet.tables.catalogue import (
    TABLES,
    PagesIn,
    TableEntry,
    copy_folder,
    drop_orphans,
    find_entry,
    folder_of,
    publish,
    reuse,
)
from watersmeet.tables.columns import check_keys
from watersmeet.tables.database import describe_database, prepare_database
from watersmeet.tables.dialects import database_path
from watersmeet.tables.lake import CATALOGUE_SCHEME, open_delta, open_iceberg, open_iceberg_folder, refused
from watersmeet.tables.parquet import InPlace, ParquetFiles, Snapshot, find_files, plan_in_place
from watersmeet.tables.places import LogFormat, is_metadata, log_above, log_in, place_of, reading
from watersmeet.tables.sorted_copy import BACKGROUND_PART_BYTES, BACKGROUND_SORT_BYTES, write_sorted_copy
from watersmeet.tables.source import NotPrepared, NotSupported, PreparedTable, Report, no_report
from watersmeet.tables.spec import SQLITE, Address, Table

# The stores that the libraries of Delta and Iceberg name as Arrow does.
_LAKE_SCHEMES = ("", "file", "s3", "s3a", "s3n", "gs", "gcs")


class FrameWriter(Protocol):
    """What Spark does for a table that is a static DataFrame."""

    def fingerprint(self, frame: object) -> str:
        """The same for a DataFrame that would give the same rows, as far as can be told."""
        ...

    def write(self, frame: object, place: str) -> None:
        """Write it as Parquet files into a new directory, a path or URI as the state's."""
        ...


def prepare(
    table: Table,
    files: Files,
    frames: FrameWriter | None = None,
    report: Report = no_report,
    *,
    cache: str | None = None,
) -> PreparedTable:
    """Find a table, check it, and sort it if need be, once, into `tables/` of the state.

    `files` is the root of the state and `cache` its cache setting, as tasks open it.
    """
    if table.address is None:
        if frames is None:
            raise TableError(
                f"{table.label} can only be written by Spark, and there is no Spark session here"
            )
        return _prepare_frame(table, files, frames, report, cache)
    settled = dataclasses.replace(table, source=_absolute(table.address))
    if table.is_database:
        return prepare_database(settled, files, report, cache)
    assert settled.address is not None
    _refuse_inside(settled.address)
    return _prepare_files(settled, find_table(settled.address), files, report, cache)


def columns_of_table(table: Table) -> pa.Schema:
    """The columns of a table that is not a DataFrame, as they are now. No row is read, and nothing is written."""
    assert table.address is not None, "Spark knows the columns of a DataFrame"
    if table.is_database:
        return describe_database(table)
    found = find_table(_absolute(table.address)).schema
    check_keys(found, table.keys, table.label)
    return found


def newest_files(source: PreparedTable, files: Files, *, make: bool = True) -> PreparedTable | None:
    """The source of a table of files as they are now; None if it is the given one, or was a DataFrame."""
    table = source.origin
    if table is None:
        return None
    assert table.address is not None
    found = find_table(table.address)
    newer = files_folder(table, found)
    if source.folder in (newer, copy_folder(newer)):
        return None
    if not make and find_entry(files, newer) is None:
        raise NotPrepared(f"{table.label} has changed and is not sorted yet")
    return _prepare_files(table, found, files, no_report, source.cache)


def copy_in_place(source: PreparedTable, folder: str, report: Report) -> None:
    """Write the sorted copy of files that are read in place, unless they have changed since they were found.

    It takes one thread and little memory, beside the batches that go on. What an earlier attempt left is removed.
    """
    table = source.origin
    assert table is not None and table.address is not None
    files, address = open_files(source.place, cache=source.cache), table.address
    found = find_table(address)

    def check(seen: Snapshot) -> None:
        if files_folder(table, seen) != source.folder:
            raise TableError(
                f"{table.label} has changed since it was opened: it is read in place until the change is seen"
            )

    check(found)
    # Once more before the copy is published: a file may change while it is read.
    entry = write_sorted_copy(
        files,
        folder,
        table,
        found,
        report,
        BACKGROUND_PART_BYTES,
        threads=1,
        memory_bytes=BACKGROUND_SORT_BYTES,
        check=lambda: check(find_table(address)),
    )
    drop_orphans(files, folder, entry, time.time())


def _absolute(address: Address) -> Address:
    """The same place wherever a task runs: a relative path means the driver's directory."""
    if address.variable is None and address.scheme in SQLITE:
        return Address(f"sqlite:///{database_path(address.text)}")
    if address.variable is not None or address.scheme or address.text.startswith("file:"):
        return address
    return Address(str(Path(address.text).absolute()))


def find_table(address: Address) -> Snapshot:
    """The rows of the table at an address as they are now, or a TableError that says why they cannot be read."""
    if _is_named(address):
        if address.scheme != CATALOGUE_SCHEME:
            _refuse_scheme(address, LogFormat.ICEBERG)
        return open_iceberg(address)
    filesystem, base = place_of(address)
    with reading(address, f"table {address!r}"):
        # A file has no log. To look for one would need the right to list, which reading a file does not.
        is_folder = filesystem.get_file_info(base).type == fs.FileType.Directory
        log = log_in(filesystem, base) if is_folder else None
    if log is None:
        return find_files(address)
    if log.format is LogFormat.HUDI:
        why = ", which cannot be read here: its log says which rows are deleted"
        raise refused(address, LogFormat.HUDI, why)
    _refuse_scheme(address, log.format)
    return open_delta(address) if log.format is LogFormat.DELTA else open_iceberg_folder(address)


def _is_named(address: Address) -> bool:
    """Whether it names an Iceberg table otherwise than by its directory."""
    return address.scheme == CATALOGUE_SCHEME or is_metadata(address.uri)


def _refuse_inside(address: Address) -> None:
    """Refuse a path inside a table with a log."""
    if _is_named(address):
        return
    filesystem, base = place_of(address)
    if isinstance(filesystem, fs.LocalFileSystem):
        # A link may lead into a table, and `table/day=1/..` is the table itself.
        base = os.path.realpath(base)
    log = log_above(filesystem, [base])
    if log is not None:
        raise TableError(
            f"table {address!r} is inside the {log.format} table {log.table}, whose log says which files and rows are "
            "deleted: pass that table's own path. If these files do not belong to it, move them elsewhere"
        )


def _refuse_scheme(address: Address, format: LogFormat) -> None:
    if address.scheme not in _LAKE_SCHEMES:
        catalogue = ', or name it by its catalogue: wm.table("iceberg://catalogue/namespace.table")'
        raise NotSupported(
            f"table {address!r} is {format.a_table} on {address.scheme}://, and those are read here from paths, s3:// "
            f"and gs://. Pass it as a DataFrame{catalogue if format is LogFormat.ICEBERG else ''}"
        )


def files_folder(table: Table, found: Snapshot) -> str:
    """The folder in the state of a table of files as they were found."""
    return folder_of(found.fingerprint, *table.layout, table.in_place)


def _prepare_files(
    table: Table, found: Snapshot, files: Files, report: Report, cache: str | None
) -> PreparedTable:
    check_keys(found.schema, table.keys, table.label)
    folder = files_folder(table, found)
    if table.in_place is None and find_entry(files, copy_folder(folder)) is not None:
        # It was read in place until that cost as much as this copy.
        folder = copy_folder(folder)
    entry = reuse(files, folder, time.time())
    if entry is None:
        entry = _publish_in_place(table, found, files, folder)
    if entry is None:
        entry = write_sorted_copy(files, folder, table, found, report)
    drop_orphans(files, folder, entry, time.time())
    return PreparedTable(files.storage, folder, entry.version, table, cache)


def _publish_in_place(table: Table, found: Snapshot, files: Files, folder: str) -> TableEntry | None:
    """Use the files as they are; None if they must be sorted."""
    if table.in_place is False:
        return None
    if not isinstance(found, ParquetFiles):
        problem = "it is a Delta or Iceberg table, whose files may hold deleted rows"
    else:
        plan = plan_in_place(found, table.keys, insist=table.in_place is True)
        if isinstance(plan, InPlace):
            parts = tuple(found.paths)
            return publish(
                files,
                folder,
                PagesIn.PARQUET,
                table.label,
                plan.index,
                found.schema,
                plan.places,
                parts=parts,
            )
        problem = f"{plan}. Sort it by {', '.join(table.keys)}"
    if table.in_place:
        raise TableError(
            f"{table.label} cannot be used in place: {problem}. Leave in_place out: its rows are then sorted once, "
            "into the state"
        )
    return None


def _prepare_frame(
    table: Table, files: Files, frames: FrameWriter, report: Report, cache: str | None
) -> PreparedTable:
    """Let Spark write a DataFrame, and sort that. The DataFrame is not needed any more afterwards."""
    folder = folder_of("frame", frames.fingerprint(table.source), *table.layout)
    entry = reuse(files, folder, time.time())
    if entry is None:
        scratch = f"frame-{uuid.uuid4().hex}"
        try:
            # Spark would make a missing state directory readable for all.
            files.make()
            place = files.under(TABLES, scratch).storage.uri
            frames.write(table.source, place)
            found = find_files(Address(place))
            check_keys(found.schema, table.keys, table.label)
            entry = write_sorted_copy(files, folder, table, found, report)
        finally:
            files.under(TABLES).delete_folder(scratch)
    drop_orphans(files, folder, entry, time.time())
    return PreparedTable(files.storage, folder, entry.version, None, cache)
