"""What the block kernel says of conditions in Python that go wrong, and which pairs arithmetic sees."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import ConditionError
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.evaluate import ArithmeticOverflow
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Sorted
from watersmeet.kernel.theta import ThetaJoin
from watersmeet.kernel.truth import pair_test
from watersmeet.model.types import BIGINT, STRING
from watersmeet.predicate import parse_predicate
from watersmeet.predicate.write import sql_of

OUTPUT = (OutputColumn("l", "k", "a"), OutputColumn("r", "k", "b"))
SCHEMAS = {name: {"k": BIGINT, "s": STRING} for name in "lr"}


def side(name: str, *values: int) -> Side:
    rows = pa.RecordBatch.from_pydict({"k": pa.array(values, pa.int64()), "s": [str(v) for v in values]})
    return Side(name, [Sorted(np.arange(len(values), dtype=np.uint64), rows)], [])


def pairs_of(left: Side, right: Side, join: ThetaJoin) -> list[tuple[int, int]]:
    batches = join.results((left, right), None)
    return sorted(pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True))


def asked(condition) -> list[tuple[int, int]]:
    join = ThetaJoin(None, OUTPUT, condition=condition, columns=(("k",), ("k",)))
    return pairs_of(side("l", 1, 2), side("r", 3, 4, 5), join)


def raises(left, right):
    raise ZeroDivisionError("by zero")


def returns(answer):
    def named(left, right):
        return answer

    return named


def test_a_condition_that_raises_is_named_with_its_error():
    with pytest.raises(
        ConditionError, match=r"raises raised ZeroDivisionError: by zero\n.*6 pairs"
    ) as caught:
        asked(raises)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "answer, message",
    [
        (None, "returned a NoneType"),
        (True, "returned a bool"),
        ([True] * 6, "returned a list"),
        (pa.array([1] * 6), "returned a pyarrow array of int64"),
        (np.ones(6), "returned a numpy array of float64 with 1 dimensions"),
        (np.ones((2, 3), bool), "returned a numpy array of bool with 2 dimensions"),
        (pa.array([True] * 5), "returned 5 values for 6 pairs"),
        (np.ones(7, bool), "returned 7 values for 6 pairs"),
    ],
)
def test_a_condition_that_returns_something_else_is_named_with_what_it_returned(answer, message):
    with pytest.raises(ConditionError, match=rf"named.* {message}"):
        asked(returns(answer))


def test_chunks_and_nulls_are_taken():
    answer = pa.chunked_array([[True, None], [False, True, True, None]])
    assert len(asked(returns(answer))) == 3


def test_every_pair_without_a_condition():
    assert len(pairs_of(side("l", 1, 2), side("r", 3, 4, 5), ThetaJoin(None, OUTPUT))) == 6


def test_false_is_no_pair():
    residual = parse_predicate("FALSE", SCHEMAS).residual
    assert pairs_of(side("l", 1, 2), side("r", 3, 4), ThetaJoin(residual, OUTPUT)) == []


def test_arithmetic_that_overflows_is_an_error_and_its_guard_protects_it():
    left, right = side("l", 2**62, 1), side("r", 2, 3)
    product = parse_predicate("l.k * r.k > 2", SCHEMAS).residual
    with pytest.raises(ArithmeticOverflow):
        pairs_of(left, right, ThetaJoin(product, OUTPUT))
    for guard in ("l.k < r.k", "l.k < 100", "l.s < r.s AND l.s < '2'"):
        residual = parse_predicate(f"{guard} AND l.k * r.k > 2", SCHEMAS).residual
        assert pairs_of(left, right, ThetaJoin(residual, OUTPUT)) == [(1, 3)]


def test_what_one_row_gives_is_computed_once():
    residual = parse_predicate(
        "l.k * 2 + 1 < r.k - 3 AND l.k + l.k + r.k > 5 AND l.s <> r.s", SCHEMAS
    ).residual
    assert residual is not None
    apart = pair_test(residual, True, None)
    assert [sql_of(part) for _, part in apart.computed] == [
        "`l`.`k` * 2 + 1",
        "`r`.`k` - 3",
        "`l`.`k` + `l`.`k`",
    ]
    assert (len(apart.matrix), len(apart.by_row), len(apart.rest)) == (1, 0, 2)
