"""Whatever a text is, it is taken or refused: no text of one query stops the others."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from watersmeet.errors import PredicateError
from watersmeet.hubs import templates
from watersmeet.hubs.catalogue import ADD, Command, HubCatalogue, apply_commands
from watersmeet.hubs.forest_builder import build_forest
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.stored import from_row, to_row
from watersmeet.hubs.templates import TemplateReader
from watersmeet.model.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    decimal,
)

SCHEMAS = {
    "R": {"a": INT, "b": BIGINT, "c": STRING, "d": DOUBLE, "e": decimal(9, 2), "t": TIMESTAMP, "g": DATE},
    "S": {"a": INT, "b": BIGINT, "f": BOOLEAN, "n": TIMESTAMP_NTZ, "d": FLOAT, "w": decimal(38, 18)},
    "P": {"b": BIGINT},
}
ATTRIBUTES = Attributes.of(SCHEMAS)
# One reader for all examples: a process keeps what it has parsed.
READER = TemplateReader(SCHEMAS)
GOOD = "SELECT R.a FROM R WHERE R.a = 1"

PLAIN = r"""
    SELECT DISTINCT FROM WHERE AND OR NOT IN BETWEEN IS NULL AS WINDOW ROWS TUMBLING SINCE LIKE ON
    R S P R.a R.b R.c R.d R.e R.t R.g S.a S.f S.n S.d S.w P.b a b t0 * . , ; ( ) [ ] = < > <= <> == <=>
    + - / % || ^ ? ??? @ \ -- /* */ " ` ' :: { } é ²
    1 -1 0 2.5 .5 1. 1e3 1e400 1E-400BD 5L 5D 5BD 128Y 0.30000000000000004 NaN
    '' 'x' 'it''s' '\u0000' X'ab' X'a TRUE FALSE CAST(R.a AS bigint) abs(R.a)
    CASE WHEN THEN ELSE END NULL coalesce( if( x y rand() upper(R.c) CAST(R.d AS decimal(9,2)) -R.a -2.5 -5L
"""
TYPED = (
    "DATE '2026-01-31'",
    "DATE '0001-01-01'",
    "DATE '0000-00-00'",
    "TIMESTAMP 'now'",
    "TIMESTAMP '0001-01-01 00:00:00+14:00'",
    "TIMESTAMP '9999-12-31 23:59:59-14:00'",
    "TIMESTAMP '2026-01-31'",
    "TIMESTAMP '2026-01-31 00:00:00Z'",
    "TIMESTAMP_NTZ '0001-01-01 00:00:00'",
    "INTERVAL 5 DAYS",
    "WINDOW 5 MINUTES",
    "WINDOW 99999999999999 DAYS",
    "WINDOW 0 SECONDS",
    "WINDOW 5 ROWS",
    "WINDOW 99999999999999999999 ROWS",
    "\x00",
    "\ud800",
    "9" * 39,
    "1" * 5_000,
)
WORDS = (*PLAIN.split(), *TYPED)
BEGUN = (
    "SELECT R.a , S.b FROM R , S WHERE R.a = S.a AND R.c = 'x' AND R.b < 5 WINDOW 5 MINUTES",
    "SELECT * FROM S WHERE S.f = TRUE AND S.n >= TIMESTAMP_NTZ '2026-01-31 00:00:00' AND S.w <> 0.5",
    "SELECT R.* FROM R WHERE R.t > TIMESTAMP '2026-01-31 00:00:00Z' AND R.g IN ( DATE '2026-01-31' ) AND R.e = 1.5",
    "SELECT R.a + 1 AS x , CASE WHEN R.b > - 5 THEN 'x' ELSE R.c END AS y , R.d * 2.5 AS z FROM R WINDOW 5 ROWS",
    "SELECT DISTINCT coalesce( R.a , 7 ) AS x , R.e - 1.50 AS y , R.c || 'z' AS z FROM R WHERE R.a <> 3",
)


@st.composite
def mutated(draw) -> str:
    """A text that is almost a query: some words replaced, put in, left out or repeated."""
    words = draw(st.sampled_from(BEGUN)).split(" ")
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(words) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                words[at] = draw(st.sampled_from(WORDS))
            case 1:
                words.insert(at, draw(st.sampled_from(WORDS)))
            case 2 if len(words) > 1:
                del words[at]
            case _:
                words[at : at + 1] = [words[at]] * draw(st.sampled_from([2, 30, 3_000]))
    return draw(st.sampled_from([" ", " ", " ", "", "\n", "  "])).join(words)


def check(texts: list[str]) -> None:
    commands = [Command(ADD, f"q{at}", text) for at, text in enumerate(["", *texts])]
    commands.append(Command(ADD, "good", GOOD))
    changed = apply_commands(HubCatalogue(), commands, 3, READER)
    events = changed.events.to_pylist()
    assert [row["query"] for row in events] == [one.id for one in commands]
    assert events[-1]["event"] == "added"
    for row in events:
        # The source of each refusal is known: the net below all texts is for what no test has found.
        assert "this text cannot be read" not in (row["message"] or "")
        assert len(row["message"] or "") < 2_000
    # What was taken can be stored, read back and put into the forest with its constants.
    stored, _ = from_row(to_row(changed.catalogue, changed.events))
    assert stored == changed.catalogue
    build_forest(stored, ATTRIBUTES)


@given(st.lists(st.one_of(mutated(), st.text()), max_size=4))
@example(["SELECT R.a FROM R WHERE 1 . a = 5"])
@example(["SELECT R.a FROM R WHERE R.t = TIMESTAMP '0001-01-01 00:00:00+14:00'"])
@example(["SELECT R.a FROM R WHERE R.t = TIMESTAMP '9999-12-31 23:59:59-14:00'"])
def test_a_text_is_taken_or_refused_and_the_next_one_is_not_harmed(texts):
    check(texts)


@given(mutated(), mutated(), st.data())
def test_a_text_reads_the_same_whatever_was_read_before(text, other, data):
    """Texts that differ in constants share what was parsed: none of it may depend on the constants of the first."""
    pieces = text.split(" ")
    places = [at for at, word in enumerate(pieces) if word in CONSTANTS]
    alike = [
        data.draw(st.sampled_from(CONSTANTS)) if at in places else word for at, word in enumerate(pieces)
    ]
    warm = TemplateReader(SCHEMAS)
    for before in (other, " ".join(alike)):
        outcome_of(warm, before)
    assert outcome_of(warm, text) == outcome_of(TemplateReader(SCHEMAS), text)


EXPRESSIONS = (
    "R.e * {}",
    "R.a + {}",
    "R.d - {}",
    "CASE WHEN R.a > {} THEN {} ELSE R.b END",
    "coalesce(R.c, {})",
)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_reads_the_same_whatever_constants_were_read_before(expression):
    warm = TemplateReader(SCHEMAS)
    for constant in (*CONSTANTS, *reversed(CONSTANTS)):
        text = f"SELECT {expression.format(constant, constant)} AS x FROM R"
        assert outcome_of(warm, text) == outcome_of(TemplateReader(SCHEMAS), text)


CONSTANTS = (
    "1",
    "-1",
    "0",
    "2.5",
    ".5",
    "7",
    "5",
    "3",
    "1.50",
    "'x'",
    "'z'",
    "''",
    "5L",
    "-2.5",
    "1e3",
    "TRUE",
    "FALSE",
)


def outcome_of(reader: TemplateReader, text: str) -> object:
    """The query, or what is wrong with the text and where."""
    try:
        return reader.read(text)
    except PredicateError as error:
        return error.problem, error.position


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "-" * 3_000 + "R.a AS x FROM R",
        "SELECT " + "+".join(["R.a", *["1"] * 3_000]) + " AS x FROM R",
        "SELECT " + "CASE WHEN R.a = 1 THEN " * 300 + "1" + " END" * 300 + " AS x FROM R",
        "SELECT " + ", ".join(f"R.a + {at} AS a{at}" for at in range(900)) + " FROM R",
        "SELECT R.a FROM R WHERE " + "(" * 3_000 + "R.a = 1" + ")" * 3_000,
        "SELECT R.a FROM R WHERE " + "NOT " * 3_000 + "R.a = 1",
        "SELECT R.a FROM R WHERE " + " AND ".join(["R.a = 1"] * 1_500),
        "SELECT R.a FROM R WHERE R.a = " + "+".join(["1"] * 3_000),
        "SELECT R.a FROM R WHERE R.a IN (" + ", ".join(map(str, range(3_000))) + ")",
        "SELECT " + ", ".join(f"R.a AS a{at}" for at in range(900)) + " FROM R",
        "SELECT R.a FROM R WHERE R.c = '" + "x" * 60_000 + "'",
        "SELECT R.a FROM R WHERE R.a = " + "1" * 1_000_000,
        "SELECT " * 150_000,
        "(" * 1_000_000,
        "'" * 999_999,
        "\ud800" * 1_000_000,
        "SELECT R.a FROM R WHERE R.c = '" + "é" * 1_000_000 + "'",
    ],
    ids=lambda text: f"{text[:34]}... of {len(text)}",
)
def test_a_long_or_deep_text_is_taken_or_refused(text):
    check([text])


def test_an_error_that_nobody_thought_of_is_a_refusal_of_its_query(monkeypatch):
    read = templates.read_template

    def failing(text, *args, **named):
        if "R.b" in text:
            raise ZeroDivisionError("nobody thought of this")
        return read(text, *args, **named)

    monkeypatch.setattr(templates, "read_template", failing)
    commands = [Command(ADD, "bad", "SELECT R.b FROM R"), Command(ADD, "good", GOOD)]
    changed = apply_commands(HubCatalogue(), commands, 3, TemplateReader(SCHEMAS))
    assert changed.catalogue.queries.column("id").to_pylist() == ["good"]
    assert "ZeroDivisionError: nobody thought of this" in changed.events.column("message")[0].as_py()


def test_an_empty_memory_is_no_refusal(monkeypatch):
    def failing(*args, **named):
        raise MemoryError

    monkeypatch.setattr(templates, "read_template", failing)
    with pytest.raises(MemoryError):
        TemplateReader(SCHEMAS).read(GOOD)


def test_refused_texts_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(templates, "_MOST_KNOWN_BYTES", 5_000)
    reader = TemplateReader(SCHEMAS)
    for number in range(100):
        with pytest.raises(PredicateError):
            reader.read(f"SELECT R.nope{number} FROM R")
        assert len(reader._known) <= 20
    with pytest.raises(PredicateError):
        reader.read("SELECT " + "R." * 200)
    assert len(reader._known) <= 1


@pytest.mark.parametrize("id_", ["\ud800", "a\x00b"])
def test_an_id_that_no_text_can_hold_is_refused(id_):
    changed = apply_commands(HubCatalogue(), [Command(ADD, id_, GOOD)], 3, READER)
    assert [row["event"] for row in changed.events.to_pylist()] == ["refused"]


def test_refusals_are_errors_of_the_text():
    with pytest.raises(PredicateError, match="a constant has no fields"):
        READER.read("SELECT R.a FROM R WHERE 1 . a = 5")
