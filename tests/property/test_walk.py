"""Joins along different keys against nested loops: every combination with a fresh row comes out exactly once."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel import seek, sought_rows, walk
from watersmeet.kernel.edges import Arranged, Edge
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.keys import joined_keys, order_keys, words
from watersmeet.kernel.late import LateDeal
from watersmeet.kernel.near import BandBounds
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Sorted
from watersmeet.kernel.walk import WalkJoin
from watersmeet.model.expression import Call, Column, Literal
from watersmeet.model.facts import LOCATOR
from watersmeet.model.limits import Limits
from watersmeet.model.types import BIGINT, BOOLEAN
from watersmeet.model.window import AT
from watersmeet.schemes.delta.shares import KeyShares

# A row: three numbers that keys are made of, a number for conditions, a window time.
row = st.tuples(*[st.integers(0, 2)] * 3, st.integers(-2, 2), st.integers(0, 9))
runs = st.lists(st.lists(row, min_size=1, max_size=5), max_size=2)
limits = st.builds(Limits, piece_rows=st.sampled_from([1, 4, 50]), output_rows=st.sampled_from([5, 7]))


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


def table(rows: list[tuple], first: int) -> pa.RecordBatch:
    columns = [pa.array(values, pa.int64()) for values in zip(*rows, strict=True)]
    ids = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.RecordBatch.from_arrays([*columns, ids], names=["x0", "x1", "x2", "v", AT, "id"])


def keys_of(batch: pa.RecordBatch, columns: tuple[str, ...], suffix: tuple[str, ...]) -> np.ndarray:
    keys = seek.order_keys([batch.column(column) for column in columns])  # type: ignore[attr-defined]
    if suffix:
        keys = joined_keys(keys, seek.order_keys([batch.column(column) for column in suffix]))  # type: ignore[attr-defined]
    return keys


def arrange(batch: pa.RecordBatch, keys: np.ndarray) -> Sorted:
    order = np.argsort(keys, kind="stable")
    return Sorted(keys[order], batch.take(pa.array(order)))


def arrangements(edges, then=lambda name, others: None, located=lambda name: False):
    """One for each edge of each input. `then` chooses the edge that it is sorted by next, or -1 for all others.

    `located` says which inputs have their columns only in the first arrangement.
    """
    found, first = [], {}
    for number, edge in enumerate(edges):
        for name in edge.inputs:
            others = [at for at, other in enumerate(edges) if at != number and name in other.inputs]
            chosen = then(name, others)
            through = first.get(name) if located(name) else None
            first.setdefault(name, f"{name}.{number}")
            found.append(
                Arranged(
                    f"{name}.{number}",
                    name,
                    number,
                    None if chosen == -1 else chosen,
                    halves=chosen is not None and bool(others),
                    through=through,
                )
            )
    return tuple(found)


def suffix_of(one, edges):
    """The columns that an arrangement is sorted by next."""
    if not one.halves:
        return ()
    then = [one.then] if one.then is not None else [n for n in range(len(edges)) if n != one.edge]
    return tuple(c for n in then if one.input in edges[n].inputs for c in edges[n].of(one.input))


def arranged_by(one, edges, batch):
    """What an arrangement is sorted by: a hash of a key, the word of a value, or a hash of all values."""
    if one.edge is None:
        mine = [edge.of(one.input) for edge in edges if one.input in edge.inputs]
        return keys_of(batch, tuple(dict.fromkeys(c for columns in mine for c in columns)), ())
    columns = edges[one.edge].of(one.input)
    if edges[one.edge].band is not None:
        return words(batch.column(columns[0]))
    return keys_of(batch, columns, suffix_of(one, edges))


def results(names, edges, conjuncts, drawn, within, bounds, arranged=None, order=(), late=None, cells=((),)):
    """Run every term of the delta rule, as the scheme would hand them out to one task, all in this order, if given.

    With `late` the rows of each term are dealt on the way to so many tasks, which may bind so many rows alike. Of each
    of the `cells` there is a task, which has all rows but joins only the keys of its cuts.
    """
    arranged = arranged or arrangements(edges)
    output = tuple(OutputColumn(name, "id", name) for name in names)
    join = WalkJoin(edges, arranged, conjuncts, output)
    stored: dict[str, tuple[list[Sorted], list[Sorted]]] = {}
    for one in arranged:
        first = 0
        primary = next(other for other in arranged if other.name == (one.through or one.name))
        slices: list[list[Sorted]] = [[], []]
        for place, part in enumerate(drawn[one.input]):
            for rows in part:
                batch = table(rows, first)
                by = arranged_by(one, edges, batch)
                if one.through:
                    there = arranged_by(primary, edges, batch)
                    batch = pa.RecordBatch.from_pydict({LOCATOR: there.view(np.int64)})
                slices[place].append(arrange(batch, by))
                first += len(rows)
        stored[one.name] = slices[0], slices[1]
    found: Counter = Counter()
    for term, start in enumerate(names):
        first = next(one for one in arranged if one.input == start)
        sides = [Side(first.name, stored[first.name][1], ())]
        for one in arranged:
            place = names.index(one.input)
            old, new = stored[one.name]
            if place != term:
                rank = order.index(one.input) if one.input in order else None
                sides.append(Side(one.name, new if place < term else (), old, rank))
        tasks, room_rows = late or (1, 0)
        batches = []
        for task, cuts in itertools.product(range(tasks), cells):
            deal = LateDeal(task, tasks, room_rows) if late else None
            batches += join.results((replace(sides[0], late=deal, cuts=cuts), *sides[1:]), within, bounds)
        assert all(0 < batch.num_rows <= bounds.output_rows for batch in batches)
        found += Counter(
            row for b in batches for row in zip(*(c.to_pylist() for c in b.columns), strict=True)
        )
    return found


def owed(names, edges, drawn, holds) -> Counter:
    listed = {
        name: [(fresh, row) for fresh, part in enumerate(drawn[name]) for rows in part for row in rows]
        for name in names
    }
    found: Counter = Counter()
    for combination in itertools.product(*(enumerate(listed[name]) for name in names)):
        rows = {name: row for name, (_, (_, row)) in zip(names, combination, strict=True)}
        keys = [
            {tuple(rows[name][int(column[1])] for column in edge.of(name)) for name in edge.inputs}
            for edge in edges
        ]
        if any(fresh for _, (fresh, _) in combination) and all(len(key) == 1 for key in keys) and holds(rows):
            found[tuple(at for at, _ in combination)] += 1
    return found


def inputs_for(names):
    return st.fixed_dictionaries({name: st.tuples(runs, runs) for name in names})


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
    # Some are sums, which may overflow: they wait for the last input.
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
    bound = []
    plain = walk._Walk._bound

    def note(self, found, rest, one, *late):
        bound.append((sorted(found), one.arranged.input))
        return plain(self, found, rest, one, *late)

    monkeypatch.setattr(walk._Walk, "_bound", note)
    many, few = [(1, 0, 0, 0, 0)] * 50, [(2, 0, 0, 0, 0)]
    drawn = {"i0": ([many], []), "i1": ([], [[(1, 2, 0, 0, 0)]]), "i2": ([few], [])}
    assert sum(results(["i0", "i1", "i2"], PATH, (), drawn, None, Limits()).values()) == 50
    assert bound[0] == (["i1"], "i2")


def test_an_order_is_followed(monkeypatch):
    """Although it binds more rows than the counts would."""
    bound = []
    plain = walk._Walk._bound

    def note(self, found, rest, one, *late):
        bound.append(one.arranged.input)
        return plain(self, found, rest, one, *late)

    monkeypatch.setattr(walk._Walk, "_bound", note)
    many, few = [(1, 0, 0, 0, 0)] * 50, [(2, 0, 0, 0, 0)]
    drawn = {"i0": ([many], []), "i1": ([], [[(1, 2, 0, 0, 0)]]), "i2": ([few], [])}
    for order in (["i0", "i2"], ["i2", "i0"]):
        bound.clear()
        found = results(["i0", "i1", "i2"], PATH, (), drawn, None, Limits(), order=order)
        assert sum(found.values()) == 50 and bound == order


def test_the_last_input_of_a_cycle_is_found_by_both_its_keys(monkeypatch):
    """Each row of i2 has 50 partners in i1, those 50 in i0, and one triangle closes: by one key 2,500 would be bound."""
    bound = []
    plain = walk._Walk._bound

    def note(self, found, rest, one, *late):
        bound.append((one.arranged.input, int(one.counts.sum())))
        return plain(self, found, rest, one, *late)

    monkeypatch.setattr(walk._Walk, "_bound", note)
    i1 = [(number, 7, 0, 0, 0) for number in range(50)]
    i0 = [(number, 100 + number + other, 0, 0, 0) for number in range(50) for other in range(50)]
    drawn = {"i0": ([i0], []), "i1": ([i1], []), "i2": ([], [[(7, 100, 0, 0, 0)]])}
    found = results(["i0", "i1", "i2"], TRIANGLE, (), drawn, None, Limits(), closing_triangle())
    assert sum(found.values()) == 1
    assert bound == [("i1", 50), ("i0", 1)]
    # From i1 both others are found by one key each. When i0 is bound, i2 is sought again, by both.
    bound.clear()
    i2 = [(7, 100, 0, 0, 0), *((7, 900 + number, 0, 0, 0) for number in range(60))]
    drawn = {"i0": ([i0], []), "i1": ([], [i1[:1]]), "i2": ([i2], [])}
    found = results(["i0", "i1", "i2"], TRIANGLE, (), drawn, None, Limits(), closing_triangle())
    assert sum(found.values()) == 1
    assert bound == [("i0", 50), ("i2", 1)]


# --- Bands ----------------------------------------------------------------------------------------------------------

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


def noted(monkeypatch):
    """The inputs that are bound, in order, and the number of combinations that each gives."""
    bound = []
    plain = walk._Walk._bound

    def note(self, found, rest, one, *late):
        bound.append((one.arranged.input, int(one.counts.sum())))
        return plain(self, found, rest, one, *late)

    monkeypatch.setattr(walk._Walk, "_bound", note)
    return bound


CLOSE = BandBounds(BIGINT, -1, 1)
KEY_AND_BAND = (
    Edge((("i0", ("x0",)), ("i1", ("x0",))), exact=True),
    Edge((("i1", ("v",)), ("i2", ("v",))), exact=True, band=CLOSE),
)


def test_a_combination_without_a_row_near_is_dropped_before_anything_is_expanded(monkeypatch):
    bound = noted(monkeypatch)
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
    bound = noted(monkeypatch)
    many = [(1, 0, 0, 0, 0)] * 50
    drawn = {
        "i0": ([many], []),
        "i1": ([], [[(1, 0, 0, 5, 0)]]),
        "i2": ([[(0, 0, 0, 6, 0), (0, 0, 0, 3, 0)]], []),
    }
    arranged = band_arrangements(KEY_AND_BAND, 2, stored_once=True)
    assert sum(results(["i0", "i1", "i2"], KEY_AND_BAND, (), drawn, None, Limits(), arranged).values()) == 50
    assert bound == [("i2", 1), ("i0", 50)]


def test_bands_of_one_value_narrow_each_other(monkeypatch):
    """i2 is near i0 and near i1: of its 100 rows the first band allows 21, and both together 2."""
    bound = noted(monkeypatch)
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
    assert bound == [("i1", 1), ("i2", 2)]


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
