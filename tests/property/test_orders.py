"""Orders of terms: the sample sees what walks meet, the chosen order is the cheapest, and decisions are steady."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel.edges import Arranged, Edge
from watersmeet.kernel.fan_outs import sample_fan_outs
from watersmeet.kernel.keys import order_keys
from watersmeet.kernel.rows import Sorted
from watersmeet.kernel.walk import WalkJoin
from watersmeet.model.limits import Limits
from watersmeet.model.signature import LOCATOR
from watersmeet.model.tally import TermTally
from watersmeet.model.walks import Arc, FanOut, WalkGraph
from watersmeet.schemes.delta.orders import (
    HELD_BATCHES,
    MIN_GAIN,
    TermOrder,
    choose_order,
    decide_order,
    estimate_work,
    needs_foresight,
    wants_sample,
)

PATH = WalkGraph(
    (("a", "b"), ("b", "c"), ("c", "d")),
    tuple(Arc(name, edge) for name, edge in [("a", 0), ("b", 0), ("b", 1), ("c", 1), ("c", 2), ("d", 2)]),
)


@st.composite
def trees(draw, most: int = 6) -> tuple[WalkGraph, str]:
    """A tree of edges over two or three inputs."""
    count = draw(st.integers(3, most))
    names = [f"i{number}" for number in range(count)]
    edges: list[tuple[str, ...]] = []
    place = 1
    while place < count:
        size = draw(st.integers(1, min(2, count - place)))
        edges.append((names[draw(st.integers(0, place - 1))], *names[place : place + size]))
        place += size
    arcs = tuple(Arc(name, number) for number, edge in enumerate(edges) for name in edge)
    return WalkGraph(tuple(edges), arcs), draw(st.sampled_from(names))


def fan_outs(graph: WalkGraph, draw) -> list[FanOut]:
    found = []
    for arc in graph.arcs:
        hit = draw(st.sampled_from([0.01, 0.5, 1.0]))
        found.append(FanOut(arc.input, arc.edge, hit * draw(st.sampled_from([1.0, 2.0, 30.0])), hit, 1000))
    return found


def orders(graph: WalkGraph, start: str) -> list[tuple[str, ...]]:
    names = {name for edge in graph.edges for name in edge} - {start}
    return [
        order
        for order in itertools.permutations(sorted(names))
        if all(name in graph.reaches({start, *order[:place]}) for place, name in enumerate(order))
    ]


@given(trees(), st.data())
def test_the_chosen_order_is_the_cheapest_of_all(given_tree, data):
    graph, start = given_tree
    found = fan_outs(graph, data.draw)
    names = sorted({name for edge in graph.edges for name in edge})
    then, work = choose_order(graph, start, names, found)
    everything = {order: estimate_work(graph, start, order, found) for order in orders(graph, start)}
    assert then in everything and everything[then] == pytest.approx(work)
    assert work == pytest.approx(min(everything.values()))


@given(trees())
def test_foresight_is_needed_where_counts_are_not_enough(given_tree):
    """Without it every choice is between inputs that can all be looked up."""
    graph, start = given_tree
    names = {name for edge in graph.edges for name in edge}
    chooses_early = any(
        len(reached := graph.reaches(bound)) > 1 and bound | reached < names
        for order in orders(graph, start)
        for bound in [{start, *order[:place]} for place in range(len(order))]
    )
    assert needs_foresight(graph, start, sorted(names)) == chooses_early


def test_an_order_that_the_graph_does_not_have_is_no_walk():
    assert estimate_work(PATH, "b", ("d", "c", "a"), ()) is None


def found_for(partners: float) -> list[FanOut]:
    """From b: two rows in a, three in c, and as many partners of those in d."""
    rows = {"a": 2.0, "c": 3.0, "d": partners}
    edges = {"a": 0, "c": 1, "d": 2}
    return [FanOut(name, edges[name], rows[name], min(1.0, rows[name]), 100) for name in "acd"]


def test_an_order_is_changed_only_for_a_real_gain():
    first, kept = decide_order(PATH, TermOrder("b"), "abcd", found_for(0.01), None, 3)
    assert (first.then, first.since, kept) == (("c", "d", "a"), 3, None)
    same, kept = decide_order(PATH, first, "abcd", found_for(0.01), None, 4)
    assert (same.then, same.since) == (first.then, 3) and kept == same.predicted
    # Orders that are alike: one is cheaper by less than the least gain.
    near = [replace(one, rows=3.0 if one.input != "d" else 1.05, hit=1.0) for one in found_for(0.01)]
    best, work = choose_order(PATH, "b", "abcd", near)
    for order in orders(PATH, "b"):
        estimated = estimate_work(PATH, "b", order, near)
        assert estimated is not None
        then = decide_order(PATH, TermOrder("b", order, 1), "abcd", near, None, 5)[0].then
        assert then == (order if estimated <= MIN_GAIN * work else best)
    other, kept = decide_order(PATH, first, "abcd", found_for(30.0), None, 5)
    assert other.then[-1] == "d" and other.since == 5
    assert kept is not None and other.predicted is not None and kept > MIN_GAIN * other.predicted


def test_a_term_without_a_sample_keeps_its_order():
    order = TermOrder("b", ("c", "d", "a"), 3, 7.0)
    assert decide_order(PATH, order, "abcd", (), TermTally("b", 10, 30, 40), 4) == (
        replace(order, measured=7.0),
        7.0,
    )


def test_a_prediction_that_tallies_prove_wrong_leaves_the_term_to_the_counts():
    order = TermOrder("b", ("c", "d", "a"), 3, 7.0, sampled=3)
    wrong, _ = decide_order(PATH, order, "abcd", found_for(0.01), TermTally("b", 10, 100, 60), 4)
    assert (wrong.then, wrong.measured, wrong.held_until) == ((), 16.0, 4 + HELD_BATCHES)
    # An old prediction proves nothing: the state may have grown since.
    old = replace(order, sampled=2)
    assert decide_order(PATH, old, "abcd", found_for(0.01), TermTally("b", 10, 100, 60), 4)[0].then
    held, _ = decide_order(PATH, wrong, "abcd", found_for(0.01), None, 3 + HELD_BATCHES)
    assert held.then == ()
    again, _ = decide_order(PATH, held, "abcd", found_for(0.01), None, 4 + HELD_BATCHES)
    assert again.then == ("c", "d", "a")


@pytest.mark.parametrize(
    ("order", "work", "batch", "wanted"),
    [
        (TermOrder("b"), 70, 4, True),
        (TermOrder("b", ("c", "d", "a"), 3, 7.0, sampled=3), None, 4, True),
        (TermOrder("b", ("c", "d", "a"), 3, 7.0, sampled=3), 70, 4, False),
        (TermOrder("b", ("c", "d", "a"), 3, 7.0, sampled=3), 70, 6, True),
        (TermOrder("b", ("c", "d", "a"), 3, 7.0, sampled=3), 120, 4, True),
        (TermOrder("b", ("c", "d", "a"), 3, 7.0, sampled=3), 40, 4, True),
        (TermOrder("b", held_until=8), 70, 7, False),
        (TermOrder("b", held_until=8), 70, 8, True),
    ],
    ids=[
        "no order",
        "no tally",
        "as predicted",
        "its turn",
        "more work",
        "less work",
        "held",
        "held no more",
    ],
)
def test_a_term_is_sampled_in_its_turn_and_when_it_is_not_as_predicted(order, work, batch, wanted):
    tally = None if work is None else TermTally("b", 10, work, 0)
    assert wants_sample(order, tally, batch) == wanted


# --- The sample ---------------------------------------------------------------------------------------------------------

EDGES = (
    Edge((("a", ("x",)), ("b", ("x",))), exact=True),
    Edge((("b", ("y",)), ("c", ("x",))), exact=True),
    Edge((("c", ("y",)), ("d", ("x",))), exact=True),
)
ARRANGED = tuple(Arranged(f"{arc.input}{arc.edge}", arc.input, arc.edge) for arc in PATH.arcs)


def stored(keys: dict[str, list[tuple[int, int]]], edge: int, name: str, runs: int) -> list[Sorted]:
    column = EDGES[edge].of(name)[0]
    found = []
    for rows in np.array_split(np.array(keys[name], np.int64).reshape(-1, 2), runs):
        batch = pa.RecordBatch.from_pydict({"x": pa.array(rows[:, 0]), "y": pa.array(rows[:, 1])})
        order = order_keys([batch.column(column)])
        by_order = np.argsort(order, kind="stable")
        found.append(Sorted(order[by_order], batch.take(pa.array(by_order))))
    return found


rows = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


@given(st.fixed_dictionaries(dict.fromkeys("abcd", rows)), st.integers(1, 3), st.booleans())
def test_a_sample_of_all_rows_finds_the_exact_fan_outs(keys, runs, located):
    """As weighted by the combinations that a walk makes, also if an arrangement only locates its rows."""
    arranged, slices = ARRANGED, {one.name: stored(keys, one.edge, one.input, runs) for one in ARRANGED}
    if located:
        # c is found by b only through its arrangement for d.
        arranged = tuple(replace(one, through="c2") if one.name == "c1" else one for one in arranged)
        locators = [
            pa.RecordBatch.from_pydict({LOCATOR: pa.array(order_keys([s.rows.column("y")]).view(np.int64))})
            for s in slices["c1"]
        ]
        slices["c1"] = [Sorted(s.keys, rows_) for s, rows_ in zip(slices["c1"], locators, strict=True)]
    join = WalkJoin(EDGES, arranged, (), ())
    fresh = slices.pop("b0")
    del slices["b1"]
    found = {one.input: one for one in sample_fan_outs(join, "b", fresh, slices, Limits(sampled_rows=10**6))}
    to_c = [[c for c in keys["c"] if c[0] == b[1]] for b in keys["b"]]
    assert found["a"].rows == pytest.approx(
        np.mean([sum(a[0] == b[0] for a in keys["a"]) for b in keys["b"]])
    )
    assert found["c"].rows == pytest.approx(np.mean([len(met) for met in to_c]))
    assert found["c"].hit == pytest.approx(np.mean([bool(met) for met in to_c]))
    met = [c for one in to_c for c in one]
    if met:
        partners = [sum(d[0] == c[1] for d in keys["d"]) for c in met]
        assert found["d"].rows == pytest.approx(np.mean(partners))
        assert found["d"].hit == pytest.approx(np.mean([count > 0 for count in partners]))
    assert ("d" in found) == bool(met)


def test_a_small_sample_is_near():
    rng = np.random.default_rng(1)
    keys = {name: list(map(tuple, rng.zipf(1.6, (4000, 2)) % 500)) for name in "abcd"}
    slices = {one.name: stored(keys, one.edge, one.input, 3) for one in ARRANGED if one.input != "b"}
    join = WalkJoin(EDGES, ARRANGED, (), ())
    fresh = stored(keys, 0, "b", 2)
    few, everything = (
        sample_fan_outs(join, "b", fresh, slices, Limits(sampled_rows=count)) for count in (400, 10**6)
    )
    assert [one.rows for one in few] == pytest.approx([one.rows for one in everything], rel=0.2)
