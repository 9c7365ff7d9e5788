"""Compile a join of three or more inputs.

Inputs that all share a key are joined by it, as two are. Otherwise the join *walks* along the edges of its graph
(predicate/links.py): keys, bands, and other conditions where neither joins an input. Every input has an arrangement for
each key and each value that it is found by, and from any input a walk along the edges reaches all others.

    an input with keys            the first holds the rows, by half an order key of its edge and half of all others
    one value, and no key         it is sorted by that value and holds the rows
    several values, and no key    the rows are stored by a hash of all values, which only locators lead to
    neither                       in the order of arrival: all rows are read, and the conditions decide

All further arrangements hold their own order key, or the order word of a value, and the order key of the first. Rows of
the same keys and values are together there: if the first were sorted by a value that few rows differ in, a locator
would lead to too many rows.

Edges that close cycles have no arrangements of their own. The arrangements of their inputs are sorted by the edge that
finds them and then by the one that closes a cycle, so that rows are found by both where both are known. A band that
leads to a value which is arranged for another band narrows the search in the same way. An exact band decides its
condition by the order words of its values, as in a join of two inputs: it is not tested again, and a difference that
leaves its type is no error.

An input that only another condition joins is read by the arrangement that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from watersmeet.engine.compile import (
    Asked,
    Compiled,
    SettledKey,
    arriving_columns,
    compile_equality,
    input_spec,
    is_exact,
    settle_key,
    share_residual,
    sides_of,
    with_zone,
)
from watersmeet.kernel.edges import Arranged, Edge
from watersmeet.kernel.near import BandBounds
from watersmeet.kernel.walk import WalkJoin
from watersmeet.model.expression import Band, KeyClass, KeyPair
from watersmeet.model.signature import LOCATOR, Compared, InputSpec, JoinSignature, Order, StoredColumn
from watersmeet.model.types import BIGINT
from watersmeet.predicate.graph import JoinGraph, check_connected, join_graph
from watersmeet.predicate.links import Link, Links, choose_links
from watersmeet.schemes.scheme import Partners


def compile_many(asked: Asked) -> Compiled:
    """Compile a join of three or more inputs."""
    graph = join_graph(asked.predicate)
    if graph.shared:
        graph = graph.with_classes(graph.shared)
        compiled = compile_equality(asked, graph.classes, graph.conjuncts)
        return with_zone(compiled, graph.classes, asked.zone)
    return compile_walk(asked)


def compile_walk(asked: Asked) -> Compiled:
    """Compile a join of two or more inputs that walks along its edges, even if all inputs share a key."""
    predicate, schemas = asked.predicate, asked.schemas
    graph = join_graph(predicate)
    check_connected(graph, predicate.text)
    links = choose_links(graph)
    graph = graph.with_classes(links.classes).with_bands(links.bands)
    kernel, spark = share_residual(graph.conjuncts)
    output = asked.output(graph.inputs, spark_checks=bool(spark))
    keys = {name: _settled(graph, name) for name in graph.inputs}
    edges = tuple(_edge(link, keys) for link in (*links.chosen, *links.closing))
    compared: list[KeyClass] = [*graph.classes, *map(_pair, graph.bands)]
    arranged, inputs = [], []
    for name in graph.inputs:
        settled = tuple(keys[name].values())
        required = tuple(dict.fromkeys(key.column for key in settled))
        stored_rows = input_spec(name, schemas[name], output, kernel, settled, required, order=Order.ARRIVAL)
        for one in _arrangements(name, links, edges):
            arranged.append(one.arranged)
            if one.arranged.scanned is None:
                inputs.append(one.spec(replace(stored_rows, required=required)))
    walk = WalkJoin(edges, tuple(arranged), tuple(kernel), output, asked.ansi)
    compiled = Compiled(
        signature=JoinSignature(
            inputs=tuple(inputs),
            predicate=predicate.canonical,
            key_types=tuple(str(one.type) for one in compared),
            compared=Compared.WALK,
            sides=sides_of(compared),
        ),
        join=walk,
        partners=Partners(arrangements=walk.arrangements, graph=walk.graph),
        arriving={
            spec.name: arriving_columns(replace(spec, keys=spec.required), schemas[spec.name])
            for spec in inputs
            if not spec.of
        },
        computed=tuple(
            dict.fromkeys(key.computed for mine in keys.values() for key in mine.values() if key.computed)
        ),
        hashed=(),
        spark_checks=bool(spark),
        guards=predicate.guards,
    )
    return with_zone(compiled, compared, asked.zone)


def _pair(band: Band) -> KeyPair:
    return KeyPair((band.left, band.right), band.type)


def _settled(graph: JoinGraph, name: str) -> dict[KeyClass | Band, SettledKey]:
    """The column of an input for each class and band that it is in. The same value is the same column."""
    found: dict[KeyClass | Band, SettledKey] = {}
    values: dict[tuple[str, str], SettledKey] = {}
    parts: list[KeyClass | Band] = [*graph.classes, *graph.bands]
    for number, one in enumerate(parts):
        pair: KeyClass = _pair(one) if isinstance(one, Band) else one
        if name in pair.inputs:
            side = pair.side(name)
            key = settle_key(name, number, pair, side)
            found[one] = values.setdefault((side.sql, str(pair.type)), key) if isinstance(one, Band) else key
    return found


def _edge(link: Link, keys: dict[str, dict[KeyClass | Band, SettledKey]]) -> Edge:
    parts = link.classes if link.band is None else (link.band,)
    columns = tuple((name, tuple(keys[name][part].column for part in parts)) for name in link.inputs)
    if link.band is not None:
        return Edge(columns, link.band.exact, BandBounds(link.band.type, link.band.low, link.band.high))
    return Edge(columns, not link.classes or is_exact(link.classes))


@dataclass(frozen=True, slots=True)
class _Stored:
    """An arrangement as the kernel finds rows in it, and what it is sorted by."""

    arranged: Arranged
    order: Order
    keys: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()

    def spec(self, rows: InputSpec) -> InputSpec:
        """What is stored, if the first arrangement holds these rows."""
        name, located = self.arranged.name, self.arranged.through is not None
        return replace(
            rows,
            name=name,
            stored=(StoredColumn(LOCATOR, str(BIGINT)),) if located else rows.stored,
            keys=self.keys,
            hashed=None,
            order=self.order,
            of=rows.name if located else "",
            suffix=self.suffix,
            located=located,
        )


def _arrangements(name: str, links: Links, edges: Sequence[Edge]) -> list[_Stored]:
    """The arrangements of one input, the one that holds its rows first."""
    chosen = range(len(links.chosen))
    mine = [number for number in chosen if name in links.arranged[number]]
    keyed = [number for number in mine if links.chosen[number].classes]
    # Keys that it is not found by close a cycle: those of closing links, and those that need no arrangement here.
    closing = [
        number
        for number, edge in enumerate(edges)
        if name in edge.inputs and number not in mine and edge.of(name) and edge.band is None
    ]
    near: dict[str, list[int]] = {}
    for number in mine:
        if edges[number].band is not None:
            (column,) = edges[number].of(name)
            near.setdefault(column, []).append(number)
    values = {
        column: [*found, *(n for n in range(len(chosen), len(edges)) if _is_band_of(edges[n], name, column))]
        for column, found in near.items()
    }
    stored: list[_Stored] = []

    def through() -> tuple[str, str | None]:
        return (name, None) if not stored else (f"{name}.{len(stored)}", name)

    for number in keyed:
        others = [other for other in keyed if other != number]
        then = closing[0] if closing else others[0] if len(others) == 1 and not values else None
        suffix = (
            edges[then].of(name)
            if then is not None
            else (*(column for other in others for column in edges[other].of(name)), *values)
        )
        as_, via = through()
        one = Arranged(as_, name, number, then, bool(suffix), via)
        stored.append(_Stored(one, Order.HASH, edges[number].of(name), suffix))
    if not keyed and len(values) > 1:
        stored.append(_Stored(Arranged(name, name, None), Order.HASH, suffix=tuple(values)))
    for column, (number, *also) in values.items():
        as_, via = through()
        one = Arranged(as_, name, number, through=via, also=tuple(also))
        stored.append(_Stored(one, Order.VALUE, (column,)))
    for number in mine:
        if not edges[number].of(name):
            scanned = name if stored else None
            as_ = name if scanned is None else f"{name}*{len(stored)}"
            stored.append(_Stored(Arranged(as_, name, number, scanned=scanned), Order.ARRIVAL))
    return stored


def _is_band_of(edge: Edge, name: str, column: str) -> bool:
    return edge.band is not None and name in edge.inputs and edge.of(name) == (column,)
