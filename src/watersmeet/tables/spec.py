"""What a user says of a table: where it is, which columns are its key, how fresh it must be.

Nothing is opened here, so a `Table` is cheap, immutable and can be pickled (unless its source is a DataFrame, which
stays on the driver). `tables/prepare.py` turns it into a `Source`.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.errors import UsageError
from watersmeet.tables.address import Address

# How long something may take, as a user says it: "10 minutes", seconds, or a timedelta.
Span = str | int | float | datetime.timedelta

SQLITE = ("sqlite",)
POSTGRESQL = ("postgresql", "postgres")
_DATABASES = SQLITE + POSTGRESQL

# A server that is restarted is back within a minute; a task that waits much longer looks as if it hung.
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """A table as `wm.table` describes it. `source` is an address, or a DataFrame (any object that has one's methods).

    `refresh_s` is how old a cached page may be; None: a page that was read stays as it was. `in_place` says whether
    files may be read as they are: None where that is good enough.
    """

    source: object
    keys: tuple[str, ...]
    table: str | None = None
    refresh_s: float | None = None
    page_rows: int | None = None
    page_bytes: int | None = None
    in_place: bool | None = None
    name: str | None = None
    patience_s: float = PATIENCE_S

    @property
    def address(self) -> Address | None:
        """Where it is; None for a DataFrame."""
        return self.source if isinstance(self.source, Address) else None

    @property
    def label(self) -> str:
        """How messages name it."""
        if self.name:
            return f"table {self.name}"
        if self.address is None:
            return "the table made from a DataFrame"
        return f"table {self.table} of {self.address!r}" if self.table else f"table {self.address!r}"

    @property
    def is_database(self) -> bool:
        return self.table is not None

    def __repr__(self) -> str:
        source = f"{self.address!r}" if self.address is not None else f"<{type(self.source).__name__}>"
        shown = [f"'{source}'" if self.address is not None else source, f"key={list(self.keys)}"]
        shown += [
            f"{name}={value!r}"
            for name, value in (("table", self.table), ("refresh_s", self.refresh_s), ("name", self.name))
            if value is not None
        ]
        return f"table({', '.join(shown)})"


def table(
    source: object,
    key: str | Sequence[str],
    *,
    table: str | None = None,
    refresh: Span | None = None,
    page_rows: int | None = None,
    page_bytes: int | None = None,
    in_place: bool | None = None,
    name: str | None = None,
    patience: Span = PATIENCE_S,
) -> Table:
    """A table to join a stream with: `wm.join({"s": sales, "p": wm.table("products.parquet", key="id")}, ...)`.

    Args:
        source: a Parquet file or a directory of them (a path or a URI that `pyarrow.fs` knows); a Delta or Iceberg
            table, by its directory or as `"iceberg://catalogue/namespace.table"`; a database, as
            `"sqlite:///shop.db"` or `"postgresql://user@host/shop"`; `"env:NAME"` where the URI with its
            credentials is in the environment variable NAME, here and on the executors; or a static DataFrame.
        key: the column that the stream is joined on, or several. They need not be unique.
        table: for a database, the table or view; `"schema.table"` for one in a schema.
        refresh: how old what is known of the table may be, such as `"10 minutes"` or a number of seconds: cached
            pages are read again after that, and new, changed and removed files and new versions are seen. Without
            it a page that was read stays as it was until the query is started again. Not for a DataFrame, which is
            taken as it is when the join is made.
        page_rows, page_bytes: how large a page is, where the table is sorted into the state (default: 512 KB) or is in
            a database (default: as large as what its reads cost calls for, measured once).
        in_place: True: use the files as they are, an error if they are not sorted by the key; False: sort them once,
            into the state. Default: in place where row groups are small and do not overlap.
        name: what messages and the status call it.
        patience: how long to go on trying when a database is unreachable.

    Example:
        >>> table("products.parquet", key="id")
        table('products.parquet', key=['id'])
    """
    address = _address(source)
    spec = Table(
        source=address or source,
        keys=_keys(key),
        table=table,
        refresh_s=None if refresh is None else read_seconds("refresh", refresh),
        page_rows=_count("page_rows", page_rows),
        page_bytes=_count("page_bytes", page_bytes),
        in_place=in_place,
        name=name,
        patience_s=read_seconds("patience", patience),
    )
    if address is None:
        _check_frame(source)
        if refresh is not None:
            raise UsageError(
                "refresh= is for files and databases, and a DataFrame is written once, as it is when the join is made: "
                "leave refresh out, or give the path or the URI that the DataFrame is read from"
            )
    else:
        _check_address(address, table)
    if in_place and (table is not None or address is None):
        raise UsageError("in_place= is for Parquet files: leave it out")
    return spec


def _address(source: object) -> Address | None:
    if isinstance(source, (str, os.PathLike)):
        text = os.fspath(source)
        if not isinstance(text, str) or not text.strip():
            raise UsageError("a table needs a place: a path, a URI or env:NAME")
        return Address(text)
    return None


def _check_frame(source: object) -> None:
    if not hasattr(source, "isStreaming"):
        raise UsageError(
            f"a table is a path, a URI, env:NAME or a static DataFrame, not {type(source).__name__}"
        )
    if source.isStreaming:
        raise UsageError("a table does not stream: pass the streaming DataFrame to wm.join as it is")


def _check_address(address: Address, table: str | None) -> None:
    """Without looking at the environment: the variable of `env:NAME` may be set later."""
    database = address.variable is not None or address.scheme in _DATABASES
    if database and not table:
        raise UsageError(f'{address!r} is a database: say which table, such as table="products"')
    if not database and table is not None:
        raise UsageError(
            f"table={table!r} is for databases ({', '.join(f'{name}://' for name in _DATABASES)}, env:NAME), and "
            f"{address!r} is none"
        )


def _keys(key: str | Sequence[str]) -> tuple[str, ...]:
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys or not all(isinstance(name, str) and name for name in keys):
        raise UsageError(f'key={key!r}: name a column, or several as a list, such as ["region", "id"]')
    if len(set(keys)) < len(keys):
        raise UsageError(f"key={key!r} names a column twice")
    return keys


def _count(what: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"{what}={value!r}: give a whole number from 1 up")
    return value


def read_seconds(what: str, given: Span) -> float:
    if isinstance(given, datetime.timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, str):
        seconds = _read_span(what, given)
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        seconds = float(given)
    else:
        raise UsageError(f'{what}={given!r}: give a length of time, such as "10 minutes", or seconds')
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"{what}={given!r}: a length of time is not negative, and ends")
    return seconds


def _read_span(what: str, text: str) -> float:
    # Here, because `import watersmeet` comes by this module and must not load Arrow and a parser of SQL.
    from watersmeet.predicate.literals import YEAR_MONTH, LiteralError, fields_of, interval_text

    try:
        literal = interval_text(text)
    except LiteralError:
        raise UsageError(
            f'{what}={text!r} is no length of time: write numbers and units, such as "10 minutes" or "1 day 12 hours"'
        ) from None
    family = fields_of(literal.type)
    if family is not None and family[0] == YEAR_MONTH:
        raise UsageError(f"{what}={text!r}: months and years differ in length; give days")
    assert isinstance(literal.value, int)
    return literal.value / 1e6
