"""PostgreSQL over ADBC: Arrow from the server's binary protocol to the join.

Text is compared by its bytes, `COLLATE "C"`, unless that is the column's collation anyway: the order of other
collations is not ours, and an index in their order is of no use. Types that Arrow does not know come as text, UUIDs
too; `numeric(p,s)` is a decimal, and without digits decimal(38,18), as Spark has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import TableError
from watersmeet.tables.columns import check_columns, table_type
from watersmeet.tables.session import Session, is_refused, load_driver
from watersmeet.tables.spec import Table
from watersmeet.tables.sql import KeyColumn, Relation, quote, quote_table

_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_ANY_NUMERIC = pa.decimal128(38, 18)
# Types that compare as their Arrow values do. Others have an order of their own (enums, padded text, JSON, domains).
_KEYS = re.compile(
    r"smallint|integer|bigint|real|double precision|numeric(\(.*\))?|boolean|bytea|date|text|character varying(\(\d+\))?|"
    r"timestamp(\(\d\))? with(out)? time zone|uuid"
)

_UUID = "uuid"
_UUID_TEXT = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"

# Keys in one query.
_KEYS_AT_ONCE = 10_000
# A table that is estimated to be smaller is counted: of one that was never analysed little is known.
_COUNTED_ROWS = 10_000

_COLUMNS = """
SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type, coalesce(c.collname::text, '') AS collation
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_TABLES = """
SELECT n.nspname || '.' || c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1 LIMIT 20
"""
# The provider of locales was added to the catalogue in version 15; there was but one before.
_DATABASE = """
SELECT datcollate::text AS collation, coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') AS provider
FROM pg_database d WHERE datname = current_database()
"""


class PostgreSQL:
    @property
    def statement_options(self) -> Mapping[str, str]:
        return {}

    def connect(self, uri: str) -> Any:
        return load_driver("adbc_driver_postgresql").connect(uri, autocommit=True)

    def identity(self, uri: str) -> None:
        """A server that is gone ends its connections itself."""

    def is_passing(self, error: Exception) -> bool:
        """A lost or refused connection, or a server that starts, stops or has too many of them."""
        state = getattr(error, "sqlstate", None)
        if state:
            return str(state).startswith(("08", "53", "57P", "40"))
        lost = load_driver("adbc_driver_postgresql").OperationalError
        return isinstance(error, (lost, OSError)) and not is_refused(error)

    def describe(self, session: Session, table: Table) -> tuple[Relation, pa.Schema]:
        assert table.table is not None
        name = quote_table(table.table)
        found = session.run(_COLUMNS, pa.RecordBatch.from_pydict({"table": [name]})).to_pydict()
        if not found["name"]:
            tables = session.run(_TABLES).to_pydict()["name"]
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
        return Relation(name, keys, selected, "$"), pa.schema([field for field, _ in fields])

    def _key(self, session: Session, key: str, kind: str, collation: str) -> KeyColumn:
        if kind == _UUID:
            return KeyColumn(key, quote(key), f"::{_UUID}")
        if not collation or self._is_binary(session, collation):
            return KeyColumn(key, quote(key))
        return KeyColumn(key, f'{quote(key)} COLLATE "C"')

    def _is_binary(self, session: Session, collation: str) -> bool:
        if collation != "default":
            return collation in ("C", "POSIX")
        found = session.run(_DATABASE).to_pylist()[0]
        return found["provider"] == "c" and found["collation"] in ("C", "POSIX")

    def check_index(self, session: Session, relation: Relation, keys: pa.Schema) -> None:
        query = relation.rows_between(keys.names, lower=True, upper=False)
        some = pa.RecordBatch.from_arrays(
            [_any_value(key, kind) for key, kind in zip(relation.keys, keys.types, strict=True)],
            names=keys.names,
        )
        # Small tables are read whole even where there is an index; it is asked whether one could be used.
        session.run("SET enable_seqscan = off")
        try:
            plan = session.run(f"EXPLAIN (FORMAT JSON) {query}", some).column(0)[0].as_py()
        finally:
            session.run("RESET enable_seqscan")
        if not all("Index Cond" in scan for scan in _scans(json.loads(plan)[0]["Plan"])):
            columns = ", ".join(key.compared for key in relation.keys)
            raise TableError(
                f"{session.label} has no index that finds a range of its key, so that every page would mean looking at "
                f"all rows: CREATE INDEX ON {relation.name} ({columns})"
            )

    def estimate_rows(self, session: Session, relation: Relation) -> int:
        """As the planner does, which looks at the size of the files too, and knows partitions and views."""
        # With a parameter, though it says nothing: the driver would wrap a statement without one in COPY.
        query = f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {relation.name} WHERE $1::boolean"
        plan = session.run(query, pa.RecordBatch.from_pydict({"all": [True]})).column(0)[0].as_py()
        estimated = int(json.loads(plan)[0]["Plan"]["Plan Rows"])
        if estimated >= _COUNTED_ROWS:
            return estimated
        counted = session.run(relation.count_between(lower=False, upper=False, limit=_COUNTED_ROWS))
        return int(counted.column("n")[0].as_py())

    def lookups(
        self, relation: Relation, keys: pa.RecordBatch, columns: Sequence[str]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        keys = _uuids_only(relation, keys)
        for start in range(0, keys.num_rows, _KEYS_AT_ONCE):
            some = keys.slice(start, _KEYS_AT_ONCE)
            arrays = [
                pa.ListArray.from_arrays(pa.array([0, some.num_rows], pa.int32()), column)
                for column in some.columns
            ]
            row = pa.RecordBatch.from_arrays(arrays, names=list(some.schema.names))
            yield _lookup(relation, columns), row


def _check_key(table: Table, key: str, kind: str) -> None:
    if not _KEYS.fullmatch(kind):
        raise TableError(
            f"{table.label}: the key {key} is of type {kind}, which compares in its own way: take another column, or a "
            "view that casts it, with an index on that expression"
        )


def _any_value(key: KeyColumn, kind: pa.DataType) -> pa.Array:
    """A value to ask with. Not null: the planner knows that nothing is above null, and looks for no index."""
    if key.cast:
        return pa.array(["00000000-0000-0000-0000-000000000000"])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array([""]).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([Decimal(0)], kind)
    return pa.array(
        [0], kind if pa.types.is_floating(kind) or pa.types.is_temporal(kind) else pa.int8()
    ).cast(kind)


def _scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Where the rows of a plan come from; a partition that cannot hold any is not among them."""
    children = plan.get("Plans", [])
    for child in children:
        yield from _scans(child)
    if not children and plan["Node Type"] != "Result":
        yield plan


def _column(field: pa.Field, kind: str) -> tuple[pa.Field, str]:
    """A column's canonical type, and how to ask for it."""
    name, arrow = quote(field.name), field.type
    if kind.startswith("numeric"):
        digits = _NUMERIC.fullmatch(kind)
        decimal = pa.decimal128(min(int(digits[1]), 38), int(digits[2])) if digits else _ANY_NUMERIC
        return pa.field(field.name, decimal), name
    is_unknown = isinstance(arrow, pa.OpaqueType) or pa.types.is_interval(arrow)
    if is_unknown or kind == _UUID:
        return pa.field(field.name, pa.string()), f"{name}::text"
    return pa.field(field.name, table_type(arrow)), name


def _lookup(relation: Relation, columns: Sequence[str]) -> str:
    """By one key: `= ANY`. By several: a join with the lists side by side, for which the index is used."""
    marks = [
        f"${place + 1}{key.cast}[]" if key.cast else f"${place + 1}"
        for place, key in enumerate(relation.keys)
    ]
    select = f"SELECT {relation.columns(columns)} FROM {relation.name}"
    if len(marks) == 1:
        return f"{select} WHERE {relation.keys[0].compared} = ANY({marks[0]})"
    wanted = [f"__wm_{place}" for place in range(len(marks))]
    equal = " AND ".join(f"{key.compared} = {name}" for key, name in zip(relation.keys, wanted, strict=True))
    return f"{select} JOIN unnest({', '.join(marks)}) AS __wm({', '.join(wanted)}) ON {equal}"


def _uuids_only(relation: Relation, keys: pa.RecordBatch) -> pa.RecordBatch:
    """Without keys that are no UUID as PostgreSQL writes them: they match nothing, and the cast would fail."""
    for place, key in enumerate(relation.keys):
        if key.cast:
            keys = keys.filter(pc.match_substring_regex(keys.column(place), _UUID_TEXT))
    return keys
