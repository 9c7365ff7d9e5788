"""Rewritten queries as numbers: a chain join, the relations that rows have replaced, and what its edges are equal to.

A query in flight is the number of its input query and one word of 64 bits: a bit for each replaced relation, then
seven bits for each edge, which is a value, OPEN, or DONE where both sides have been replaced. Two edges that share an
attribute of one relation are equal to each other, so the value of one is implied for the other (section 6, c).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from papers.rjoin.sim.workload import Chains, Ints, Rows, Schema

Flags = npt.NDArray[np.bool_]

MASK_BITS, EDGE_BITS = 8, 7
OPEN, DONE = 126, 127
NO_KEY = -1


def shift(edge: int | Ints) -> int | Ints:
    return MASK_BITS + EDGE_BITS * edge


@dataclass(frozen=True)
class Steps:
    schema: Schema
    chains: Chains
    rows: Rows

    @property
    def edges(self) -> int:
        return self.chains.ways - 1

    @cached_property
    def fresh(self) -> int:
        """The word of a query of which no row has replaced anything."""
        return sum(OPEN << int(shift(edge)) for edge in range(self.edges))

    @cached_property
    def full(self) -> int:
        return (1 << self.chains.ways) - 1

    @cached_property
    def place(self) -> Ints:
        """By query and relation: where in the chain the relation is."""
        found = np.full((len(self.chains), self.schema.relations), NO_KEY)
        np.put_along_axis(found, self.chains.relations, np.arange(self.chains.ways)[None, :], axis=1)
        return found

    @cached_property
    def pairs(self) -> Ints:
        """By query, edge and side: the key of the pair."""
        own, attributes = self.chains.relations, self.schema.attributes
        left = own[:, :-1] * attributes + self.chains.left
        return np.stack([left, own[:, 1:] * attributes + self.chains.right], axis=2)

    @cached_property
    def linked(self) -> tuple[Ints, Ints]:
        """By query and edge: the bits of all edges that are equal to it, and a one at the foot of each of them."""
        same = self.chains.right[:, :-1] == self.chains.left[:, 1:]
        group = np.concatenate([np.zeros((len(same), 1), np.int64), np.cumsum(~same, axis=1)], axis=1)
        ones = np.zeros((len(self.chains), self.edges), np.int64)
        for edge in range(self.edges):
            for other in range(self.edges):
                ones[:, edge] |= (group[:, edge] == group[:, other]).astype(np.int64) << int(shift(other))
        return ones * DONE, ones

    def replace(self, query: Ints, word: Ints, place: Ints, row: Ints) -> tuple[Flags, Ints]:
        """Rewrite each query with a row of the relation at this place: whether the row fits, and the new word."""
        fits = np.ones(len(query), bool)
        found = word | (np.int64(1) << place)
        bits, ones = self.linked
        for step, attribute in ((-1, self.chains.right), (0, self.chains.left)):
            edge = place + step
            there = (edge >= 0) & (edge < self.edges)
            edge = np.where(there, edge, 0)
            value = self.rows.values[row, attribute[query, edge]]
            current = (found >> shift(edge)) & DONE
            fits &= ~there | (current == OPEN) | (current == value)
            sets = there & (current == OPEN)
            found = np.where(sets, (found & ~bits[query, edge]) | value * ones[query, edge], found)
            neighbour = place + (1 if step == 0 else -1)
            done = there & ((word >> np.where(there, neighbour, 0)) & 1 > 0)
            found = np.where(done, found | (np.int64(DONE) << shift(edge)), found)
        return fits, found

    def candidates(self, query: Ints, word: Ints, *, all_pairs: bool) -> Ints:
        """Where each query may be indexed: a column for each edge and side, NO_KEY where there is nothing to choose.

        Tuples of a relation arrive at the same rate under all its attributes, so without `all_pairs` only the first pair of
        each relation counts.
        """
        columns = []
        before: Ints | None = None
        for edge in range(self.edges):
            value = (word >> shift(edge)) & DONE
            for side in (0, 1):
                left = (word >> (edge + side)) & 1 == 0
                pair = self.pairs[query, edge, side]
                key = np.where(value < OPEN, self.schema.triples(pair, value), pair)
                valid = left & (value != DONE)
                if side == 0 and before is not None and not all_pairs:
                    valid &= ~((value == OPEN) & (before == OPEN))
                columns.append(np.where(valid, key, NO_KEY))
            before = value
        return np.stack(columns, axis=1)

    def left_over(self, word: Ints) -> Ints:
        """Relations that no row has replaced yet."""
        return self.chains.ways - np.bitwise_count(word & self.full).astype(np.int64)

    def is_tail(self, word: Ints) -> Flags:
        """One relation is left, and one edge leads to it: the key alone says which rows complete it."""
        unfinished = np.zeros(len(word), np.int64)
        for edge in range(self.edges):
            unfinished += (word >> shift(edge)) & DONE != DONE
        return (self.left_over(word) == 1) & (unfinished == 1)
