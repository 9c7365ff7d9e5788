"""What is said to a database: queries over one table, and a session that outlasts the database's absence for a while.

Identifiers are quoted, values are always bound. Numbered parameters (`$1`, `?1`) let a query name one twice. Several
key columns are compared as rows, `(a, b) >= ($1, $2)`, which databases answer from one index over them.

A query that fails because the connection is lost, or the server is unreachable or starting, is tried again with
growing pauses until the patience is used up. Results are taken whole, so no row is seen twice. Every statement is its
own transaction, so each sees what was committed before it. If another file replaces that of a database, the session
connects to the new one.

A `Dialect` is what differs between databases; `tables/dialects.py` has one for each.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from watersmeet.errors import ConfigError, TableError, UsageError
from watersmeet.tables.spec import Address, Table

_PART = re.compile(r'"(?:[^"]|"")+"|[^."]+')

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

# How libpq and OpenSSL report that the server cannot give the TLS that the URI asks for. Each has a space: messages
# also hold the host's name, which may be anything else.
_TLS = (
    r"does not support SSL|certificate verify failed|(?:server|root|client|peer|server's|peer's) certificate"
    r"|certificate (?:file|authentication|revocation)|alert (?:bad |unsupported )?certificate"
    r"|alert unknown ca|sslmode \S"
)
_UNTRUSTED = re.compile(_TLS)
# Refusals that no further attempt changes.
_REFUSED = re.compile(
    r"authentication failed|does not exist|pg_hba\.conf|no password supplied|permission denied|not supported|invalid"
    rf"|{_TLS}"
)
_TLS_ADVICE = (
    ". Check sslmode= and sslrootcert= of the URI, that the file is on the driver and on every executor, and that the "
    "host is one that the server's certificate names"
)


def quote(name: str) -> str:
    """An identifier, exactly as written.

    >>> quote('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_table(name: str) -> str:
    """A table, with its schema or without; a part that holds a dot is written in quotes.

    >>> quote_table("shop.Products"), quote_table('"a.b"')
    ('"shop"."Products"', '"a.b"')
    """
    parts = _PART.findall(name)
    if ".".join(parts) != name or not parts:
        raise UsageError(f'table={name!r}: write "table", "schema.table" or "\\"odd.name\\""')
    return ".".join(part if part.startswith('"') else quote(part) for part in parts)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """`compared` is the expression that compares in the order of a join; `cast` follows a parameter."""

    name: str
    compared: str
    cast: str = ""


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table in SQL. `name` is quoted; `selected` has the expression of each column; `sign` begins a parameter."""

    name: str
    keys: tuple[KeyColumn, ...]
    selected: tuple[tuple[str, str], ...]
    sign: str

    def mark(self, number: int, key: int) -> str:
        return f"{self.sign}{number}{self.keys[key].cast}"

    def columns(self, names: Sequence[str]) -> str:
        expressions = dict(self.selected)
        return ", ".join(f"{expressions[name]} AS {quote(name)}" for name in names) or "1"

    def rows_between(self, columns: Sequence[str], *, lower: bool, upper: bool) -> str:
        """The rows from a key up to, not including, another. The parameters are the bounds that there are."""
        return f"SELECT {self.columns(columns)} FROM {self.name}{self._between(lower, upper)}"

    def count_between(self, *, lower: bool, upper: bool, limit: int | None = None) -> str:
        """The number of these rows, as `n`, counted up to a limit."""
        most = "" if limit is None else f" LIMIT {limit}"
        return f"SELECT count(*) AS n FROM ({self.rows_between([], lower=lower, upper=upper)}{most}) AS t"

    def every_nth_key(self, step: int) -> str:
        """Each `step`-th key in order, with its place from 1 on."""
        keys = [key.name for key in self.keys]
        order = ", ".join(key.compared for key in self.keys)
        present = " AND ".join(f"{quote(name)} IS NOT NULL" for name in keys)
        return (
            f"SELECT * FROM (SELECT {self.columns(keys)}, row_number() OVER (ORDER BY {order}) AS __wm_place "
            f"FROM {self.name} WHERE {present}) AS numbered "
            f"WHERE (__wm_place - 1) % {step} = 0 ORDER BY __wm_place"
        )

    def first_rows(self, limit: int) -> str:
        return f"SELECT {self.columns([name for name, _ in self.selected])} FROM {self.name} LIMIT {limit}"

    def _between(self, lower: bool, upper: bool) -> str:
        row = _tuple([key.compared for key in self.keys])
        tests = [f"{row} >= {self._marks(1)}"] if lower else []
        if upper:
            tests.append(f"{row} < {self._marks(1 + lower * len(self.keys))}")
        return f" WHERE {' AND '.join(tests)}" if tests else ""

    def _marks(self, start: int) -> str:
        return _tuple([self.mark(start + place, place) for place in range(len(self.keys))])


def _tuple(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


class Dialect(ABC):
    """What differs between databases."""

    statement_options: ClassVar[Mapping[str, str]] = {}
    # Keys that one query looks up.
    keys_at_once: ClassVar[int]

    @abstractmethod
    def connect(self, uri: str) -> Any:
        """A connection of the driver, each statement its own transaction."""

    def identity(self, uri: str) -> object:
        """Which database a connection made now would reach; None if that cannot change or cannot be told."""
        return None

    @abstractmethod
    def is_passing(self, error: Exception) -> bool:
        """Whether trying again can help."""

    @abstractmethod
    def describe(self, session: DatabaseSession, table: Table) -> tuple[SqlTable, pa.Schema]:
        """The table in SQL, and its columns in canonical types."""

    @abstractmethod
    def check_index(self, session: DatabaseSession, relation: SqlTable, keys: pa.Schema) -> None:
        """Refuse a table where finding a range of keys would scan all rows."""

    @abstractmethod
    def estimate_rows(self, session: DatabaseSession, relation: SqlTable) -> int:
        """About the number of rows, if possible without scanning a large table."""

    def lookups(
        self, relation: SqlTable, keys: pa.RecordBatch, columns: Sequence[str]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Queries that together give the rows with these keys, each with its parameters."""
        for start in range(0, keys.num_rows, self.keys_at_once):
            yield self._lookup(relation, keys.slice(start, self.keys_at_once), columns)

    @abstractmethod
    def _lookup(
        self, relation: SqlTable, keys: pa.RecordBatch, columns: Sequence[str]
    ) -> tuple[str, pa.RecordBatch]:
        """The query for some keys, with its parameters as one row."""


class DatabaseSession:
    """One connection, made when it is needed. Threads take turns: pages are read ahead in a thread.

    The connection is closed with the session, at the latest when the process ends: drivers complain otherwise.
    """

    def __init__(
        self,
        dialect: Dialect,
        address: Address,
        label: str,
        patience_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.label = label
        self._dialect = dialect
        self._address = address
        self._patience_s = patience_s
        self._clock, self._sleep = clock, sleep
        self._turn = threading.Lock()
        # At most one.
        self._connections: list[Any] = []
        self._connected_to: object = None
        weakref.finalize(self, _disconnect, self._connections)

    def run(self, query: str, parameters: pa.RecordBatch | None = None) -> pa.Table:
        """The whole result of a query."""
        with self._turn:
            return self._run(query, parameters)

    def count(self, query: str, parameters: pa.RecordBatch | None = None) -> int:
        """The number `n` that a query returns."""
        return int(self.run(query, parameters).column("n")[0].as_py())

    def _run(self, query: str, parameters: pa.RecordBatch | None) -> pa.Table:
        deadline = self._clock() + self._patience_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return self._once(query, parameters)
            except (TableError, ConfigError):
                raise
            except Exception as error:
                _disconnect(self._connections)
                if not self._dialect.is_passing(error):
                    # Not `from error`: libpq repeats the whole of a URI that it cannot read.
                    advice = _TLS_ADVICE if _UNTRUSTED.search(str(error)) else ""
                    raise self._failed("cannot be read", error, advice) from None
                if self._clock() + pause > deadline:
                    raise self._failed(
                        f"cannot be reached, for {self._patience_s:g} s already",
                        error,
                        ". Start the database, or check the address, the network and the credentials; then start the "
                        "query again: nothing is lost. patience= sets how long to try",
                    ) from None
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def close(self) -> None:
        with self._turn:
            _disconnect(self._connections)

    def _once(self, query: str, parameters: pa.RecordBatch | None) -> pa.Table:
        uri = self._address.uri
        identity = self._dialect.identity(uri)
        if identity is not None and identity != self._connected_to:
            _disconnect(self._connections)
        if not self._connections:
            self._connections.append(self._dialect.connect(uri))
            self._connected_to = identity
        with self._connections[0].cursor() as cursor:
            if self._dialect.statement_options:
                cursor.adbc_statement.set_options(**self._dialect.statement_options)
            cursor.execute(query, parameters=parameters)
            return cursor.fetch_arrow_table()

    def _failed(self, what: str, error: Exception, advice: str) -> TableError:
        said = self._address.scrub(str(error)).partition("Query was:")[0].strip()
        return TableError(f"{self.label} {what}: {said}{advice}")


def _disconnect(connections: list[Any]) -> None:
    while connections:
        # It may be lost already; how it ends does not matter.
        with contextlib.suppress(Exception):
            connections.pop().close()


def is_refused(error: Exception) -> bool:
    return _REFUSED.search(str(error)) is not None


def load_driver(name: str) -> Any:
    """The module of an ADBC driver, or a ConfigError that says how to install it."""
    try:
        return importlib.import_module(f"{name}.dbapi")
    except ImportError as error:
        raise ConfigError(
            f"tables in databases need the package {name.replace('_', '-')}: pip install 'watersmeet[databases]', on "
            "the driver and on every executor"
        ) from error
