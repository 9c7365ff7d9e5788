"""The databases that are known: SQLite and PostgreSQL, both over ADBC, in Arrow from the driver to the join.

Text must compare by its bytes, as in a join. An index in the order of another collation is of no use for that, so the
table then needs one on the expression that is compared.

SQLite is opened read-only. It stores any value in any column, so the declared type decides what a column is, by
SQLite's own rules of affinity: INT is a whole number; CHAR, TEXT and dates are text; REAL, NUMERIC and DECIMAL are
doubles; BLOB is binary; BOOL a boolean. Without a declared type the first values decide. A value that does not fit is
an error when it is read. Where SQLite may store numbers in a text column (dates, and no declared type), the text is
compared, `CAST(.. AS TEXT)`, by an index on that.

PostgreSQL: types that Arrow does not know come as text, UUIDs too; `numeric(p,s)` is a decimal, and without digits
decimal(38,18), as in Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote as quote_path

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import TableError
from watersmeet.tables.columns import check_columns, check_keys, table_type, zero_key
from watersmeet.tables.spec import POSTGRESQL, SQLITE, Table
from watersmeet.tables.sql import (
    DatabaseSession,
    Dialect,
    KeyColumn,
    SqlTable,
    is_refused,
    load_driver,
    quote,
    quote_table,
)

_SQLITE_PREFIX = "sqlite://"

# The driver guesses types from the first rows of a result: all of a page must be among them.
_GUESS_ROWS = 1 << 20

# Words within a declared type; the first that is found counts.
_DECLARED = {
    pa.bool_(): ("BOOL",),
    pa.int64(): ("INT",),
    pa.string(): ("CHAR", "CLOB", "TEXT", "DATE", "TIME"),
    pa.binary(): ("BLOB",),
    pa.float64(): ("REAL", "FLOA", "DOUB", "NUM", "DEC"),
}
_TEXT_AFFINITY = ("CHAR", "CLOB", "TEXT")
_STORED = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "blob": pa.binary()}
_TYPED_ROWS = 1_000

_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_ANY_NUMERIC = pa.decimal128(38, 18)
# Types that compare as their Arrow values do. Others have an order of their own (enums, padded text, JSON, domains).
_PG_KEYS = re.compile(
    r"smallint|integer|bigint|real|double precision|numeric(\(.*\))?|boolean|bytea|date|text|"
    r"character varying(\(\d+\))?|timestamp(\(\d\))? with(out)? time zone|uuid"
)

_UUID = "uuid"
_ANY_UUID = "00000000-0000-0000-0000-000000000000"
_UUID_TEXT = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"

# A table that is estimated to be smaller is counted: the estimate for one that was never analysed is poor.
_COUNTED_ROWS = 10_000

_PG_COLUMNS = """
SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type,
       coalesce(c.collname::text, '') AS collation
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_PG_TABLES = """
SELECT n.nspname || '.' || c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1 LIMIT 20
"""
# Version 15 added the provider of locales to the catalogue; before, there was only one.
_PG_COLLATION = """
SELECT datcollate::text AS collation, coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') AS provider
FROM pg_database d WHERE datname = current_database()
"""


class SQLite(Dialect):
    statement_options: ClassVar[Mapping[str, str]] = {"adbc.sqlite.query.batch_rows": str(_GUESS_ROWS)}
    # SQLite takes some 32,000 parameters.
    keys_at_once = 500

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
        """The file itself: an open one stays readable, unchanged, when another takes its name."""
        try:
            found = database_path(uri).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def is_passing(self, error: Exception) -> bool:
        return "locked" in str(error) or "busy" in str(error)

    def describe(self, session: DatabaseSession, table: Table) -> tuple[SqlTable, pa.Schema]:
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
                f"{', '.join(_sqlite_tables(session)) or 'none'}"
            )
        declared = dict(zip(found["name"], found["type"], strict=True))
        kinds = {
            column: _declared(words) or _stored(session, name, column) for column, words in declared.items()
        }
        schema = pa.schema(kinds)
        check_keys(schema, table.keys, table.label)
        keys = tuple(
            KeyColumn(key, _compared(session, name, key, kinds[key], declared[key])) for key in table.keys
        )
        selected = tuple((column, _selected(column, kind)) for column, kind in kinds.items())
        return SqlTable(name, keys, selected, "?"), schema

    def check_index(self, session: DatabaseSession, relation: SqlTable, keys: pa.Schema) -> None:
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
                f"{session.label} has no index on its key, so every page would scan all rows: CREATE "
                f"INDEX wm_key ON {relation.name} ({', '.join(compared)})"
            )

    def estimate_rows(self, session: DatabaseSession, relation: SqlTable) -> int:
        return session.count(f"SELECT count(*) AS n FROM {relation.name}")

    def _lookup(
        self, relation: SqlTable, keys: pa.RecordBatch, columns: Sequence[str]
    ) -> tuple[str, pa.RecordBatch]:
        count = keys.num_rows
        # One row of parameters, the first column's values, then the second's.
        values = [column.slice(at, 1) for column in keys.columns for at in range(count)]
        row = pa.RecordBatch.from_arrays(values, names=[f"p{n}" for n in range(len(values))])
        width = len(relation.keys)
        marks = [[relation.mark(1 + key * count + at, key) for key in range(width)] for at in range(count)]
        compared = [key.compared for key in relation.keys]
        if width == 1:
            wanted = f"{compared[0]} IN ({', '.join(mark for (mark,) in marks)})"
        else:
            rows = ", ".join(f"({', '.join(key)})" for key in marks)
            wanted = f"({', '.join(compared)}) IN (VALUES {rows})"
        return f"SELECT {relation.columns(columns)} FROM {relation.name} WHERE {wanted}", row


def database_path(uri: str) -> Path:
    """The file of `sqlite:///relative.db` or `sqlite:////absolute.db`.

    >>> database_path("sqlite:////data/shop.db")
    PosixPath('/data/shop.db')
    """
    return Path(uri.removeprefix(_SQLITE_PREFIX).removeprefix("/")).absolute()


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"')


def _sqlite_tables(session: DatabaseSession) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [str(name) for name in session.run(query).to_pydict()["name"]]


def _declared(declared: str) -> pa.DataType | None:
    words = declared.upper()
    return next((kind for kind, some in _DECLARED.items() if any(word in words for word in some)), None)


def _stored(session: DatabaseSession, table: str, column: str) -> pa.DataType:
    """The type of the first values of an undeclared column."""
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
    """An expression that converts values to the column's type in SQLite.

    Left to the driver, doubles beside a text would lose digits, and whole numbers beside a double. A value that does
    not fit is selected as words that describe it: reading these as a number fails.
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


def _compared(session: DatabaseSession, table: str, column: str, kind: pa.DataType, declared: str) -> str:
    """An expression that compares text by its bytes, and as text where SQLite may store numbers.

    The column alone wherever possible: an index over several columns is not used for a row of expressions.
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


class PostgreSQL(Dialect):
    keys_at_once = 10_000

    def connect(self, uri: str) -> Any:
        return load_driver("adbc_driver_postgresql").connect(uri, autocommit=True)

    def is_passing(self, error: Exception) -> bool:
        """A lost or refused connection, or a server that starts, stops or has too many of them."""
        state = getattr(error, "sqlstate", None)
        if state:
            return str(state).startswith(("08", "53", "57P", "40"))
        lost = load_driver("adbc_driver_postgresql").OperationalError
        return isinstance(error, (lost, OSError)) and not is_refused(error)

    def describe(self, session: DatabaseSession, table: Table) -> tuple[SqlTable, pa.Schema]:
        assert table.table is not None
        name = quote_table(table.table)
        found = session.run(_PG_COLUMNS, pa.RecordBatch.from_pydict({"table": [name]})).to_pydict()
        if not found["name"]:
            tables = session.run(_PG_TABLES).to_pydict()["name"]
            raise TableError(
                f"{table.label} is not there: name it as the database does, with its schema; upper and lower case "
                f"matter. There are {', '.join(tables) or 'no tables that this user may see'}"
            )
        native = session.run(f"SELECT * FROM {name} LIMIT 0").schema
        check_columns(native, table.keys, table.label)
        types = dict(zip(found["name"], found["type"], strict=True))
        collations = dict(zip(found["name"], found["collation"], strict=True))
        fields = [_column(field, types[field.name]) for field in native]
        for key in table.keys:
            _check_key(table, key, types[key])
        keys = tuple(self._key(session, key, types[key], collations[key]) for key in table.keys)
        selected = tuple((field.name, expression) for field, expression in fields)
        return SqlTable(name, keys, selected, "$"), pa.schema([field for field, _ in fields])

    def _key(self, session: DatabaseSession, key: str, kind: str, collation: str) -> KeyColumn:
        if kind == _UUID:
            return KeyColumn(key, quote(key), f"::{_UUID}")
        if not collation or self._is_binary(session, collation):
            return KeyColumn(key, quote(key))
        return KeyColumn(key, f'{quote(key)} COLLATE "C"')

    def _is_binary(self, session: DatabaseSession, collation: str) -> bool:
        if collation != "default":
            return collation in ("C", "POSIX")
        found = session.run(_PG_COLLATION).to_pylist()[0]
        return found["provider"] == "c" and found["collation"] in ("C", "POSIX")

    def check_index(self, session: DatabaseSession, relation: SqlTable, keys: pa.Schema) -> None:
        query = relation.rows_between(keys.names, lower=True, upper=False)
        # Not null: the planner knows that nothing is above null, and looks for no index.
        some = pa.RecordBatch.from_arrays(
            [
                pa.array([_ANY_UUID]) if key.cast else zero_key(kind)
                for key, kind in zip(relation.keys, keys.types, strict=True)
            ],
            names=keys.names,
        )
        # PostgreSQL reads small tables whole even with an index; the question is whether one could be used.
        session.run("SET enable_seqscan = off")
        try:
            plan = session.run(f"EXPLAIN (FORMAT JSON) {query}", some).column(0)[0].as_py()
        finally:
            session.run("RESET enable_seqscan")
        if not all("Index Cond" in scan for scan in _scans(json.loads(plan)[0]["Plan"])):
            columns = ", ".join(key.compared for key in relation.keys)
            raise TableError(
                f"{session.label} has no index that finds a range of its key, so every page would scan all "
                f"rows: CREATE INDEX ON {relation.name} ({columns})"
            )

    def estimate_rows(self, session: DatabaseSession, relation: SqlTable) -> int:
        """The planner's estimate: it considers the size of the files, and knows partitions and views."""
        # The parameter has no meaning, but the driver would wrap a statement without one in COPY.
        query = f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {relation.name} WHERE $1::boolean"
        plan = session.run(query, pa.RecordBatch.from_pydict({"all": [True]})).column(0)[0].as_py()
        estimated = int(json.loads(plan)[0]["Plan"]["Plan Rows"])
        if estimated >= _COUNTED_ROWS:
            return estimated
        return session.count(relation.count_between(lower=False, upper=False, limit=_COUNTED_ROWS))

    def lookups(
        self, relation: SqlTable, keys: pa.RecordBatch, columns: Sequence[str]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        return super().lookups(relation, _uuids_only(relation, keys), columns)

    def _lookup(
        self, relation: SqlTable, keys: pa.RecordBatch, columns: Sequence[str]
    ) -> tuple[str, pa.RecordBatch]:
        """By one key: `= ANY`. By several: a join with the lists side by side, for which the index is used."""
        offsets = pa.array([0, keys.num_rows], pa.int32())
        lists = [pa.ListArray.from_arrays(offsets, column) for column in keys.columns]
        row = pa.RecordBatch.from_arrays(lists, names=keys.schema.names)
        marks = [
            f"{relation.mark(place + 1, place)}[]" if key.cast else relation.mark(place + 1, place)
            for place, key in enumerate(relation.keys)
        ]
        select = f"SELECT {relation.columns(columns)} FROM {relation.name}"
        if len(marks) == 1:
            return f"{select} WHERE {relation.keys[0].compared} = ANY({marks[0]})", row
        wanted = [f"__wm_{place}" for place in range(len(marks))]
        pairs = zip(relation.keys, wanted, strict=True)
        equal = " AND ".join(f"{key.compared} = {name}" for key, name in pairs)
        return f"{select} JOIN unnest({', '.join(marks)}) AS __wm({', '.join(wanted)}) ON {equal}", row


def _check_key(table: Table, key: str, kind: str) -> None:
    if not _PG_KEYS.fullmatch(kind):
        raise TableError(
            f"{table.label}: the key {key} is of type {kind}, which compares in its own way: take another column, or a "
            "view that casts it, with an index on that expression"
        )


def _scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The leaves of a plan that read rows; a partition that cannot hold any is not among them."""
    children = plan.get("Plans", [])
    for child in children:
        yield from _scans(child)
    if not children and plan["Node Type"] != "Result":
        yield plan


def _column(field: pa.Field, kind: str) -> tuple[pa.Field, str]:
    """A column's canonical type, and the expression that selects it."""
    name, arrow = quote(field.name), field.type
    if kind.startswith("numeric"):
        digits = _NUMERIC.fullmatch(kind)
        decimal = pa.decimal128(min(int(digits[1]), 38), int(digits[2])) if digits else _ANY_NUMERIC
        return pa.field(field.name, decimal), name
    is_unknown = isinstance(arrow, pa.OpaqueType) or pa.types.is_interval(arrow)
    if is_unknown or kind == _UUID:
        return pa.field(field.name, pa.string()), f"{name}::text"
    return pa.field(field.name, table_type(arrow)), name


def _uuids_only(relation: SqlTable, keys: pa.RecordBatch) -> pa.RecordBatch:
    """The keys that are UUIDs as PostgreSQL writes them: others match nothing, and the cast would fail."""
    for place, key in enumerate(relation.keys):
        if key.cast:
            keys = keys.filter(pc.match_substring_regex(keys.column(place), _UUID_TEXT))
    return keys


def dialect_of(table: Table) -> Dialect:
    assert table.address is not None
    scheme = table.address.scheme
    if scheme in SQLITE:
        return SQLite()
    if scheme in POSTGRESQL:
        return PostgreSQL()
    raise TableError(
        f"{table.label}: {scheme or 'a path'} is not a known database; give a URI that begins with sqlite:// "
        "or postgresql://"
    )
