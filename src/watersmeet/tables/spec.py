"""What `wm.table` takes: where a table is, which columns are its key, how fresh it must be.

Nothing is opened here, so a `Table` is cheap, immutable and can be pickled (unless its source is a DataFrame, which
stays on the driver). `tables/prepare.py` turns it into a `PreparedTable`.

An address is a path, a URI, or `env:NAME` for a URI in an environment variable. The variable is read where the table
is opened, on the driver and in each task, so its credential is neither in the query that Spark ships nor in the
state. Messages and reprs blank credentials out (`watersmeet/credentials.py`), also in what a database driver says. A
password that is written into the URI itself does go to the executors with the query.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.credentials import hide, scrub
from watersmeet.errors import TableError, UsageError

# A length of time as a user gives it: "10 minutes", seconds, or a timedelta.
Span = str | int | float | datetime.timedelta

SQLITE = ("sqlite",)
POSTGRESQL = ("postgresql", "postgres")
DATABASES = SQLITE + POSTGRESQL

# A server that is restarted is back within a minute; a task that waits much longer looks as if it hung.
PATIENCE_S = 60.0

# A page of a sorted copy or of a database. Each read has a fixed cost, which smaller pages pay more often; larger ones
# make a batch with few rows read more than it needs. docs/adr/006-tables.md has the times of other sizes.
PAGE_BYTES = 512 << 10

_FROM_ENVIRONMENT = "env:"
# `s3://bucket/x`: two letters at least, so that a Windows drive is not taken for a scheme.
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Where a table is. `text` is what the user wrote.

    >>> Address("postgresql://ada:s3cret@db/shop")
    postgresql://***@db/shop
    """

    text: str

    @property
    def variable(self) -> str | None:
        """The environment variable that holds the URI, if one does."""
        return self.text.removeprefix(_FROM_ENVIRONMENT) if self.text.startswith(_FROM_ENVIRONMENT) else None

    @property
    def uri(self) -> str:
        """The path or URI itself. It may hold a credential: not for messages."""
        name = self.variable
        if name is None:
            return self.text
        found = os.environ.get(name)
        if not found:
            raise TableError(
                f"{self.text}: the environment variable {name} is not set. Set it to the URI, on the driver "
                f"and on every executor (spark.executorEnv.{name})"
            )
        return found

    @property
    def scheme(self) -> str:
        """The scheme in lower case; empty for a path."""
        found = _SCHEME.match(self.uri)
        return found[1].lower() if found else ""

    def __repr__(self) -> str:
        return hide(self.text)

    def scrub(self, message: str) -> str:
        """A message of someone else, without the credentials of this URI."""
        uri = os.environ.get(self.variable, "") if self.variable else self.text
        return scrub(message, uri)


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """A table as `wm.table` describes it. `source` is an address, or a DataFrame (any object that has one's methods).

    `refresh_s` is how old a cached page may be; with None a page stays as it was read. `in_place` says whether Parquet
    files are read as they are; with None they are where that is fast enough.
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
        """The address; None for a DataFrame."""
        return self.source if isinstance(self.source, Address) else None

    @property
    def label(self) -> str:
        """The table's name in messages."""
        if self.name:
            return f"table {self.name}"
        if self.address is None:
            return "the table made from a DataFrame"
        return f"table {self.table} of {self.address!r}" if self.table else f"table {self.address!r}"

    @property
    def layout(self) -> tuple[object, ...]:
        """The options that decide how the table is cut into pages, for its fingerprint."""
        return self.keys, self.page_rows, self.page_bytes

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
        refresh: how old cached pages may be, such as `"10 minutes"` or a number of seconds. After that time they are
            read again, and new, changed and removed files and new versions are seen. Without it a page stays as it
            was read until the query is started again. Not for a DataFrame, which is taken as it is when the join is
            made.
        page_rows, page_bytes: the size of a page where the table is sorted into the state or is in a database.
            Default: 512 KB. Larger pages help where each read of a database takes long; smaller ones where rows are
            few and spread over all keys.
        in_place: True: use Parquet files as they are, and fail if they are not sorted by the key; False: sort them
            once, into the state. Default: in place where row groups are small and do not overlap, until decoding them
            has cost as much as a sorted copy. The copy is then made in the background.
        name: the table's name in messages and in the status.
        patience: how long to try again when a database is unreachable.

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
                "leave refresh out, or give the path or URI that the DataFrame is read from"
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
    """Check without reading the environment: the variable of `env:NAME` may be set later."""
    database = address.variable is not None or address.scheme in DATABASES
    if database and not table:
        raise UsageError(f'{address!r} is a database: say which table, such as table="products"')
    if not database and table is not None:
        raise UsageError(
            f"table={table!r} is for databases ({', '.join(f'{name}://' for name in DATABASES)}, env:NAME), and "
            f"{address!r} is not one"
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
        raise UsageError(f"{what} must be a whole number from 1 up, got {value!r}")
    return value


def read_seconds(what: str, given: Span) -> float:
    """The seconds of a duration; `what` names the argument in messages."""
    if isinstance(given, datetime.timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, str):
        seconds = _read_span(what, given)
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        seconds = float(given)
    else:
        raise UsageError(f'{what} must be a duration such as "10 minutes", or seconds, got {given!r}')
    if not 0 <= seconds < float("inf"):
        raise UsageError(
            f'{what} must be a finite, non-negative duration such as "10 minutes", got {given!r}'
        )
    return seconds


def _read_span(what: str, text: str) -> float:
    # Imported here: `import watersmeet` loads this module, and must not load Arrow and a SQL parser.
    from watersmeet.predicate.literals import LiteralError, interval_text, micros_of

    try:
        micros = micros_of(interval_text(text))
    except LiteralError:
        raise UsageError(
            f'{what} must be a duration with units, such as "10 minutes" or "1 day 12 hours", got {text!r}'
        ) from None
    if micros is None:
        raise UsageError(
            f"{what} must be given in days or less, got {text!r}: months and years differ in length"
        )
    return micros / 1e6
