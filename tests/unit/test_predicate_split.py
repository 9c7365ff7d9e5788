"""Splitting a predicate into equality keys and the residual, and its canonical form."""

from __future__ import annotations

import pytest

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Call, Column, Literal, Predicate
from watersmeet.model.types import BIGINT, BOOLEAN, INT, parse_type
from watersmeet.predicate import parse_predicate
from watersmeet.predicate.write import sql_of

LEFT = {
    "k": "int", "Id": "bigint", "s": "string", "px": "decimal(10,2)", "x": "double", "f": "float", "d": "date",
    "ts": "timestamp", "flag": "boolean", "st": "struct<f:int,g:string>", "arr": "array<int>", "b": "binary",
    "lc": "string collate UTF8_LCASE", "iv": "interval day to second", "y": "tinyint", "nothing": "void",
    "odd": "array<string collate UNICODE>",
}  # fmt: skip
RIGHT = {
    "k": "bigint", "id": "bigint", "s": "string", "px": "decimal(12,4)", "x": "double", "f": "float", "d": "timestamp",
    "ts": "timestamp_ntz", "flag": "boolean", "st": "struct<p:int,q:string>", "arr": "array<int>", "b": "binary",
    "lc": "string collate UTF8_LCASE", "iv": "interval hour", "y": "tinyint", "nothing": "void",
    "odd": "array<string collate UNICODE>",
}  # fmt: skip
SCHEMAS = {
    "l": {name: parse_type(type_) for name, type_ in LEFT.items()},
    "r": {name: parse_type(type_) for name, type_ in RIGHT.items()},
}


def parsed(text: str, ansi: bool = True) -> Predicate:
    return parse_predicate(text, SCHEMAS, ansi=ansi)


def keys(predicate: Predicate) -> list[tuple[str, str, str]]:
    return [(key.side("l").sql, key.side("r").sql, str(key.type)) for key in predicate.keys]


def residual(predicate: Predicate) -> str | None:
    return sql_of(predicate.residual) if predicate.residual else None


@pytest.mark.parametrize(
    "text, pair",
    [
        pytest.param("l.k = r.k", ("`l`.`k`", "`r`.`k`", "bigint"), id="integrals meet in the wider"),
        pytest.param("r.k = l.k", ("`l`.`k`", "`r`.`k`", "bigint"), id="the first input is left"),
        pytest.param(
            "(l.k) == ((r.k))", ("`l`.`k`", "`r`.`k`", "bigint"), id="brackets and == do not matter"
        ),
        pytest.param("L.ID = R.Id", ("`l`.`Id`", "`r`.`id`", "bigint"), id="the schema's spelling is used"),
        pytest.param("`l`.`k` = `r`.k", ("`l`.`k`", "`r`.`k`", "bigint"), id="quoted names"),
        pytest.param("l . k = r\n.\nk", ("`l`.`k`", "`r`.`k`", "bigint"), id="white space around dots"),
        pytest.param("l.px = r.px", ("`l`.`px`", "`r`.`px`", "decimal(12,4)"), id="decimals that hold both"),
        pytest.param("l.k = r.px", ("`l`.`k`", "`r`.`px`", "decimal(14,4)"), id="an integral as a decimal"),
        pytest.param("l.f = r.k", ("`l`.`f`", "`r`.`k`", "double"), id="float and integral as double"),
        pytest.param("l.f = r.f", ("`l`.`f`", "`r`.`f`", "float"), id="floats stay float"),
        pytest.param("l.d = r.d", ("`l`.`d`", "`r`.`d`", "timestamp"), id="date and timestamp"),
        pytest.param("l.ts = r.ts", ("`l`.`ts`", "`r`.`ts`", "timestamp"), id="with and without time zone"),
        pytest.param("l.iv = r.iv", ("`l`.`iv`", "`r`.`iv`", "interval day to second"), id="intervals"),
        pytest.param("l.s = r.k", ("`l`.`s`", "`r`.`k`", "bigint"), id="text becomes a number"),
        pytest.param(
            "l.st = r.st", ("`l`.`st`", "`r`.`st`", "struct<f:int,g:string>"), id="structs of one shape"
        ),
        pytest.param("l.arr = r.arr", ("`l`.`arr`", "`r`.`arr`", "array<int>"), id="arrays"),
        pytest.param("l.st.F = r.st.p", ("`l`.`st`.`f`", "`r`.`st`.`p`", "int"), id="fields of structs"),
        pytest.param("l.arr[0] = r.k", ("`l`.`arr`[0]", "`r`.`k`", "bigint"), id="elements of arrays"),
        pytest.param("l.k + 1 = abs(r.k)", ("`l`.`k` + 1", "abs(`r`.`k`)", "bigint"), id="expressions"),
        pytest.param(
            "l.k - l.y = r.k * 2", ("`l`.`k` - `l`.`y`", "`r`.`k` * 2", "bigint"), id="two columns a side"
        ),
        pytest.param("CAST(l.s AS int) = r.k", ("CAST(`l`.`s` AS INT)", "`r`.`k`", "bigint"), id="casts"),
        pytest.param(
            "lower(l.s) = r.s || 'x'", ("lower(`l`.`s`)", "concat(`r`.`s`, 'x')", "string"), id="text"
        ),
    ],
)
def test_an_equality_across_the_inputs_is_a_key(text: str, pair: tuple[str, str, str]) -> None:
    predicate = parsed(text)
    assert keys(predicate) == [pair]
    assert predicate.residual is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("l.k < r.k", id="an inequality"),
        pytest.param("l.k = 1", id="a constant"),
        pytest.param("l.k = l.Id", id="one input"),
        pytest.param("l.k + r.k = 5", id="a side that reads both"),
        pytest.param("l.k + r.k = r.id", id="a side that reads both, and one"),
        pytest.param("l.k = r.k OR l.s = r.s", id="inside OR"),
        pytest.param("NOT l.k = r.k", id="inside NOT"),
        pytest.param("(l.k = r.k) = TRUE", id="inside a comparison"),
        pytest.param("CASE WHEN l.flag THEN l.k = r.k END", id="inside CASE"),
        pytest.param("l.k <> r.k", id="different"),
        pytest.param("l.lc = r.lc", id="text under a collation"),
        pytest.param("l.odd = r.odd", id="text under a collation, inside"),
        pytest.param("l.st <=> r.st", id="null-safe on nested types"),
        pytest.param("l.nothing = r.nothing", id="two columns of nulls"),
        pytest.param("round(l.px, l.k) = r.px", id="an unknown type"),
        pytest.param("l.flag", id="a boolean column"),
        pytest.param("FALSE", id="false"),
        pytest.param("l.flag AND NULL", id="never"),
    ],
)
def test_anything_else_is_residual(text: str) -> None:
    predicate = parsed(text)
    assert predicate.keys == ()
    assert predicate.residual is not None


@pytest.mark.parametrize("text", ["TRUE", "(true)", "true AND TRUE"])
def test_true_leaves_nothing_to_check(text: str) -> None:
    predicate = parsed(text)
    assert (predicate.keys, predicate.bands, predicate.residual, predicate.columns) == ((), (), None, ())
    assert parsed(f"l.k = r.k AND {text}").residual is None


def test_keys_and_residual_share_the_conjuncts() -> None:
    predicate = parsed("l.x < r.x AND (l.k = r.k AND (l.s = r.s OR l.flag)) AND r.id = l.Id")
    assert keys(predicate) == [("`l`.`Id`", "`r`.`id`", "bigint"), ("`l`.`k`", "`r`.`k`", "bigint")]
    assert residual(predicate) == "`l`.`x` < `r`.`x` AND (`l`.`s` = `r`.`s` OR `l`.`flag`)"


def test_a_single_residual_conjunct_stands_alone() -> None:
    predicate = parsed("l.k = r.k AND l.x < r.x")
    less = (Column("l", "x", parse_type("double")), Column("r", "x", parse_type("double")))
    assert predicate.residual == Call("<", less, BOOLEAN)


def test_between_is_two_conjuncts() -> None:
    predicate = parsed("l.x BETWEEN r.x - 1 AND r.x + 1")
    assert residual(predicate) == "`l`.`x` >= `r`.`x` - 1 AND `l`.`x` <= `r`.`x` + 1"


def test_a_key_that_is_written_twice_is_one_key() -> None:
    assert keys(parsed("l.k = r.k AND r.k = l.k")) == [("`l`.`k`", "`r`.`k`", "bigint")]


def test_null_safe_equality_is_two_keys() -> None:
    predicate = parsed("l.k <=> r.k")
    assert keys(predicate) == [
        ("coalesce(CAST(`l`.`k` AS BIGINT), 0L)", "coalesce(`r`.`k`, 0L)", "bigint"),
        ("`l`.`k` IS NULL", "`r`.`k` IS NULL", "boolean"),
    ]
    zero = Literal(0, BIGINT)
    cast = Call("cast", (Column("l", "k", INT),), BIGINT)
    assert predicate.keys[0].sides[0].expression == Call("coalesce", (cast, zero), BIGINT)
    assert predicate.residual is None


@pytest.mark.parametrize(
    "text, zero",
    [
        ("l.s IS NOT DISTINCT FROM r.s", "''"),
        ("l.px <=> r.px", "CAST(0BD AS DECIMAL(12,4))"),
        ("l.x <=> r.x", "0.0D"),
        ("l.f <=> r.f", "0.0F"),
        ("l.flag <=> r.flag", "FALSE"),
        ("l.b <=> r.b", "X''"),
        ("l.d <=> CAST(r.d AS date)", "DATE '1970-01-01'"),
        ("l.d <=> r.d", "TIMESTAMP '1970-01-01 00:00:00+00:00'"),
        ("CAST(l.ts AS timestamp_ntz) <=> r.ts", "TIMESTAMP_NTZ '1970-01-01 00:00:00'"),
        ("l.y <=> r.y", "0Y"),
        ("l.iv <=> r.iv", "INTERVAL 0 DAY 0 HOUR 0 MINUTE 0 SECOND"),
    ],
)
def test_null_safe_zeros(text: str, zero: str) -> None:
    filled, nulls = parsed(text).keys
    assert all(side.sql.endswith(f", {zero})") for side in filled.sides)
    assert nulls.type == BOOLEAN


def test_text_beside_other_types_needs_a_cast_in_legacy_mode() -> None:
    with pytest.raises(PredicateError, match="cast one side explicitly"):
        parsed("l.s = r.k", ansi=False)
    assert keys(parsed("CAST(l.s AS bigint) = r.k", ansi=False)) == [
        ("CAST(`l`.`s` AS BIGINT)", "`r`.`k`", "bigint")
    ]
    assert residual(parsed("l.s < r.k", ansi=False)) == "`l`.`s` < `r`.`k`"


def test_float_and_integral_meet_in_float_in_legacy_mode() -> None:
    assert keys(parsed("l.f = r.k", ansi=False)) == [("`l`.`f`", "`r`.`k`", "float")]


def test_the_refusal_of_a_key_points_at_its_conjunct() -> None:
    with pytest.raises(PredicateError) as caught:
        parsed("l.k = r.k AND l.s = r.s AND CAST(l.k AS decimal(38,0)) = r.px")
    assert caught.value.position == 28


def test_columns_are_listed_once_in_reading_order() -> None:
    predicate = parsed("r.x > l.x AND l.k = r.k AND l.x < 5")
    assert [(column.input, column.name) for column in predicate.columns] == [
        ("r", "x"), ("l", "x"), ("l", "k"), ("r", "k"),
    ]  # fmt: skip
    assert predicate.inputs == ("l", "r")
    assert predicate.text == "r.x > l.x AND l.k = r.k AND l.x < 5"


@pytest.mark.parametrize(
    "one, other",
    [
        pytest.param("l.k=r.k", " ( L.K ==\n`R`.`k` ) ", id="spelling"),
        pytest.param("l.k = r.k", "r.k = l.k", id="sides"),
        pytest.param("l.k = r.k AND l.x < r.x", "l.x < r.x AND r.k = l.k", id="order"),
        pytest.param(
            "l.k = r.k AND (l.x < r.x AND l.flag)", "l.flag AND l.x < r.x AND l.k = r.k", id="brackets"
        ),
        pytest.param("l.flag AND (l.k = 1 OR r.k = 2)", "((1 = l.k) OR (r.k = 2)) AND l.flag", id="or"),
        pytest.param("(l.flag OR r.flag) AND (l.flag OR r.flag)", "l.flag OR r.flag", id="twice"),
        pytest.param("l.k != 1", "l.k <> 1", id="different"),
        pytest.param("! l.flag", "NOT l.flag", id="not"),
        pytest.param("l.k NOT IN (1, 2)", "NOT l.k IN (1,2)", id="not in"),
        pytest.param("l.k BETWEEN 1 AND 2", "l.k >= 1 AND l.k <= 2", id="between"),
        pytest.param("l.k IS NOT NULL", "isnotnull(l.k)", id="is not null"),
        pytest.param("l.flag IS TRUE", "l.flag <=> TRUE", id="is true"),
        pytest.param("l.k IS DISTINCT FROM r.k", "NOT l.k <=> r.k", id="distinct"),
        pytest.param("if(l.flag, 1, 2) = r.k", "CASE WHEN l.flag THEN 1 ELSE 2 END = r.k", id="if"),
        pytest.param(
            "CASE l.k WHEN 1 THEN r.flag END", "case when l.k = 1 then r.flag else null end", id="case"
        ),
        pytest.param("nvl(l.k, 0) = mod(r.k, 2)", "coalesce(l.k, 0) = r.k % 2", id="aliases"),
        pytest.param("l.s = 'it''s'", 'l.s = "it\'s"', id="strings"),
        pytest.param("l.x > -1 + (2 * 3)", "l.x > ((-1) + 2 * 3)", id="arithmetic"),
        pytest.param("INT(l.s) = r.k", "CAST(l.s AS INTEGER) = r.k", id="casts"),
        pytest.param("l.ts > r.ts - INTERVAL '1' WEEK", "l.ts > r.ts - interval 7 days", id="intervals"),
    ],
)
def test_canonical_is_equal_for(one: str, other: str) -> None:
    assert parsed(one).canonical == parsed(other).canonical


@pytest.mark.parametrize(
    "one, other",
    [
        ("l.k = r.k", "l.k <=> r.k"),
        ("l.k = 1", "l.k = 1L"),
        ("l.x > 1 - (2 - 3)", "l.x > 1 - 2 - 3"),
        ("l.flag AND r.flag", "l.flag OR r.flag"),
        ("l.s = 'a'", "l.s = 'A'"),
        ("CAST(l.s AS int) = r.k", "TRY_CAST(l.s AS int) = r.k"),
    ],
)
def test_canonical_differs_for(one: str, other: str) -> None:
    assert parsed(one).canonical != parsed(other).canonical


def test_canonical_is_this() -> None:
    text = "r.px < l.px and (l.flag or r.flag) and r.k = l.k"
    assert parsed(text).canonical == (
        "(`l`.`flag` OR `r`.`flag`) AND `l`.`k` = `r`.`k` AND `r`.`px` < `l`.`px`"
    )


def test_a_key_that_every_branch_of_an_or_demands_is_a_key_and_the_or_stays() -> None:
    predicate = parsed("l.k = r.k AND l.flag OR r.k = l.k AND l.x < r.x")
    assert [[side.sql for side in key.sides] for key in predicate.keys] == [["`l`.`k`", "`r`.`k`"]]
    assert predicate.residual is not None
    assert parsed("l.k = r.k AND l.flag OR l.s = r.s").keys == ()
