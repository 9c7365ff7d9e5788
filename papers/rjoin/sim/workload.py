"""The paper's workload (section 8): rows and chain joins over ten relations of ten attributes, by Zipf's law.

A key is a number: first the relation-attribute pairs, then the relation-attribute-value triples. The frequent values
are the same in all attributes, or skew would not make more rows join, as the paper says it does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from papers.shared.zipf import rank_shares

Ints = npt.NDArray[np.int64]

RELATIONS, ATTRIBUTES, VALUES = 10, 10, 100


@dataclass(frozen=True, slots=True)
class Schema:
    relations: int = RELATIONS
    attributes: int = ATTRIBUTES
    values: int = VALUES

    @property
    def pairs(self) -> int:
        return self.relations * self.attributes

    @property
    def keys(self) -> int:
        return self.pairs * (1 + self.values)

    def triples(self, pairs: Ints, values: Ints) -> Ints:
        return self.pairs + pairs * self.values + values

    def name(self, key: int) -> str:
        """The text that a node hashes: relation, attribute and, of a triple, the value."""
        if key < self.pairs:
            return f"R{key // self.attributes}.A{key % self.attributes}"
        pair, value = divmod(key - self.pairs, self.values)
        return f"{self.name(pair)}={value}"


@dataclass(frozen=True, slots=True)
class Rows:
    """`relation` of each row, in the order of publication, and its `values` by attribute."""

    relation: Ints
    values: Ints

    def keys(self, schema: Schema) -> tuple[Ints, Ints]:
        """The pairs and the triples of each row."""
        pairs = self.relation[:, None] * schema.attributes + np.arange(schema.attributes)
        return pairs, schema.triples(pairs, self.values)


@dataclass(frozen=True, slots=True)
class Chains:
    """Chain joins: `relations` of each query, and by edge the attributes `left` of relation e and `right` of e + 1."""

    relations: Ints
    left: Ints
    right: Ints

    @property
    def ways(self) -> int:
        return self.relations.shape[1]

    def __len__(self) -> int:
        return len(self.relations)


def draw_rows(schema: Schema, count: int, theta: float, rng: np.random.Generator) -> Rows:
    return Rows(
        rng.choice(schema.relations, count, p=rank_shares(schema.relations, theta)),
        rng.choice(schema.values, (count, schema.attributes), p=rank_shares(schema.values, theta)),
    )


def with_own_ranks(schema: Schema, rows: Rows, rng: np.random.Generator) -> Rows:
    """The same rows, but which values are frequent differs by attribute: skew makes no more rows join."""
    names = np.argsort(rng.random((schema.relations, schema.attributes, schema.values)), axis=2)
    return Rows(
        rows.relation,
        names[rows.relation[:, None], np.arange(schema.attributes), rows.values].astype(np.int64),
    )


def draw_chains(schema: Schema, count: int, ways: int, rng: np.random.Generator) -> Chains:
    order = np.argsort(rng.random((count, schema.relations)), axis=1)[:, :ways]
    left, right = rng.integers(0, schema.attributes, (2, count, ways - 1))
    return Chains(order.astype(np.int64), left, right)


def count_answers(rows: Rows, chains: Chains, values: int = VALUES) -> int:
    """All combinations of rows that satisfy a query, over all queries: products of matrices, no algorithm of joins."""
    total = 0.0
    by_relation = [rows.values[rows.relation == r] for r in range(int(chains.relations.max()) + 1)]
    tables: dict[tuple[int, int, int], npt.NDArray[np.float64]] = {}

    def table(relation: int, entry: int, leave: int) -> npt.NDArray[np.float64]:
        if (relation, entry, leave) not in tables:
            found = by_relation[relation]
            flat = np.bincount(found[:, entry] * values + found[:, leave], minlength=values * values)
            tables[relation, entry, leave] = flat.reshape(values, values).astype(np.float64)
        return tables[relation, entry, leave]

    for own, left, right in zip(
        chains.relations.tolist(), chains.left.tolist(), chains.right.tolist(), strict=True
    ):
        reached = np.bincount(by_relation[own[0]][:, left[0]], minlength=values).astype(np.float64)
        for place in range(1, len(own) - 1):
            reached = reached @ table(own[place], right[place - 1], left[place])
        total += float(reached @ np.bincount(by_relation[own[-1]][:, right[-1]], minlength=values))
    return int(total)
