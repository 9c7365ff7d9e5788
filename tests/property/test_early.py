"""Conjuncts that may raise, tested early: they never raise, and drop only what they certainly reject."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import WatersmeetError
from watersmeet.kernel.early import possible
from watersmeet.kernel.evaluate import filter_mask, may_raise, take
from watersmeet.model.expression import Call, Column, Literal
from watersmeet.model.types import BIGINT, BOOLEAN, FLOAT, INT, VECTOR

BORDERS = {
    BIGINT: (-(2**63), 2**63 - 1),
    INT: (-(2**31), 2**31 - 1),
}
NAMES = ("x", "y")


def numbers(kind):
    """Small ones, and all kinds of large ones."""
    low, high = BORDERS[kind]
    return st.none() | st.integers(-3, 3) | st.integers(low, high) | st.sampled_from([low, low + 1, high])


def terms(kind):
    leaf = st.sampled_from([Column("a", name, kind) for name in NAMES]) | st.builds(
        Literal, st.integers(-3, 3), st.just(kind)
    )
    return st.recursive(
        leaf,
        lambda inner: (
            st.builds(
                lambda op, one, other: Call(op, (one, other), kind), st.sampled_from("+-*"), inner, inner
            )
            | st.builds(lambda op, one: Call(op, (one,), kind), st.sampled_from(["neg", "abs"]), inner)
        ),
        max_leaves=4,
    )


def reading(columns):
    return lambda column, at: take(columns[column.name], at)


def alone(conjunct, columns, row: int, ansi: bool) -> bool | None:
    """Whether a row passes, evaluated without any other; None if that raises."""
    values = {("a", name): column.slice(row, 1) for name, column in columns.items()}
    try:
        return bool(filter_mask(conjunct, values, 1, ansi=ansi)[0])
    except WatersmeetError:
        return None


@given(st.sampled_from([INT, BIGINT]), st.booleans(), st.data())
def test_rows_that_pass_or_raise_are_kept_and_others_far_from_the_border_dropped(kind, ansi, data):
    drawn = data.draw(st.lists(st.tuples(numbers(kind), numbers(kind)), min_size=1, max_size=8))
    compare = st.sampled_from(["<", "<=", "=", "<>"])
    conjuncts = [
        Call(data.draw(compare), (data.draw(terms(kind)), data.draw(terms(kind))), BOOLEAN)
        for _ in range(data.draw(st.integers(1, 2)))
    ]
    arrow = pa.int64() if kind == BIGINT else pa.int32()
    columns = {
        name: pa.array(column, arrow)
        for name, column in zip(NAMES, map(list, zip(*drawn, strict=True)), strict=True)
    }
    kept = possible(conjuncts, reading(columns), len(drawn), ansi=ansi)
    for row, given_numbers in enumerate(drawn):
        answers = [alone(conjunct, columns, row, ansi) for conjunct in conjuncts]
        # Four factors up to 3 stay far from any border.
        small = all(number is None or abs(number) <= 3 for number in given_numbers)
        if False not in answers:
            assert row in kept
        elif small or not ansi:
            assert row not in kept


def test_only_the_rows_near_an_overflow_pass_for_it():
    top = 2**63 - 1
    x = pa.array([1, top, None, 5, -(2**62)], pa.int64())
    one = Call(
        ">", (Call("+", (Column("a", "x", BIGINT), Literal(1, BIGINT)), BIGINT), Literal(3, BIGINT)), BOOLEAN
    )
    assert may_raise(one)
    assert possible([one], reading({"x": x}), 5, ansi=True).tolist() == [1, 3]
    assert possible([one], reading({"x": x}), 5, ansi=False).tolist() == [3]


def test_a_row_that_one_of_two_conditions_rejects_is_dropped_where_the_other_may_overflow():
    top = 2**63 - 1
    columns = {"x": pa.array([1, 5, 5, 1], pa.int64()), "y": pa.array([top, top, 1, 1], pa.int64())}

    def more(one: str, other: str, than: int) -> Call:
        added = Call("+", (Column("a", one, BIGINT), Column("a", other, BIGINT)), BIGINT)
        return Call(">", (added, Literal(than, BIGINT)), BOOLEAN)

    both = [more("y", "x", 0), more("x", "x", 5)]
    for conjuncts in (both, both[::-1]):
        assert possible(conjuncts, reading(columns), 4, ansi=True).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("vectors", "kept"), [([[0.0, 0.0], [3.0, 4.0], None], [0]), ([[0.0], [3.0, 4.0], None], [0, 1, 2])]
)
def test_vectors_of_two_lengths_pass_together(vectors, kept):
    columns = {
        "v": pa.array(vectors, pa.list_(pa.float32())),
        "w": pa.array([[0.0, 0.0]] * 3, pa.list_(pa.float32())),
        "x": pa.array([2**63 - 1] * 3, pa.int64()),
    }
    apart = Call("vector_l2_distance", (Column("a", "v", VECTOR), Column("a", "w", VECTOR)), FLOAT)
    close = Call("<", (apart, Literal(2.0, FLOAT)), BOOLEAN)
    assert possible([close], reading(columns), 3, ansi=True).tolist() == kept
    # Also where something else in it overflows.
    doubled = Call("+", (Column("a", "x", BIGINT), Column("a", "x", BIGINT)), BIGINT)
    both = Call("=", (Call("<", (doubled, Literal(0, BIGINT)), BOOLEAN), close), BOOLEAN)
    assert possible([both], reading(columns), 3, ansi=True).tolist() == [0, 1, 2]
