"""The graph that joins of many inputs walk along, and what a sample of walks has found in it."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from watersmeet.model.facts import KeyRange


@dataclass(frozen=True, slots=True)
class Arc:
    """A way to find the rows of an input: by an edge, and then, if the inputs of both are bound, by the edge `then`.

    Each of the bands `also` leads there as well, and narrows the others.
    """

    input: str
    edge: int
    then: int | None = None
    also: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WalkGraph:
    """The inputs of each edge, and the arrangements as arcs.

    `keyed` has the stored arrangements whose order keys begin with the key of an edge, and that edge.
    """

    edges: tuple[tuple[str, ...], ...]
    arcs: tuple[Arc, ...]
    keyed: tuple[tuple[str, int], ...] = ()

    def reaches(self, bound: Set[str]) -> set[str]:
        """The inputs that can be looked up once these are bound."""
        return {
            arc.input
            for arc in self.arcs
            if arc.input not in bound
            and any(not bound.isdisjoint(self.edges[edge]) for edge in (arc.edge, *arc.also))
        }


@dataclass(frozen=True, slots=True)
class KeyCut:
    """Only the combinations whose key of an edge has an order key in this range. The range does not cut a first
    half."""

    edge: int
    range: KeyRange


@dataclass(frozen=True, slots=True)
class FanOut:
    """What a sample of combinations found by one arc: the mean number of rows, and the share that found any.

    `stored_rows` are all rows of the input that may be found.
    """

    input: str
    edge: int
    rows: float
    hit: float
    stored_rows: int
