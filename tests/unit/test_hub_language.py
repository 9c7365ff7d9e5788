"""Which texts are hub queries, and where the others are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.errors import PredicateError
from watersmeet.hubs.catalogue import ADD, EVENTS, Command, HubCatalogue, apply_commands
from watersmeet.hubs.language import Comparison, Equality, HubQuery
from watersmeet.hubs.stored import from_row, to_row
from watersmeet.hubs.templates import TemplateReader
from watersmeet.hubs.window import HubWindow, WindowOf
from watersmeet.model.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, VECTOR, decimal

SCHEMAS = {
    "R": {"a": INT, "b": BIGINT, "c": STRING, "d": DOUBLE, "e": decimal(9, 2), "t": TIMESTAMP, "g": DATE},
    "S": {"a": INT, "b": BIGINT, "f": BOOLEAN, "v": VECTOR},
    "P": {"b": BIGINT},
}


SINCE = "SINCE TIMESTAMP '2026-01-01 00:00:00.5Z'"


def read(text: str) -> HubQuery:
    return TemplateReader(SCHEMAS).read(text)


def test_a_path_with_constants_and_a_window_is_read():
    query = read(
        "SELECT R.b, s.b AS x FROM R, S AS s, P WHERE s.a = R.a AND P.b = s.b AND R.c = 'it''s' WINDOW 2 HOURS"
    )
    assert query.template.streams == ("R", "S", "P")
    assert query.template.equalities == (Equality(0, "a", 1, "a"), Equality(1, "b", 2, "b"))
    assert query.template.filters == (Comparison(0, "c", "=", (0,)),)
    assert [item.name for item in query.template.items] == ["b", "x"]
    assert (query.constants, query.window) == (("it's",), HubWindow(WindowOf.TIME, 7_200_000_000))


@pytest.mark.parametrize(
    ("condition", "filters", "constants"),
    [
        (
            "R.a BETWEEN -5 AND 7",
            (Comparison(0, "a", ">=", (0,)), Comparison(0, "a", "<=", (1,))),
            ("-5", "7"),
        ),
        ("5 < R.a", (Comparison(0, "a", ">", (0,)),), ("5",)),
        ("NOT R.a < 5", (Comparison(0, "a", ">=", (0,)),), ("5",)),
        ("R.c NOT IN ('x', 'y')", (Comparison(0, "c", "not in", (0, 1)),), ("x", "y")),
        ("R.c IS NOT NULL", (Comparison(0, "c", "is not null"),), ()),
        ("R.e = 1.5", (Comparison(0, "e", "=", (0,)),), ("1.50",)),
        ("R.a = 3.0", (Comparison(0, "a", "=", (0,)),), ("3",)),
        ("R.d = 3", (Comparison(0, "d", "=", (0,)),), ("3.0",)),
        ("R.t >= TIMESTAMP '1970-01-01 02:00:01+02:00'", (Comparison(0, "t", ">=", (0,)),), ("1000000",)),
        ("R.g <> DATE '2026-01-31'", (Comparison(0, "g", "<>", (0,)),), ("2026-01-31",)),
    ],
)
def test_comparisons_with_constants_are_rows(condition, filters, constants):
    query = read(f"SELECT R.a FROM R WHERE {condition}")
    assert (query.template.filters, query.constants) == (filters, constants)


@pytest.mark.parametrize(
    ("text", "problem", "at"),
    [
        ("SELECT R.a FROM R, S", "no equality joins S to R", "SELECT"),
        ("SELECT R.a FROM Q", "there is no input Q", "Q"),
        ("SELECT R.x FROM R", "x is not a column of R", "x"),
        ("SELECT R.a FROM R WHERE R.a = 3.5", "R.a is int, which does not hold decimal", "3.5"),
        ("SELECT R.a FROM R WHERE R.a = 'x'", "R.a is int, which does not hold string", "'x'"),
        (
            "SELECT R.a FROM R WHERE R.t > TIMESTAMP '2026-01-01 00:00:00'",
            "R.t is timestamp, which compares with moments with a time zone only",
            "TIMESTAMP",
        ),
        ("SELECT R.k window FROM R", "an operator is missing before window", "window"),
        ("SELECT DATE FROM R", "DATE has no input before it", "DATE"),
        ("SELECT R.a FROM R WINDOW FIVE MINUTES", "this window cannot be read", "WINDOW"),
        ("SELECT R.a FROM R AS since SINCE 5", "this SINCE cannot be read", "SINCE"),
        ("SELECT R.a FROM R WHERE R.e = 1.234", "R.e is decimal(9,2), which does not hold", "1.234"),
        ("SELECT R.a FROM R WHERE R.a = 1 OR R.a = 2", "not possible in a hub query", "R.a = 1 OR"),
        ("SELECT R.a FROM R WHERE R.a + 1 = 2", "not possible in a hub query", "R.a + 1"),
        ("SELECT R.a FROM R, S WHERE R.a = S.a AND R.d = S.b", "are not of one type", "R.d = S.b"),
        ("SELECT R.a + 1 FROM R", "an expression needs a name", "R.a + 1"),
        ("SELECT R.a AS x, rand() AS y FROM R", "rand() is not allowed: it gives another value", "rand"),
        ("SELECT R.a AS x, now() AS y FROM R", "now() is not allowed: it reads the clock", "now"),
        ("SELECT count(R.a) AS x FROM R", "count() is not allowed: it is an aggregate", "count"),
        ("SELECT R.a AS x, upper(R.c) AS y FROM R", "cannot compute upper of string", "upper"),
        ("SELECT R.a + 'x' AS x FROM R", "cannot compute + of int and string", "+"),
        (
            "SELECT CAST(R.a AS decimal(9,2)) AS x FROM R",
            "cannot compute cast of int to decimal(9,2)",
            "CAST",
        ),
        ("SELECT R.t + INTERVAL '5' DAY AS x FROM R", "cannot compute a constant of type interval", "R.t"),
        (
            "SELECT R.e * 1.0000000000000000000000000001 * 1.0000000001 AS x FROM R",
            "cannot compute *",
            "* 1.0000000000000000000000000001",
        ),
        (
            "SELECT R.t > TIMESTAMP '2026-01-01 00:00:00' AS x FROM R",
            "a constant of type timestamp is not possible in an output column",
            "TIMESTAMP",
        ),
        ("SELECT R.a + 1 AS x, R.nope + 2 AS y FROM R", "nope is not a column of R", "nope"),
        ("SELECT NULL AS x FROM R", "cannot compute a value of type void", "NULL"),
        ("SELECT S.v IS NULL AS x FROM S", "cannot compute column v of type array<float>", "v IS"),
        ("SELECT S.* FROM S", "S.v is array<float>, which an answer cannot hold", "S.*"),
        ("SELECT R.a, S.a FROM R, S WHERE R.a = S.a", "two columns are named a", "SELECT"),
        ("SELECT R.a FROM R WHERE R.a = 1 AND", "a value is missing", ""),
        ("SELECT R.a FROM R GROUP BY R.a", "GROUP is not possible", "GROUP"),
        ("SELECT R.a FROM R WINDOW 5 PARSECS", "parsecs is not a unit of time", "5"),
        ("SELECT R.a FROM R WINDOW 0 ROWS", "a window over rows has 1 to", "0"),
        ("SELECT R.a FROM R WINDOW " + "9" * 5000 + " ROWS", "a window over rows has 1 to", "9" * 5000),
        ("SELECT R.a FROM R WINDOW TUMBLING 5 ROWS", "tumbles is not possible over rows", "5"),
        ("SELECT R.a FROM R WINDOW 5.5 ROWS", "this window cannot be read", "WINDOW"),
        ("SELECT R.a FROM R WINDOW 1 MONTH", "months differ in length", "MONTH"),
        (
            "SELECT R.a FROM R SINCE TIMESTAMP '2026-01-01'",
            "SINCE needs a moment with its time zone",
            "TIMESTAMP",
        ),
        ("SELECT R.a FROM R SINCE TIMESTAMP 'soon'", "'soon' is not a timestamp", "TIMESTAMP"),
        ("SELECT R.a FROM R SINCE DATE '2026-01-01'", "this SINCE cannot be read", "SINCE"),
        (f"SELECT R.a FROM R {SINCE} WINDOW 5 SECONDS", "WINDOW stands before SINCE", "WINDOW"),
        (f"SELECT R.a FROM R {SINCE} AND R.a = 1", "this SINCE cannot be read", "SINCE"),
        ("DROP TABLE R", "a query begins with SELECT", "DROP"),
        ("SELECT R.a FROM R" + ", S" * 9, "two inputs are named S", "S, S, S, S, S, S, S, S"),
    ],
)
def test_other_texts_are_refused_at_their_place(text, problem, at):
    with pytest.raises(PredicateError) as refused:
        read(text)
    assert problem.lower() in str(refused.value).lower()
    assert refused.value.position == (text.rindex(at) if at else len(text))


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("R.a + 1", "int"),
        ("R.a + 3000000000", "bigint"),
        ("R.a * 1.5", "decimal(13,1)"),
        ("R.e * R.e", "decimal(19,4)"),
        ("R.a / 2", "double"),
        ("R.d * 0.1", "double"),
        ("R.a > 5 AND R.c = 'x'", "boolean"),
        ("CASE WHEN R.a > 5 THEN 'big' END", "string"),
        ("if(R.a = 1, 2, R.b)", "bigint"),
        ("coalesce(R.g, DATE '2026-01-31')", "date"),
        ("'x' || R.c", "string"),
        ("CAST(R.a AS tinyint)", "tinyint"),
        ("-5", "int"),
        ("R.a - -5", "int"),
    ],
)
def test_expressions_have_the_types_of_spark(expression, kind):
    (item,) = read(f"SELECT {expression} AS x FROM R").template.items
    assert str(item.type_of(lambda _: {})) == kind


def test_expressions_that_differ_in_constants_of_one_type_share_a_template():
    reader = TemplateReader(SCHEMAS)
    text = "SELECT R.a + {} AS x, {} || R.c AS y FROM R WHERE R.b > {}"
    first = reader.read(text.format(1, "'a'", 5))
    other = reader.read(text.format(-2, "'b'", 3_000_000_000))
    again = reader.read(text.format(7, "''", 6))
    assert again.template is first.template
    assert (first.constants, again.constants) == (("1", "a", "5"), ("7", "", "6"))
    # The minus is no part of the constant, and another type is another template.
    assert other.template != first.template
    assert reader.read(text.format(3_000_000_000, "'a'", 5)).template != first.template


def test_a_template_of_expressions_survives_the_catalogue():
    texts = ["R.a + 1", "CASE WHEN R.a > 5 THEN 'big' END", "R.e * 1.5", "coalesce(R.c, 'x') IS NULL", "R.a"]
    shown = ", ".join(f"{text} AS x{number}" for number, text in enumerate(texts))
    reader = TemplateReader(SCHEMAS)
    text = f"SELECT {shown} FROM R"
    catalogue = apply_commands(HubCatalogue(), [Command(ADD, "q", text)], 0, reader).catalogue
    found, _ = from_row(to_row(catalogue, pa.RecordBatch.from_pylist([], EVENTS)))
    assert found.parsed == (reader.read(text).template,)


@pytest.mark.parametrize(("text", "rows"), [("1 ROW", 1), ("1000 rows", 1000)])
def test_a_window_over_rows_is_read(text, rows):
    assert read(f"SELECT R.a FROM R WINDOW {text}").window == HubWindow(WindowOf.ROWS, rows)


@pytest.mark.parametrize("window", ["", " WINDOW 5 SECONDS", " WINDOW TUMBLING 5 SECONDS"])
def test_since_is_no_part_of_the_template(window):
    text = f"SELECT since.a FROM R since WHERE since.a > 5{window}"
    late, early, plain = (
        read(f"{text} {SINCE}"),
        read(f"{text} SINCE TIMESTAMP '1970-01-01 02:00:01+02:00'"),
        read(text),
    )
    assert late.template == early.template == plain.template
    assert late.window == plain.window
    assert (late.since, early.since, plain.since) == (1_767_225_600_500_000, 1_000_000, None)


def test_since_goes_with_windows_over_time_only():
    with pytest.raises(PredicateError):
        read(f"SELECT R.a FROM R WINDOW 5 ROWS {SINCE}")


def test_distinct_is_part_of_the_template():
    texts = ("SELECT DISTINCT R.a FROM R", "SELECT ALL R.a FROM R", "SELECT R.a FROM R")
    assert [read(text).template.distinct for text in texts] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "aliases", "shown", "width"),
    [
        ("SELECT R.a AS window FROM R", ("R",), "window", None),
        ("SELECT R.a AS since FROM R WINDOW 5 SECONDS", ("R",), "since", 5),
        ("SELECT window.a FROM R AS window", ("window",), "a", None),
        ("SELECT window.a FROM R window", ("window",), "a", None),
        ("SELECT window.a FROM R window WINDOW 5 SECONDS", ("window",), "a", 5),
        ("SELECT window.a FROM R window WHERE window.a = 1 WINDOW 5 SECONDS", ("window",), "a", 5),
        ("SELECT since.a FROM R since, S AS window WHERE since.a = window.a", ("since", "window"), "a", None),
        ("SELECT R.a FROM R WHERE R.a IN (1, 2) WINDOW 5 SECONDS", ("R",), "a", 5),
    ],
)
def test_window_and_since_are_names_where_no_clause_may_stand(text, aliases, shown, width):
    query = read(text)
    assert (query.template.aliases, query.template.items[0].name) == (aliases, shown)
    assert (query.window and query.window.width) == (width and width * 1_000_000)


@pytest.mark.parametrize("source", ["window w", "since AS s, window w", "since s JOIN window w ON s.a = w.a"])
def test_streams_may_be_named_window_and_since(source):
    text = f"SELECT w.a FROM {source}" + (" WHERE s.a = w.a" if "," in source else "") + " WINDOW 5 SECONDS"
    query = TemplateReader({"window": {"a": INT}, "since": {"a": INT}}).read(text)
    assert (query.template.streams[-1], query.window) == ("window", HubWindow(WindowOf.TIME, 5_000_000))


def test_a_message_about_an_output_does_not_speak_of_constants():
    for text in ("SELECT DATE FROM R", "SELECT nope FROM R WHERE R.a = 1"):
        with pytest.raises(PredicateError) as refused:
            read(text)
        assert "?" not in str(refused.value)


def test_nine_inputs_are_refused():
    sources = ", ".join(f"R AS r{number}" for number in range(9))
    joined = " AND ".join(f"r0.a = r{number}.a" for number in range(1, 9))
    with pytest.raises(PredicateError, match="at most 8 inputs, got 9"):
        read(f"SELECT r0.a FROM {sources} WHERE {joined}")


def test_texts_that_differ_in_constants_share_a_template_and_one_that_does_not_fit_is_refused():
    reader = TemplateReader(SCHEMAS)
    first = reader.read("SELECT R.a FROM R WHERE R.c = 'x' AND R.a IN (1, 2)")
    other = reader.read("SELECT R.a\nFROM R WHERE R.c = 'y' AND R.a IN (-3, 2)")
    assert other.template is first.template
    assert other.constants == ("y", "-3", "2")
    with pytest.raises(PredicateError) as refused:
        reader.read("SELECT R.a FROM R WHERE R.c = 'y' AND R.a IN (3, 99999999999999999999)")
    assert refused.value.text is not None


def test_a_refused_template_names_the_place_in_each_text():
    reader = TemplateReader(SCHEMAS)
    for constant in ("1", "123456"):
        text = f"SELECT R.a FROM R WHERE R.a = {constant} AND R.nope = 5"
        with pytest.raises(PredicateError, match="nope is not a column of R") as refused:
            reader.read(text)
        assert refused.value.position == text.index("nope")
        # The stand-ins of constants are not the user's.
        assert "?" not in str(refused.value)


def test_a_text_of_a_megabyte_is_refused_before_it_is_read():
    with pytest.raises(PredicateError, match="the text is too long"):
        read("SELECT R.a FROM R WHERE R.c = '" + "x" * 1_000_000 + "'")
