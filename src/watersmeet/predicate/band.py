"""Conjuncts to bands: `low <= A - B <= high`, where A reads one input and B a later one.

    A < B + 3, A - 3 < B, A - B < 3, A BETWEEN B - 1 AND B + 3     literals are moved to the bounds
    abs(A - B) <= 3, abs(datediff(A, B)) <= 3                      both bounds
    l.x + l.y < r.z * 2                                            A and B are what each side computes

Inequalities over the same A and B are intersected. Of several bands between two inputs one with two bounds is
preferred, then one that is exact, then the first. What is not surely right is not made a band. A bound that is only
nearly right is made too wide and its conjunct checked again (`Band.residual`):

- floats: Spark rounds, so a bound with a distance in it is a superset; A < B alone is exact. `A - B >= w` alone
  is no bound: NaN - B is NaN, which is above w for every B.
- decimals: exact up to 18 digits, a superset beyond; none where Spark would round (38 digits).
- text and binary: by their first bytes, a superset.
- timestamps with a time zone: Spark counts whole days of an interval, and differences, on the wall clock of the
  session's zone. Such bounds are made wider than any change of a zone's offset, unless `fixed_zone` says that
  there is none.
- without ANSI a sum of integers that can wrap is left as it is: then no literal is moved out of it.

Where Spark raises because a sum or difference leaves its type (ANSI), a band uses the true difference. Dates are
assumed to be less than 2^31 days apart: beyond that, datediff() wraps. Not made a band: months, dates against
timestamps, text against anything else, `=` (that is a key) and `<>`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from typing import Final

from watersmeet.model.expression import Band, Call, Expression, Literal, conjunction, dropped_bits, inputs_of
from watersmeet.model.types import DATE, MAX_DECIMAL_DIGITS, SqlType
from watersmeet.predicate.build import Scope
from watersmeet.predicate.literals import INTEGRAL_BITS, MICROS, is_day_time, micros_of
from watersmeet.predicate.type_rules import binary_collated, common_type
from watersmeet.predicate.write import key_side

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


def find_bands(conjuncts: Sequence[Expression], scope: Scope, fixed_zone: bool) -> Iterator[Band]:
    """The best band between each two inputs, of conjuncts that must all hold."""
    reader = _BandReader(scope, fixed_zone)
    groups: dict[tuple[Expression, Expression], list[tuple[int, _Bound]]] = {}
    for place, conjunct in enumerate(conjuncts):
        for bound in reader.bounds(conjunct):
            groups.setdefault((bound.left, bound.right), []).append((place, bound))
    bands = [band for group in groups.values() if (band := _intersected(group, conjuncts, scope)) is not None]
    # Of equally good ones always the same, in whatever order the text has them: what is stored is sorted by it.
    bands.sort(key=lambda band: (band.left.sql, band.right.sql))
    for inputs in combinations(scope.inputs, 2):
        between = [band for band in bands if band.inputs == inputs]
        if between:
            yield max(between, key=lambda band: (band.two_sided, band.exact))


class _BandReader:
    """Reads one conjunct at a time under the rules of a scope."""

    def __init__(self, scope: Scope, fixed_zone: bool):
        self.scope, self.ansi, self.fixed_zone = scope, scope.ansi, fixed_zone

    def bounds(self, condition: Expression) -> list[_Bound]:
        if not isinstance(condition, Call) or condition.op not in _TURNED:
            return []
        (one, other), op = condition.args, condition.op
        sides = self.scope.in_order(one, other)
        if sides is not None:
            return self.compared(sides[0], op if sides[0] is one else _TURNED[op], sides[1])
        if not inputs_of(other):
            return self.difference(one, op, other)
        return self.difference(other, _TURNED[op], one) if not inputs_of(one) else []

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
        sides = self.scope.in_order(inner.args[0], inner.args[1])
        offset = self.width_of(width, inner)
        if sides is None or offset is None or not self.is_true_difference(inner, absolute):
            return []
        left, right = sides
        turned = left is not inner.args[0]
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
            safe = self.ansi or not (absolute and call.type.integral)
            return safe or _value_range(call)[0] > -_limit(call.type)
        return one == other and (one == DATE or one.name in _TIMESTAMPS)

    def width_of(self, width: Expression, difference: Call) -> Fraction | None:
        """A literal width in the unit of the difference, if Spark compares the two without rounding."""
        literal, sign = width, 1
        if isinstance(width, Call) and width.op == "neg":
            literal, sign = width.args[0], -1
        if not isinstance(literal, Literal) or literal.value is None:
            return None
        if difference.op == "-" and not difference.type.numeric:
            span = micros_of(literal)
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
    if is_day_time(one) and is_day_time(other):
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
    span = micros_of(literal)
    if base == DATE and literal.type.integral and isinstance(value, int):
        return Fraction(value)
    if base == DATE and span is not None and span % MICROS["day"] == 0:
        return Fraction(span, MICROS["day"])
    return Fraction(span) if base.name in _TIMESTAMPS and span is not None else None


def _wraps(call: Call) -> bool:
    low, high = _sum_range(call)
    bound = _limit(call.type)
    return low < -bound or high >= bound


def _limit(type_: SqlType) -> int:
    """The first integer that an integral type does not hold."""
    return 1 << (INTEGRAL_BITS[type_.name] - 1)


def _sum_range(call: Call) -> tuple[int, int]:
    (low, high), (other_low, other_high) = (_value_range(arg) for arg in call.args)
    return (low + other_low, high + other_high) if call.op == "+" else (low - other_high, high - other_low)


def _value_range(expression: Expression) -> tuple[int, int]:
    """Bounds of an integral expression's values."""
    bound = _limit(expression.type)
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
    decided: set[int] = set()
    if any(bound.rounded for _, bound in group):
        low = max((float(bound.offset) for bound in lows), default=None)
        high = min((float(bound.offset) for bound in highs), default=None)
    else:
        low = max((_steps(bound, kind) for bound in lows), default=None)
        high = min((_steps(bound, kind) for bound in highs), default=None)
        decided = {place for place, bound in group if _decides(bound, kind)}
    rest = [part for place, part in enumerate(conjuncts) if place not in decided]
    return Band(
        left=key_side(left),
        right=key_side(right),
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
