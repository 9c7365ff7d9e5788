"""Answers of a hub against DuckDB at a small size: their number and a checksum that does not depend on the order.

DuckDB gets every query as it is written. The first batch comes before the commands, so that its rows must not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from bench.hub_load import GROUPS, NAMES, Load, domain_for, shape_queries, template_queries, told
from bench.hub_local import MeasuredHub
from bench.many_state import scratch
from bench.report import Finding

# A query that is in force from the first batch, so that the rows of that batch are stored.
_KEEPER = {"keeper": "SELECT R0.a0 AS x FROM R0, R1 WHERE R0.a0 = R1.a1 AND R0.a2 = -1"}


@dataclass(frozen=True, slots=True)
class Sum:
    """The number of answers, and the sum of their hashes: equal for equal multisets."""

    answers: int
    checksum: str


def checked(quick: bool) -> list[Finding]:
    """Templates and random shapes."""
    rows, batches = (400, 3) if quick else (2_000, 5)
    templates, shapes = (5, 40) if quick else (20, 400)
    return [
        _finding(
            f"answers of {len(queries):,} queries of {name} over {batches - 1} batches of {rows:,} rows",
            *compared(Load(_domain(chains, rows, batches), rows, is_compared), queries, batches),
        )
        for name, queries, chains, is_compared in (
            (f"{templates} templates", template_queries(templates), templates / GROUPS, True),
            ("random shapes", shape_queries(shapes), shapes, False),
        )
    ]


def _domain(chains: float, rows: int, batches: int) -> int:
    """About as many answers in all as rows."""
    return domain_for(rows * batches, chains, rows * batches, 0)


def compared(load: Load, queries: Mapping[str, str], batches: int) -> tuple[Sum, Sum]:
    """What the hub answers and what DuckDB does. The queries are added in the first batch."""
    with scratch() as folder:
        return by_hub(folder, load, queries, batches), by_duckdb(load, queries, batches)


def by_hub(folder: Path, load: Load, queries: Mapping[str, str], batches: int) -> Sum:
    hub = MeasuredHub(folder, load, _KEEPER)
    found = [hub.timed(told(queries)).answers, *(hub.timed().answers for _ in range(batches - 1))]
    answers = pa.concat_tables(found)
    with duckdb.connect() as db:
        db.register("answers", answers)
        return _sum(db, "SELECT query, answer FROM answers WHERE event = 'answer'")


def by_duckdb(load: Load, queries: Mapping[str, str], batches: int) -> Sum:
    came = [load.batch(number) for number in range(1, batches)]
    with duckdb.connect() as db:
        for name in NAMES:
            db.register("rows", pa.concat_tables([batch[name] for batch in came]))
            db.execute(f"CREATE TABLE {name} AS FROM rows")
        db.execute("CREATE TABLE answers (query VARCHAR, answer VARCHAR)")
        for id_, text in queries.items():
            shown = """'{"x":' || x || ',"y":' || y || '}'"""
            db.execute(f"INSERT INTO answers SELECT '{id_}', {shown} FROM ({text})")
        return _sum(db, "FROM answers")


def _sum(db: Any, answers: str) -> Sum:
    row = db.execute(
        f"SELECT count(*), coalesce(sum(hash(query, answer)), 0)::VARCHAR FROM ({answers})"
    ).fetchone()
    return Sum(int(row[0]), str(row[1]))


def _finding(demand: str, hub: Sum, wanted: Sum) -> Finding:
    if hub == wanted:
        shown = f"equal: {hub.answers:,} answers, checksum {hub.checksum}"
    else:
        shown = f"differ: {hub.answers:,} and {wanted.answers:,} answers"
    return Finding(demand, "DuckDB's, number and checksum", shown, hub == wanted and hub.answers > 0)
