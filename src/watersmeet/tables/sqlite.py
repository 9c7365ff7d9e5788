"""SQLite: the file is opened read-only, its declared types say what columns are.

SQLite stores any value in any column; what a column is follows from its declared type, as SQLite's own affinity
does: INT is a whole number, CHAR, TEXT and dates are text, REAL, NUMERIC and DECIMAL are doubles, BLOB is binary,
BOOL a boolean. Where nothing is declared the first values decide. A value that does not fit is an error when it is
read. Text is compared by its bytes (`COLLATE BINARY`); where SQLite would store numbers in the same column (dates,
and what is not declared), it is the text that is compared, `CAST(.. AS TEXT)`, by an index on that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote as quote_path

import pyarrow as pa

from watersmeet.errors import TableError
from watersmeet.tables.columns import check_keys
from watersmeet.tables.session import Session, load_driver
from watersmeet.tables.spec import Table
from watersmeet.tables.sql import KeyColumn, Relation, quote, quote_table

_PREFIX = "sqlite://"

# Types are guessed from the first rows of a result: all of a page must be among them.
_GUESS_ROWS = 1 << 20

# Words within a declared type, the first that is found counts.
_DECLARED = (
    ("BOOL", pa.bool_()),
    ("INT", pa.int64()),
    ("CHAR", pa.string()),
    ("CLOB", pa.string()),
    ("TEXT", pa.string()),
    ("DATE", pa.string()),
    ("TIME", pa.string()),
    ("BLOB", pa.binary()),
    ("REAL", pa.float64()),
    ("FLOA", pa.float64()),
    ("DOUB", pa.float64()),
    ("NUM", pa.float64()),
    ("DEC", pa.float64()),
)
_TEXT_AFFINITY = ("CHAR", "CLOB", "TEXT")
_STORED = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "blob": pa.binary()}
_TYPED_ROWS = 1_000

# Keys in one query; SQLite takes some 32,000 parameters.
_KEYS_AT_ONCE = 500


class SQLite:
    @property
    def statement_options(self) -> Mapping[str, str]:
        return {"adbc.sqlite.query.batch_rows": str(_GUESS_ROWS)}

    def connect(self, uri: str) -> Any:
        path = database_path(uri)
        if not path.is_file():
            raise TableError(
                f"there is no database {path}: check the path (sqlite:///relative.db, sqlite:////absolute/path.db), "
                "and that every executor can see it"
            )
        driver = load_driver("adbc_driver_sqlite")
        return driver.connect(f"file:{quote_path(str(path))}?mode=ro", autocommit=True)

    def identity(self, uri: str) -> tuple[int, int] | None:
        """The file itself: an open one stays readable, as it was, when another takes its name."""
        try:
            found = database_path(uri).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def is_passing(self, error: Exception) -> bool:
        return "locked" in str(error) or "busy" in str(error)

    def describe(self, session: Session, table: Table) -> tuple[Relation, pa.Schema]:
        assert table.table is not None
        name = quote_table(table.table)
        schema_name, _, plain = name.rpartition(".")
        asked = pa.RecordBatch.from_pydict(
            {"table": [_unquoted(plain)], "schema": [_unquoted(schema_name) or "main"]}
        )
        found = session.run("SELECT name, type FROM pragma_table_info(?1, ?2)", asked).to_pydict()
        if not found["name"]:
            raise TableError(
                f"{table.label} is not there: name it as the database does; its tables are "
                f"{', '.join(_tables(session)) or 'none'}"
            )
        kinds = {
            column: _declared(declared) or _stored(session, name, column)
            for column, declared in zip(found["name"], found["type"], strict=True)
        }
        schema = pa.schema(kinds)
        check_keys(schema, table.keys, table.label)
        declared = dict(zip(found["name"], found["type"], strict=True))
        keys = tuple(
            KeyColumn(key, _compared(session, name, key, kinds[key], declared[key])) for key in table.keys
        )
        selected = tuple((column, _selected(column, kind)) for column, kind in kinds.items())
        return Relation(name, keys, selected, "?"), schema

    def check_index(self, session: Session, relation: Relation, keys: pa.Schema) -> None:
        query = relation.rows_between(keys.names, lower=True, upper=True)
        nulls = pa.RecordBatch.from_arrays(
            [pa.nulls(1, kind) for kind in keys.types * 2], names=[f"p{n}" for n in range(2 * len(keys))]
        )
        plan = session.run(f"EXPLAIN QUERY PLAN {query}", nulls).to_pydict()["detail"]
        if any(step.startswith("SCAN") for step in plan):
            plain = [quote(key) for key in keys.names]
            compared = [key.compared for key in relation.keys]
            if len(keys) > 1 and compared != plain:
                raise TableError(
                    f"{session.label}: SQLite finds no range of several keys of which one is compared as "
                    f"{next(c for c, p in zip(compared, plain, strict=True) if c != p)}: declare text keys as TEXT, "
                    "without a collation, with an index on all of them"
                )
            raise TableError(
                f"{session.label} has no index on its key, so that every page would mean looking at all rows: CREATE "
                f"INDEX wm_key ON {relation.name} ({', '.join(compared)})"
            )

    def estimate_rows(self, session: Session, relation: Relation) -> int:
        return int(session.run(f"SELECT count(*) AS n FROM {relation.name}").column("n")[0].as_py())

    def lookups(
        self, relation: Relation, keys: pa.RecordBatch, columns: Sequence[str]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        for start in range(0, keys.num_rows, _KEYS_AT_ONCE):
            some = keys.slice(start, _KEYS_AT_ONCE)
            # One row of parameters, the first column's values, then the second's.
            values = [column.slice(at, 1) for column in some.columns for at in range(some.num_rows)]
            row = pa.RecordBatch.from_arrays(values, names=[f"p{n}" for n in range(len(values))])
            yield (
                f"SELECT {relation.columns(columns)} FROM {relation.name} WHERE {_is_one_of(relation, some.num_rows)}",
                row,
            )


def database_path(uri: str) -> Path:
    """The file of `sqlite:///relative.db` or `sqlite:////absolute.db`.

    >>> database_path("sqlite:////data/shop.db")
    PosixPath('/data/shop.db')
    """
    return Path(uri.removeprefix(_PREFIX).removeprefix("/")).absolute()


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"')


def _tables(session: Session) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [str(name) for name in session.run(query).to_pydict()["name"]]


def _declared(declared: str) -> pa.DataType | None:
    return next((kind for word, kind in _DECLARED if word in declared.upper()), None)


def _stored(session: Session, table: str, column: str) -> pa.DataType:
    """What the first values of an undeclared column are."""
    name = quote(column)
    query = (
        f"SELECT DISTINCT typeof({name}) AS kind FROM (SELECT {name} FROM {table} WHERE {name} IS NOT NULL "
        f"LIMIT {_TYPED_ROWS})"
    )
    found = set(session.run(query).to_pydict()["kind"])
    if found == {"integer", "real"}:
        return pa.float64()
    return _STORED[found.pop()] if len(found) == 1 else pa.string()


def _selected(column: str, kind: pa.DataType) -> str:
    """Numbers among texts, and whole numbers among others, are brought to the column's type by SQLite.

    A value that is none of the column's is selected as what it is, in words: that cannot be read as a number. Left
    to the driver, doubles beside a text would lose digits, and whole numbers beside a double.
    """
    name = quote(column)
    if pa.types.is_string(kind):
        return f"CAST({name} AS TEXT)"
    if pa.types.is_binary(kind):
        return name
    # SQLite compares whole numbers and doubles exactly.
    fits, value = f"typeof({name}) = 'integer'", name
    if pa.types.is_floating(kind):
        fits, value = (
            f"typeof({name}) IN ('integer', 'real') AND {name} = CAST({name} AS REAL)",
            f"CAST({name} AS REAL)",
        )
    if pa.types.is_boolean(kind):
        fits = f"{fits} AND {name} IN (0, 1)"
    words = f"typeof({name}) || ' ' || quote({name})"
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {fits} THEN {value} ELSE {words} END"


def _compared(session: Session, table: str, column: str, kind: pa.DataType, declared: str) -> str:
    """Text under another collation is compared by its bytes, and text that SQLite may store as numbers as the text
    that is selected. Said only where needed: an index over several columns is not used for a row of expressions.
    """
    name = quote(column)
    if not pa.types.is_string(kind):
        return name
    # SQLite does not tell the collation of a column, but a result takes it on.
    query = f"SELECT c = 'A' OR c = 'a ' AS other FROM (SELECT {name} AS c FROM {table} WHERE 0 UNION ALL SELECT 'a')"
    text = name if _is_stored_as_text(declared) else _selected(column, kind)
    return f"{text} COLLATE BINARY" if session.run(query).to_pydict()["other"][0] else text


def _is_stored_as_text(declared: str) -> bool:
    """Whether SQLite turns the numbers of a string column into text when they are stored."""
    return any(word in declared.upper() for word in _TEXT_AFFINITY)


def _is_one_of(relation: Relation, count: int) -> str:
    width = len(relation.keys)
    rows = [[relation.mark(1 + key * count + at, key) for key in range(width)] for at in range(count)]
    compared = [key.compared for key in relation.keys]
    if width == 1:
        return f"{compared[0]} IN ({', '.join(marks[0] for marks in rows)})"
    return f"({', '.join(compared)}) IN (VALUES {', '.join('(' + ', '.join(marks) + ')' for marks in rows)})"
