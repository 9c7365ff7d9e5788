"""Joins along different keys against nested loops: every combination with a fresh row comes out exactly once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.walk_helpers import (
    arrange,
    arrangements,
    inputs_for,
    keys_of,
    limits,
    owed,
    results,
    table,
    watch_bound,
)
from watersmeet.kernel import seek, sought_rows
from watersmeet.kernel.edges import Edge
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.keys import order_keys
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.walk import WalkJoin
from watersmeet.model.expression import Call, Column, Literal
from watersmeet.model.limits import Limits
from watersmeet.model.signature import LOCATOR
from watersmeet.model.types import BIGINT, BOOLEAN
from watersmeet.schemes.delta.shares import KeyShares


@st.composite
def graphs(draw):
    """Inputs, and edges that connect them all: a tree of edges over two or more inputs, and some more."""
    count = draw(st.integers(2, 4))
    names = [f"i{number}" for number in range(count)]
    edges = []
    for number in range(1, count):
        members = {names[number], draw(st.sampled_from(names[:number]))}
        members |= set(draw(st.lists(st.sampled_from(names), max_size=1)))
        edges.append(members)
    edges += [
        set(members)
        for members in draw(
            st.lists(st.lists(st.sampled_from(names), min_size=2, max_size=3, unique=True), max_size=1)
        )
    ]
    found = []
    for members in edges:
        width = draw(st.integers(1, 2))
        columns = tuple(
            (name, tuple(draw(st.permutations(["x0", "x1", "x2"]))[:width]))
            for name in names
            if name in members
        )
        found.append(Edge(columns, exact=width == 1))
    return names, tuple(found)


@given(graphs(), limits, st.data())
def test_each_combination_with_a_fresh_row_comes_out_once(graph, bounds, data):
    names, edges = graph
    drawn = data.draw(inputs_for(names))
    assert results(names, edges, (), drawn, None, bounds) == owed(names, edges, drawn, lambda rows: True)


@given(graphs(), limits, st.data(), st.booleans())
def test_so_it_does_if_arrangements_have_a_second_key_or_only_locate_their_rows(graph, bounds, data, collide):
    """Also if keys share half an order key."""
    names, edges = graph
    drawn = data.draw(inputs_for(names))
    arranged = arrangements(
        edges,
        lambda _, others: data.draw(st.sampled_from([None, -1, *others])),
        lambda _: data.draw(st.booleans()),
    )
    edges = tuple(replace(edge, exact=edge.exact and not collide) for edge in edges)
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(seek, "order_keys", lambda columns: order_keys(columns) << np.uint64(63))
        found = results(names, edges, (), drawn, None, bounds, arranged)
    assert found == owed(names, edges, drawn, lambda rows: True)


@given(graphs(), limits, st.data())
def test_any_order_gives_the_same_results(graph, bounds, data):
    """Also one that no walk can take, or that leaves inputs out: it is followed as far as it goes."""
    names, edges = graph
    drawn = data.draw(inputs_for(names))
    order = data.draw(st.permutations(names))[: data.draw(st.integers(1, len(names)))]
    found = results(names, edges, (), drawn, None, bounds, order=order)
    assert found == owed(names, edges, drawn, lambda rows: True)


@given(graphs(), limits, st.data(), st.sampled_from([1, 2, 3, 4, 12]), st.sampled_from([0, 3, 10, 10**6]))
def test_rows_that_are_dealt_on_the_way_come_out_once(graph, bounds, data, tasks, room_rows):
    """Whatever is bound alike by all tasks or by a group of them, and in any order."""
    names, edges = graph
    drawn = data.draw(inputs_for(names))
    order = data.draw(st.just([]) | st.permutations(names))
    with pytest.MonkeyPatch.context() as patch:
        # Few rows are all large otherwise, and too few to be dealt before the last input.
        patch.setattr("watersmeet.kernel.late._SHARE_PARTS", data.draw(st.sampled_from([0, 1, 8])))
        patch.setattr("watersmeet.kernel.late._ENOUGH", data.draw(st.sampled_from([0, 1, 16])))
        found = results(names, edges, (), drawn, None, bounds, order=order, late=(tasks, room_rows))
    assert found == owed(names, edges, drawn, lambda rows: True)


@given(graphs(), limits, st.data(), st.none() | st.tuples(st.integers(1, 3), st.sampled_from([0, 3, 10**6])))
def test_each_combination_is_in_one_cell_of_any_shares(graph, bounds, data, late):
    """Even if the arrangements hold the rows of all keys: what a task need not read changes no result."""
    names, edges = graph
    drawn = data.draw(inputs_for(names))
    shares = KeyShares(tuple(data.draw(st.integers(1, 3)) for _ in edges), 0, 0, 0)
    cells = [shares.place(cell)[0] for cell in range(shares.cells)]
    order = data.draw(st.just([]) | st.permutations(names))
    found = results(names, edges, (), drawn, None, bounds, order=order, late=late, cells=cells)
    assert found == owed(names, edges, drawn, lambda rows: True)


def closing_triangle():
    """i0 is found by its key to i1 and then by that to i2, and i2 likewise."""
    return tuple(
        one if one.input == "i1" else replace(one, then=2, halves=True)
        for one in arrangements(TRIANGLE)
        if one.edge != 2
    )


def test_keys_that_share_half_an_order_key_are_told_apart():
    """An order key of one number is exact, but half of it is not."""
    numbers = np.arange(300_000)
    half = order_keys([pa.array(numbers)]) >> np.uint64(32)
    by_half = np.argsort(half, kind="stable")
    (same, *_) = np.flatnonzero(np.diff(half[by_half]) == 0)
    one, other = (int(numbers[by_half[at]]) for at in (same, same + 1))
    drawn = {
        "i0": ([[(one, 0, 0, 0, 0)]], []),
        "i1": ([[(other, 5, 0, 0, 0)]], []),
        "i2": ([], [[(5, 0, 0, 0, 0), (one, 0, 0, 0, 0)]]),
    }
    arranged = closing_triangle()
    assert not results(["i0", "i1", "i2"], TRIANGLE, (), drawn, None, Limits(), arranged)
    drawn["i0"] = ([[(other, 0, 0, 0, 0)]], [])
    assert results(["i0", "i1", "i2"], TRIANGLE, (), drawn, None, Limits(), arranged) == {(0, 0, 0): 1}


@given(graphs(), limits, st.data(), st.integers(0, 5))
def test_all_times_of_a_result_lie_within_the_window(graph, bounds, data, width):
    names, edges = graph
    drawn = data.draw(inputs_for(names))

    def holds(rows) -> bool:
        times = [row[4] for row in rows.values()]
        return max(times) - min(times) <= width

    assert results(names, edges, (), drawn, width, bounds) == owed(names, edges, drawn, holds)


@given(graphs(), limits, st.data())
def test_conditions_over_any_inputs_are_tested(graph, bounds, data):
    names, edges = graph
    drawn = data.draw(inputs_for(names))
    name = st.sampled_from(names)
    # Some are sums, which may overflow: they are tested early and, exactly, at the last input.
    drawn_parts = data.draw(
        st.lists(st.tuples(name, st.none() | st.integers(-2, 2), name), min_size=1, max_size=3)
    )

    def condition(one: str, shift: int | None, other: str):
        left = Column(one, "v", BIGINT)
        shifted = left if shift is None else Call("+", (left, Literal(shift, BIGINT)), BIGINT)
        return Call("<=", (shifted, Column(other, "v", BIGINT)), BOOLEAN)

    def holds(rows) -> bool:
        return all(rows[one][3] + (shift or 0) <= rows[other][3] for one, shift, other in drawn_parts)

    conjuncts = tuple(condition(*part) for part in drawn_parts)
    assert results(names, edges, conjuncts, drawn, None, bounds) == owed(names, edges, drawn, holds)


@given(graphs(), limits, st.data())
def test_keys_that_share_a_hash_are_told_apart(graph, bounds, data):
    names, edges = graph
    edges = tuple(replace(edge, exact=False) for edge in edges)
    drawn = data.draw(inputs_for(names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seek, "order_keys", lambda columns: order_keys(columns) % np.uint64(2))
        found = results(names, edges, (), drawn, None, bounds)
    assert found == owed(names, edges, drawn, lambda rows: True)


TRIANGLE = (
    Edge((("i0", ("x0",)), ("i1", ("x0",))), exact=True),
    Edge((("i1", ("x1",)), ("i2", ("x0",))), exact=True),
    Edge((("i2", ("x1",)), ("i0", ("x1",))), exact=True),
)
PATH = (
    Edge((("i0", ("x0",)), ("i1", ("x0",))), exact=True),
    Edge((("i1", ("x1",)), ("i2", ("x0",))), exact=True),
)


def test_a_combination_without_a_partner_is_dropped_before_anything_is_expanded(monkeypatch):
    """The fresh row of i1 has many partners in i0 and none in i2."""
    gathered = []
    plain = sought_rows.gather
    monkeypatch.setattr(sought_rows, "gather", lambda *given: gathered.append(given[0]) or plain(*given))
    many = [(1, 0, 0, 0, 0)] * 50
    drawn = {"i0": ([many], []), "i1": ([], [[(1, 2, 0, 0, 0)]]), "i2": ([[(1, 0, 0, 0, 0)]], [])}
    assert not results(["i0", "i1", "i2"], PATH, (), drawn, None, Limits())
    assert not gathered


def test_the_input_with_the_fewest_rows_is_bound_first(monkeypatch):
    """From i1 both others can be reached: the one with fewer partners comes first, whatever the order of the names."""
    bound = watch_bound(monkeypatch)
    many, few = [(1, 0, 0, 0, 0)] * 50, [(2, 0, 0, 0, 0)]
    drawn = {"i0": ([many], []), "i1": ([], [[(1, 2, 0, 0, 0)]]), "i2": ([few], [])}
    assert sum(results(["i0", "i1", "i2"], PATH, (), drawn, None, Limits()).values()) == 50
    assert bound[0][:2] == (["i1"], "i2")


def test_an_order_is_followed(monkeypatch):
    """Although it binds more rows than the counts would."""
    bound = watch_bound(monkeypatch)
    many, few = [(1, 0, 0, 0, 0)] * 50, [(2, 0, 0, 0, 0)]
    drawn = {"i0": ([many], []), "i1": ([], [[(1, 2, 0, 0, 0)]]), "i2": ([few], [])}
    for order in (["i0", "i2"], ["i2", "i0"]):
        bound.clear()
        found = results(["i0", "i1", "i2"], PATH, (), drawn, None, Limits(), order=order)
        assert sum(found.values()) == 50 and [one for _, one, _ in bound] == order


def test_the_last_input_of_a_cycle_is_found_by_both_its_keys(monkeypatch):
    """Each row of i2 has 50 partners in i1, those 50 in i0, and one triangle closes: by one key 2,500 would be bound."""
    bound = watch_bound(monkeypatch)
    i1 = [(number, 7, 0, 0, 0) for number in range(50)]
    i0 = [(number, 100 + number + other, 0, 0, 0) for number in range(50) for other in range(50)]
    drawn = {"i0": ([i0], []), "i1": ([i1], []), "i2": ([], [[(7, 100, 0, 0, 0)]])}
    found = results(["i0", "i1", "i2"], TRIANGLE, (), drawn, None, Limits(), closing_triangle())
    assert sum(found.values()) == 1
    assert [one[1:] for one in bound] == [("i1", 50), ("i0", 1)]
    # From i1 both others are found by one key each. When i0 is bound, i2 is sought again, by both.
    bound.clear()
    i2 = [(7, 100, 0, 0, 0), *((7, 900 + number, 0, 0, 0) for number in range(60))]
    drawn = {"i0": ([i0], []), "i1": ([], [i1[:1]]), "i2": ([i2], [])}
    found = results(["i0", "i1", "i2"], TRIANGLE, (), drawn, None, Limits(), closing_triangle())
    assert sum(found.values()) == 1
    assert [one[1:] for one in bound] == [("i0", 50), ("i2", 1)]


def test_rows_that_only_one_arrangement_has_evicted_yet_leave_the_others_in_place():
    """The first of two keys leads to no row any more, the second to two: as many rows as keys."""
    batch = table([(0, 1, 0, 0, 0), (0, 2, 0, 0, 0), (5, 2, 0, 0, 0)], 0)
    located = tuple(
        replace(one, through="i1.0" if one.name == "i1.1" else None) for one in arrangements(PATH)
    )
    join = WalkJoin(PATH, located, (), (OutputColumn("i1", "id", "i1"),))
    by_x0, by_x1 = (keys_of(batch, (column,), ()) for column in ("x0", "x1"))
    # The row of the first key is gone from the arrangement that holds the rows.
    kept_rows = arrange(batch.slice(1), by_x0[1:])
    locators = pa.RecordBatch.from_pydict({LOCATOR: np.append(np.uint64(7), by_x0[1:]).view(np.int64)})
    start = table([(1, 0, 0, 0, 0), (2, 0, 0, 0, 0)], 0)
    i0 = table([(0, 0, 0, 0, 0), (5, 0, 0, 0, 0)], 0)
    sides = (
        Side("i2.1", [arrange(start, keys_of(start, ("x0",), ()))], ()),
        Side("i1.0", (), [kept_rows]),
        Side("i1.1", (), [arrange(locators, by_x1)]),
        Side("i0.0", (), [arrange(i0, keys_of(i0, ("x0",), ()))]),
    )
    found = [row for result in join.results(sides, None) for row in result.column(0).to_pylist()]
    assert sorted(found) == [1, 2]


def test_memory_does_not_follow_the_rows_of_a_hot_key_that_are_only_located(monkeypatch):
    sizes = []
    plain = sought_rows.SoughtRows._located

    def note(self, *given, **large):
        for part in plain(self, *given, **large):
            sizes.append(part.rows.num_rows)
            yield part

    monkeypatch.setattr(sought_rows.SoughtRows, "_located", note)
    i1 = [(number, 7, 0, 0, 0) for number in range(3000)]
    drawn = {"i0": ([i1], []), "i1": ([i1[:1000], i1[1000:]], []), "i2": ([], [[(7, 0, 0, 0, 0)]])}
    arranged = arrangements(PATH, located=lambda name: True)
    found = results(["i0", "i1", "i2"], PATH, (), drawn, None, Limits(piece_rows=500), arranged)
    assert len(found) == sum(sizes) == 3000
    assert max(sizes) <= 1500
