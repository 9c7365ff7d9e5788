"""Which edges a walk uses, and the smallest set of arrangements from which every input can start a connected walk."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from watersmeet.engine.compile import Asked
from watersmeet.engine.compile_many import compile_walk
from watersmeet.errors import StateMismatch
from watersmeet.kernel.walk import WalkJoin
from watersmeet.model.found import explain_found, found_by
from watersmeet.model.types import BIGINT, INT, STRING, SqlType
from watersmeet.plan.compatible import check_compatible
from watersmeet.predicate import parse_predicate
from watersmeet.predicate.graph import join_graph
from watersmeet.predicate.links import Link, choose_links
from watersmeet.predicate.write import sql_of

SCHEMA = {
    "k": INT,
    "l": BIGINT,
    "s": STRING,
    "d": SqlType("double"),
    "x": INT,
    "t": BIGINT,
    "at": SqlType("timestamp"),
}
NAMES = "abcde"


def parsed(on: str):
    names = [name for name in NAMES if f"{name}." in on]
    return parse_predicate(on, dict.fromkeys(names, SCHEMA))


def links_of(on: str):
    return choose_links(join_graph(parsed(on)))


def compiled(on: str):
    predicate = parsed(on)
    return compile_walk(Asked(predicate, None, dict.fromkeys(predicate.inputs, SCHEMA)))


def shown(link: Link) -> str:
    if link.band is not None:
        return f"{link.band.left.sql} ~ {link.band.right.sql}".replace("`", "")
    keys = [" = ".join(side.sql for side in one.sides) for one in link.classes]
    return ", ".join(keys).replace("`", "") or " ? ".join(link.inputs)


def ways(on: str) -> dict[str, tuple[str, ...]]:
    signature = compiled(on).signature
    return {spec.name: found_by(signature, spec.name) for spec in signature.inputs if not spec.of}


@pytest.mark.parametrize(
    ("on", "chosen", "closing"),
    [
        # A path, a star, a tree.
        ("a.k = b.k AND b.x = c.x", ["a.k = b.k", "b.x = c.x"], []),
        ("a.k = b.k AND a.x = c.x AND a.s = d.s", ["a.k = b.k", "a.s = d.s", "a.x = c.x"], []),
        # A cycle.
        ("a.k = b.k AND b.x = c.x AND c.t = a.t", ["a.k = b.k", "a.t = c.t"], ["b.x = c.x"]),
        # Several keys between two inputs are one composite key, and come before single ones.
        ("a.k = b.k AND a.x = b.x AND b.t = c.t", ["a.k = b.k, a.x = b.x", "b.t = c.t"], []),
        (
            "a.t = c.t AND b.k = c.k AND a.x = b.x AND a.s = b.s",
            ["a.s = b.s, a.x = b.x", "a.t = c.t"],
            ["b.k = c.k"],
        ),
        # A key joins an input before a band, whatever the text says first.
        ("abs(a.x - b.x) <= 1 AND b.k = c.k", ["b.k = c.k", "a.x ~ b.x"], []),
        ("abs(a.x - b.x) <= 1 AND a.k = c.k AND b.t = c.t", ["a.k = c.k", "b.t = c.t"], []),
        # A band with two bounds before one with one, and any band before another condition.
        ("a.k = b.k AND a.x < c.x AND abs(b.t - c.t) <= 5", ["a.k = b.k", "b.t ~ c.t"], []),
        ("a.k = b.k AND a.x < c.x AND b.t + c.t = 5", ["a.k = b.k", "a.x ~ c.x"], []),
        ("a.k = b.k AND b.t + c.t = 5", ["a.k = b.k", "b ? c"], []),
        # Bands over values that are arranged already come first, and close cycles for nothing.
        (
            "abs(a.x - b.x) <= 1 AND abs(b.t - c.t) <= 1 AND abs(a.x - c.x) <= 1",
            ["a.x ~ b.x", "a.x ~ c.x"],
            [],
        ),
        (
            "abs(a.t - b.t) <= 1 AND abs(b.t - c.t) <= 1 AND abs(a.t - c.t) <= 1",
            ["a.t ~ b.t", "a.t ~ c.t"],
            ["b.t ~ c.t"],
        ),
        # Nothing is arranged for a band that closes a cycle otherwise: it is a condition.
        ("a.k = b.k AND b.k = c.k AND d.x = c.x AND a.t < d.t", ["c.x = d.x", "a.k = b.k = c.k"], []),
    ],
)
def test_as_few_links_are_chosen_as_connect_all_inputs(on, chosen, closing):
    links = links_of(on)
    assert [shown(link) for link in links.chosen] == chosen
    assert [shown(link) for link in links.closing] == closing


@pytest.mark.parametrize(
    ("on", "found"),
    [
        ("a.k = b.k AND b.x = c.x", {"a": ("k",), "b": ("k", "x"), "c": ("x",)}),
        (
            "a.k = b.k AND a.x = c.x AND a.s = d.s",
            {"a": ("k", "s", "x"), "b": ("k",), "c": ("x",), "d": ("s",)},
        ),
        ("a.k = b.k AND b.x = c.x AND c.t = a.t", {"a": ("k", "t"), "b": ("k",), "c": ("t",)}),
        ("a.k = b.k AND a.x = b.x AND b.t = c.t", {"a": ("k and x",), "b": ("k and x", "t"), "c": ("t",)}),
        # Of two keys that share two inputs, each of these is found by one of them first.
        (
            "a.k = b.k AND b.k = c.k AND b.x = c.x AND c.x = d.x",
            {"a": ("k",), "b": ("k",), "c": ("x",), "d": ("x",)},
        ),
        (
            "a.k = b.k AND abs(b.x - c.x) <= 1",
            {"a": ("k",), "b": ("k", "the value of x"), "c": ("the value of x",)},
        ),
        # Two bands of one value are one arrangement; those of two values need a store that locators lead to.
        (
            "a.x < b.x AND b.x < c.x",
            {"a": ("the value of x",), "b": ("the value of x",), "c": ("the value of x",)},
        ),
        (
            "a.x < b.x AND b.t < c.t",
            {"a": ("the value of x",), "b": ("the value of x", "the value of t"), "c": ("the value of t",)},
        ),
        (
            "a.x + a.k < b.x AND b.x < c.x * 2",
            {
                "a": ("the value of an expression",),
                "b": ("the value of x",),
                "c": ("the value of an expression",),
            },
        ),
        ("a.k = b.k AND b.t + c.t = 5", {"a": ("k",), "b": ("k",), "c": ("reading all rows",)}),
    ],
)
def test_an_input_is_found_by_each_key_and_value_that_leads_to_it(on, found):
    assert ways(on) == found


GRAPHS = [
    "a.k = b.k AND b.x = c.x AND c.t = d.t AND d.k = e.k",
    "a.k = b.k AND a.x = c.x AND a.t = d.t AND a.s = e.s",
    "a.k = b.k AND b.k = c.k AND b.x = c.x AND c.x = d.x AND d.t = e.t",
    "a.k = b.k AND b.k = c.k AND c.x = d.x AND d.x = e.x AND e.t = a.t AND a.t = c.t",
    "a.k = b.k AND b.x = c.x AND c.t = d.t AND d.s = a.s",
    "a.k = b.k AND abs(b.x - c.x) <= 1 AND c.t < d.t AND d.k = e.k",
    "abs(a.x - b.x) <= 1 AND abs(b.t - c.t) <= 1 AND abs(c.x - d.x) <= 1 AND d.x < a.x",
]


def reached(arranged: set[tuple[str, int]], start: str, edges: list[frozenset[str]]) -> set[str]:
    found = {start}
    for _ in edges:
        found |= {name for name, edge in arranged if edges[edge] & found}
    return found


@pytest.mark.parametrize("on", GRAPHS)
def test_every_input_can_start_a_walk_and_no_arrangement_can_be_left_out(on):
    links = links_of(on)
    inputs = set(parsed(on).inputs)
    edges = [frozenset(link.inputs) for link in links.chosen]
    arranged = {(name, edge) for edge, names in enumerate(links.arranged) for name in names}
    assert all(reached(arranged, start, edges) == inputs for start in inputs)
    for one in arranged:
        assert any(reached(arranged - {one}, start, edges) != inputs for start in inputs), one


@pytest.mark.parametrize("on", GRAPHS)
def test_the_order_of_the_text_does_not_change_what_is_stored(on):
    parts = on.split(" AND ")
    for order in itertools.islice(itertools.permutations(parts), 0, None, 7):
        assert compiled(" AND ".join(order)).signature == compiled(on).signature


@pytest.mark.parametrize(
    ("on", "tested"),
    [
        # What an exact band decides is not tested again.
        ("a.k = b.k AND abs(b.x - c.x) <= 1", []),
        ("a.k = b.k AND b.x <= c.x AND c.x <= b.x + 3 AND b.t < c.t", ["b.t < c.t"]),
        # Of text only the first bytes are compared, and Spark rounds differences of doubles.
        ("a.k = b.k AND b.s < c.s", ["b.s < c.s"]),
        ("a.k = b.k AND abs(b.d - c.d) <= 1", ["abs(b.d - c.d) <= 1"]),
        ("a.k = b.k AND b.d < c.d", []),
        # The wall clock of a day is not known: the band is not exact. Both are tested, the other bound by Spark.
        ("a.k = b.k AND b.at <= c.at AND c.at <= b.at + INTERVAL 1 DAY", ["b.at <= c.at"]),
        # A band that is not walked along is tested.
        ("a.k = b.k AND b.x = c.x AND a.t < c.t", ["a.t < c.t"]),
    ],
)
def test_what_a_band_does_not_decide_is_tested(on, tested):
    join = compiled(on).join
    assert isinstance(join, WalkJoin)
    assert [sql_of(part).replace("`", "") for part in join.conjuncts] == tested


def test_the_words_for_a_join_name_every_input():
    assert explain_found(compiled("a.k = b.k AND abs(b.x - c.x) <= 1").signature) == (
        "a by k; b by k, or by the value of x; c by the value of x"
    )


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"keys": ("x",)}, r"a by k; b by x, or by x; c by x\. Now: a by k; b by k, or by x"),
        ({"suffix": ("t",)}, r"b sorted by k, t; .*\. Now: .*b sorted by k, x;"),
    ],
    ids=["another key", "another second key"],
)
def test_a_state_with_other_keys_for_the_same_join_is_not_blamed_on_the_user(change, shown):
    """The choice of keys is this version's. A changed predicate is told as before."""
    now = compiled("a.k = b.k AND b.x = c.x").signature
    then = replace(now, inputs=tuple(replace(i, **change) if i.name == "b" else i for i in now.inputs))
    check_compatible(now, now)
    with pytest.raises(StateMismatch, match=shown) as refused:
        check_compatible(then, now)
    assert "continue with that version" in str(refused.value)
    with pytest.raises(StateMismatch, match="its predicate was .* Change it back"):
        check_compatible(compiled("a.k = b.k AND b.x < c.x").signature, now)
