"""The six relations of TPC-H's query 5 as streams, joined as the query joins them, without its filters and its sum.

The rows are those of `tpchgen-cli`. Their foreign keys are drawn anew by Zipf's law (even for alpha 0): customers of
orders, orders and suppliers of lineitems, nations of customers and suppliers. Which key is popular has nothing to do with
its number. Streams arrive in 20 batches, each with a twentieth of every relation; nations and regions arrive whole, with
the first batch.

The chain joins in the order of the query's FROM. Every other order that Spark could chain has more intermediate results,
or needs suppliers and customers of one nation to meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.graphs import GraphWorkload, Relation
from papers.shared.tpch import TABLES, tables
from papers.shared.zipf import rank_shares

# Each relation: its table, how many rows it has at scale 1, its own key, and its foreign keys with the relation that
# each points to. The rows of nations and regions do not depend on the scale.
_RELATIONS = {
    "c": ("customer", 150_000, "custkey", {"nationkey": "n"}),
    "o": ("orders", 1_500_000, "orderkey", {"custkey": "c"}),
    "l": ("lineitem", 6_001_215, "", {"orderkey": "o", "suppkey": "s"}),
    "s": ("supplier", 10_000, "suppkey", {"nationkey": "n"}),
    "n": ("nation", 25, "nationkey", {"regionkey": "r"}),
    "r": ("region", 5, "regionkey", {}),
}
_FIXED = ("n", "r")
_CONDITIONS = (
    "c.custkey = o.custkey",
    "l.orderkey = o.orderkey",
    "l.suppkey = s.suppkey",
    "c.nationkey = s.nationkey",
    "s.nationkey = n.nationkey",
    "n.regionkey = r.regionkey",
)
# Beside the keys: what the query sums up, in units of 0.01, and the names by which it groups and filters.
_VALUES = {"l": ("extendedprice", "discount"), "n": ("name",), "r": ("name",)}
_TYPES = {"extendedprice": "bigint", "discount": "bigint", "name": "string"}


@dataclass(frozen=True, slots=True)
class Q5Workload(GraphWorkload):
    """Query 5 at a scale factor, of which 1 is about 6 million lineitems."""

    scale: float = 0.1

    @property
    def select(self) -> tuple[str, ...]:
        keys = [f"{name}.{key} AS {name}_{key}" for name, (_, _, key, _) in _RELATIONS.items() if key]
        return (
            *keys,
            *(f"{name}.{one} AS {name}_{one}" for name, values in _VALUES.items() for one in values),
        )

    @property
    def text(self) -> str:
        return (
            f"{self.name} six relations of TPC-H, scale {self.scale:g}, foreign keys by Zipf's law, alpha "
            f"{self.alpha:g}, {self.batches} batches, {self.heap_gb} GB heap"
        )

    @property
    def new_rows(self) -> list[int]:
        sizes = [[len(rows) for rows in self.batches_of(number)] for number in range(len(self.relations))]
        return [sum(one[batch] for one in sizes if batch < len(one)) for batch in range(self.batches)]

    def schema(self, name: str) -> str:
        return ", ".join(f"{column} {_TYPES.get(column, 'bigint')}" for column in _columns(name))

    def facts(self) -> str:
        return f"q5,{self.scale},{self.batches},{self.seed},{self.alpha}"

    def quick(self) -> Q5Workload:
        return replace(self, name=f"{self.name}-quick", scale=self.scale / 10, heap_gb=min(self.heap_gb, 4))

    def batches_of(self, number: int) -> Iterator[pa.Table]:
        name = self.relations[number].name
        whole = self._rows(name, np.random.default_rng((self.seed, number)))
        parts = 1 if name in _FIXED else self.batches
        for batch in range(parts):
            low, high = (len(whole) * edge // parts for edge in (batch, batch + 1))
            yield whole.slice(low, high - low)

    def _rows(self, name: str, rng: np.random.Generator) -> pa.Table:
        # That module imports the workloads.
        from bench.data import cache_dir

        home = tables(cache_dir() / "q5", self.scale, (*TABLES, "customer"))
        table, _, own, foreign = _RELATIONS[name]
        rows = pq.read_table(home / f"{table}.parquet")
        rows = rows.rename_columns([column.partition("_")[2] for column in rows.column_names])
        columns = {own: rows[own].cast(pa.int64())} if own else {}
        for key, points_to in foreign.items():
            known = self._keys_of(home, points_to)
            drawn = _drawn(known, len(rows), self.alpha, rng)
            columns[key] = rows[key] if name in _FIXED else pa.array(drawn)
        for value in _VALUES.get(name, ()):
            columns[value] = rows[value] if value == "name" else _cents(rows[value])
        kinds = {column: pa.string() if column == "name" else pa.int64() for column in columns}
        return pa.table(columns).cast(pa.schema(kinds))

    @staticmethod
    def _keys_of(home: Path, name: str) -> np.ndarray:
        table, _, own, _ = _RELATIONS[name]
        column = f"{table[0]}_{own}"
        return pq.read_table(home / f"{table}.parquet", columns=[column])[column].to_numpy().astype(np.int64)


def _columns(name: str) -> list[str]:
    _, _, own, foreign = _RELATIONS[name]
    return [*([own] if own else []), *foreign, *_VALUES.get(name, ())]


def _drawn(keys: np.ndarray, rows: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    reached = np.cumsum(rank_shares(len(keys), alpha))
    ranks = np.minimum(np.searchsorted(reached, rng.random(rows), "right"), len(keys) - 1)
    return rng.permutation(keys)[ranks]


def _cents(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.multiply(values.cast(pa.float64()), 100.0).cast(pa.int64(), safe=False)


def _q5(alpha: float, scale: float = 0.1, batches: int = 20, name: str = "") -> Q5Workload:
    relations = tuple(Relation(one, tuple((column, 0) for column in _columns(one))) for one in _RELATIONS)
    rows = int(_RELATIONS["l"][1] * scale)
    return Q5Workload(
        name or f"q5-{alpha:g}", rows, batches, 8, relations, _CONDITIONS, alpha=alpha, scale=scale
    )


Q5 = tuple(_q5(alpha) for alpha in (0.0, 0.5, 1.0))
Q5_CHECK = _q5(1.0, scale=0.01, batches=8, name="q5-check")
