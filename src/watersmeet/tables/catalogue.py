"""What the state knows of a table: its page index, and where each page is.

    tables/<fingerprint>/pages-<checksum>.arrow    the index, one row for each page, and the page's place
    tables/<fingerprint>/table.json                facts in checked JSON: published last, and only once
    tables/<fingerprint>/used-<unique>             empty: a start that found the folder old has taken it

A folder without `table.json` does not exist: a preparation that is killed leaves nothing that a later start would
take for whole. Two that run at the same time write the same or differently named files, and the first to publish
wins. The fingerprint is made from what the table looked like and how it was asked for, so a second start finds the
folder of the first, and a changed table gets a new one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from watersmeet import failpoints
from watersmeet.errors import CorruptFile, TableError
from watersmeet.log.codec import checksum, decode_checked, encode_checked
from watersmeet.log.files import Files
from watersmeet.log.names import is_table_file, is_table_folder
from watersmeet.model.pages import PageIndex

TABLES = "tables"
_FACTS = "table.json"
_USED = "used-"

# Raised when what is stored would be misread; it is part of every fingerprint, so older folders are passed over.
FORMAT = 1

# The types of the table's columns, in the metadata of its index.
_SCHEMA = b"watersmeet.table"

# What a killed preparation left behind is removed after this time; one that still runs writes more often.
_ORPHAN_S = 6 * 3600.0
# A folder that is older when a start or a batch join takes it is marked: the first batch of a start, which names it,
# may be a long way off, and a batch join's is not asked (engine/kept_table.py). So both have nearly _ORPHAN_S; often
# enough for that, and seldom enough that hundreds of batch joins an hour leave a handful of marks.
_MARK_S = 900.0


@dataclass(frozen=True, slots=True)
class TableFacts:
    """`kind` says what reads it; `parts` are the files that the pages are in, by number."""

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
    """Facts, index, the table's columns, and for each page where it is, in columns that its kind knows."""

    facts: TableFacts
    index: PageIndex
    schema: pa.Schema
    places: pa.RecordBatch


def folder_of(*what: object) -> str:
    """The folder of a table that looks like this. No credential may be in `what`."""
    return f"{TABLES}/{checksum(repr((FORMAT, *what)).encode())}"


def find_facts(files: Files, folder: str) -> TableFacts | None:
    """What an earlier preparation published, if there was one."""
    try:
        content = files.read(f"{folder}/{_FACTS}")
    except FileNotFoundError:
        return None
    return decode_checked(TableFacts, content, f"{files.place}/{folder}/{_FACTS}")


def reuse(files: Files, folder: str, now_s: float) -> TableFacts | None:
    """What an earlier preparation published, for a start that will read it: it is not dropped within the grace."""
    facts = find_facts(files, folder)
    entries = files.entries(folder)
    if facts is None or any(now_s - entry.modified_s <= _MARK_S for entry in entries):
        return facts
    files.publish(f"{folder}/{_USED}{uuid.uuid4().hex}", b"")
    for entry in entries:
        if entry.name.startswith(_USED):
            files.delete(f"{folder}/{entry.name}")
    # Whoever drops tables may have come first.
    return find_facts(files, folder)


def publish(
    files: Files,
    folder: str,
    kind: str,
    label: str,
    index: PageIndex,
    schema: pa.Schema,
    places: pa.RecordBatch,
    *,
    null_rows: int = 0,
    parts: tuple[str, ...] = (),
) -> TableFacts:
    """Store an index and make the folder exist. Returns the facts of whoever came first."""
    content = _encode(index, schema, places)
    version = checksum(content)
    path = f"{folder}/pages-{version}.arrow"
    files.publish(path, content)
    failpoints.reach("table-index-written")
    facts = TableFacts(
        kind, label, index.keys, path, len(content), version, int(index.rows.sum()), null_rows, parts
    )
    if files.publish(f"{folder}/{_FACTS}", encode_checked(facts)):
        failpoints.reach("table-published")
        return facts
    first = find_facts(files, folder)
    assert first is not None, "a file that exists cannot be read"
    return first


def _encode(index: PageIndex, schema: pa.Schema, places: pa.RecordBatch) -> bytes:
    batch = index.to_batch()
    columns = {**dict(zip(batch.schema.names, batch.columns, strict=True))}
    columns |= {
        f"at:{name}": column for name, column in zip(places.schema.names, places.columns, strict=True)
    }
    metadata = {**batch.schema.metadata, _SCHEMA: schema.serialize().to_pybytes()}
    whole = pa.RecordBatch.from_pydict(columns, metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(whole)
    return sink.getvalue().to_pybytes()


def open_catalogue(files: Files, folder: str) -> Catalogue:
    """The published index of a table, verified."""
    facts = find_facts(files, folder)
    if facts is None:
        raise TableError(
            f"the prepared table {folder} is missing from {files.place}: start the query from a new `wm.join`, and it "
            "is made anew"
        )
    batch = pa.ipc.open_stream(_verified(files, facts)).read_next_batch()
    places = [name for name in batch.schema.names if name.startswith("at:")]
    return Catalogue(
        facts,
        PageIndex.from_batch(batch),
        pa.ipc.read_schema(pa.py_buffer(batch.schema.metadata[_SCHEMA])),
        batch.select(places).rename_columns([name.removeprefix("at:") for name in places]),
    )


def _verified(files: Files, facts: TableFacts) -> pa.Buffer:
    content = _mapped(files, facts.pages)
    if checksum(content) != facts.version and files.forget_copy(facts.pages):
        content = _mapped(files, facts.pages)
    if content.size != facts.pages_bytes or checksum(content) != facts.version:
        raise CorruptFile(f"{facts.pages} in {files.place} is damaged. {_ADVICE}")
    return content


def _mapped(files: Files, path: str) -> pa.Buffer:
    try:
        return files.map(path)
    except FileNotFoundError as error:
        raise CorruptFile(f"{path} is missing from {files.place}. {_ADVICE}") from error


_ADVICE = "Remove the folder and start the query from a new `wm.join`: the table is prepared anew"


def drop_orphans(files: Files, folder: str, facts: TableFacts, now_s: float) -> None:
    """Remove what preparations that were killed, or came second, left in the folder."""
    named = {facts.pages, *facts.parts, f"{folder}/{_FACTS}"}
    for entry in files.entries(folder):
        path = f"{folder}/{entry.name}"
        orphan = is_table_file(entry.name) and path not in named
        if orphan and now_s - entry.modified_s > _ORPHAN_S:
            files.delete(path)
            failpoints.reach("table-orphan-removed")


def drop_tables(files: Files, keep: Iterable[str], now_s: float, grace_s: float = _ORPHAN_S) -> list[str]:
    """Remove the folders of tables that nobody needs any more; those changed within the grace stay.

    `keep` are folders, as sources name them: looked through only if a folder is old. A folder without any file has
    no age, and stays: something is about to be written there. Returns those that were removed.
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
        # Looked at once more: while `keep` was looked through, a start may have marked the folder.
        if folder not in kept and is_old(name):
            # First what makes it exist: whoever comes in between sees no table, not half of one.
            files.delete(f"{folder}/{_FACTS}")
            failpoints.reach("table-half-dropped")
            tables.delete_folder(name)
            failpoints.reach("table-dropped")
            dropped.append(folder)
    return dropped


def _times(files: Files, folder: str) -> Iterator[float]:
    """When each file was changed, those in folders too: Spark writes a DataFrame into folders of its own."""
    yield from (entry.modified_s for entry in files.entries(folder))
    within = files.under(folder)
    for name in within.folders():
        yield from _times(within, name)
