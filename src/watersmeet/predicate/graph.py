"""The join graph of a predicate: classes of equal keys, bands, and the other conjuncts, by the inputs they read.

Equalities of pairs become *classes*: `a.k = b.k AND b.k = c.k` is one class with a side for each of the three inputs,
and any two of its sides are equal. That follows only if all pairs compare in one type: with `'01' = 1` and `1 = '1'`
the texts still differ. So a side belongs to a class together with the type of its comparison, and an equality in
another type starts another class.

A class has at most one side for each input. A second expression of the same input (`a.k = b.k AND a.j = b.k`) is not
in the class; its equality stays among the conjuncts, as does every equality that the classes do not imply. They are
equalities of the text, never ones that follow from it: two integers that both equal a double in double may differ.

Invariant: rows satisfy the predicate exactly if the sides of every class are equal and all conjuncts are true. Bands
imply nothing that the conjuncts do not say, until `with_bands` takes the conjuncts of some out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from watersmeet.errors import PredicateError
from watersmeet.model.expression import (
    Band,
    Call,
    Expression,
    KeyClass,
    KeyPair,
    KeySide,
    Predicate,
    conjuncts_of,
    inputs_of,
)
from watersmeet.model.types import BOOLEAN, SqlType


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """`classes` in a fixed order, whatever the order of the text. `pairs` are all equalities of the text, and `rest`
    is everything else.
    """

    inputs: tuple[str, ...]
    classes: tuple[KeyClass, ...]
    pairs: tuple[KeyPair, ...]
    rest: tuple[Expression, ...]
    bands: tuple[Band, ...] = ()

    @property
    def shared(self) -> tuple[KeyClass, ...]:
        """The classes that have a side of every input: rows can be found and shared out by all of them at once."""
        return tuple(one for one in self.classes if one.inputs == self.inputs)

    @property
    def conjuncts(self) -> tuple[Expression, ...]:
        """What is to be tested beside the classes, in the order of the text; then the equalities that none implies."""
        place_of = {(side, one.type): place for place, one in enumerate(self.classes) for side in one.sides}
        left_over = []
        for pair in self.pairs:
            places = {place_of.get((side, pair.type)) for side in pair.sides}
            if len(places) > 1 or None in places:
                left_over.append(equality(*pair.sides))
        return (*self.rest, *left_over)

    def with_classes(self, kept: Sequence[KeyClass]) -> JoinGraph:
        """The same join with some classes only; the equalities of the others become conjuncts."""
        return replace(self, classes=tuple(kept))

    def with_bands(self, kept: Sequence[Band]) -> JoinGraph:
        """The same join with some bands only. What the exact ones among them decide is no conjunct any more."""
        left = self.rest
        for band in kept:
            if band.exact:
                undecided = conjuncts_of(band.residual) if band.residual is not None else []
                left = tuple(part for part in left if part in undecided)
        return replace(self, bands=tuple(kept), rest=left)


def join_graph(predicate: Predicate) -> JoinGraph:
    """Read the graph of a predicate over any number of inputs.

    >>> from watersmeet.model.types import INT
    >>> from watersmeet.predicate.parse import parse_predicate
    >>> schemas = {name: {"k": INT, "x": INT} for name in ("a", "b", "c")}
    >>> graph = join_graph(parse_predicate("a.k = b.k AND c.k = b.k AND a.x < c.x", schemas))
    >>> [[side.sql for side in one.sides] for one in graph.shared], len(graph.conjuncts)
    ([['`a`.`k`', '`b`.`k`', '`c`.`k`']], 1)
    """
    rest = conjuncts_of(predicate.residual) if predicate.residual is not None else []
    classes = _classes(predicate.keys, predicate.inputs)
    return JoinGraph(predicate.inputs, classes, predicate.keys, tuple(rest), predicate.bands)


def equality(one: KeySide, other: KeySide) -> Expression:
    return Call("=", (one.expression, other.expression), BOOLEAN)


def _classes(pairs: Iterable[KeyPair], inputs: Sequence[str]) -> tuple[KeyClass, ...]:
    """Sides that are equal through some chain of pairs of one type, one side for each input."""
    groups: list[tuple[SqlType, set[KeySide]]] = []
    for pair in pairs:
        met = [group for group in groups if group[0] == pair.type and group[1] & set(pair.sides)]
        joined = set(pair.sides).union(*(sides for _, sides in met))
        groups = [group for group in groups if group not in met] + [(pair.type, joined)]
    classes = []
    for kind, sides in groups:
        # One side for each input: the first by its SQL, so that the order of the text does not matter.
        first = {side.input: side for side in sorted(sides, key=lambda side: side.sql, reverse=True)}
        ordered = tuple(first[name] for name in inputs if name in first)
        classes.append(KeyClass(ordered, kind))
    return tuple(sorted(classes, key=lambda one: [side.sql for side in one.sides]))


def check_connected(graph: JoinGraph, text: str) -> None:
    """Refuse, by name, an input that no condition joins to the others."""
    edges = [frozenset(one.inputs) for one in graph.classes]
    edges += [read for conjunct in graph.conjuncts if len(read := inputs_of(conjunct)) > 1]
    reached, grown = {graph.inputs[0]}, True
    while grown:
        more = {name for edge in edges if edge & reached for name in edge} - reached
        reached, grown = reached | more, bool(more)
    apart = [name for name in graph.inputs if name not in reached]
    if apart:
        # Name the smaller part: it is more likely the one that was forgotten.
        lone, rest = sorted((apart, [name for name in graph.inputs if name in reached]), key=len)
        raise PredicateError(
            f"nothing joins {' and '.join(lone)} to {', '.join(rest)}",
            text,
            hint=f"add a condition between {lone[0]} and another input, such as {lone[0]}.k = {rest[0]}.k",
        )
