"""The block kernel against nested loops in plain Python, nulls and NaN included."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.evaluate import supports
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Sorted
from watersmeet.kernel.theta import ThetaJoin
from watersmeet.model.expression import conjuncts_of
from watersmeet.model.limits import Limits
from watersmeet.model.types import parse_type
from watersmeet.predicate import parse_predicate

TYPES = {
    "i": pa.int32(),
    "n": pa.int64(),
    "x": pa.float64(),
    "s": pa.string(),
    "f": pa.bool_(),
    "d": pa.date32(),
}
SQL = {"i": "int", "n": "bigint", "x": "double", "s": "string", "f": "boolean", "d": "date"}
SCHEMAS = {name: {column: parse_type(type_) for column, type_ in SQL.items()} for name in "lr"}
OUTPUT = (OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b"))


def _or_null(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values | values


rows = st.fixed_dictionaries(
    {
        "i": _or_null(st.integers(-3, 3)),
        "n": _or_null(st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])),
        "x": _or_null(st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf])),
        "s": _or_null(st.sampled_from(["", "a", "ab", "a longer text", "a longer text too"])),
        "f": _or_null(st.booleans()),
        "d": _or_null(st.integers(-2, 2)),
    }
)
runs = st.lists(st.lists(rows, max_size=5), max_size=2)

Truth = bool | None


def rank(value: Any) -> Any:
    """Spark's order of doubles: one zero, NaN above all."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value


def compare(op: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Truth]:
    return lambda a, b: None if a is None or b is None else op(rank(a), rank(b))


less, equal = compare(lambda a, b: a < b), compare(lambda a, b: a == b)


def neither(a: Truth) -> Truth:
    return None if a is None else not a


def both(a: Truth, b: Truth) -> Truth:
    return False if False in (a, b) else None if None in (a, b) else True


def one_of(a: Truth, b: Truth) -> Truth:
    return neither(both(neither(a), neither(b)))


def plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


@dataclass(frozen=True)
class Case:
    text: str
    holds: Callable[[dict[str, Any], dict[str, Any]], Truth]


CASES = [
    Case("l.i <> r.n", lambda l, r: neither(equal(l["i"], r["n"]))),
    Case("l.x < r.x", lambda l, r: less(l["x"], r["x"])),
    Case("l.x = r.x OR l.i < r.i", lambda l, r: one_of(equal(l["x"], r["x"]), less(l["i"], r["i"]))),
    Case("NOT (l.i < r.i AND l.d < r.d)", lambda l, r: neither(both(less(l["i"], r["i"]), less(l["d"], r["d"])))),
    Case("l.f OR r.f", lambda l, r: one_of(l["f"], r["f"])),
    Case("NOT l.f AND (r.f OR l.d <> r.d)",
         lambda l, r: both(neither(l["f"]), one_of(r["f"], neither(equal(l["d"], r["d"]))))),
    Case("l.f <> r.f", lambda l, r: neither(equal(l["f"], r["f"]))),
    Case("l.i IS NULL OR r.i > l.n", lambda l, r: one_of(l["i"] is None, less(l["n"], r["i"]))),
    Case("l.s <> r.s", lambda l, r: neither(equal(l["s"], r["s"]))),
    Case("l.s < r.s AND l.i <> r.i", lambda l, r: both(less(l["s"], r["s"]), neither(equal(l["i"], r["i"])))),
    Case("l.i + 1 < r.i * 2", lambda l, r: less(plus(l["i"], 1), None if r["i"] is None else 2 * r["i"])),
    Case("l.i + r.i > 2", lambda l, r: less(2, plus(l["i"], r["i"]))),
    Case("l.i + r.i > 2 AND l.x <> r.x",
         lambda l, r: both(less(2, plus(l["i"], r["i"])), neither(equal(l["x"], r["x"])))),
    Case("l.s <> r.s AND l.i - r.i < 1",
         lambda l, r: both(neither(equal(l["s"], r["s"])), less(plus(l["i"], -r["i"] if r["i"] is not None else None), 1))),
    Case("l.i IN (r.i, 2)", lambda l, r: one_of(equal(l["i"], r["i"]), equal(l["i"], 2))),
    Case("coalesce(l.i, r.i) = 1", lambda l, r: equal(r["i"] if l["i"] is None else l["i"], 1)),
    Case("true", lambda l, r: True),
    Case("false", lambda l, r: False),
]  # fmt: skip


def runs_of(lists: list[list[dict[str, Any]]]) -> list[Sorted]:
    made, start = [], 0
    for values in lists:
        columns = [pa.array([row[name] for row in values], pa.int32() if kind == pa.date32() else kind).view(kind)
                   for name, kind in TYPES.items()]  # fmt: skip
        ids = np.arange(start, start + len(values))
        batch = pa.RecordBatch.from_arrays([*columns, pa.array(ids)], [*TYPES, "id"])
        made.append(Sorted(ids.astype(np.uint64), batch))
        start += len(values)
    return made


def joined(
    old_left, new_left, old_right, new_right, join: ThetaJoin, sizes: tuple[int, int, int, int]
) -> Counter[Any]:
    lefts, rights = runs_of(old_left + new_left), runs_of(old_right + new_right)
    left = Side("l", lefts[len(old_left) :], lefts[: len(old_left)])
    right = Side("r", rights[len(old_right) :], rights[: len(old_right)])
    limits = Limits(
        piece_rows=sizes[0],
        output_rows=7,
        slab_rows=sizes[1],
        block_pairs=sizes[2],
        matrix_width=3,
        least_crossed_rows=sizes[3],
    )
    batches = list(join.results((left, right), None, limits))
    assert all(0 < batch.num_rows <= 7 for batch in batches)
    return Counter(pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True))


def owed(old_left, new_left, old_right, new_right, holds) -> Counter[Any]:
    def numbered(old, new):
        fresh = [(row, False) for run in old for row in run] + [(row, True) for run in new for row in run]
        return list(enumerate(fresh))

    return Counter(
        (i, j)
        for i, (a, fresh_a) in numbered(old_left, new_left)
        for j, (b, fresh_b) in numbered(old_right, new_right)
        if (fresh_a or fresh_b) and holds(a, b) is True
    )


# The last: whether a cross product needs no positions, or has rows too wide for that.
sizes = st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 30), st.sampled_from([1, 1 << 40]))


# Some twenty examples of each case, or as many as the profile asks for.
@settings(max_examples=max(20 * len(CASES), settings().max_examples))
@given(st.sampled_from(CASES), runs, runs, runs, runs, sizes)
def test_pairs_are_those_for_which_the_condition_is_true(
    case, old_left, new_left, old_right, new_right, sizes
):
    residual = parse_predicate(case.text, SCHEMAS).residual
    assert residual is None or all(map(supports, conjuncts_of(residual)))
    found = joined(old_left, new_left, old_right, new_right, ThetaJoin(residual, OUTPUT), sizes)
    assert found == owed(old_left, new_left, old_right, new_right, case.holds)


@given(runs, runs, runs, runs, sizes, st.booleans())
def test_a_condition_in_python_sees_aligned_rows(old_left, new_left, old_right, new_right, sizes, as_arrow):
    def lengths_differ(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
        assert left.schema.names == ["s", "i"] and right.schema.names == ["s"]
        assert left.num_rows == right.num_rows > 0
        texts = zip(left.column("s").to_pylist(), right.column("s").to_pylist(), strict=True)
        truths = [None if None in pair else len(pair[0]) != len(pair[1]) for pair in texts]
        return pa.array(truths, pa.bool_()) if as_arrow else np.array([bool(truth) for truth in truths])

    residual = parse_predicate("l.i <= r.i", SCHEMAS).residual
    join = ThetaJoin(residual, OUTPUT, condition=lengths_differ, columns=(("s", "i"), ("s",)))

    def holds(a: dict[str, Any], b: dict[str, Any]) -> Truth:
        known = a["s"] is not None and b["s"] is not None
        return both(neither(less(b["i"], a["i"])), known and len(a["s"]) != len(b["s"]))

    found = joined(old_left, new_left, old_right, new_right, join, sizes)
    assert found == owed(old_left, new_left, old_right, new_right, holds)
