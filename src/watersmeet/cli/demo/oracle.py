"""Compare our results with DuckDB's join of the same files, as multisets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

# Rows of a difference that are printed.
_SHOWN_ROWS = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """The number of results, of rows that only DuckDB has, and of rows that only we have."""

    results: int
    missing: int
    unexpected: int
    examples: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return self.missing == self.unexpected == 0


def compare(inputs: dict[str, Path], on: str, select: Sequence[str], results: Sequence[str]) -> Verdict:
    """Join with DuckDB and compare. `inputs` are directories of Parquet by the names that `on` and `select` use."""
    with duckdb.connect() as connection:
        for name, folder in inputs.items():
            connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{_quoted(folder)}/*.parquet')")
        left, right = inputs
        connection.execute(
            f"CREATE TABLE expected AS SELECT {', '.join(select)} FROM {left} JOIN {right} ON {on}"
        )
        if results:
            files = ", ".join(f"'{_quoted(path)}'" for path in results)
            connection.execute(f"CREATE TABLE found AS FROM read_parquet([{files}])")
        else:
            connection.execute("CREATE TABLE found AS FROM expected LIMIT 0")
        connection.execute("CREATE TABLE missing AS FROM expected EXCEPT ALL FROM found")
        connection.execute("CREATE TABLE unexpected AS FROM found EXCEPT ALL FROM expected")
        return Verdict(
            results=_count(connection, "found"),
            missing=_count(connection, "missing"),
            unexpected=_count(connection, "unexpected"),
            examples=(*_examples(connection, "missing"), *_examples(connection, "unexpected")),
        )


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


def _examples(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    rows = connection.execute(f"FROM {table} LIMIT {_SHOWN_ROWS}").fetchall()
    return [f"{table}: {row}" for row in rows]


def _quoted(path: object) -> str:
    return str(path).replace("'", "''")
