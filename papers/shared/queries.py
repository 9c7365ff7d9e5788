"""The five joins of the evaluation over TPC-H, and their two inputs, materialised before streaming.

Source: Elseidy et al. 2014, Table 1. EQ5 and EQ7 are the costliest joins of TPC-H queries 5 and 7; the band
joins pair lineitems by order or by day of shipping; Fluct-join pairs lineitems and orders. The first input is
the paper's R, the smaller one except in Fluct-join.

Skew is drawn over the foreign keys of lineitem that the joins use, l_suppkey and l_orderkey; z = 0 leaves
TPC-H's own values, which are uniform. Rows keep the columns that results show, and a number of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from papers.shared.zipf import draw_keys

SEED = 2014
SKEWS = (0.0, 0.25, 0.5, 0.75, 1.0)

_LINES = (
    "l_orderkey",
    "l_suppkey",
    "l_quantity",
    "l_extendedprice",
    "l_shipdate",
    "l_shipinstruct",
    "l_shipmode",
)


@dataclass(frozen=True, slots=True)
class Query:
    """One join: how to make its inputs from the tables, the predicate, the columns that come out.

    `inputs` has the SQL for each side, empty if its rows are not made from tables.
    """

    name: str
    title: str
    inputs: dict[str, str]
    on: str
    select: tuple[str, ...]
    key: str
    width: int = 0

    @property
    def equality(self) -> bool:
        """Whether rows of equal keys meet; a band's keys may be `width` apart."""
        return self.width == 0

    @property
    def sides(self) -> tuple[str, str]:
        left, right = self.inputs
        return left, right


_LINE_VALUE = "CAST(l_extendedprice AS DOUBLE) AS price"

EQ5 = Query(
    "EQ5",
    "(region x nation x supplier) x lineitem on suppkey",
    {
        "s": "SELECT s_suppkey AS suppkey, n_nationkey AS nation FROM supplier JOIN nation ON s_nationkey = "
        "n_nationkey JOIN region ON n_regionkey = r_regionkey WHERE r_name = 'AMERICA'",
        "l": f"SELECT l_suppkey AS suppkey, l_orderkey AS orderkey, {_LINE_VALUE} FROM lines",
    },
    "s.suppkey = l.suppkey",
    ("s.suppkey", "s.nation", "l.orderkey", "l.price"),
    key="suppkey",
)
EQ7 = Query(
    "EQ7",
    "(supplier x nation) x lineitem of 1995 and 1996 on suppkey",
    {
        "s": "SELECT s_suppkey AS suppkey, n_nationkey AS nation FROM supplier JOIN nation ON s_nationkey = "
        "n_nationkey WHERE n_name IN ('PERU', 'ETHIOPIA')",
        "l": f"SELECT l_suppkey AS suppkey, l_orderkey AS orderkey, {_LINE_VALUE} FROM lines "
        "WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'",
    },
    "s.suppkey = l.suppkey",
    ("s.suppkey", "s.nation", "l.orderkey", "l.price"),
    key="suppkey",
)
B_NCI = Query(
    "B_NCI",
    "lineitem x lineitem within one orderkey",
    {
        "l1": "SELECT l_orderkey AS orderkey, number FROM lines WHERE l_shipmode = 'TRUCK' AND l_quantity > 48",
        "l2": "SELECT l_orderkey AS orderkey, number FROM lines WHERE l_shipinstruct = 'NONE'",
    },
    "abs(l1.orderkey - l2.orderkey) <= 1",
    ("l1.number", "l2.number AS other"),
    key="orderkey",
    width=1,
)
B_CI = Query(
    "B_CI",
    "lineitem x lineitem within one day of shipping",
    {
        "l1": "SELECT l_shipdate - DATE '1970-01-01' AS shipday, number FROM lines "
        "WHERE l_shipmode = 'TRUCK' AND l_quantity > 45",
        "l2": "SELECT l_shipdate - DATE '1970-01-01' AS shipday, number FROM lines WHERE l_shipmode <> 'TRUCK'",
    },
    "abs(l1.shipday - l2.shipday) <= 1",
    ("l1.number", "l2.number AS other"),
    key="shipday",
    width=1,
)
FLUCT = Query(
    "Fluct",
    "lineitem x orders on orderkey, arriving in turns",
    {
        "l": f"SELECT l_orderkey AS orderkey, l_suppkey AS suppkey, {_LINE_VALUE} FROM lines",
        "o": "SELECT o_orderkey AS orderkey, CAST(o_totalprice AS DOUBLE) AS total FROM orders",
    },
    "l.orderkey = o.orderkey",
    ("l.orderkey", "l.price", "o.total"),
    key="orderkey",
)

QUERIES = {query.name: query for query in (EQ5, EQ7, B_NCI, B_CI, FLUCT)}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The two inputs of a query, whole and in the order in which they arrive."""

    query: Query
    tables: dict[str, pa.Table]

    @property
    def rows(self) -> tuple[int, int]:
        left, right = (len(self.tables[side]) for side in self.query.sides)
        return left, right

    @property
    def bytes(self) -> tuple[int, int]:
        left, right = (self.tables[side].nbytes for side in self.query.sides)
        return left, right

    def keys(self, side: str) -> npt.NDArray[np.int64]:
        return self.tables[side][self.query.key].to_numpy()

    def count_results(self) -> int:
        """How many pairs meet, by sorting one side: independent of any operator."""
        left, right = (self.keys(side) for side in self.query.sides)
        partners, width = np.sort(right), self.query.width
        high = np.searchsorted(partners, left + width, side="right")
        return int((high - np.searchsorted(partners, left - width, side="left")).sum())

    def heaviest_share(self) -> float:
        """Of the rows of both inputs, those with the most frequent key."""
        keys = np.concatenate([self.keys(side) for side in self.query.sides])
        return float(np.unique(keys, return_counts=True)[1].max() / len(keys))


def materialise(home: Path, query: Query, z: float, seed: int = SEED) -> Inputs:
    """Make a query's inputs from the tables in `home`, skewed by z, in a random order."""
    with duckdb.connect() as connection:
        for table in ("region", "nation", "supplier", "orders"):
            # A file's name cannot be a parameter of a view.
            path = str(home / f"{table}.parquet").replace("'", "''")
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{path}')")
        connection.register("lines", _lines(home, z, seed))
        inputs = {}
        for place, (side, sql) in enumerate(query.inputs.items()):
            rows = connection.sql(sql).to_arrow_table()
            # DuckDB's threads return rows in any order; the arrival must follow from the seed alone.
            rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
            inputs[side] = rows.take(np.random.default_rng((seed, place)).permutation(len(rows)))
    return Inputs(query, inputs)


def _lines(home: Path, z: float, seed: int) -> pa.Table:
    lines = pq.read_table(home / "lineitem.parquet", columns=list(_LINES))
    lines = lines.append_column("number", pa.array(np.arange(len(lines))))
    if z == 0:
        return lines
    rng = np.random.default_rng((seed, round(z * 100)))
    for column, table, key in (
        ("l_suppkey", "supplier", "s_suppkey"),
        ("l_orderkey", "orders", "o_orderkey"),
    ):
        keys = pq.read_table(home / f"{table}.parquet", columns=[key])[key].to_numpy()
        drawn = pa.array(draw_keys(keys, len(lines), z, rng))
        lines = lines.set_column(lines.column_names.index(column), column, drawn)
    return lines
