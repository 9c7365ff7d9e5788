"""How long a text can get by functions that repeat it: `repeat`, `lpad`, `rpad`, `replace`, `regexp_replace`.

`repeat(x, 2000000000)` asks for gigabytes for every row: it ends the executor, and every replay of the batch ends the
next one. What the predicate itself says about lengths is known before the query starts, so it is refused here. A
count that is a column is not known: `repeat(x, least(n, 100))` bounds it, `repeat(x, coalesce(n, 2000000000))` can be
as large as its literal.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from watersmeet.model.expression import Call, Expression, Literal

# Characters that a text may get for each one of a column, or from nothing: more than any key or comparison needs. Spark
# sends ten thousand rows at a time: with texts of ten characters they become 1 GB at most, which an executor can hold.
MOST_GROWTH: Final = 10_000

# Replacements of up to this many characters count as one. They escape or spell out single characters, often in a long
# chain. A character is rarely replaced twice, so the product of a chain would refuse harmless predicates.
SHORT_REPLACEMENT: Final = 100

_PADS: Final = ("lpad", "rpad")
_REPLACES: Final = ("replace", "regexp_replace")
AMPLIFIERS: Final = frozenset({"repeat", *_PADS, *_REPLACES})


def growth(expression: Expression) -> int:
    """An upper bound of the characters of the value for one of each column that it reads.

    >>> from watersmeet.model.types import INT, STRING
    >>> growth(Call("repeat", (Literal("ab", STRING), Literal(300, INT)), STRING))
    600
    """
    if isinstance(expression, Literal):
        return len(expression.value) if isinstance(expression.value, (str, bytes)) else 1
    if not isinstance(expression, Call):
        return 1
    grown = [growth(arg) for arg in expression.args]
    if expression.op == "repeat":
        return grown[0] * max(0, _count(expression.args[1]))
    if expression.op in _PADS:
        return max(grown[0], _count(expression.args[1]))
    if expression.op in _REPLACES:
        # Each character may be replaced, and the places between them.
        longest = max(grown[2:], default=1)
        return grown[0] * (longest if longest > SHORT_REPLACEMENT else 1)
    return max(1, sum(grown))


def _count(expression: Expression) -> int:
    """The count that the predicate asks for; one for each row if only a column says it."""
    known = whole_number(expression)
    return 1 if known is None else known


def whole_number(expression: Expression) -> int | None:
    """The largest number that the literals of an expression ask for; None if they say nothing.

    Columns are unknown: they neither add to a sum nor raise a bound.

    >>> from watersmeet.model.expression import Column
    >>> from watersmeet.model.types import INT
    >>> n, most = Column("l", "n", INT), Literal(100, INT)
    >>> [whole_number(Call(op, (n, most), INT)) for op in ("least", "coalesce", "+", "%")]
    [100, 100, 100, None]
    """
    if isinstance(expression, Literal):
        return _literal(expression.value)
    if not isinstance(expression, Call):
        return None
    parts = [whole_number(arg) for arg in expression.args]
    if expression.op == "case":
        # Condition, value, condition, value, else.
        return max(_known([*parts[1::2], parts[-1]]), default=None)
    if expression.op in _CHOOSES:
        return max(_known(parts[_CHOOSES[expression.op]]), default=None)
    known = _known(parts)
    return _computed(expression.op, parts, known) if known else None


# Functions that give one of their arguments, and which ones.
_CHOOSES: Final = {
    "greatest": slice(None),
    "coalesce": slice(None),
    "nvl2": slice(1, None),
    "nullif": slice(1),
}


def _known(parts: list[int | None]) -> list[int]:
    return [part for part in parts if part is not None]


def _computed(op: str, parts: list[int | None], known: list[int]) -> int | None:
    match op:
        case "least":
            return min(known)
        case "+":
            return sum(known)
        case "-":
            return (parts[0] or 0) - (parts[1] or 0)
        case "*":
            return math.prod(known)
        case "div" | "/":
            return _quotient(parts[0], parts[1])
        case "neg":
            return -known[0]
        case "abs":
            return abs(known[0])
        case "cast" | "try_cast" | "ceil" | "floor" | "round" | "bround":
            return parts[0]
        case _:
            return None


def _quotient(number: int | None, divisor: int | None) -> int | None:
    """Towards zero, as Spark divides. A column that divides may be one."""
    if number is None or divisor == 0:
        return None
    if divisor is None:
        return number
    return abs(number) // abs(divisor) * (1 if (number < 0) == (divisor < 0) else -1)


def _literal(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None
