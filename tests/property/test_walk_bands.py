"""Walks along bands of values against nested loops: in any graph, in bounded memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.walk_helpers import inputs_for, limits, owed, results, watch_bound
from watersmeet.kernel import seek, sought_rows, walk
from watersmeet.kernel.edges import Arranged, Edge
from watersmeet.kernel.keys import order_keys
from watersmeet.kernel.near import BandBounds
from watersmeet.model.expression import Call, Column, Literal
from watersmeet.model.limits import Limits
from watersmeet.model.types import BIGINT, BOOLEAN

# The places of a row's numbers, by column.
PLACE = {"x0": 0, "x1": 1, "x2": 2, "v": 3}


@st.composite
def band_graphs(draw):
    """Inputs that a tree of keys and bands connects, with further bands; which of them are exact."""
    names = [f"i{number}" for number in range(draw(st.integers(2, 4)))]
    edges = []
    pairs = [(names[draw(st.integers(0, at - 1))], names[at]) for at in range(1, len(names))]
    pairs += draw(
        st.lists(st.tuples(*[st.sampled_from(names)] * 2).filter(lambda one: one[0] < one[1]), max_size=2)
    )
    for at, (one, other) in enumerate(pairs):
        columns = (
            (one, (draw(st.sampled_from(["x0", "v"])),)),
            (other, (draw(st.sampled_from(["x0", "v"])),)),
        )
        if at < len(names) - 1 and draw(st.integers(0, 2)) == 0:
            edges.append(Edge(columns, exact=True))
        else:
            bound = st.none() | st.integers(-2, 2)
            edges.append(Edge(columns, draw(st.booleans()), BandBounds(BIGINT, draw(bound), draw(bound))))
    return names, tuple(edges), len(names) - 1


def band_arrangements(edges, tree: int, stored_once: bool):
    """As the compiler makes them: by value for the bands of the tree, with further bands of the same value."""
    arranged = []
    for name in dict.fromkeys(name for edge in edges for name in edge.inputs):
        mine = [number for number in range(tree) if name in edges[number].inputs]
        values: dict[str, list[int]] = {}
        for number in mine:
            if edges[number].band is not None:
                values.setdefault(edges[number].of(name)[0], []).append(number)
        for number in range(tree, len(edges)):
            if name in edges[number].inputs and (column := edges[number].of(name)[0]) in values:
                values[column].append(number)
        keyed = [number for number in mine if edges[number].band is None]
        found = [Arranged(f"{name}.{number}", name, number) for number in keyed]
        if stored_once and not keyed:
            found.append(Arranged(f"{name}.store", name, None))
        first = found[0].name if found and stored_once else None
        found += [
            Arranged(f"{name}.{number}", name, number, through=first, also=tuple(also))
            for number, *also in values.values()
        ]
        arranged += [
            replace(one, through=first if place and stored_once else None) for place, one in enumerate(found)
        ]
    return tuple(arranged)


def decided(edges):
    """What bands that are not exact leave to be tested, which is no more than they say."""

    def within(edge):
        (one, (left,)), (other, (right,)) = edge.columns
        apart = Call("-", (Column(one, left, BIGINT), Column(other, right, BIGINT)), BIGINT)
        bounds = ((">=", edge.band.low), ("<=", edge.band.high))
        return [Call(op, (apart, Literal(at, BIGINT)), BOOLEAN) for op, at in bounds if at is not None]

    return tuple(part for edge in edges if edge.band is not None and not edge.exact for part in within(edge))


def near(edges, rows) -> bool:
    for edge in edges:
        (one, (left,)), (other, (right,)) = edge.columns
        apart = rows[one][PLACE[left]] - rows[other][PLACE[right]]
        low, high = (0, 0) if edge.band is None else (edge.band.low, edge.band.high)
        if (low is not None and apart < low) or (high is not None and apart > high):
            return False
    return True


@given(band_graphs(), limits, st.data(), st.booleans(), st.booleans())
def test_bands_are_walked_along_in_any_graph(graph, bounds, data, stored_once, collide):
    """Also if rows are only located, by order keys that other rows share."""
    names, edges, tree = graph
    drawn = data.draw(inputs_for(names))
    arranged = band_arrangements(edges, tree, stored_once)
    edges = tuple(replace(edge, exact=edge.exact and not (collide and edge.band is None)) for edge in edges)
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(seek, "order_keys", lambda columns: order_keys(columns) % np.uint64(2))
        found = results(names, edges, decided(edges), drawn, None, bounds, arranged)
    assert found == owed(names, (), drawn, lambda rows: near(edges, rows))


CLOSE = BandBounds(BIGINT, -1, 1)
KEY_AND_BAND = (
    Edge((("i0", ("x0",)), ("i1", ("x0",))), exact=True),
    Edge((("i1", ("v",)), ("i2", ("v",))), exact=True, band=CLOSE),
)


def test_a_combination_without_a_row_near_is_dropped_before_anything_is_expanded(monkeypatch):
    bound = watch_bound(monkeypatch)
    many = [(1, 0, 0, 0, 0)] * 50
    drawn = {
        "i0": ([many], []),
        "i1": ([], [[(1, 0, 0, 5, 0)]]),
        "i2": ([[(0, 0, 0, 7, 0), (0, 0, 0, 3, 0)]], []),
    }
    arranged = band_arrangements(KEY_AND_BAND, 2, stored_once=True)
    assert not results(["i0", "i1", "i2"], KEY_AND_BAND, (), drawn, None, Limits(), arranged)
    assert not bound


def test_a_band_is_expanded_before_a_key_that_has_more_rows(monkeypatch):
    bound = watch_bound(monkeypatch)
    many = [(1, 0, 0, 0, 0)] * 50
    drawn = {
        "i0": ([many], []),
        "i1": ([], [[(1, 0, 0, 5, 0)]]),
        "i2": ([[(0, 0, 0, 6, 0), (0, 0, 0, 3, 0)]], []),
    }
    arranged = band_arrangements(KEY_AND_BAND, 2, stored_once=True)
    assert sum(results(["i0", "i1", "i2"], KEY_AND_BAND, (), drawn, None, Limits(), arranged).values()) == 50
    assert [one[1:] for one in bound] == [("i2", 1), ("i0", 50)]


def test_bands_of_one_value_narrow_each_other(monkeypatch):
    """i2 is near i0 and near i1: of its 100 rows the first band allows 21, and both together 2."""
    bound = watch_bound(monkeypatch)
    edges = tuple(
        Edge(((one, ("v",)), (other, ("v",))), exact=True, band=BandBounds(BIGINT, -10, 10))
        for one, other in (("i0", "i1"), ("i0", "i2"), ("i1", "i2"))
    )
    drawn = {
        "i0": ([], [[(0, 0, 0, 50, 0)]]),
        "i1": ([[(0, 0, 0, 31, 0), (0, 0, 0, 41, 0)]], []),
        "i2": ([[(0, 0, 0, number, 0) for number in range(100) if number not in range(42, 60)]], []),
    }
    found = results(["i0", "i1", "i2"], edges, (), drawn, None, Limits(), band_arrangements(edges, 2, False))
    assert sum(found.values()) == 2
    assert [one[1:] for one in bound] == [("i1", 1), ("i2", 2)]


@pytest.mark.parametrize("stored_once", [False, True], ids=["held", "located"])
def test_memory_does_not_follow_the_fan_out_of_a_band(monkeypatch, stored_once):
    """Each of 20 fresh rows meets 3,000 rows of i1, and each of those a row of i2: no step holds more than a piece."""
    largest = {"combinations": 0, "rows": 0}
    go_on, kept_rows = walk._Walk.go_on, sought_rows.parts_near

    def note(self, found, newest, sought, *more, **late):
        largest["combinations"] = max(largest["combinations"], len(found[newest].at))
        largest["rows"] = max(largest["rows"], *(len(one.rows) for one in sought.values()), 0, 0)
        return go_on(self, found, newest, sought, *more, **late)

    def parts(*given):
        for part in kept_rows(*given):
            largest["rows"] = max(largest["rows"], part.rows.num_rows)
            yield part

    monkeypatch.setattr(walk._Walk, "go_on", note)
    monkeypatch.setattr(sought_rows, "parts_near", parts)
    edges = (
        Edge((("i0", ("v",)), ("i1", ("v",))), exact=True, band=BandBounds(BIGINT, None, 0)),
        Edge((("i1", ("x1",)), ("i2", ("x1",))), exact=True, band=CLOSE),
    )
    many = [(0, number * 3, 0, 0, 0) for number in range(3000)]
    drawn = {
        "i0": ([], [[(0, 0, 0, 0, 0)] * 20]),
        "i1": ([many[:1000], many[1000:]], []),
        "i2": ([[(0, number * 3, 0, 0, 0) for number in range(3000)]], []),
    }
    bounds = Limits(piece_rows=500, output_rows=700)
    arranged = band_arrangements(edges, 2, stored_once)
    found = results(["i0", "i1", "i2"], edges, (), drawn, None, bounds, arranged)
    assert len(found) == 60_000 and max(found.values()) == 1
    assert largest["combinations"] <= bounds.output_rows
    assert largest["rows"] <= 2 * bounds.output_rows
