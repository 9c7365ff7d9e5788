"""Types of literals, operators and functions, as Spark 4.3 gives them in `SELECT ...`'s schema."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Call, Column, Expression, Literal
from watersmeet.model.types import BOOLEAN, INT, STRING, VOID, parse_type
from watersmeet.predicate import parse_select
from watersmeet.predicate.write import sql_of

COLUMNS = {
    "y": "tinyint", "h": "smallint", "i": "int", "j": "bigint", "f": "float", "d": "double", "m": "decimal(10,2)",
    "n": "decimal(20,5)", "w": "decimal(38,10)", "s": "string", "o": "boolean", "dt": "date", "ts": "timestamp",
    "nt": "timestamp_ntz", "b": "binary", "a": "array<int>", "st": "struct<f:int,g:string>",
    "mp": "map<string,double>", "iv": "interval day to second", "ym": "interval month",
    "lc": "string collate UTF8_LCASE",
}  # fmt: skip
SCHEMAS = {"l": {name: parse_type(type_) for name, type_ in COLUMNS.items()}, "r": {"k": INT}}
UTC = datetime.timezone.utc


def read(text: str, ansi: bool = True) -> Expression:
    return parse_select([f"{text} AS x"], SCHEMAS, ansi=ansi)[0].expression


LITERALS = [
    ("3", "int", 3),
    ("-2147483648", "int", -(2**31)),
    ("2147483648", "bigint", 2**31),
    ("3000000000", "bigint", 3_000_000_000),
    ("-9223372036854775808", "bigint", -(2**63)),
    ("9223372036854775808", "decimal(19,0)", Decimal(2**63)),
    ("9" * 38, "decimal(38,0)", Decimal("9" * 38)),
    ("00012", "int", 12),
    ("3L", "bigint", 3),
    ("3l", "bigint", 3),
    ("2S", "smallint", 2),
    ("1Y", "tinyint", 1),
    ("-128Y", "tinyint", -128),
    ("3.5", "decimal(2,1)", Decimal("3.5")),
    ("0.50", "decimal(2,2)", Decimal("0.50")),
    ("0.05", "decimal(2,2)", Decimal("0.05")),
    (".5", "decimal(1,1)", Decimal("0.5")),
    ("5.", "decimal(1,0)", Decimal(5)),
    ("-0.0", "decimal(1,1)", Decimal("0.0")),
    ("1.5BD", "decimal(2,1)", Decimal("1.5")),
    ("1bd", "decimal(1,0)", Decimal(1)),
    ("1e3BD", "decimal(4,0)", Decimal(1000)),
    ("1E-3BD", "decimal(3,3)", Decimal("0.001")),
    ("1e3", "double", 1000.0),
    ("1.5E-3", "double", 0.0015),
    ("1.0D", "double", 1.0),
    ("5.D", "double", 5.0),
    ("1.5F", "float", 1.5),
    ("0.1f", "float", 0.10000000149011612),
    ("'x'", "string", "x"),
    ('"x"', "string", "x"),
    ("'it''s'", "string", "it's"),
    ("'it' 's'", "string", "its"),
    (r"'a\nb\t\\\'\0\Z\b\r'", "string", "a\nb\t\\'\0\x1a\b\r"),
    (r"'\%\_\x\q'", "string", r"\%\_xq"),
    (r"'\u00e9\101\U0001F600\400'", "string", "éA😀400"),
    (r"'\ud83d\ude00'", "string", "😀"),
    (r"r'a\n'", "string", r"a\n"),
    ('R"a\\"', "string", "a\\"),
    ("'größe 😀'", "string", "größe 😀"),
    ("'--; /* */ ?'", "string", "--; /* */ ?"),
    ("X'1F'", "binary", b"\x1f"),
    ("x'1f2'", "binary", b"\x01\xf2"),
    ("NULL", "void", None),
    ("true", "boolean", True),
    ("FALSE", "boolean", False),
    ("DATE '2026-01-31'", "date", datetime.date(2026, 1, 31)),
    ("date'2026-1-3'", "date", datetime.date(2026, 1, 3)),
    ("DATE '2026'", "date", datetime.date(2026, 1, 1)),
    ("TIMESTAMP '2026-01-31 12:30:00.5'", "timestamp", datetime.datetime(2026, 1, 31, 12, 30, 0, 500_000)),
    ("TIMESTAMP '2026-01-31'", "timestamp", datetime.datetime(2026, 1, 31)),
    ("TIMESTAMP '2026-01-31T12:30:00Z'", "timestamp", datetime.datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
    (
        "TIMESTAMP '2026-01-31 12:30:00-02:30'",
        "timestamp",
        datetime.datetime(2026, 1, 31, 15, 0, tzinfo=UTC),
    ),
    ("TIMESTAMP_LTZ '2026-01-31'", "timestamp", datetime.datetime(2026, 1, 31)),
    ("TIMESTAMP_NTZ '2026-01-31'", "timestamp_ntz", datetime.datetime(2026, 1, 31)),
    ("INTERVAL '1' DAY", "interval day", 86_400_000_000),
    ("INTERVAL 5 MINUTES", "interval minute", 300_000_000),
    ("INTERVAL -3 DAYS", "interval day", -3 * 86_400_000_000),
    ("INTERVAL -'3' DAY", "interval day", -3 * 86_400_000_000),
    ("INTERVAL - '-3' DAY", "interval day", 3 * 86_400_000_000),
    ("INTERVAL 1 DAY 2 HOURS", "interval day to hour", 26 * 3_600_000_000),
    ("INTERVAL '1 day 2 hours'", "interval day to hour", 26 * 3_600_000_000),
    ("INTERVAL 1.5 SECONDS", "interval second", 1_500_000),
    ("INTERVAL 3 MILLISECONDS", "interval second", 3_000),
    ("INTERVAL 3 MICROSECONDS", "interval second", 3),
    ("INTERVAL 1 WEEK", "interval day", 7 * 86_400_000_000),
    ("INTERVAL 1 YEAR 2 MONTHS", "interval year to month", 14),
    ("INTERVAL '1 month'", "interval month", 1),
]


@pytest.mark.parametrize("text, type_, value", LITERALS)
def test_literals_are_read_as_spark_reads_them(text: str, type_: str, value: object) -> None:
    literal = read(text)
    assert isinstance(literal, Literal)
    assert str(literal.type) == type_
    assert literal.value == value
    assert type(literal.value) is type(value)


@pytest.mark.parametrize("text, type_, value", LITERALS)
def test_literals_are_written_so_that_they_read_the_same(text: str, type_: str, value: object) -> None:
    assert read(sql_of(read(text))) == read(text)


ARITHMETIC = [
    ("l.y + l.h", "smallint"),
    ("l.i - l.j", "bigint"),
    ("l.y * 2", "int"),
    ("l.i / l.j", "double"),
    ("l.f / l.f", "double"),
    ("l.i % l.y", "int"),
    ("l.i div 2", "bigint"),
    ("l.m div 2", "bigint"),
    ("l.f + l.f", "float"),
    ("l.f + l.d", "double"),
    ("l.f + l.m", "double"),
    ("l.m + l.n", "decimal(21,5)"),
    ("l.m - l.i", "decimal(13,2)"),
    ("l.m + 1", "decimal(11,2)"),
    ("l.m + 100L", "decimal(11,2)"),
    ("l.m * l.n", "decimal(31,7)"),
    ("l.m * l.w", "decimal(38,6)"),
    ("l.m / l.n", "decimal(36,23)"),
    ("l.m / 3", "decimal(14,6)"),
    ("l.m % l.i", "decimal(10,2)"),
    ("l.w + l.i", "decimal(38,9)"),
    ("- l.m", "decimal(10,2)"),
    ("- (3)", "int"),
    ("l.dt + 1", "date"),
    ("1 + l.dt", "date"),
    ("l.dt - l.dt", "interval day"),
    ("l.ts - l.ts", "interval day to second"),
    ("l.ts - l.dt", "interval day to second"),
    ("l.ts + INTERVAL 5 MINUTES", "timestamp"),
    ("l.nt - INTERVAL 1 MONTH", "timestamp_ntz"),
    ("l.dt + INTERVAL 1 DAY", "date"),
    ("l.dt + INTERVAL 1 HOUR", "timestamp"),
    ("INTERVAL 1 MONTH + l.dt", "date"),
    ("INTERVAL 1 DAY + INTERVAL 1 SECOND", "interval day to second"),
    ("INTERVAL 1 HOUR * 2", "interval day to second"),
    ("l.ym / 2", "interval year to month"),
    ("l.s + 1", "unknown"),
    ("l.dt + l.j", "unknown"),
]


@pytest.mark.parametrize("text, type_", ARITHMETIC)
def test_arithmetic_has_the_type_that_spark_gives(text: str, type_: str) -> None:
    assert str(read(text).type) == type_


@pytest.mark.parametrize(
    "text, type_", [("l.i + l.f", "float"), ("l.f % l.y", "float"), ("l.m + l.f", "double")]
)
def test_floats_are_narrower_in_legacy_mode(text: str, type_: str) -> None:
    assert str(read(text, ansi=False).type) == type_
    assert str(read(text).type) == "double"


FUNCTIONS = [
    ("abs(l.m)", "decimal(10,2)"),
    ("ceil(l.m)", "decimal(9,0)"),
    ("floor(l.d)", "bigint"),
    ("round(l.d, 1)", "double"),
    ("round(l.m)", "decimal(9,0)"),
    ("round(l.n, 2)", "decimal(18,2)"),
    ("round(l.m, -1)", "unknown"),
    ("pow(l.i, 2)", "double"),
    ("mod(l.i, l.j)", "bigint"),
    ("greatest(l.i, l.j)", "bigint"),
    ("least(l.m, 3)", "decimal(12,2)"),
    ("coalesce(l.y, NULL)", "tinyint"),
    ("coalesce(l.s, 1)", "unknown"),
    ("nvl2(l.s, l.i, l.d)", "double"),
    ("if(l.o, l.dt, l.ts)", "timestamp"),
    ("CASE WHEN l.o THEN 1 END", "int"),
    ("CASE l.i WHEN 1 THEN 'a' ELSE l.s END", "string"),
    ("concat(l.s, l.i)", "string"),
    ("concat(l.b, l.b)", "binary"),
    ("l.s || 1", "string"),
    ("lower(l.lc)", "unknown"),
    ("length(l.lc)", "int"),
    ("substring(l.b, 1)", "binary"),
    ("split(l.s, ',')", "array<string>"),
    ("date_add(l.ts, 1)", "date"),
    ("datediff(l.dt, l.dt)", "int"),
    ("date_trunc('month', l.dt)", "timestamp"),
    ("unix_timestamp(l.ts)", "bigint"),
    ("xxhash64(l.s, l.i)", "bigint"),
    ("md5(l.s)", "string"),
    ("array_contains(l.a, 1)", "boolean"),
    ("element_at(l.mp, 'k')", "double"),
    ("l.mp['k']", "double"),
    ("l.a[0]", "int"),
    ("l.st.g", "string"),
    ("CAST(l.s AS decimal(9))", "decimal(9,0)"),
    ("try_cast(l.s AS TIMESTAMP)", "timestamp"),
    ("bigint(l.s)", "bigint"),
    ("decimal(l.s)", "decimal(10,0)"),
    ("l.s LIKE 'a%'", "boolean"),
    ("l.i IS NULL", "boolean"),
]


@pytest.mark.parametrize("text, type_", FUNCTIONS)
def test_functions_have_the_type_that_spark_gives(text: str, type_: str) -> None:
    assert str(read(text).type) == type_


def test_the_tree_is_typed_and_plain() -> None:
    i = Column("l", "i", INT)
    assert read("l.i NOT BETWEEN 1 AND 2") == Call(
        "not",
        (
            Call(
                "and",
                (Call(">=", (i, Literal(1, INT)), BOOLEAN), Call("<=", (i, Literal(2, INT)), BOOLEAN)),
                BOOLEAN,
            ),
        ),
        BOOLEAN,
    )
    assert read("l.i IN (1, 2)") == Call("in", (i, Literal(1, INT), Literal(2, INT)), BOOLEAN)
    assert read("l.i IS NULL") == Call("is_null", (i,), BOOLEAN)
    assert read("l.st.F") == Call("field", (Column("l", "st", SCHEMAS["l"]["st"]), Literal("f", STRING)), INT)
    assert read("CASE WHEN l.o THEN 1 END") == Call(
        "case", (Column("l", "o", BOOLEAN), Literal(1, INT), Literal(None, VOID)), INT
    )
    assert read("CAST(l.i AS string)") == Call("cast", (i,), STRING)


@pytest.mark.parametrize(
    "text, written",
    [
        ("- (3)", "- (3)"),
        ("- - 3", "- -3"),
        ("-(-l.i)", "- - `l`.`i`"),
        ("-(l.i + 1) * 2", "- (`l`.`i` + 1) * 2"),
        ("l.i - (l.j - 1)", "`l`.`i` - (`l`.`j` - 1)"),
        ("(l.i - l.j) - -1", "`l`.`i` - `l`.`j` - -1"),
        ("l.i * (l.j div 2) % 3", "`l`.`i` * (`l`.`j` DIV 2) % 3"),
        ("NOT (NOT l.o)", "NOT NOT `l`.`o`"),
        ("NOT (l.o AND l.o)", "NOT (`l`.`o` AND `l`.`o`)"),
        ("(NOT l.o) = l.o", "(NOT `l`.`o`) = `l`.`o`"),
        ("(l.i = 1) IS NULL", "(`l`.`i` = 1) IS NULL"),
        ("(l.i IS NULL) IS NOT NULL", "(`l`.`i` IS NULL) IS NOT NULL"),
        ("(l.s || 'x') LIKE '%'", "concat(`l`.`s`, 'x') LIKE '%'"),
        ("(l.a)[0] + l.st . g[0]", None),
        ("if(l.o, l.st, l.st).F", "(CASE WHEN `l`.`o` THEN `l`.`st` ELSE `l`.`st` END).`f`"),
        ("split(l.s, ',')[l.i - 1]", "split(`l`.`s`, ',')[`l`.`i` - 1]"),
        (r"l.s = 'it''s \\ \n\u0007'", r"`l`.`s` = 'it\'s \\ \n\u0007'"),
        ("X'0aFF' = l.b", "X'0AFF' = `l`.`b`"),
        ("INTERVAL -1 DAY -2 HOURS", "INTERVAL -1 DAY -2 HOUR"),
        ("INTERVAL 90 MINUTES", "INTERVAL 90 MINUTE"),
        ("INTERVAL 1 DAY 1.25 SECONDS", "INTERVAL 1 DAY 0 HOUR 0 MINUTE 1.250000 SECOND"),
    ],
)
def test_trees_are_written_with_the_brackets_they_need(text: str, written: str | None) -> None:
    if written is None:
        with pytest.raises(PredicateError, match="no elements"):
            read(text)
        return
    assert sql_of(read(text)) == written
    assert read(written) == read(text)


def test_long_chains_of_and_and_or_are_flat() -> None:
    flat = read(" AND ".join(["l.o"] * 1_000))
    assert isinstance(flat, Call)
    assert len(flat.args) == 1_000
    mixed = read("(l.o OR l.o) OR (l.o AND (l.o AND l.o))")
    assert isinstance(mixed, Call)
    assert [type(arg) for arg in mixed.args] == [Column, Column, Call]


@pytest.mark.parametrize(
    "text",
    [
        "l.i = l.d",
        "l.s = l.i",
        "l.s < l.dt",
        "l.dt = l.nt",
        "l.o = l.s",
        "l.i = NULL",
        "l.a = NULL",
        "l.ts > '2026-01-31'",
        "round(l.m, -1) = l.dt",
        "l.st = l.st",
        "NOT l.o AND NULL",
        "l.lc = 'x'",
    ],
)
def test_what_may_be_right_passes(text: str) -> None:
    assert read(text).type == BOOLEAN


def test_booleans_are_numbers_in_legacy_mode() -> None:
    assert read("l.o = l.i", ansi=False).type == BOOLEAN
    with pytest.raises(PredicateError, match="cannot compare"):
        read("l.o = l.i", ansi=True)
