"""Names, places and words of refusals; and the list of selected columns."""

from __future__ import annotations

import pytest

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Call, Column
from watersmeet.model.types import INT, STRING, Schema, SqlType, parse_type
from watersmeet.predicate import parse_predicate, parse_select

LEFT: Schema = {
    "k": INT,
    "UserId": INT,
    "größe": INT,
    "a.b": INT,
    "tick`s": INT,
    "st": parse_type("struct<F:int>"),
}
RIGHT: Schema = {"k": INT, "name": STRING, "date": parse_type("date"), "end": INT}
SCHEMAS = {"l": LEFT, "r": RIGHT}


def message(text: str, **settings: bool) -> str:
    with pytest.raises(PredicateError) as caught:
        parse_predicate(text, SCHEMAS, **settings)
    return str(caught.value)


def test_unknown_column() -> None:
    assert message("l.k = r.nam") == (
        "nam is not a column of r\n  l.k = r.nam\n          ^\ndid you mean name? r has k, name, date, end"
    )


def test_unqualified_column() -> None:
    assert message("l.k = r.k AND k > 1") == (
        "k has no input before it\n  l.k = r.k AND k > 1\n                ^\nwrite l.k or r.k"
    )


def test_unqualified_and_misspelt_column() -> None:
    assert message("l.k = r.k AND nam > 1").endswith("\ndid you mean name? write l.k or r.k")


def test_refused_function_on_the_second_line() -> None:
    assert message("l.k = r.k\n  AND rand() > 0.5") == (
        "rand() is not allowed: it gives another value each time\n"
        "    AND rand() > 0.5\n"
        "        ^\n"
        "compute it as a column before the join"
    )


def test_types_that_do_not_compare() -> None:
    assert message("l.k = r.k AND (l.k > 3 OR l.k = r.date)") == (
        "cannot compare int (l.k) with date (r.date)\n"
        "  l.k = r.k AND (l.k > 3 OR l.k = r.date)\n"
        "                            ^\n"
        "cast one side, or compare other columns"
    )


def test_string_that_is_not_closed() -> None:
    assert message("r.name = 'abc") == (
        "the string is not closed\n  r.name = 'abc\n           ^\nend it with the quote it began with"
    )


@pytest.mark.parametrize(
    "text, place",
    [
        ("l.k = r.k; DROP", 9),
        ("l.k = r.k -- x", 10),
        ("l.k = (SELECT 1)", 7),
        ("l.k = r.k AND sum(l.k) > 1", 14),
        ("l.k = r.k AND EXISTS (SELECT 1)", 14),
        ("l.k = r.k = 1", 10),
        ("abs(l.k = r.k", 0),
        ("l.k = r.k)", 9),
        ("l.k = 1 1", 8),
        ("l.k IN (1, 300Y)", 11),
        ("r.date = DATE '2026-02-30'", 9),
        ("CAST(l.k AS money) = 1", 12),
        ("l.st.G = 1", 5),
        ("l.k = r.k AND substring(r.name) = 'x'", 14),
        ("l.k =", 5),
        ("l.k = r.k AND r.name", 14),
    ],
)
def test_the_caret_stands_at_the_place(text: str, place: int) -> None:
    with pytest.raises(PredicateError) as caught:
        parse_predicate(text, SCHEMAS)
    assert caught.value.position == place
    assert caught.value.text == text


@pytest.mark.parametrize(
    "text, name",
    [
        ("L.USERID = 1", "UserId"),
        ("l.`userid` = 1", "UserId"),
        ("l.`größe` = 1", "größe"),
        ("l.`GRÖSSE` = 1", None),
        ("l.`a.b` = 1", "a.b"),
        ("l.`tick``s` = 1", "tick`s"),
        ("r.date = DATE '2026-01-31'", "date"),
        ("R.END = 1", "end"),
        ("r . end = 1", "end"),
        ("CASE WHEN r.end = 1 THEN r.end END = 1", "end"),
    ],
)
def test_names_are_found_as_spark_finds_them(text: str, name: str | None) -> None:
    if name is None:
        assert "not a column" in message(text)
    else:
        assert parse_predicate(text, SCHEMAS).columns[0].name == name


def test_letter_case_matters_if_the_session_says_so() -> None:
    assert "did you mean l?" in message("L.k = r.k", case_sensitive=True)
    assert "did you mean UserId?" in message("l.userid = r.k", case_sensitive=True)
    assert "did you mean F?" in message("l.st.f = r.k", case_sensitive=True)
    assert parse_predicate("l.UserId = r.k", SCHEMAS, case_sensitive=True).keys


def test_names_that_differ_in_letter_case_only() -> None:
    schemas: dict[str, Schema] = {"l": {"k": INT, "K": INT}, "r": {"k": INT}}
    with pytest.raises(PredicateError, match="ambiguous: k and K"):
        parse_predicate("l.k = r.k", schemas)
    assert parse_predicate("l.K = r.k", schemas, case_sensitive=True).keys[0].side("l").sql == "`l`.`K`"


def test_inputs_may_be_named_like_keywords() -> None:
    schemas: dict[str, Schema] = {"left": {"order": INT}, "select": {"from": INT}}
    predicate = parse_predicate("left.order = select.from AND `left`.`order` > 1", schemas)
    assert predicate.keys[0].side("left").sql == "`left`.`order`"
    assert predicate.inputs == ("left", "select")


def test_many_columns_do_not_hide_the_message() -> None:
    schemas: dict[str, Schema] = {"l": {f"c{i}": INT for i in range(500)}, "r": {"k": INT}}
    with pytest.raises(PredicateError, match="and 488 more"):
        parse_predicate("l.zzz = r.k", schemas)


def selected(*items: str) -> list[tuple[str, str]]:
    return [(item.text, item.name) for item in parse_select(items, SCHEMAS)]


def test_selected_columns_keep_the_text_and_take_their_names() -> None:
    assert selected("l.k", " r.NAME ", "l.st.f", "l . k + r.k  AS `the sum`", "CAST(r.k AS int) as `AS`") == [
        ("l.k", "k"),
        ("r.NAME", "name"),
        ("l.st.f", "F"),
        ("l . k + r.k", "the sum"),
        ("CAST(r.k AS int)", "AS"),
    ]


def test_a_star_is_all_columns_of_its_input() -> None:
    assert selected("R.*", "l.k AS id") == [
        ("`r`.`k`", "k"),
        ("`r`.`name`", "name"),
        ("`r`.`date`", "date"),
        ("`r`.`end`", "end"),
        ("l.k", "id"),
    ]
    assert selected("`l` . *")[4] == ("`l`.`tick``s`", "tick`s")


def test_selected_expressions_are_typed_and_list_their_columns() -> None:
    (item,) = parse_select(["l.k - r.k - l.k AS gap"], SCHEMAS)
    assert isinstance(item.expression, Call)
    assert item.expression.type == INT
    assert item.columns == (Column("l", "k", INT), Column("r", "k", INT))


def test_a_selected_column_need_not_be_a_condition_or_comparable() -> None:
    schemas: dict[str, Schema] = {"l": {"m": parse_type("map<string,int>"), "v": SqlType("variant")}, "r": {}}
    assert [str(item.expression.type) for item in parse_select(["l.m", "l.v"], schemas)] == [
        "map<string,int>",
        "variant",
    ]


@pytest.mark.parametrize(
    "items, word",
    [
        pytest.param([], "no columns", id="empty"),
        pytest.param("l.k", "list", id="one text"),
        pytest.param(b"l.k", "list", id="bytes"),
        pytest.param(None, "list", id="nothing"),
        pytest.param({"l.k"}, "list", id="a set has no order"),
        pytest.param([5], "int", id="a number"),
        pytest.param([""], "empty", id="empty text"),
        pytest.param(["l.k + 1"], "AS name", id="no alias"),
        pytest.param(["abs(l.k)"], "AS name", id="function without alias"),
        pytest.param(["l.k", "r.k"], "two columns are named k", id="same name"),
        pytest.param(["l.k AS Name", "r.name"], "two columns are named name", id="same name but for case"),
        pytest.param(["l.*", "r.*"], "two columns are named k", id="same name by stars"),
        pytest.param(["*"], "l.*, r.*", id="bare star"),
        pytest.param(["l.* AS x"], "star", id="star with alias"),
        pytest.param(["l.*, r.k"], "star", id="two in one"),
        pytest.param(["x.*"], "not an input", id="star of nothing"),
        pytest.param(["l.k, r.k"], "list", id="two in one text"),
        pytest.param(["l"], "whole row", id="a whole row"),
        pytest.param(["k"], "write l.k or r.k", id="unqualified"),
        pytest.param(["l.k k2"], "operator is missing", id="alias without AS"),
        pytest.param(["l.k AS"], "AS", id="AS without a name"),
        pytest.param(["AS x"], "missing before AS", id="AS without an expression"),
        pytest.param(["l.k AS 'x'"], "name", id="a string as alias"),
        pytest.param(["l.k AS ``"], "name", id="an empty alias"),
        pytest.param(["l.k AS a.b"], "AS", id="a dotted alias"),
        pytest.param(["l.k AS x AS y"], "AS", id="two aliases"),
        pytest.param(["count(*) AS n"], "aggregate", id="an aggregate"),
        pytest.param(["explode(l.st) AS n"], "explode", id="a generator"),
        pytest.param(["rand() AS n"], "rand", id="a random number"),
        pytest.param(["l.k AS x; DROP TABLE t"], "semicolon", id="a second statement"),
        pytest.param(["(SELECT 1) AS x"], "queries", id="a query"),
    ],
)
def test_select_refuses(items: object, word: str) -> None:
    with pytest.raises(PredicateError) as caught:
        parse_select(items, SCHEMAS)  # type: ignore[arg-type]
    assert word in str(caught.value)
