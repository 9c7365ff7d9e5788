"""Tables for tests, and what must be true of every open table."""

from __future__ import annotations

import datetime
import decimal
import pickle
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.lookup import open_page
from watersmeet.kernel.pages import find_disorder, find_outside, locate
from watersmeet.kernel.rows import ORDER
from watersmeet.tables.source import OpenTable

_DAY = datetime.date(2024, 1, 1)
_NOON = datetime.datetime(2024, 1, 1, 12)

# Values of each type that can be a key, those among them that are easily ordered wrongly.
KEY_VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, -1, 0, 1, 127]),
    "smallint": (pa.int16(), [-300, 0, 299]),
    "int": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "float": (pa.float32(), [-np.inf, -1.5, -0.0, 0.0, 1e-40, 2.5, np.inf, np.nan]),
    "double": (pa.float64(), [-np.inf, -1.5, -0.0, 0.0, 5e-324, 2.5, np.inf, np.nan]),
    "decimal(9,2)": (pa.decimal128(9, 2), [decimal.Decimal(x) for x in ("-12.50", "0.00", "9999.99")]),
    "decimal(38,3)": (pa.decimal128(38, 3), [decimal.Decimal(x) for x in ("-1e30", "0.001", "9e34")]),
    "date": (pa.date32(), [_DAY + datetime.timedelta(days) for days in (-40_000, 0, 1, 500)]),
    "timestamp": (pa.timestamp("us", "UTC"), [_NOON + datetime.timedelta(0, s, 7) for s in (-9, 0, 99)]),
    "timestamp_ntz": (pa.timestamp("us"), [_NOON + datetime.timedelta(0, s, 7) for s in (-9, 0, 99)]),
    "string": (pa.string(), ["", "Z", "a", "a\x00", "ab", "é", "z", "\U0001f600", "\uffff", "a" * 40]),
    "binary": (pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]),
}


T = TypeVar("T")


def travelled(thing: T) -> T:
    """As a task gets it."""
    return pickle.loads(pickle.dumps(thing))  # noqa: S301


def numbers(*ids: int) -> pa.Table:
    """A row for each of these keys."""
    return pa.table({"id": pa.array(ids, pa.int64()), "s": [f"row {n}" for n in ids]})


class Frame:
    """What a DataFrame shows of itself."""

    def __init__(self, rows: pa.Table | None = None, *, streaming: bool = False) -> None:
        self.rows = rows
        self.isStreaming = streaming


def repeated_keys(kind: str, rows: int, seed: int = 0) -> pa.Array:
    """Keys in random order, with repetitions and some nulls."""
    arrow, values = KEY_VALUES[kind]
    rng = np.random.default_rng(seed)
    return pa.array([*values, None], arrow).take(pa.array(rng.integers(0, len(values) + 1, rows)))


def all_rows(table: OpenTable, columns: Sequence[str]) -> pa.Table:
    pages = [page for _, page in table.read_many(range(len(table.index)), columns)]
    schema = pa.schema([table.schema.field(column) for column in columns])
    return pa.Table.from_batches([page.select(list(columns)) for page in pages], schema)


def in_order(rows: pa.Table) -> list[dict[str, object]]:
    """Rows as a bag: in the order of their texts, where NaN equals NaN."""
    return sorted(rows.to_pylist(), key=repr)


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    return one.schema.types == other.schema.types and list(map(repr, in_order(one))) == list(
        map(repr, in_order(other))
    )


def keyed(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows that have keys."""
    for key in keys:
        rows = rows.filter(pc.is_valid(rows[key]))
    return rows


def check_table(table: OpenTable, expected: pa.Table) -> None:
    """All rows with keys are there, once; each is in a page where it is sought; pages are as the index says."""
    index, keys = table.index, list(table.index.keys)
    assert find_disorder(index) is None
    columns = table.schema.names
    found = keyed(all_rows(table, columns), keys)
    assert same_rows(found, keyed(expected.select(columns), keys))
    continues = index.continues
    for number, page in table.read_many(range(len(index)), columns):
        assert find_outside(index, number, page.select(keys)) is None
        opened = open_page(number, page, keys)
        fresh = open_page(number, page.drop_columns(ORDER) if ORDER in page.schema.names else page, keys)
        assert (opened.keys == fresh.keys).all() and (np.diff(opened.keys.astype(np.int64)) >= 0).all()
        for home in np.unique(locate(index, opened.rows.select(keys))):
            assert home <= number and continues[home:number].all()
