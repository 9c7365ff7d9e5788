"""Compile a join of three or more inputs.

Inputs that all share a key are joined by it, as two are. Otherwise the join *walks* along the edges of its graph.

An *edge* is a key that two or more inputs share: all classes of equal keys over the same inputs together, so that
several keys between two inputs are one composite key. Of all edges only as many are used as connect the inputs, the ones
over fewest inputs first, then those with most keys: a key that many inputs share, such as a country, tends to have many
rows for each value. Every input has an arrangement for each of these edges that it is in, and from any input a walk along
them reaches all others. The first arrangement holds the rows, sorted by half an order
key of its edge and half of the others; the others hold their own order key and the one of the first.

The other edges close cycles. They have no arrangements of their own: the arrangements of their inputs are sorted by the
edge that finds them and then by the one that closes a cycle, so that rows are found by both where both are known.

Inputs that only a comparison or another condition joins get an edge without a key: all their rows meet, and the
condition decides. An input with a key is read by the arrangement of that key, any other is stored in the order of
arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from watersmeet.engine.compile import (
    Compiled,
    arriving_columns,
    check_names,
    compile_equality,
    input_spec,
    is_exact,
    output_columns,
    settle_key,
    share_residual,
    sides_of,
    with_zone,
)
from watersmeet.kernel.walk import Arranged, Edge, WalkJoin
from watersmeet.model import facts
from watersmeet.model.expression import KeyClass, Predicate, Selected, inputs_of
from watersmeet.model.types import BIGINT, Schema
from watersmeet.predicate.graph import JoinGraph, check_connected, join_graph


@dataclass(frozen=True, slots=True)
class _Link:
    """Inputs that an edge joins, and the classes that it is made of; none for an edge without a key."""

    inputs: tuple[str, ...]
    classes: tuple[KeyClass, ...] = ()


def compile_many(
    predicate: Predicate,
    selected: Sequence[Selected] | None,
    schemas: dict[str, Schema],
    *,
    ansi: bool,
    zone: str = "",
) -> Compiled:
    """Compile a join of three or more inputs by text. `zone` is as in `compile_join`."""
    check_names(schemas)
    graph = join_graph(predicate)
    check_connected(graph, predicate.text)
    if graph.shared:
        graph = graph.with_classes(graph.shared)
        compiled = compile_equality(predicate, graph.classes, graph.conjuncts, selected, schemas, ansi)
        return with_zone(compiled, graph.classes, zone)
    links, closing = choose_links(graph)
    graph = graph.with_classes([one for link in (*links, *closing) for one in link.classes])
    compiled = _compile_walk(predicate, graph, links, closing, selected, schemas, ansi)
    return with_zone(compiled, graph.classes, zone)


def _compile_walk(
    predicate: Predicate,
    graph: JoinGraph,
    links: Sequence[_Link],
    closing: Sequence[_Link],
    selected: Sequence[Selected] | None,
    schemas: dict[str, Schema],
    ansi: bool,
) -> Compiled:
    kernel, spark = share_residual(graph.conjuncts)
    output = output_columns(graph.inputs, predicate.columns if spark else (), selected, schemas)
    keys = {
        name: {
            one: settle_key(name, number, one, one.side(name))
            for number, one in enumerate(graph.classes)
            if name in one.inputs
        }
        for name in graph.inputs
    }
    edges = tuple(
        Edge(
            tuple((name, tuple(keys[name][one].column for one in link.classes)) for name in link.inputs),
            exact=not link.classes or is_exact(link.classes),
        )
        for link in (*links, *closing)
    )
    arranged, inputs = [], []
    for name in graph.inputs:
        mine = [number for number, link in enumerate(links) if name in link.inputs]
        closed = next((len(links) + at for at, link in enumerate(closing) if name in link.inputs), None)
        settled = tuple(keys[name].values())
        required = tuple(dict.fromkeys(key.column for key in settled))
        # Edges without a key read all rows, from the first arrangement.
        mine.sort(key=lambda number: not edges[number].of(name))
        for place, number in enumerate(mine):
            by = edges[number].of(name)
            if place and not by:
                arranged.append(Arranged(f"{name}*{place}", name, number, scanned=name))
                continue
            order = facts.Order.HASH if by else facts.Order.ARRIVAL
            spec = input_spec(name, schemas[name], output, kernel, settled, required, order=order)
            stored = name if place == 0 else f"{name}.{place}"
            others = [other for other in mine if other != number and edges[other].of(name)]
            then = closed if closed is not None or len(others) != 1 else others[0]
            suffix = () if not by else _suffix(edges, name, then, others)
            located = place > 0
            if located:
                spec = replace(spec, stored=(facts.StoredColumn(facts.LOCATOR, str(BIGINT)),))
            spec = replace(
                spec, name=stored, keys=by, hashed=None, of=name if place else "", required=required
            )
            inputs.append(replace(spec, suffix=suffix, located=located))
            arranged.append(
                Arranged(stored, name, number, then if by else None, bool(suffix), name if located else None)
            )
    return Compiled(
        signature=facts.JoinSignature(
            inputs=tuple(inputs),
            predicate=predicate.canonical,
            key_types=tuple(str(one.type) for one in graph.classes),
            compared="walk",
            sides=sides_of(graph.classes),
        ),
        join=WalkJoin(edges, tuple(arranged), tuple(kernel), output, ansi),
        arriving={
            spec.name: arriving_columns(replace(spec, keys=spec.required), schemas[spec.name])
            for spec in inputs
            if not spec.of
        },
        computed=tuple(key.computed for mine in keys.values() for key in mine.values() if key.computed),
        hashed=(),
        spark_checks=bool(spark),
        guards=predicate.guards,
    )


def _suffix(edges: Sequence[Edge], name: str, then: int | None, others: Sequence[int]) -> tuple[str, ...]:
    """The columns that an arrangement is sorted by next: those of the edge `then`, or of all other edges.

    Rows that are located by their order key must differ in it, or too many would be read.
    """
    return (
        edges[then].of(name)
        if then is not None
        else tuple(c for other in others for c in edges[other].of(name))
    )


def choose_links(graph: JoinGraph) -> tuple[list[_Link], list[_Link]]:
    """As few edges as connect all inputs, and those that close cycles.

    The graph is connected (predicate/graph.py checks it).
    """
    together: dict[tuple[str, ...], list[KeyClass]] = {}
    for one in graph.classes:
        # Only Spark can hash a nested value, and only once for each row: such a key stays a condition.
        if not one.type.nested:
            together.setdefault(one.inputs, []).append(one)
    links = [_Link(inputs, tuple(classes)) for inputs, classes in together.items()]
    links.sort(key=lambda link: (len(link.inputs), -len(link.classes), sides_of(link.classes)))
    conditions = sorted(
        (inputs_of(part) for part in graph.with_classes(()).conjuncts),
        key=lambda read: (len(read), sorted(read)),
    )
    links += [
        _Link(tuple(name for name in graph.inputs if name in read)) for read in conditions if len(read) > 1
    ]
    part_of = {name: {name} for name in graph.inputs}
    chosen, closing = [], []
    for link in links:
        parts = {id(part_of[name]): part_of[name] for name in link.inputs}
        if len(parts) > 1:
            chosen.append(link)
            joined = set().union(*parts.values())
            part_of |= dict.fromkeys(joined, joined)
        elif link.classes:
            closing.append(link)
    return chosen, closing
