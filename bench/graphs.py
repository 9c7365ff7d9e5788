"""Joins of many inputs: the workloads, and how each competitor builds them.

A workload is a join graph: relations whose columns are drawn from a number of keys, and the equalities between them.
Chained competitors join one relation after the other, in the order of the workload, and carry every column along.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from papers.shared.zipf import rank_shares

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEED = 20_260_101


@dataclass(frozen=True, slots=True)
class Relation:
    """An input: its name, and from how many keys each of its columns is drawn. It also has a number `id`."""

    name: str
    columns: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GraphWorkload:
    """Relations of `rows` rows each, one file a relation per micro-batch, and the conditions that join them."""

    name: str
    rows: int
    batches: int
    heap_gb: int
    relations: tuple[Relation, ...]
    conditions: tuple[str, ...]
    alpha: float = 0.0
    seed: int = SEED

    # Keys of an input by Zipf's law are ranks, so a key that is frequent in one input is so in the others.
    reach: ClassVar[int] = 0
    filters: ClassVar[dict[str, str]] = {}
    window: ClassVar[None] = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.relations)

    @property
    def streams(self) -> tuple[str, ...]:
        return self.inputs

    @property
    def on(self) -> str:
        return " AND ".join(self.conditions)

    @property
    def select(self) -> tuple[str, ...]:
        """The number of every row, and every column of the first relation."""
        first = self.relations[0]
        return (
            *(f"{first.name}.{column} AS {first.name}_{column}" for column, _ in first.columns),
            *(f"{name}.id AS {name}_id" for name in self.inputs),
        )

    @property
    def text(self) -> str:
        keys = sorted({keys for one in self.relations for _, keys in one.columns})
        skew = f" (Zipf, alpha {self.alpha:g})" if self.alpha else ""
        return (
            f"{self.name} {len(self.relations)} inputs of {self.rows:,} rows, "
            f"{' and '.join(f'{one:,}' for one in keys)} keys{skew}, {self.batches} batches, {self.heap_gb} GB heap"
        )

    @property
    def batch_rows(self) -> int:
        return self.rows // self.batches

    @property
    def new_rows(self) -> list[int]:
        """The rows that each batch brings, of all inputs together."""
        return [len(self.streams) * self.batch_rows] * self.batches

    @property
    def pairs(self) -> int:
        """How many results the first two inputs alone have, by their keys; even keys only."""
        first, second = (dict(one.columns) for one in self.relations[:2])
        shared = [first[column] for column in first.keys() & second.keys()]
        return self.rows**2 // int(np.prod(shared))

    def schema(self, name: str) -> str:
        (one,) = (one for one in self.relations if one.name == name)
        return ", ".join(f"{column} bigint" for column in ("id", *(column for column, _ in one.columns)))

    def facts(self) -> str:
        return f"{self.rows},{self.batches},{self.seed},{self.alpha},{self.relations}"

    def quick(self) -> GraphWorkload:
        """A tenth of the rows and keys: as many matches for each row."""
        smaller = tuple(
            Relation(one.name, tuple((column, max(1, keys // 10)) for column, keys in one.columns))
            for one in self.relations
        )
        return replace(
            self,
            name=f"{self.name}-quick",
            rows=self.rows // 10,
            relations=smaller,
            heap_gb=min(self.heap_gb, 4),
        )

    def batches_of(self, number: int) -> Iterator[pa.Table]:
        """The batches of one relation, by its number."""
        rng, rows = np.random.default_rng((self.seed, number)), self.batch_rows
        relation = self.relations[number]
        for batch in range(self.batches):
            columns = {"id": np.arange(batch * rows, (batch + 1) * rows, dtype=np.int64)}
            yield pa.table(columns | {name: self._keys(keys, rng) for name, keys in relation.columns})

    def _keys(self, keys: int, rng: np.random.Generator) -> np.ndarray:
        if not self.alpha:
            return rng.integers(0, keys, self.batch_rows, dtype=np.int64)
        ranks = np.searchsorted(
            np.cumsum(rank_shares(keys, self.alpha)), rng.random(self.batch_rows), "right"
        )
        return np.minimum(ranks, keys - 1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class SwapWorkload(GraphWorkload):
    """A workload whose columns are drawn from other numbers of keys from batch `change` on, and from other keys.

    `later` has the number of keys by column.
    """

    change: int = 0
    later: tuple[tuple[str, int], ...] = ()

    def facts(self) -> str:
        return f"{GraphWorkload.facts(self)},{self.change},{self.later}"

    def quick(self) -> SwapWorkload:
        """As it is: it takes a minute, and a tenth of its rows would have other fan-outs."""
        return replace(self, name=f"{self.name}-quick")

    def batches_of(self, number: int) -> Iterator[pa.Table]:
        rng, rows = np.random.default_rng((self.seed, number)), self.batch_rows
        later = dict(self.later)
        # New keys begin behind all others: rows of before the change are met no more.
        behind = max(keys for one in self.relations for _, keys in one.columns)
        for batch in range(self.batches):
            columns = {"id": np.arange(batch * rows, (batch + 1) * rows, dtype=np.int64)}
            for name, keys in self.relations[number].columns:
                first, count = (0, keys) if batch < self.change else (behind, later[name])
                columns[name] = rng.integers(first, first + count, rows, dtype=np.int64)
            yield pa.table(columns)


def _one_key(names: str, keys: int) -> tuple[tuple[Relation, ...], tuple[str, ...]]:
    relations = tuple(Relation(name, (("k", keys),)) for name in names)
    return relations, tuple(f"{one}.k = {other}.k" for one, other in itertools.pairwise(names))


def _path(keys: int) -> tuple[tuple[Relation, ...], tuple[str, ...]]:
    columns = {"a": "x", "b": "xy", "c": "yz", "d": "z"}
    return _relations(columns, keys), ("a.x = b.x", "b.y = c.y", "c.z = d.z")


def _star(keys: int) -> tuple[tuple[Relation, ...], tuple[str, ...]]:
    columns = {"f": "wxyz", "a": "w", "b": "x", "c": "y", "d": "z"}
    return _relations(columns, keys), ("f.w = a.w", "f.x = b.x", "f.y = c.y", "f.z = d.z")


def _triangle(keys: int) -> tuple[tuple[Relation, ...], tuple[str, ...]]:
    return _relations({"a": "xy", "b": "yz", "c": "zx"}, keys), ("a.y = b.y", "b.z = c.z", "c.x = a.x")


def _relations(columns: dict[str, str], keys: int) -> tuple[Relation, ...]:
    return tuple(Relation(name, tuple((one, keys) for one in own)) for name, own in columns.items())


THREE_500K = GraphWorkload("three-500k", 500_000, 20, 6, *_one_key("abc", 500_000))
THREE_2M = GraphWorkload("three-2m", 2_000_000, 20, 10, *_one_key("abc", 2_000_000))
PATH_4 = GraphWorkload("path-4", 400_000, 20, 8, *_path(400_000))
STAR_5 = GraphWorkload("star-5", 300_000, 20, 8, *_star(300_000))
# 50 edges for each of 4,000 nodes: 80 paths of two edges for each triangle.
TRIANGLE = GraphWorkload("triangle", 200_000, 20, 10, *_triangle(4_000))
TEN = GraphWorkload("ten", 20_000, 20, 4, *_one_key("abcdefghij", 20_000))
# As many results in a batch as keep 48 tasks busy: the product of three skewed inputs grows with the cube of the rows.
ZIPF_THREE = GraphWorkload("zipf-three", 2_800, 4, 0, *_one_key("abc", 100_000), alpha=1.0)
# At first a row of b meets many rows of a, and a row of c hardly any of d; then it is the other way round.
_BEFORE, _AFTER = {"x": 400, "y": 1_000, "z": 40_000}, (("x", 40_000), ("y", 1_000), ("z", 400))
PATH_SWAP = SwapWorkload(
    "path-swap",
    24_000,
    12,
    0,
    tuple(
        Relation(one.name, tuple((column, _BEFORE[column]) for column, _ in one.columns))
        for one in _path(0)[0]
    ),
    _path(0)[1],
    change=6,
    later=_AFTER,
)
GRAPH_CHECKS = tuple(
    replace(workload, name=f"{workload.name}-check", rows=rows, batches=8, heap_gb=4)
    for workload, rows in (
        (replace(THREE_500K, relations=_one_key("abc", 20_000)[0]), 40_000),
        (replace(PATH_4, relations=_path(10_000)[0]), 16_000),
        (replace(STAR_5, relations=_star(10_000)[0]), 16_000),
        (replace(TRIANGLE, relations=_triangle(400)[0]), 8_000),
    )
)
GRAPHS = (THREE_500K, THREE_2M, PATH_4, STAR_5, TRIANGLE, TEN, ZIPF_THREE, PATH_SWAP, *GRAPH_CHECKS)

_NAME = re.compile(r"\b(\w+)\.(\w+)\b")
# Joins what is there so far with one more relation, by conditions over plain column names.
Link = Callable[["DataFrame", "DataFrame", str, int], "DataFrame"]


def chained(workload: GraphWorkload, stream: Callable[[str], DataFrame], link: Link) -> DataFrame:
    """Join one relation after the other, each as soon as it is there by the conditions that it completes."""
    first, *others = workload.inputs
    so_far, bound = _plain(stream(first), first), {first}
    open_conditions = list(workload.conditions)
    for step, name in enumerate(others):
        bound.add(name)
        ready = [one for one in open_conditions if {which for which, _ in _NAME.findall(one)} <= bound]
        open_conditions = [one for one in open_conditions if one not in ready]
        on = " AND ".join(_NAME.sub(r"\1_\2", one) for one in ready)
        so_far = link(so_far, _plain(stream(name), name), on, step)
    return so_far.selectExpr(*(_NAME.sub(r"\1_\2", column) for column in workload.select))


def _plain(rows: DataFrame, name: str) -> DataFrame:
    """Columns that say whose they are: `a_k`."""
    return rows.selectExpr(*(f"{column} AS {name}_{column}" for column in rows.columns))


def sided(on: str, left: Sequence[str]) -> str:
    """A condition over plain columns, with the input of each: those of `left` are of `l`, all others of `r`."""
    return re.sub(r"\b\w+_\w+\b", lambda name: f"{'l' if name[0] in left else 'r'}.{name[0]}", on)
