"""Conjuncts to a band: `low <= A - B <= high`, where A reads the first input and B the second.

    A < B + 3, A - 3 < B, A - B < 3, A BETWEEN B - 1 AND B + 3     literals are moved to the bounds
    abs(A - B) <= 3, abs(datediff(A, B)) <= 3                      both bounds
    l.x + l.y < r.z * 2                                            A and B are what each side computes

Inequalities over the same A and B are intersected; of several bands one with two bounds is preferred, then one
that is exact, then the first. What is not surely right is not made a band, and a bound that is only nearly
right is made too wide and its conjunct checked again (`Band.residual`):

- floats: Spark rounds, so a bound with a distance in it is a superset; A < B alone is exact. `A - B >= w` alone
  is none: NaN - B is NaN, which is above w for every B.
- decimals: exact up to 18 digits, a superset beyond; none where Spark would round (38 digits).
- text and binary: by their first bytes, a superset.
- timestamps with a time zone: Spark counts whole days of an interval, and differences, on the wall clock of the
  session's zone. Such bounds are made wider than any change of a zone's offset, unless `fixed_zone` says that
  there is none.
- without ANSI a sum of integers that can wrap is left as it is: then no literal is moved out of it.

Where Spark raises because a sum or difference leaves its type (ANSI), a band answers with the true difference.
Dates are taken to be less than 2^31 days apart: beyond, datediff() wraps. Not made a band: months, dates against
timestamps, text against anything else, `=` (that is a key) and `<>`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from watersmeet.model.expression import (
    Band,
    Call,
    Expression,
    KeySide,
    Literal,
    conjunction,
    dropped_bits,
    inputs_of,
)
from watersmeet.model.types import DATE, MAX_DECIMAL_DIGITS, SqlType
from watersmeet.predicate.coerce import binary_collated, common_type
from watersmeet.predicate.intervals import DAY_TIME, MICROS, fields_of
from watersmeet.predicate.literals import INTEGRAL_BITS
from watersmeet.predicate.names import Scope
from watersmeet.predicate.write import sql_of

_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TIMESTAMPS: Final = ("timestamp", "timestamp_ntz")
_ORDERED: Final = ("boolean", "date", *_TIMESTAMPS, "string", "binary")

# No zone is further than 18 hours from UTC, so a change moves the wall clock by at most 36; one day to spare.
_ZONE_SLACK: Final = Fraction(36 * MICROS["hour"] + MICROS["day"])


@dataclass(frozen=True, slots=True)
class _Bound:
    """`left - right <= offset` or, if `lower`, `>= offset`, in days, microseconds or plain numbers.

    `rounded`: Spark computes it in floating point. `slack`: by how much the offset may be off. `of_nan`: what
    the inequality says of a difference that is NaN; None if it compares the values themselves.
    """

    left: Expression
    right: Expression
    lower: bool
    strict: bool
    offset: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)
    rounded: bool = False
    of_nan: bool | None = None


@dataclass(frozen=True, slots=True)
class _Moved:
    """An expression without the literals that were added to it, and their sum."""

    expression: Expression
    offset: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)


def find_band(conjuncts: Sequence[Expression], scope: Scope, *, fixed_zone: bool = False) -> Band | None:
    """The best band among conjuncts that must all hold; its residual is what it leaves to check."""
    reader = _Reader(scope, fixed_zone)
    groups: dict[tuple[Expression, Expression], list[tuple[int, _Bound]]] = {}
    for place, conjunct in enumerate(conjuncts):
        for bound in reader.bounds(conjunct):
            groups.setdefault((bound.left, bound.right), []).append((place, bound))
    bands = [band for group in groups.values() if (band := _intersected(group, conjuncts, scope)) is not None]
    # Of equally good ones always the same, in whatever order the text has them: what is stored is sorted by it.
    bands.sort(key=lambda band: (band.left.sql, band.right.sql))
    return max(bands, key=lambda band: (band.two_sided, band.exact), default=None)


class _Reader:
    """Reads one conjunct at a time under the rules of a scope."""

    def __init__(self, scope: Scope, fixed_zone: bool):
        self.ansi, self.fixed_zone = scope.ansi, fixed_zone
        self.first, self.second = (frozenset({name}) for name in scope.inputs)

    def bounds(self, condition: Expression) -> list[_Bound]:
        if not isinstance(condition, Call) or condition.op not in _TURNED:
            return []
        (one, other), op = condition.args, condition.op
        read = inputs_of(one), inputs_of(other)
        if read == (self.first, self.second):
            return self.compared(one, op, other)
        if read == (self.second, self.first):
            return self.compared(other, _TURNED[op], one)
        if not read[1]:
            return self.difference(one, op, other)
        return self.difference(other, _TURNED[op], one) if not read[0] else []

    def compared(self, left: Expression, op: str, right: Expression) -> list[_Bound]:
        """`left op right`, each side of one input."""
        kind = common_type(left.type, right.type, self.ansi)
        if kind is None or not _indexable(left.type, right.type):
            return []
        lower, strict = op[0] == ">", len(op) == 1
        one, other = self.moved(left), self.moved(right)
        inner = common_type(one.expression.type, other.expression.type, self.ansi)
        if _same_arithmetic(kind, inner, [(left, one), (right, other)]):
            offset, slack = other.offset - one.offset, one.slack + other.slack
            rounded = kind.floating and (left, right) != (one.expression, other.expression)
            near = _Bound(one.expression, other.expression, lower, strict, offset, slack, rounded)
            # Alone, what both sides compute is exact; only to meet another bound must the literals go.
            return [near, _Bound(left, right, lower, strict)] if rounded or slack else [near]
        return [_Bound(left, right, lower, strict)]

    def moved(self, expression: Expression) -> _Moved:
        """Take literals off a sum as long as the sum is surely the mathematical one, or rounds only once."""
        if not isinstance(expression, Call) or expression.op not in ("+", "-", "date_add", "date_sub"):
            return _Moved(expression)
        base, literal = expression.args
        if expression.op == "+" and not inputs_of(base):
            base, literal = literal, base
        amount = _amount(literal, base.type, expression.type)
        if amount is None or not inputs_of(base) or not self.is_true_sum(expression):
            return _Moved(expression)
        signed = -amount if expression.op in ("-", "date_sub") else amount
        inner = _Moved(base) if expression.type.floating else self.moved(base)
        by_wall_clock = expression.type.name == "timestamp" and abs(amount) >= MICROS["day"]
        slack = _ZONE_SLACK if by_wall_clock and not self.fixed_zone else Fraction(0)
        return _Moved(inner.expression, inner.offset + signed, inner.slack + slack)

    def is_true_sum(self, call: Call) -> bool:
        """Whether a sum or difference has no other outcome than its value, an error, or a rounded float."""
        if call.type.integral:
            return self.ansi or not _wraps(call)
        if call.type.name == "decimal":
            return (call.type.precision or 0) < MAX_DECIMAL_DIGITS
        return True

    def difference(self, expression: Expression, op: str, width: Expression) -> list[_Bound]:
        """`A - B op width` and `abs(A - B) op width`, with a literal width."""
        absolute = isinstance(expression, Call) and expression.op == "abs"
        inner = expression.args[0] if isinstance(expression, Call) and absolute else expression
        if not isinstance(inner, Call) or inner.op not in ("-", "datediff") or (absolute and op[0] == ">"):
            return []
        read = inputs_of(inner.args[0]), inputs_of(inner.args[1])
        if read not in ((self.first, self.second), (self.second, self.first)):
            return []
        offset = self.width_of(width, inner)
        if offset is None or not self.is_true_difference(inner, absolute):
            return []
        turned = read[0] == self.second
        left, right = inner.args[::-1] if turned else inner.args
        strict, rounded = len(op) == 1, inner.type.floating
        by_wall_clock = left.type.name == "timestamp" and not self.fixed_zone
        slack = _ZONE_SLACK if by_wall_clock else Fraction(0)

        def bound(lower: bool, at: Fraction, of_nan: bool) -> _Bound:
            return _Bound(left, right, lower, strict, at, slack, rounded, of_nan)

        if absolute:
            return [bound(True, -offset, False), bound(False, offset, False)]
        at_least = op[0] == ">"
        return [bound(at_least != turned, -offset if turned else offset, at_least)]

    def is_true_difference(self, call: Call, absolute: bool) -> bool:
        one, other = (arg.type for arg in call.args)
        if call.op == "datediff":
            return one == other == DATE
        if one.numeric and other.numeric:
            if common_type(one, other, self.ansi) is None or not self.is_true_sum(call):
                return False
            # Without ANSI abs() of the least integer is itself.
            least = -(1 << (INTEGRAL_BITS[call.type.name] - 1)) if call.type.integral else 0
            return self.ansi or not (absolute and call.type.integral) or _value_range(call)[0] > least
        return one == other and (one == DATE or one.name in _TIMESTAMPS)

    def width_of(self, width: Expression, difference: Call) -> Fraction | None:
        """A literal width in the unit of the difference, if Spark compares the two without rounding."""
        literal, sign = (
            (width, 1) if not isinstance(width, Call) or width.op != "neg" else (width.args[0], -1)
        )
        if not isinstance(literal, Literal) or literal.value is None:
            return None
        if difference.op == "-" and not difference.type.numeric:
            span = _span(literal)
            unit = MICROS["day"] if difference.args[0].type == DATE else 1
            return None if span is None else Fraction(sign * span, unit)
        if not isinstance(literal.value, (int, float, Decimal)) or not literal.type.numeric:
            return None
        if literal.type.floating and not difference.type.floating:
            small = difference.type.integral and difference.type.name != "bigint"
            return sign * Fraction(literal.value) if small and literal.type.name == "double" else None
        comparable = common_type(difference.type, literal.type, self.ansi) is not None
        return sign * Fraction(literal.value) if comparable else None


def _indexable(one: SqlType, other: SqlType) -> bool:
    """Whether there are order words in which the two compare."""
    if one.numeric and other.numeric:
        return True
    spans = [fields_of(kind) for kind in (one, other)]
    if all(span is not None and span[0] == DAY_TIME for span in spans):
        return True
    return one == other and one.name in _ORDERED and binary_collated(one)


def _same_arithmetic(kind: SqlType, inner: SqlType | None, sides: list[tuple[Expression, _Moved]]) -> bool:
    """Whether moving literals out of the sides changes nothing but, for floats, a single rounding.

    A sum in float that is compared in double rounds more coarsely than the type of the comparison says.
    """
    moved = [side for side, after in sides if side != after.expression]
    if inner is None or inner.floating != kind.floating:
        return False
    coarse = any(side.type.name == "float" for side in moved) and inner.name != "float"
    return not (kind.floating and (len(moved) > 1 or coarse))


def _amount(literal: Expression, base: SqlType, result: SqlType) -> Fraction | None:
    """How far a literal moves a value of type `base`, in numbers, days or microseconds."""
    if not isinstance(literal, Literal) or literal.value is None:
        return None
    value = literal.value
    if result.numeric and base.numeric and literal.type.numeric:
        return Fraction(value) if isinstance(value, (int, float, Decimal)) else None
    if result != base:
        return None
    span = _span(literal)
    if base == DATE and literal.type.integral and isinstance(value, int):
        return Fraction(value)
    if base == DATE and span is not None and span % MICROS["day"] == 0:
        return Fraction(span, MICROS["day"])
    return Fraction(span) if base.name in _TIMESTAMPS and span is not None else None


def _span(literal: Literal) -> int | None:
    """The microseconds of a day-time interval."""
    fields = fields_of(literal.type)
    return literal.value if fields and fields[0] == DAY_TIME and isinstance(literal.value, int) else None


def _wraps(call: Call) -> bool:
    low, high = _sum_range(call)
    bound = 1 << (INTEGRAL_BITS[call.type.name] - 1)
    return low < -bound or high >= bound


def _sum_range(call: Call) -> tuple[int, int]:
    (low, high), (other_low, other_high) = (_value_range(arg) for arg in call.args)
    return (low + other_low, high + other_high) if call.op == "+" else (low - other_high, high - other_low)


def _value_range(expression: Expression) -> tuple[int, int]:
    """Bounds of an integral expression's values."""
    bound = 1 << (INTEGRAL_BITS[expression.type.name] - 1)
    whole = (-bound, bound - 1)
    if isinstance(expression, Literal) and isinstance(expression.value, int):
        return expression.value, expression.value
    if not isinstance(expression, Call) or not all(arg.type.integral for arg in expression.args):
        return whole
    if expression.op in ("+", "-") and not _wraps(expression):
        return _sum_range(expression)
    if expression.op == "cast":
        low, high = _value_range(expression.args[0])
        return (low, high) if -bound <= low and high < bound else whole
    return whole


def _intersected(
    group: list[tuple[int, _Bound]], conjuncts: Sequence[Expression], scope: Scope
) -> Band | None:
    """All bounds over one A and one B as a band."""
    left, right = group[0][1].left, group[0][1].right
    kind = common_type(left.type, right.type, scope.ansi)
    assert kind is not None
    if kind.floating and not any(bound.of_nan is False for _, bound in group):
        group = [(place, bound) for place, bound in group if bound.of_nan is None]
    if not group:
        return None
    lows = [bound for _, bound in group if bound.lower]
    highs = [bound for _, bound in group if not bound.lower]
    low: int | float | None
    high: int | float | None
    if any(bound.rounded for _, bound in group):
        low = max((float(bound.offset) for bound in lows), default=None)
        high = min((float(bound.offset) for bound in highs), default=None)
        decided: set[int] = set()
    else:
        low = max((_steps(bound, kind) for bound in lows), default=None)
        high = min((_steps(bound, kind) for bound in highs), default=None)
        decided = {place for place, bound in group if _decides(bound, kind)}
    rest = [part for place, part in enumerate(conjuncts) if place not in decided]
    return Band(
        left=KeySide(left, sql_of(left)),
        right=KeySide(right, sql_of(right)),
        type=kind,
        low=low,
        high=high,
        exact=all(place in decided for place, _ in group),
        residual=conjunction(rest),
    )


def _steps(bound: _Bound, kind: SqlType) -> int:
    """The offset as whole steps of the order word, rounded inwards where words are exact, else outwards."""
    if kind.name in ("string", "binary"):
        return 0
    offset = bound.offset * 10 ** (kind.scale or 0)
    strict = bound.strict and not bound.slack
    bits = dropped_bits(kind.precision or 0)
    if bound.lower:
        offset -= bound.slack
        return (math.floor(offset) + 1 if strict else math.ceil(offset)) >> bits
    offset += bound.slack
    return ((math.ceil(offset) - 1 if strict else math.floor(offset)) >> bits) + (1 if bits else 0)


def _decides(bound: _Bound, kind: SqlType) -> bool:
    """Whether words within the bound mean that the inequality holds."""
    return kind.name not in ("string", "binary") and not bound.slack and not dropped_bits(kind.precision or 0)
