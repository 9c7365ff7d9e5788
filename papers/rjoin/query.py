"""Queries that rows rewrite into queries with fewer joins (Idreos et al. 2008, sections 3 and 6).

`select ... from R, S, P where R.A = S.A and S.B = P.B`: a row of R replaces the columns of R by its values, and what has
become true is left out. Each relation appears once, as in the paper; the paper has no aliases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

Value = int | str


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """A relation-attribute pair. As a key it is the attribute level."""

    relation: str
    attribute: str

    @property
    def text(self) -> str:
        return f"{self.relation}.{self.attribute}"


@dataclass(frozen=True, slots=True, order=True)
class Triple:
    """A relation-attribute-value triple. As a key it is the value level."""

    column: Column
    value: Value

    @property
    def text(self) -> str:
        return f"{self.column.text}={self.value}"


Key = Column | Triple
Operand = Column | Value


def relation_of(key: Key) -> str:
    return key.relation if isinstance(key, Column) else key.column.relation


@dataclass(frozen=True, slots=True)
class Row:
    """A published tuple. `number` tells rows apart for those who check; the algorithm does not look at it."""

    relation: str
    values: Mapping[str, Value]
    published: int
    number: int = 0

    def index_keys(self) -> list[Key]:
        """A pair and a triple for each attribute (Procedure 1)."""
        columns = [Column(self.relation, attribute) for attribute in self.values]
        return [*columns, *(Triple(column, self.values[column.attribute]) for column in columns)]

    def matches(self, key: Key) -> bool:
        return key in self.index_keys()


@dataclass(frozen=True, slots=True)
class Query:
    """An input query, or what rows have left of it. `start` is the beginning of its window (section 5)."""

    id: str
    owner: str
    inserted: int
    select: tuple[Operand, ...]
    where: tuple[tuple[Operand, Operand], ...]
    distinct: bool = False
    window: int | None = None
    start: int | None = None

    @property
    def columns(self) -> list[Column]:
        """Those of the where clause, in its order."""
        return [side for condition in self.where for side in condition if isinstance(side, Column)]

    @property
    def relations(self) -> frozenset[str]:
        """Those that are left."""
        return frozenset(column.relation for column in self.columns)

    @property
    def is_answered(self) -> bool:
        """Whether the where clause is equivalent to true."""
        return not self.where

    def columns_of(self, relation: str) -> list[Column]:
        """Those of the select and where clauses."""
        named = (*self.select, *self.columns)
        return sorted({side for side in named if isinstance(side, Column) and side.relation == relation})


def check(query: Query) -> None:
    """What this algorithm takes: the conditions connect all relations that the query names."""
    named = {side.relation for side in query.select if isinstance(side, Column)} | query.relations
    reached = {next(iter(sorted(query.relations)))} if query.relations else set()
    while True:
        more = {
            side.relation
            for condition in query.where
            if any(isinstance(side, Column) and side.relation in reached for side in condition)
            for side in condition
            if isinstance(side, Column)
        }
        if more <= reached:
            break
        reached |= more
    if reached != named:
        raise ValueError(f"query {query.id}: no condition connects {', '.join(sorted(named - reached))}")


def rewrite(query: Query, row: Row) -> Query | None:
    """The query with the row's values in place of its relation's columns; None if no row can make it true any more."""

    def put(side: Operand) -> Operand:
        if isinstance(side, Column) and side.relation == row.relation:
            return row.values[side.attribute]
        return side

    left = []
    for one, other in ((put(one), put(other)) for one, other in query.where):
        if isinstance(one, Column) or isinstance(other, Column):
            left.append((one, other))
        elif one != other:
            return None
    found = replace(query, select=tuple(map(put, query.select)), where=tuple(left))
    return None if _is_contradictory(found) else found


def _is_contradictory(query: Query) -> bool:
    """Whether a column would have to be equal to two values, as in 1 = S.A and S.A = P.A and P.A = 2."""
    known = implied_values(query)
    values = ([known.get(side) if isinstance(side, Column) else side for side in c] for c in query.where)
    return any(None not in (one, other) and one != other for one, other in values)


def implied_values(query: Query) -> dict[Column, Value]:
    """The value of each column that the where clause makes equal to one, also through other columns (section 6, c)."""
    known: dict[Column, Value] = {}
    while True:
        before = len(known)
        for one, other in query.where:
            for column, side in ((one, other), (other, one)):
                if isinstance(column, Column) and column not in known:
                    if not isinstance(side, Column):
                        known[column] = side
                    elif side in known:
                        known[column] = known[side]
        if len(known) == before:
            return known


def candidates(query: Query, *, rewritten: bool, pairs: bool = True, implied: bool = True) -> list[Key]:
    """The keys under which a query may be indexed, in the order of its where clause.

    An input query has pairs only. A rewritten one has (a) pairs of join conditions, without `pairs` only if it has no triple;
    (b) triples that a condition says; (c) triples that are implied. Rows of a relation arrive at the same rate under all its
    attributes, so of its pairs only the first counts: k relations make k candidates (section 6).
    """
    known = implied_values(query) if rewritten else {}
    if not implied:
        said = {side for c in query.where if any(not isinstance(s, Column) for s in c) for side in c}
        known = {column: value for column, value in known.items() if column in said}
    triples = [Triple(column, known[column]) for column in query.columns if column in known]
    open_columns = [column for column in query.columns if column not in known]
    if triples and not pairs:
        open_columns = []
    first = {column.relation: column for column in reversed(open_columns)}
    keys: Iterable[Key] = (
        Triple(column, known[column]) if column in known else column for column in query.columns
    )
    return list(
        dict.fromkeys(key for key in keys if isinstance(key, Triple) or first.get(key.relation) == key)
    )
