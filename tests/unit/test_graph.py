"""The join graph of a predicate: which equalities follow from others, and which inputs are joined at all."""

from __future__ import annotations

import pytest

from watersmeet.errors import PredicateError
from watersmeet.model.types import BIGINT, INT, STRING, SqlType
from watersmeet.predicate import parse_predicate
from watersmeet.predicate.graph import JoinGraph, check_connected, join_graph
from watersmeet.predicate.links import choose_links
from watersmeet.predicate.write import sql_of

SCHEMA = {"k": INT, "l": BIGINT, "s": STRING, "d": SqlType("double"), "x": INT}


def graph_of(on: str, names: str = "abc", **how) -> JoinGraph:
    return join_graph(parse_predicate(on, dict.fromkeys(names, SCHEMA), **how))


def shown(graph: JoinGraph) -> list[str]:
    return [" = ".join(side.sql.replace("`", "") for side in one.sides) for one in graph.classes]


def left_over(graph: JoinGraph) -> list[str]:
    return [sql_of(conjunct).replace("`", "") for conjunct in graph.conjuncts]


@pytest.mark.parametrize(
    ("on", "classes", "conjuncts"),
    [
        ("a.k = b.k AND b.k = c.k", ["a.k = b.k = c.k"], []),
        ("c.k = b.k AND a.k = c.k", ["a.k = b.k = c.k"], []),
        ("a.k = b.k AND b.x = c.x", ["a.k = b.k", "b.x = c.x"], []),
        ("a.k = b.k AND b.k = c.k AND a.s = b.s", ["a.k = b.k = c.k", "a.s = b.s"], []),
        # All three compare as bigint, so the two ints are equal too.
        ("a.k = b.l AND b.l = c.k", ["a.k = b.l = c.k"], []),
        # a.k = c.k compares as int, the others as bigint: it is said apart.
        ("a.k = b.l AND b.l = c.k AND a.k = c.k", ["a.k = b.l = c.k", "a.k = c.k"], []),
        # '01' = 1 = '1' says nothing about the two texts.
        ("a.s = b.k AND b.k = c.k", ["a.s = b.k", "b.k = c.k"], []),
        # Two columns of one input equal one of another: the second equality is a condition of its own.
        ("a.k = b.k AND a.x = b.k AND b.k = c.k", ["a.k = b.k = c.k"], ["a.x = b.k"]),
        ("a.k = b.k AND b.k = c.k AND a.x < c.x", ["a.k = b.k = c.k"], ["a.x < c.x"]),
        ("a.k = b.k AND b.k + 1 = c.k", ["a.k = b.k", "b.k + 1 = c.k"], []),
    ],
)
def test_classes_hold_what_is_equal_in_one_type(on, classes, conjuncts):
    graph = graph_of(on)
    assert sorted(shown(graph)) == sorted(classes)
    assert left_over(graph) == conjuncts


def test_the_order_of_the_text_does_not_matter():
    parts = ["a.k = b.k", "c.k = b.k", "a.s = c.s", "b.s = c.s", "a.x = b.k"]
    assert shown(graph_of(" AND ".join(parts))) == shown(graph_of(" AND ".join(reversed(parts))))


def test_classes_that_are_not_used_as_keys_become_conditions():
    graph = graph_of("a.k = b.k AND b.k = c.k AND a.s = b.s")
    kept = graph.with_classes(graph.shared)
    assert shown(kept) == ["a.k = b.k = c.k"]
    assert left_over(kept) == ["a.s = b.s"]


def test_a_class_that_becomes_conditions_is_said_in_the_words_of_the_text():
    # Both equal the double in double: as bigint the two may differ.
    assert left_over(graph_of("a.l = b.d AND b.d = c.l").with_classes(())) == ["a.l = b.d", "b.d = c.l"]
    assert left_over(graph_of("a.s = b.k AND b.k = c.s").with_classes(())) == ["a.s = b.k", "b.k = c.s"]


@pytest.mark.parametrize(
    ("on", "names", "problem"),
    [
        ("a.k = b.k", "abc", "nothing joins c to a, b"),
        ("b.k = c.k", "abc", "nothing joins a to b, c"),
        ("a.k = b.k AND c.k = d.k AND d.x < e.x", "abcde", "nothing joins a and b to c, d, e"),
        ("a.k = b.k AND c.k = 1", "abc", "nothing joins c to a, b"),
    ],
)
def test_an_input_that_nothing_joins_is_named(on, names, problem):
    with pytest.raises(PredicateError, match=problem):
        check_connected(graph_of(on, names), on)


@pytest.mark.parametrize("on", ["a.k = b.k AND b.x < c.x", "a.k + b.k = c.k", "a.k = b.k AND b.s = c.s"])
def test_any_condition_over_several_inputs_joins_them(on):
    check_connected(graph_of(on), on)


def test_a_key_of_two_inputs_is_walked_before_one_that_many_share():
    """As in query 5 of TPC-H: lineitems find their order and supplier, not all customers of the supplier's nation."""
    on = "c.l = o.l AND l.k = o.k AND l.x = s.x AND c.s = s.s AND s.s = n.s"
    links = choose_links(graph_of(on, "colsn"))
    assert {link.inputs for link in links.chosen} == {("c", "o"), ("o", "l"), ("l", "s"), ("c", "s", "n")}
    assert not links.closing
