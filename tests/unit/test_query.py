"""The text of a query: what it means as a join, and what is refused where."""

from __future__ import annotations

import pytest

from watersmeet.errors import PredicateError
from watersmeet.model.types import INT, STRING
from watersmeet.predicate.query import Query, read_query

SOURCES = {"a": {"id": INT, "k": INT}, "b": {"k": INT, "x": INT}, "c": {"k": INT, "left": STRING}}


def read(text: str, **how) -> Query:
    return read_query(text, SOURCES, **how)


@pytest.mark.parametrize(
    ("text", "inputs", "on", "select"),
    [
        ("SELECT a.id FROM a JOIN b ON a.k = b.k", "a=a b=b", "(a.k = b.k)", ["a.id"]),
        ("select A.ID from A inner join B on a.K = b.k", "a=a b=b", "(a.K = b.k)", ["A.ID"]),
        ("SELECT a.id FROM a, b WHERE a.k = b.k", "a=a b=b", "(a.k = b.k)", ["a.id"]),
        ("SELECT a.id, b.x FROM a, b", "a=a b=b", "true", ["a.id", "b.x"]),
        (
            "SELECT l.id, r.id AS other FROM a AS l JOIN a r ON l.k < r.k WHERE l.id <> r.id",
            "l=a r=a",
            "(l.k < r.k) AND (l.id <> r.id)",
            ["l.id", "r.id AS other"],
        ),
        (
            "SELECT a.id FROM a JOIN b ON a.k = b.k OR b.x = 1 JOIN c ON c.k = a.k",
            "a=a b=b c=c",
            "(a.k = b.k OR b.x = 1) AND (c.k = a.k)",
            ["a.id"],
        ),
        (
            "SELECT * FROM a JOIN b USING (k) JOIN c USING (k)",
            "a=a b=b c=c",
            "(`a`.`k` = `b`.`k`) AND (`a`.`k` = `c`.`k`)",
            ["`a`.`k`", "`a`.`id`", "`b`.`x`", "`c`.`left`"],
        ),
        (
            "SELECT * FROM c, b JOIN a ON a.k = b.x AND c.k = b.k JOIN a AS d USING (id)",
            "c=c b=b a=a d=a",
            "(`a`.`id` = `d`.`id`) AND (a.k = b.x AND c.k = b.k)",
            ["`a`.`id`", "`c`.`k`", "`c`.`left`", "`b`.`k`", "`b`.`x`", "`a`.`k`", "`d`.`k`"],
        ),
        # Words of SQL that are names here, and functions of that name.
        (
            "SELECT c.left, left(c.left, 1) AS l FROM c JOIN a ON left(c.left, 1) = 'x' AND c.k = a.k",
            "c=c a=a",
            "(left(c.left, 1) = 'x' AND c.k = a.k)",
            ["c.left", "left(c.left, 1) AS l"],
        ),
        (
            "SELECT CASE WHEN a.k IN (1, 2) THEN 1 ELSE b.x END AS y FROM a JOIN b ON a.k = b.k",
            "a=a b=b",
            "(a.k = b.k)",
            ["CASE WHEN a.k IN (1, 2) THEN 1 ELSE b.x END AS y"],
        ),
        ("SELECT a.*, b.x FROM a JOIN b ON a.k = b.k", "a=a b=b", "(a.k = b.k)", ["a.*", "b.x"]),
    ],
)
def test_a_query_is_a_join(text, inputs, on, select):
    found = read(text)
    assert " ".join(f"{name}={source}" for name, source in found.inputs) == inputs
    assert found.on == on
    assert list(found.select) == select


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        ("", "the text is empty", ""),
        ("a.k = b.k", "a query begins with SELECT", "a.k"),
        ("SELECT a.id", "FROM is missing", ""),
        ("SELECT FROM a, b", "a column is missing", "FROM"),
        ("SELECT a.id, FROM a, b", "a column is missing", "FROM"),
        ("SELECT DISTINCT a.id FROM a, b", "SELECT DISTINCT is not possible", "DISTINCT"),
        ("SELECT a.id FROM a LEFT JOIN b ON a.k = b.k", "LEFT is not possible", "LEFT"),
        ("SELECT a.id FROM a CROSS JOIN b", "CROSS is not possible", "CROSS"),
        ("SELECT a.id FROM a JOIN b", "the join of b has no condition", ""),
        ("SELECT a.id FROM a JOIN b ON", "a condition is missing", ""),
        ("SELECT a.id FROM a, b WHERE a.k = b.k GROUP BY a.id", "GROUP is not possible", "GROUP"),
        ("SELECT a.id FROM a, b WHERE a.k = b.k LIMIT 5", "LIMIT is not possible", "LIMIT"),
        ("SELECT a.id FROM a, (SELECT b.k FROM b) x", "a query inside a query", "(SELECT"),
        ("SELECT a.id FROM a, d WHERE a.k = d.k", "there is no input d", "d WHERE"),
        ("SELECT a.id FROM a, a WHERE true", "two inputs are named a", "a WHERE"),
        ("SELECT a.id FROM a x, b WHERE x.k = b.k", "a", "a.id"),
        ("SELECT a.id FROM a JOIN b USING (x)", "a has no column x", "x)"),
        ("SELECT a.id FROM a JOIN b USING (id)", "b has no column id", "id)"),
        ("SELECT a.id FROM a JOIN b ON a.k = b.x JOIN c USING (k)", "k may be a.k and b.k", "k)"),
        (
            "SELECT a.id FROM a JOIN b USING (k) JOIN c ON true JOIN b d USING (k)",
            "k may be a.k and c.k",
            "k)",
        ),
        ("SELECT a.id FROM a JOIN b USING (k, k)", "k is named twice", "k)"),
        ("SELECT a.id FROM a, b JOIN c USING (k)", "k may be a.k and b.k", "k)"),
        (
            "SELECT a.id FROM a JOIN b ON a.k = b.k AND c.k = b.k JOIN c ON c.k = a.k",
            "this ON cannot read c",
            "c.k = b",
        ),
        ("SELECT a.id FROM a JOIN b ON a.k = b.k JOIN c ON c.z = a.k", "z", "z = a"),
        ("SELECT a.id FROM a JOIN b USING k", "stand in brackets", "k"),
        ("SELECT a.id FROM a, b WHERE a.z = b.k", "z", "z ="),
        ("SELECT a.id FROM a JOIN b ON a.k = b.k AND", "", ""),
        ("SELECT a.id + b.x FROM a, b WHERE a.k = b.k", "an expression needs a name", "a.id +"),
        ("SELECT a.id FROM a, b WHERE exists(a.k)", "", ""),
        ("SELECT a.id FROM a; DROP TABLE a", "", ""),
    ],
)
def test_anything_else_is_refused_at_its_place(text, problem, place):
    with pytest.raises(PredicateError) as refused:
        read(text)
    assert problem in str(refused.value)
    if place:
        assert refused.value.position is not None and text[refused.value.position :].startswith(place)


@pytest.mark.parametrize(("clause", "hint"), [("LIMIT 5", "take rows"), ("ORDER BY a.id", "order")])
def test_what_to_do_instead_of_a_clause_is_said(clause, hint):
    with pytest.raises(PredicateError) as refused:
        read(f"SELECT a.id FROM a, b WHERE a.k = b.k {clause}")
    assert refused.value.hint == f"{hint} {'of ' if hint == 'take rows' else ''}the result of the join"


def test_the_name_that_is_missing_is_asked_of_the_expression_alone():
    with pytest.raises(PredicateError) as refused:
        read("SELECT a.id, a.id + b.x FROM a, b WHERE a.k = b.k")
    assert refused.value.hint == "write a.id + b.x AS name"


def test_the_columns_of_using_follow_the_case_sensitivity_of_the_session():
    sources = {"a": {"k": INT, "x": INT}, "b": {"k": INT, "K": INT}, "c": {"K": INT}}
    text = "SELECT a.x FROM a JOIN b USING (k) JOIN c USING (K)"
    found = read_query(text, sources, case_sensitive=True)
    assert found.on == "(`a`.`k` = `b`.`k`) AND (`b`.`K` = `c`.`K`)"
    both = sources | {"a": {"k": INT, "K": INT, "x": INT}}
    for case_sensitive, problem in ((True, "K may be a.K and b.K"), (False, "k may be a.k and a.K")):
        with pytest.raises(PredicateError, match=problem):
            read_query(text, both, case_sensitive=case_sensitive)


def test_names_follow_the_case_sensitivity_of_the_session():
    with pytest.raises(PredicateError, match="there is no input A"):
        read("SELECT a.id FROM A, b", case_sensitive=True)
