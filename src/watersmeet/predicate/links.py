"""Choose the edges of a join graph that a walk uses, and the smallest set of arrangements that it needs for them.

A *link* is a candidate for an edge: all classes of equal keys over the same inputs together, so that several keys
between two inputs are one composite key; or a band of two inputs; or only the inputs that some other condition reads.
Of all links as many are chosen as connect the inputs: keys before bands, and bands before other conditions. Of the
keys, those over fewest inputs come first, then those with most classes: a key that many inputs share, such as a
country, tends to have many rows for each value. Of the bands, those with two bounds come first, then those whose values
are arranged already, as a value that several bands share needs one arrangement.

The links that are not chosen close cycles. Keys among them become the second half of an order key. Bands among them
narrow the search if they lead to a value that is arranged anyway. All others are tested as conditions.

An input needs an arrangement for a link to be found by it. In a tree of links over two inputs each, every link is
needed at both of its ends. Where links over three or more inputs overlap, some arrangements are not needed: an input is
found by another link, and by this one as the second half of an order key.

A cycle of keys could do with one arrangement for each input, if it were walked in one direction only. Then no
combination could be extended where it has the fewest candidates, so its links are arranged as those of a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from watersmeet.model.expression import Band, KeyClass, inputs_of
from watersmeet.predicate.graph import JoinGraph


@dataclass(frozen=True, slots=True)
class Link:
    """Inputs, and the classes or the band that joins them; neither if it is another condition."""

    inputs: tuple[str, ...]
    classes: tuple[KeyClass, ...] = ()
    band: Band | None = None


@dataclass(frozen=True, slots=True)
class Links:
    """`chosen` connect all inputs, `closing` close cycles. `arranged` are the inputs that a chosen link finds."""

    chosen: tuple[Link, ...]
    closing: tuple[Link, ...]
    arranged: tuple[frozenset[str], ...]

    @property
    def classes(self) -> tuple[KeyClass, ...]:
        return tuple(one for link in (*self.chosen, *self.closing) for one in link.classes)

    @property
    def bands(self) -> tuple[Band, ...]:
        return tuple(link.band for link in (*self.chosen, *self.closing) if link.band is not None)


def choose_links(graph: JoinGraph) -> Links:
    """Choose as few links as connect all inputs. The graph is connected (predicate/graph.py checks it)."""
    parts = _Connected(graph.inputs)
    keys = _key_links(graph)
    chosen = [link for link in keys if parts.join(link)]
    closing = [link for link in keys if link not in chosen]
    bands = [Link(band.inputs, band=band) for band in graph.bands]
    values: set[str] = set()
    while apart := [link for link in bands if parts.joins(link)]:
        best = min(apart, key=lambda link: _cost(link, values))
        parts.join(best)
        chosen.append(best)
        values |= _values(best)
    closing += [link for link in bands if link not in chosen and values & _values(link)]
    chosen += [link for link in _other_links(graph) if parts.join(link)]
    return Links(tuple(chosen), tuple(closing), tuple(_needed(chosen, graph.inputs)))


class _Connected:
    """The parts of a graph that are connected so far."""

    def __init__(self, inputs: Iterable[str]):
        self._of = {name: frozenset({name}) for name in inputs}

    def joins(self, link: Link) -> bool:
        """Whether a link joins inputs of different parts."""
        return len({self._of[name] for name in link.inputs}) > 1

    def join(self, link: Link) -> bool:
        """Join the parts of a link; False if they are one already."""
        if not self.joins(link):
            return False
        joined = frozenset[str]().union(*(self._of[name] for name in link.inputs))
        self._of |= dict.fromkeys(joined, joined)
        return True


def _key_links(graph: JoinGraph) -> list[Link]:
    together: dict[tuple[str, ...], list[KeyClass]] = {}
    for one in graph.classes:
        # Only Spark can hash a nested value, and only once for each row: such a key stays a condition.
        if not one.type.nested:
            together.setdefault(one.inputs, []).append(one)
    links = [Link(inputs, tuple(classes)) for inputs, classes in together.items()]
    return sorted(
        links,
        key=lambda link: (
            len(link.inputs),
            -len(link.classes),
            [s.sql for c in link.classes for s in c.sides],
        ),
    )


def _other_links(graph: JoinGraph) -> list[Link]:
    read = {inputs_of(part) for part in graph.with_classes(()).conjuncts}
    ordered = sorted(read, key=lambda one: (len(one), sorted(one)))
    return [Link(tuple(name for name in graph.inputs if name in one)) for one in ordered if len(one) > 1]


def _values(link: Link) -> set[str]:
    """The values of a band, by their SQL, which names the input."""
    return set() if link.band is None else {link.band.left.sql, link.band.right.sql}


def _cost(link: Link, values: set[str]) -> tuple[object, ...]:
    """Bands with one bound have partners everywhere. A value that is arranged already costs nothing."""
    assert link.band is not None
    return not link.band.two_sided, len(_values(link) - values), not link.band.exact, sorted(_values(link))


def _needed(chosen: Sequence[Link], inputs: Sequence[str]) -> list[frozenset[str]]:
    """The inputs that need an arrangement for each link, so that a walk from any input reaches all others."""
    needed = [set(link.inputs) for link in chosen]
    # Without any of its two inputs a link would be of no use to the other one.
    for link, found in reversed(list(zip(chosen, needed, strict=True))):
        for name in link.inputs if len(link.inputs) > 2 and link.classes else ():
            found.discard(name)
            if not all(_reached(start, chosen, needed) == set(inputs) for start in inputs):
                found.add(name)
    return [frozenset(found) for found in needed]


def _reached(start: str, links: Sequence[Link], arranged: Sequence[set[str]]) -> set[str]:
    reached, grown = {start}, True
    while grown:
        more = {
            name
            for link, found in zip(links, arranged, strict=True)
            if reached & set(link.inputs)
            for name in found
        } - reached
        reached, grown = reached | more, bool(more)
    return reached
