"""From what a user says of a table to a source that tasks can open: found, checked, and sorted.

Runs on the driver before the query starts, and again where a task sees that files have changed. What was prepared
before is found by its fingerprint and used again.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from pathlib import Path
from typing import Protocol

from watersmeet.errors import TableError
from watersmeet.log.files import Files
from watersmeet.tables.address import Address
from watersmeet.tables.catalogue import (
    TABLES,
    TableFacts,
    drop_orphans,
    find_facts,
    folder_of,
    publish,
    reuse,
)
from watersmeet.tables.columns import check_keys
from watersmeet.tables.database import prepare_database
from watersmeet.tables.form import FormSource
from watersmeet.tables.formats import TableRows, find_table, refuse_inside
from watersmeet.tables.in_place import PARQUET, ParquetSource
from watersmeet.tables.parquet_files import ParquetFiles, find_files
from watersmeet.tables.row_groups import InPlace, plan_in_place
from watersmeet.tables.source import NotPrepared, Report, Source, no_report
from watersmeet.tables.spec import SQLITE, Table
from watersmeet.tables.sqlite import database_path
from watersmeet.tables.writing import write_form


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
) -> Source:
    """Open a table, check it, and sort it if need be, once, into `tables/` of the state.

    `files` is the root of the state and `cache` its cache setting, as tasks open it.
    """
    if table.address is None:
        if frames is None:
            raise TableError(f"{table.label} needs Spark to be written: there is none here")
        return _prepare_frame(table, files, frames, report, cache)
    if table.is_database:
        return prepare_database(_settled(table), files, report, cache)
    return _prepare_files(_settled(table), files, report, cache)


def _settled(table: Table) -> Table:
    """The same table, wherever a task runs: a relative path means the driver's directory."""
    address = table.address
    assert address is not None
    if address.variable is None and address.scheme in SQLITE:
        return dataclasses.replace(table, source=Address(f"sqlite:///{database_path(address.text)}"))
    if address.variable is not None or address.scheme or address.text.startswith("file:"):
        return table
    return dataclasses.replace(table, source=Address(str(Path(address.text).absolute())))


def newest_files(
    origin: Table, files: Files, folder: str, cache: str | None, *, make: bool = True
) -> Source | None:
    """The source of a table of files as they are now, unless it is the one in `folder`."""
    assert origin.address is not None
    found = find_table(origin.address)
    newer = _folder(origin, found)
    if newer == folder:
        return None
    if not make and find_facts(files, newer) is None:
        raise NotPrepared(f"{origin.label} has changed and is not sorted yet")
    return _prepare_found(origin, found, files, no_report, cache)


def _prepare_files(table: Table, files: Files, report: Report, cache: str | None) -> Source:
    assert table.address is not None
    refuse_inside(table.address)
    return _prepare_found(table, find_table(table.address), files, report, cache)


def _folder(table: Table, found: TableRows) -> str:
    return folder_of(found.fingerprint, table.keys, table.page_rows, table.page_bytes, table.in_place)


def _prepare_found(table: Table, found: TableRows, files: Files, report: Report, cache: str | None) -> Source:
    check_keys(found.schema, table.keys, table.label)
    folder = _folder(table, found)
    facts = reuse(files, folder, time.time())
    if facts is None:
        facts = _make(table, found, files, folder, report)
    drop_orphans(files, folder, facts, time.time())
    if facts.kind == PARQUET:
        return ParquetSource(files.storage, folder, facts.version, table, cache)
    return FormSource(files.storage, folder, facts.version, table, cache)


def _make(table: Table, found: TableRows, files: Files, folder: str, report: Report) -> TableFacts:
    """Use the files as they are where that is good enough, else sort them."""
    if not isinstance(found, ParquetFiles):
        _refuse_in_place(table)
    elif table.in_place is not False:
        plan = plan_in_place(found, table.keys, insist=table.in_place is True)
        if isinstance(plan, InPlace):
            paths = tuple(found.paths)
            return publish(
                files, folder, PARQUET, table.label, plan.index, found.schema, plan.places, parts=paths
            )
        if table.in_place:
            raise TableError(
                f"{table.label} cannot be used in place: {plan}. Sort it by {', '.join(table.keys)}, or leave "
                "in_place out: it is then sorted once, into the state"
            )
    return _write(table, found, files, folder, report)


def _refuse_in_place(table: Table) -> None:
    """The rows of Delta and Iceberg tables come through their libraries: a row group may hold deleted ones."""
    if table.in_place:
        raise TableError(
            f"{table.label} cannot be used in place: it is a Delta or Iceberg table, whose files may hold deleted rows. "
            "Leave in_place out: the rows of its newest version are then sorted once, into the state"
        )


def _write(table: Table, found: TableRows, files: Files, folder: str, report: Report) -> TableFacts:
    return write_form(
        files,
        folder,
        table.label,
        found.batches(table.label),
        found.schema,
        table.keys,
        report,
        rows_in_all=found.rows(),
        page_rows=table.page_rows,
        page_bytes=table.page_bytes,
    )


def _prepare_frame(
    table: Table, files: Files, frames: FrameWriter, report: Report, cache: str | None
) -> Source:
    """A DataFrame is written by Spark, read back and sorted, and then needed no more."""
    folder = folder_of(
        "frame", frames.fingerprint(table.source), table.keys, table.page_rows, table.page_bytes
    )
    facts = reuse(files, folder, time.time())
    if facts is None:
        scratch = f"frame-{uuid.uuid4().hex}"
        try:
            # Spark would make a missing state directory readable for all.
            files.make()
            place = files.under(TABLES, scratch).storage.uri
            frames.write(table.source, place)
            found = find_files(Address(place))
            check_keys(found.schema, table.keys, table.label)
            facts = _write(table, found, files, folder, report)
        finally:
            files.under(TABLES).delete_folder(scratch)
    drop_orphans(files, folder, facts, time.time())
    return FormSource(files.storage, folder, facts.version, None, cache)
