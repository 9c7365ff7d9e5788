"""Random lives of RJoin's overlay, and what they must give: rows, queries, delays, and nodes that come and go."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from papers.rjoin.node import Settings
from papers.rjoin.overlay import Overlay
from papers.rjoin.query import Column, Operand, Query, Row

RELATIONS, ATTRIBUTES = "RSPJ", "ABC"
NODES, DELAY, LAST = 5, 4, 40


@dataclass(frozen=True)
class Script:
    """`removals` are times by query; `changes` are nodes that join (True) or leave at a time."""

    queries: Sequence[Query]
    removals: Mapping[str, int]
    rows: Sequence[Row]
    changes: Sequence[tuple[int, bool, int]]
    seed: int


def drawn_script(seed: int, *, queries: int, rows: int, changes: int = 0, distinct: bool = False) -> Script:
    """From a seed: what the algorithm must survive happens among many rows. Few values, so that rows join."""
    rng = np.random.default_rng(seed)
    asked = [drawn_query(rng, f"q{number}", distinct) for number in range(queries)]
    live = [drawn_row(rng, number) for number in range(rows)]
    removals = {
        query.id: query.inserted + int(rng.integers(0, LAST)) for query in asked if rng.random() < 0.3
    }
    moves = [
        (int(rng.integers(0, LAST)), bool(rng.random() < 0.5), int(rng.integers(0, NODES)))
        for _ in range(changes)
    ]
    return Script(asked, removals, live, moves, int(rng.integers(2**32)))


def drawn_row(rng: np.random.Generator, number: int) -> Row:
    relation = RELATIONS[min(int(rng.integers(0, 5)), 3)]
    values = {name: int(rng.integers(0, 2)) for name in ATTRIBUTES}
    return Row(relation, values, int(rng.integers(0, LAST)), number)


def drawn_query(rng: np.random.Generator, name: str, distinct: bool) -> Query:
    """A tree of conditions over some relations, at times with a cycle or a constant."""

    def column(relation: str) -> Column:
        return Column(relation, ATTRIBUTES[rng.integers(0, len(ATTRIBUTES))])

    relations = [RELATIONS[i] for i in rng.permutation(len(RELATIONS))[: rng.integers(1, 5)]]
    where: list[tuple[Operand, Operand]] = [
        (column(relations[rng.integers(0, place)]), column(relations[place]))
        for place in range(1, len(relations))
    ]
    if len(relations) > 1 and rng.random() < 0.3:
        one, other = rng.permutation(len(relations))[:2]
        where.append((column(relations[one]), column(relations[other])))
    if len(relations) == 1 or rng.random() < 0.3:
        where.append((column(relations[0]), int(rng.integers(0, 2))))
    select = tuple(column(relations[rng.integers(0, len(relations))]) for _ in range(2))
    order = rng.permutation(len(where))
    inserted, owner = int(rng.integers(0, LAST)), f"node {rng.integers(0, NODES)}"
    return Query(name, owner, inserted, select, tuple(where[i] for i in order), distinct)


def expected(query: Query, rows: Sequence[Row]) -> Counter[tuple[object, ...]]:
    """All combinations of rows published since the query came, one of each relation, that satisfy it."""
    relations = sorted(query.relations)
    live = [
        [row for row in rows if row.relation == name and row.published >= query.inserted]
        for name in relations
    ]

    found: Counter[tuple[object, ...]] = Counter()
    for combination in itertools.product(*live):
        by_name = dict(zip(relations, combination, strict=True))

        def value(side: Operand, rows: Mapping[str, Row] = by_name) -> object:
            return rows[side.relation].values[side.attribute] if isinstance(side, Column) else side

        if all(value(one) == value(other) for one, other in query.where):
            found[tuple(map(value, query.select))] += 1
    return found


def longest_wait(script: Script, delay: int = DELAY) -> int:
    """An input query asks the nodes of its relations one after the other, hears from the last, and is sent.

    A message takes no more hops than there are nodes, and starts afresh when the ring changes.
    """
    hops = (NODES + len(script.changes)) * (1 + len(script.changes))
    return (len(RELATIONS) + 2) * delay * hops


def play(script: Script, settings: Settings, *, delay: int = DELAY) -> tuple[Overlay, dict[str, int]]:
    """The overlay after the last message, and how many answers each removed query had when it was removed."""
    rng = np.random.default_rng(script.seed)

    def draw(count: int) -> int:
        return int(rng.integers(0, count))

    overlay = Overlay([f"node {n}" for n in range(NODES)], settings, delay=lambda: draw(delay + 1), draw=draw)
    had: dict[str, int] = {}

    def remove(query: Query) -> None:
        overlay.remove(query.owner, query.id)
        had[query.id] = len(overlay.answers(query.id))

    def change(number: int, comes: bool, place: int) -> None:
        addresses = sorted(overlay.nodes)
        if comes:
            overlay.join(f"late node {number}")
        elif len(addresses) > 1:
            overlay.leave(addresses[place % len(addresses)])

    for row in script.rows:
        overlay.at(row.published, partial(overlay.publish, f"node {draw(NODES)}", row))
    for query in script.queries:
        overlay.at(query.inserted, partial(overlay.submit, query.owner, query))
        if query.id in script.removals:
            overlay.at(script.removals[query.id], partial(remove, query))
    for number, (time, comes, place) in enumerate(script.changes):
        overlay.at(time, partial(change, number, comes, place))
    overlay.run()
    return overlay, had
