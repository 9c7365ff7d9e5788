"""A connection to a database that survives the database's absence for a while.

A query that fails because the connection is gone, or the server is not there or is starting, is tried again with
growing pauses until the patience is used up. Results are taken whole, so no row is seen twice. Every statement is a
transaction of its own, so that each sees what was committed before it. A database whose file was replaced by another is
connected to anew.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.errors import ConfigError, TableError
from watersmeet.tables.address import Address

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

# TLS that the URI asks for and the server cannot give, as libpq and OpenSSL say it. Each has a space: messages also
# hold the host's name, which may be anything else.
_TLS = (
    r"does not support SSL|certificate verify failed|(?:server|root|client|peer|server's|peer's) certificate"
    r"|certificate (?:file|authentication|revocation)|alert (?:bad |unsupported )?certificate|alert unknown ca|sslmode \S"
)
_UNTRUSTED = re.compile(_TLS)
# What a server says to those who will not get in, however often they try.
_REFUSED = re.compile(
    r"authentication failed|does not exist|pg_hba\.conf|no password supplied|permission denied|not supported|invalid"
    rf"|{_TLS}"
)
_TLS_ADVICE = (
    ". Check sslmode= and sslrootcert= of the URI, that the file is on the driver and on every executor, and that the "
    "host is one that the server's certificate names"
)


class Driver(Protocol):
    """How to reach one kind of database."""

    @property
    def statement_options(self) -> Mapping[str, str]: ...

    def connect(self, uri: str) -> Any:
        """A connection of the driver, each statement its own transaction."""
        ...

    def identity(self, uri: str) -> object:
        """What a connection made now would be to, if that can change; None if it cannot, or cannot be told."""
        ...

    def is_passing(self, error: Exception) -> bool:
        """Whether trying again can help."""
        ...


class Session:
    """One connection, made when it is needed. Threads take turns: a page may be on its way ahead of its use.

    The connection is closed with the session, at the latest when the process ends: drivers complain otherwise.
    """

    def __init__(
        self,
        driver: Driver,
        address: Address,
        label: str,
        patience_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.label = label
        self._driver = driver
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
                if not self._driver.is_passing(error):
                    # Not `from error`: what libpq says of a URI that it cannot read holds the whole of it.
                    advice = _TLS_ADVICE if _UNTRUSTED.search(str(error)) else ""
                    raise self._failed("cannot be read", error, advice) from None
                if self._clock() + pause > deadline:
                    raise self._failed(
                        f"cannot be reached, for {self._patience_s:g} s already",
                        error,
                        ". Start the database, or check the address, the network and the credentials; then start the "
                        "query again: nothing is lost. patience= says how long to go on trying",
                    ) from None
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def close(self) -> None:
        with self._turn:
            _disconnect(self._connections)

    def _once(self, query: str, parameters: pa.RecordBatch | None) -> pa.Table:
        uri = self._address.uri
        identity = self._driver.identity(uri)
        if identity is not None and identity != self._connected_to:
            _disconnect(self._connections)
        if not self._connections:
            self._connections.append(self._driver.connect(uri))
            self._connected_to = identity
        with self._connections[0].cursor() as cursor:
            if self._driver.statement_options:
                cursor.adbc_statement.set_options(**self._driver.statement_options)
            cursor.execute(query, parameters=parameters)
            return cursor.fetch_arrow_table()

    def _failed(self, what: str, error: Exception, advice: str) -> TableError:
        said = self._address.scrub(str(error)).partition("Query was:")[0].strip()
        return TableError(f"{self.label} {what}: {said}{advice}")


def _disconnect(connections: list[Any]) -> None:
    while connections:
        # It may be lost already, and nothing depends on how it ends.
        with contextlib.suppress(Exception):
            connections.pop().close()


def is_refused(error: Exception) -> bool:
    return _REFUSED.search(str(error)) is not None


def load_driver(name: str) -> Any:
    """A driver's module, or how to get it."""
    try:
        return importlib.import_module(f"{name}.dbapi")
    except ImportError as error:
        raise ConfigError(
            f"tables in databases need the package {name.replace('_', '-')}: pip install 'watersmeet[databases]', on "
            "the driver and on every executor"
        ) from error
