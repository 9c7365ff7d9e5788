"""What a predicate may say about vectors, and what it is told when it may not."""

from __future__ import annotations

import pytest

from watersmeet.errors import PredicateError
from watersmeet.model.types import parse_type
from watersmeet.predicate import parse_select

COLUMNS = {"v": "array<float>", "d": "array<double>", "i": "array<int>", "s": "string", "f": "float"}
SCHEMAS = {
    "l": {name: parse_type(kind) for name, kind in COLUMNS.items()},
    "r": {"v": parse_type("array<float>")},
}


@pytest.mark.parametrize("name", ["vector_l2_distance", "vector_inner_product", "vector_cosine_similarity"])
def test_vector_functions_give_a_float(name):
    item = parse_select([f"{name.upper()}(l.v, r.v) AS x"], SCHEMAS)[0]
    assert str(item.expression.type) == "float"


@pytest.mark.parametrize(
    "text, told",
    [
        ("vector_l2_distance(l.d, r.v)", "takes array<float>, not array<double> (l.d)"),
        ("vector_l2_distance(r.v, l.i)", "takes array<float>, not array<int> (l.i)"),
        ("vector_inner_product(l.s, r.v)", "takes array<float>, not string (l.s)"),
        ("vector_cosine_similarity(l.v, l.f)", "takes array<float>, not float (l.f)"),
        ("vector_l2_distance(NULL, r.v)", "takes array<float>, not void (None)"),
        ("vector_l2_distance(l.v)", "takes 2 arguments, got 1"),
        ("vector_l2_distanz(l.v, r.v)", "did you mean vector_l2_distance()?"),
    ],
)
def test_what_spark_would_refuse_is_refused(text, told):
    """Spark's DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE and WRONG_NUM_ARGS; it casts no element."""
    with pytest.raises(PredicateError) as refused:
        parse_select([f"{text} AS x"], SCHEMAS)
    assert told in str(refused.value)
