"""Texts that a predicate would make too long for any executor are refused; ordinary ones are not."""

from __future__ import annotations

import pytest

from watersmeet.errors import PredicateError
from watersmeet.model.types import parse_type
from watersmeet.predicate import parse_predicate, parse_select

SCHEMAS = {
    name: {"s": parse_type("string"), "n": parse_type("int"), "b": parse_type("binary")}
    for name in ("l", "r")
}


def chain(replacement: str, length: int) -> str:
    """Nested calls that each replace a character, as escaping a text does."""
    value = "l.s"
    for number in range(length):
        value = f"replace({value}, '{chr(ord('a') + number)}', '{replacement}')"
    return value


TOO_LONG = [
    "repeat(l.s, 2000000000)",
    "repeat(l.s, 10001)",
    "repeat('ab', 5001)",
    "lpad(l.s, 10001, 'x')",
    "repeat(l.s, 2000 * 1000000)",
    "repeat(l.s, CAST(2000000000 AS int))",
    "repeat(repeat(l.s, 10000), 10000)",
    "upper(repeat(concat(l.s, l.s), 1000000))",
    "lpad(l.s, 2000000000, 'x')",
    "rpad(l.s, 2000000000)",
    "replace(repeat(l.s, 10000), 'a', repeat('b', 10000))",
    "regexp_replace(repeat(l.s, 10000), '', repeat('b', 10000))",
    "repeat(l.s, least(l.n, 2000000000))",
    "repeat(l.s, coalesce(l.n, 2000000000))",
    "repeat(l.s, nvl2(l.n, 1, 2000000000))",
    "repeat(l.s, nullif(2000000000, l.n))",
    "repeat(l.s, greatest(l.n, 2000000000))",
    "repeat(l.s, CASE WHEN l.n > 0 THEN 2000000000 ELSE 1 END)",
    "repeat(l.s, CASE WHEN l.n > 0 THEN 1 ELSE 2000000000 END)",
    "repeat(l.s, if(l.n > 0, 2000000000, l.n))",
    "repeat(l.s, abs(-2000000000))",
    "repeat(l.s, 4000000000 div 2)",
    "repeat(l.s, 4000000000 div -2 * -1)",
    "repeat(l.s, l.n + 2000000000)",
    "repeat(l.s, l.n * 2000000000)",
    "repeat(l.s, 2000000000 - l.n)",
    "repeat(l.s, CAST('2000000000' AS int))",
    "repeat(l.s, int(2e9D))",
    "lpad(l.s, coalesce(l.n, 2000000000), 'x')",
    f"replace(repeat(l.s, 10000), 'a', '{'b' * 1000}')",
]
FINE = [
    "repeat(l.s, 100)",
    "repeat(l.s, 10000)",
    "repeat(concat(l.s, 'a'), 5000)",
    "lpad(l.s, 10000, 'x')",
    "repeat(l.s, -5)",
    "repeat(l.s, l.n)",
    "repeat(l.s, least(l.n, 1000))",
    "lpad(l.s, 1000, '0')",
    "rpad(rpad(l.s, 1000), 2000)",
    "replace(l.s, 'a')",
    "replace(l.s, 'a', 'bb')",
    chain("&amp;", 9),
    chain("ae", 21),
    chain("<em>x</em>", 23),
    "repeat(l.s, least(coalesce(l.n, 2000000000), 10))",
    "repeat(l.s, greatest(least(l.n, 1000), 0))",
    "repeat(l.s, CASE WHEN l.n > 2000000000 THEN 1 ELSE 2 END)",
    "repeat(l.s, nvl2(l.n, 1, 2))",
    "repeat(l.s, l.n + 2000000000 - 1999999999)",
    "repeat(l.s, l.n - 2000000000)",
    "repeat(l.s, 2000000000 div 1000000)",
    "repeat(l.s, l.n div 2000000000)",
    "repeat(l.s, l.n % 2000000000)",
    "repeat(l.s, coalesce(l.n, l.n))",
    "repeat(l.s, CAST('many' AS int))",
]


@pytest.mark.parametrize("value", TOO_LONG)
def test_a_text_that_no_executor_holds_is_refused(value):
    with pytest.raises(
        PredicateError, match=r"makes texts of up to \d+ characters, more than the 10000 .*\n"
    ) as caught:
        parse_predicate(f"{value} = r.s", SCHEMAS)
    assert caught.value.position is not None
    with pytest.raises(PredicateError, match="makes texts"):
        parse_select([f"{value} AS x"], SCHEMAS)


@pytest.mark.parametrize("value", FINE)
def test_an_ordinary_text_is_not(value):
    assert parse_predicate(f"{value} = r.s", SCHEMAS).keys
