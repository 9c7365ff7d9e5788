"""What the state stores of a prepared table: its page index, and where each page is.

    tables/<fingerprint>/pages-<checksum>.arrow    the index: one row per page, with the page's place
    tables/<fingerprint>/table.json                the entry, checked JSON: published last, and only once
    tables/<fingerprint>/used-<unique>             empty: a start that found the folder old still uses it
    tables/<fingerprint>/making-<unique>           empty: a process makes a sorted copy here (tables/copying.py)

A folder without `table.json` does not exist, so a preparation that is killed leaves nothing that a later start would
take for complete. Two preparations at the same time write equal or differently named files, and the first to publish
wins. The fingerprint is made from the table's contents and the user's options: a second start finds the folder of the
first, and a changed table gets a new one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from watersmeet import failpoints
from watersmeet.errors import CorruptFile, TableError
from watersmeet.log.codec import checksum, decode_checked, encode_checked
from watersmeet.log.names import is_table_file, is_table_folder
from watersmeet.log.storage import Files
from watersmeet.model.pages import PageIndex

TABLES = "tables"
_ENTRY = "table.json"
_USED = "used-"
_MAKING = "making-"

# Raised when stored files would be misread. It is part of every fingerprint, so older folders are passed over.
FORMAT = 1

# The types of the table's columns, in the metadata of its index.
_SCHEMA = b"watersmeet.table"
# Begins the names of the index's columns that say where a page is.
_PLACE = "at:"

# What a killed preparation left behind is removed after this time; one that still runs writes more often.
_ORPHAN_S = 6 * 3600.0
# A start or batch join that takes an older folder marks it. The first batch of a start, which names the folder, may be
# far off, and batch joins are not looked through (engine/kept_table.py): the mark gives both nearly _ORPHAN_S. A
# quarter of an hour, so that hundreds of batch joins an hour leave a handful of marks.
_MARK_S = 900.0

# How long the mark of a process that makes a copy counts: after a kill, the next attempt begins this late.
MAKING_S = 60.0

_ADVICE = "Remove the folder and start the query from a new `wm.join`: the table is prepared anew"


class PagesIn(StrEnum):
    """Where the pages of a prepared table are. The values are stored."""

    SORTED_COPY = "form"
    PARQUET = "parquet"
    DATABASE = "database"


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A prepared table in `table.json`. `kind` is a `PagesIn`; `parts` are the files that hold the pages, by number."""

    kind: str
    label: str
    keys: tuple[str, ...]
    pages: str
    pages_bytes: int
    version: str
    rows: int
    null_rows: int = 0
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """An entry with its index, the table's columns and the location of each page. The columns depend on the kind."""

    entry: TableEntry
    index: PageIndex
    schema: pa.Schema
    places: pa.RecordBatch


def folder_of(*what: object) -> str:
    """The folder of a table with this contents and these options. No credential may be in `what`."""
    return f"{TABLES}/{checksum(repr((FORMAT, *what)).encode())}"


def copy_folder(folder: str) -> str:
    """The folder of the sorted copy of files that are read in place, which have this folder.

    It follows from the files as they were found, so a copy can only be of the same version.
    """
    return folder_of("copy", folder)


def mark_making(files: Files, folder: str) -> str:
    """Say that this process makes a copy in the folder. Returns the mark, for `unmark`."""
    mark = f"{_MAKING}{uuid.uuid4().hex}"
    files.publish(f"{folder}/{mark}", b"")
    return mark


def unmark(files: Files, folder: str, mark: str) -> None:
    files.delete(f"{folder}/{mark}")


def is_being_made(files: Files, folder: str, now_s: float) -> bool:
    """Whether some process says that it makes a copy there. One that was killed says so for `MAKING_S`."""
    return any(
        file.name.startswith(_MAKING) and now_s - file.modified_s <= MAKING_S
        for file in files.entries(folder)
    )


def killed_copies(files: Files, folder: str, now_s: float) -> int:
    """How many processes were killed while they made a copy there: their marks have expired, and nobody removed them."""
    return sum(
        file.name.startswith(_MAKING) and now_s - file.modified_s > MAKING_S for file in files.entries(folder)
    )


def find_entry(files: Files, folder: str) -> TableEntry | None:
    """What an earlier preparation published, if there was one."""
    try:
        content = files.read(f"{folder}/{_ENTRY}")
    except FileNotFoundError:
        return None
    return decode_checked(TableEntry, content, f"{files.place}/{folder}/{_ENTRY}")


def reuse(files: Files, folder: str, now_s: float) -> TableEntry | None:
    """What an earlier preparation published, kept from `drop_tables` for the grace: a start is about to read it."""
    entry = find_entry(files, folder)
    listed = files.entries(folder)
    if entry is None or any(now_s - file.modified_s <= _MARK_S for file in listed):
        return entry
    files.publish(f"{folder}/{_USED}{uuid.uuid4().hex}", b"")
    for file in listed:
        if file.name.startswith(_USED):
            files.delete(f"{folder}/{file.name}")
    # A `drop_tables` of another process may have come first.
    return find_entry(files, folder)


def publish(
    files: Files,
    folder: str,
    kind: PagesIn,
    label: str,
    index: PageIndex,
    schema: pa.Schema,
    places: pa.RecordBatch,
    *,
    null_rows: int = 0,
    parts: tuple[str, ...] = (),
) -> TableEntry:
    """Store an index and make the folder exist. Returns the entry that was published first, this or another."""
    content = _encode(index, schema, places)
    version = checksum(content)
    path = f"{folder}/pages-{version}.arrow"
    files.publish(path, content)
    failpoints.reach("table-index-written")
    rows = int(index.rows.sum())
    entry = TableEntry(kind, label, index.keys, path, len(content), version, rows, null_rows, parts)
    if files.publish(f"{folder}/{_ENTRY}", encode_checked(entry)):
        failpoints.reach("table-published")
        return entry
    first = find_entry(files, folder)
    assert first is not None, "a file that exists cannot be read"
    return first


def _encode(index: PageIndex, schema: pa.Schema, places: pa.RecordBatch) -> bytes:
    batch = index.to_batch()
    names = [*batch.schema.names, *(f"{_PLACE}{name}" for name in places.schema.names)]
    metadata = {**batch.schema.metadata, _SCHEMA: schema.serialize().to_pybytes()}
    whole = pa.RecordBatch.from_arrays([*batch.columns, *places.columns], names=names, metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(whole)
    return sink.getvalue().to_pybytes()


def open_catalogue(files: Files, folder: str) -> Catalogue:
    """The published index of a table, verified."""
    entry = find_entry(files, folder)
    if entry is None:
        raise TableError(
            f"the prepared table {folder} is missing from {files.place}: start the query from a new `wm.join`, and it "
            "is made anew"
        )
    batch = pa.ipc.open_stream(_verified(files, entry)).read_next_batch()
    places = [name for name in batch.schema.names if name.startswith(_PLACE)]
    return Catalogue(
        entry,
        PageIndex.from_batch(batch),
        pa.ipc.read_schema(pa.py_buffer(batch.schema.metadata[_SCHEMA])),
        batch.select(places).rename_columns([name.removeprefix(_PLACE) for name in places]),
    )


def _verified(files: Files, entry: TableEntry) -> pa.Buffer:
    content = _mapped(files, entry.pages)
    if checksum(content) != entry.version and files.forget_copy(entry.pages):
        content = _mapped(files, entry.pages)
    if content.size != entry.pages_bytes or checksum(content) != entry.version:
        raise CorruptFile(f"{entry.pages} in {files.place} is damaged. {_ADVICE}")
    return content


def _mapped(files: Files, path: str) -> pa.Buffer:
    try:
        return files.map(path)
    except FileNotFoundError as error:
        raise CorruptFile(f"{path} is missing from {files.place}. {_ADVICE}") from error


def drop_orphans(files: Files, folder: str, entry: TableEntry, now_s: float) -> None:
    """Remove what preparations that were killed, or came second, left in the folder."""
    named = {entry.pages, *entry.parts, f"{folder}/{_ENTRY}"}
    for file in files.entries(folder):
        path = f"{folder}/{file.name}"
        orphan = is_table_file(file.name) and path not in named
        if orphan and now_s - file.modified_s > _ORPHAN_S:
            files.delete(path)
            failpoints.reach("table-orphan-removed")


def drop_tables(files: Files, keep: Iterable[str], now_s: float, grace_s: float = _ORPHAN_S) -> list[str]:
    """Remove the folders of tables that no query needs any more, and return them. Those changed within the grace stay.

    `keep` are folders, as sources name them: consumed only if a folder is old. A folder without any file has no age,
    and stays: something is about to be written there.
    """
    tables = files.under(TABLES)

    def is_old(name: str) -> bool:
        youngest = max(_times(tables, name), default=None)
        return youngest is not None and now_s - youngest > grace_s

    old = [name for name in tables.folders() if is_table_folder(name) and is_old(name)]
    if not old:
        return []
    kept = frozenset(keep)
    dropped = []
    for name in old:
        folder = f"{TABLES}/{name}"
        # Looked at once more: while `keep` was consumed, a start may have marked the folder.
        if folder not in kept and is_old(name):
            # First the file that makes it exist: a reader in between sees no table, not half of one.
            files.delete(f"{folder}/{_ENTRY}")
            failpoints.reach("table-half-dropped")
            tables.delete_folder(name)
            failpoints.reach("table-dropped")
            dropped.append(folder)
    return dropped


def _times(files: Files, folder: str) -> Iterator[float]:
    """When each file was changed, also in folders below: Spark writes a DataFrame into folders of its own."""
    yield from (entry.modified_s for entry in files.entries(folder))
    within = files.under(folder)
    for name in within.folders():
        yield from _times(within, name)
