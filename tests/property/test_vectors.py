"""Vector functions against plain loops over Python floats, which are doubles, in the order that Spark adds in."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel import vectors
from watersmeet.kernel.evaluate import evaluate, filter_mask, supports, take
from watersmeet.kernel.vectors import FUNCTIONS, VectorLengths, measure, vectors_of
from watersmeet.model.expression import Call, Column, Expression, Literal, conjuncts_of
from watersmeet.model.types import BOOLEAN, DOUBLE, FLOAT, VECTOR
from watersmeet.predicate import parse_predicate

Vector = list[Any] | None

LIST = pa.list_(pa.float32())
floats = st.floats(width=32)
tame = st.floats(-1, 1, width=32)
# Few distinct values, so that distances of zero and bounds that are met exactly come up.
coarse = st.sampled_from(
    [0.0, -0.0, 0.5, 1.0, 3.0, 2.0**-149, 2.0**-80, 2.0**66, 1.5 * 2.0**127, math.inf, math.nan]
)


def pairs_of(elements: st.SearchStrategy[Any], length: int) -> st.SearchStrategy[tuple[Vector, Vector]]:
    vector = st.none() | st.lists(elements, min_size=length, max_size=length)
    return st.tuples(vector, vector)


def pair_lists(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Vector, Vector]]]:
    return st.lists(st.integers(0, 20).flatmap(lambda n: pairs_of(elements, n)), max_size=12)


def rounded(value: float) -> float:
    """To float and back; too large is infinite."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def summed(terms: list[float]) -> float:
    total, whole = 0.0, len(terms) - len(terms) % 8
    for start in range(0, whole, 8):
        eight = terms[start]
        for term in terms[start + 1 : start + 8]:
            eight += term
        total += eight
    for term in terms[whole:]:
        total += term
    return total


def expected(name: str, one: Vector, other: Vector) -> float | None:
    if one is None or other is None or None in one or None in other:
        return None
    pairs = list(zip(one, other, strict=True))
    if name == vectors.L2_DISTANCE:
        return rounded(math.sqrt(summed([(a - b) * (a - b) for a, b in pairs])))
    product = summed([a * b for a, b in pairs])
    if name == vectors.INNER_PRODUCT:
        return rounded(product)
    norms = math.sqrt(summed([a * a for a in one]) * summed([b * b for b in other]))
    return None if norms == 0 else rounded(product / norms)


def bits(values: list[float | None]) -> list[bytes | None]:
    return [None if v is None else struct.pack("f", math.nan if math.isnan(v) else v) for v in values]


def sides(pairs: list[tuple[Vector, Vector]]) -> tuple[pa.Array, pa.Array]:
    return pa.array([one for one, _ in pairs], LIST), pa.array([other for _, other in pairs], LIST)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(pair_lists(floats | coarse) | pair_lists(tame) | pair_lists(tame | st.none()))
def test_every_bit_is_that_of_the_loops(name, pairs):
    one, other = sides(pairs)
    found = measure(name, vectors_of(one), vectors_of(other))
    assert found.type == pa.float32()
    assert bits(found.to_pylist()) == bits([expected(name, *pair) for pair in pairs])


def test_the_order_of_the_additions_is_sparks():
    """A one is lost beside 2^60 and counts once that is gone: every order of three terms among 27 is told apart."""
    rows = []
    for places in itertools.permutations(range(27), 3):
        row = [0.0] * 27
        for place, value in zip(places, (1.0, 2.0**60, -(2.0**60)), strict=True):
            row[place] = value
        rows.append(row)
    found = measure(vectors.INNER_PRODUCT, *map(vectors_of, sides([(row, [1.0] * 27) for row in rows])))
    assert found.to_pylist() == [summed(row) for row in rows]


@pytest.mark.parametrize("name", FUNCTIONS)
@given(pair_lists(tame | st.none()), st.lists(st.integers(0, 100)), st.integers(0, 3))
def test_rows_that_are_picked_from_a_slice_are_measured_alike(name, pairs, picked, start):
    one, other = (side[start:] for side in sides(pairs))
    at = np.array([place % len(one) for place in picked] if len(one) else [], np.int64)
    whole = measure(name, vectors_of(one), vectors_of(other)).to_pylist()
    some = measure(name, take(one, at), take(other, at)).to_pylist()
    assert bits(some) == bits([whole[place] for place in at])
    large = [side.cast(pa.large_list(pa.float32())) for side in (one, other)]
    assert bits(measure(name, *map(vectors_of, large)).to_pylist()) == bits(whole)


def column(name: str) -> Column:
    return Column(name, "v", VECTOR)


DISTANCE = Call(vectors.L2_DISTANCE, (column("l"), column("r")), FLOAT)


@given(
    st.integers(0, 20).flatmap(
        lambda n: st.lists(pairs_of(coarse | tame, n) | pairs_of(coarse, n), min_size=1, max_size=12)
    ),
    st.sampled_from(["<", "<=", ">", ">="]),
    st.sampled_from([-math.inf, 0.0, math.inf]) | st.none(),
    st.data(),
)
def test_an_estimate_never_decides_wrongly(pairs, op, nudge, data):
    """Bounds at a distance that occurs, at its neighbours and anywhere, on either side of the comparison."""
    known = [d for pair in pairs if (d := expected(vectors.L2_DISTANCE, *pair)) is not None]
    bound = data.draw(st.sampled_from(known) if known and nudge is not None else st.floats(width=32))
    if nudge:
        bound = float(np.nextafter(np.float32(bound), np.float32(nudge)))
    one, other = sides(pairs)
    values = {("l", "v"): one, ("r", "v"): other}

    def truth(args: tuple[Expression, Expression]) -> list[bool | None]:
        return evaluate(Call(op, args, BOOLEAN), values, len(pairs), ansi=True).to_pylist()

    literal = Literal(bound, DOUBLE)
    distances = [expected(vectors.L2_DISTANCE, *pair) for pair in pairs]
    assert truth((DISTANCE, literal)) == [None if d is None else compared(op, d, bound) for d in distances]
    assert truth((literal, DISTANCE)) == [None if d is None else compared(op, bound, d) for d in distances]


def compared(op: str, one: float, other: float) -> bool:
    """As SQL: NaN equals itself and is above everything."""
    a, b = ((math.isnan(x), 0.0 if math.isnan(x) else x) for x in (one, other))
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def test_a_close_bound_over_many_blocks():
    rng = np.random.default_rng(5)
    one, other = (rng.random((5_000, 61)).astype(np.float32) for _ in range(2))
    lists = [pa.array(list(side), LIST) for side in (one, other)]
    exact = measure(vectors.L2_DISTANCE, *map(vectors_of, lists)).to_numpy()
    bound = float(np.sort(exact)[2_500])
    assert bound in exact
    for op, expected_mask in (("<", exact < bound), ("<=", exact <= bound)):
        values = {("l", "v"): lists[0], ("r", "v"): lists[1]}
        condition = Call(op, (DISTANCE, Literal(bound, DOUBLE)), BOOLEAN)
        assert (filter_mask(condition, values, 5_000, ansi=True) == expected_mask).all()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "one, other",
    [([1.0], [1.0, 2.0]), ([], [1.0]), ([1.0, None], [1.0])],
    ids=["longer", "empty", "null inside"],
)
def test_vectors_of_two_lengths_are_an_error(name, one, other):
    sound = [[1.0, 2.0], None]
    left, right = pa.array([*sound, one], LIST), pa.array([*sound, other], LIST)
    with pytest.raises(VectorLengths, match=f"{name} .* {len(one)} and {len(other)} elements"):
        measure(name, vectors_of(left), vectors_of(right))


def test_a_null_vector_has_no_length():
    left, right = pa.array([None, [1.0]], LIST), pa.array([[1.0, 2.0], None], LIST)
    assert measure(vectors.L2_DISTANCE, vectors_of(left), vectors_of(right)).null_count == 2


def test_a_row_that_another_conjunct_rejects_is_not_measured():
    """Whatever the order of the conjuncts: what can raise is evaluated last."""
    schema = {"v": VECTOR, "n": FLOAT}
    predicate = parse_predicate(
        "l.n = r.n AND vector_l2_distance(l.v, r.v) <= 1 AND l.n < r.n + 1", {"l": schema, "r": schema}
    )
    condition = predicate.residual
    assert condition is not None and all(map(supports, conjuncts_of(condition)))
    values = {
        ("l", "v"): pa.array([[1.0], [1.0]], LIST),
        ("r", "v"): pa.array([[1.0, 2.0], [1.5]], LIST),
        ("l", "n"): pa.array([5.0, 0.0], pa.float32()),
        ("r", "n"): pa.array([0.0, 0.0], pa.float32()),
    }
    assert filter_mask(condition, values, 2, ansi=True).tolist() == [False, True]


@pytest.mark.parametrize("text", ["0.05", "1", "16777216", "0.05D", "0.05F", "-1L"])
def test_the_kernel_takes_a_distance_with_a_literal(text):
    schema = {"v": VECTOR}
    predicate = parse_predicate(f"vector_l2_distance(l.v, r.v) <= {text}", {"l": schema, "r": schema})
    assert predicate.residual is not None and supports(predicate.residual)


@pytest.mark.parametrize("text", ["16777217", "9223372036854775807"])
def test_an_integer_that_float_does_not_hold_is_left_to_spark(text):
    """Spark compares in float without ANSI and in double with it."""
    schema = {"v": VECTOR}
    predicate = parse_predicate(f"vector_l2_distance(l.v, r.v) <= {text}", {"l": schema, "r": schema})
    assert predicate.residual is not None and not supports(predicate.residual)
