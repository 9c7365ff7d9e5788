"""The band kernel behind the predicate reader against nested loops: every owed pair once, no other.

A case is a type, a predicate and its meaning in plain Python. Where the band says that it is exact, its pairs must
be the answer; where not, they must hold the answer, and be it once the residual is checked.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from watersmeet.kernel.band import BandFacing, BandJoin, close_pairs
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.evaluate import evaluate, supports
from watersmeet.kernel.keys import words
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Sorted
from watersmeet.model.expression import Expression, conjuncts_of
from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.limits import Limits
from watersmeet.model.types import DOUBLE, INT, parse_type
from watersmeet.predicate import parse_predicate

OUTPUT = (OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b"))
SECOND = 1_000_000


@dataclass(frozen=True)
class Case:
    """`holds(a, b, w, u)` says what `text` means; `column` makes an Arrow column of such values."""

    type: str
    text: str
    values: st.SearchStrategy[Any]
    column: Callable[[list[Any]], pa.Array]
    holds: Callable[[Any, Any, int, int], bool]


def ints(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return st.integers(-12, 12) | st.sampled_from([low, low + 1, low + 9, high - 9, high - 1, high])


def whole(kind: pa.DataType) -> Callable[[list[int]], pa.Array]:
    return lambda values: pa.array(values, pa.int64()).cast(kind)


def moments(values: list[int]) -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp("us"))


def decimals(precision: int) -> Callable[[list[int]], pa.Array]:
    return lambda values: pa.array([Decimal(f"{v}E-2") for v in values], pa.decimal128(precision, 2))


def cents(precision: int) -> st.SearchStrategy[int]:
    last = 10**precision - 1
    return st.integers(-300, 300) | st.sampled_from([-last, -last + 100, last - 100, last])


def days(values: list[int]) -> pa.Array:
    return pa.array(values, pa.int32()).view(pa.date32())


def at_most(x: float, y: float) -> bool:
    """Spark's <=: NaN is above everything and equal to itself."""
    return math.isnan(y) or x <= y


def between_floats(a: Any, b: Any, w: int, u: int) -> bool:
    return at_most(float(b - w), a) and at_most(a, float(b + u))


near = st.sampled_from([0.1, 0.2, 0.30000000000000004, 1.1, 5.1, 1e16, 1e16 + 2, -1e16, 3.0, 7.5, -0.0, 0.0])
edges = st.sampled_from(
    [math.nan, math.inf, -math.inf, 1.7976931348623157e308, -1.7976931348623157e308, 5e-324]
)
doubles = near | edges | st.floats() | st.integers(-9, 9).map(float)
singles = st.sampled_from(
    [math.nan, math.inf, -math.inf, 3.4028234663852886e38, -3.4028234663852886e38, 16777216.0]
)
floats = singles | st.floats(width=32) | st.integers(-9, 9).map(float)


def as_double(values: list[float]) -> pa.Array:
    return pa.array(values, pa.float64())


def as_float(values: list[float]) -> pa.Array:
    return pa.array(np.array(values, np.float32))


CASES = [
    *(
        Case(kind, text, ints(bits), whole(arrow), holds)
        for kind, bits, arrow in [("tinyint", 8, pa.int8()), ("int", 32, pa.int32()), ("bigint", 64, pa.int64())]
        for text, holds in [
            ("l.v < r.v", lambda a, b, w, u: a < b),
            ("r.v <= l.v", lambda a, b, w, u: b <= a),
            ("abs(l.v - r.v) <= {w}", lambda a, b, w, u: abs(a - b) <= w),
            ("{w} > abs(r.v - l.v)", lambda a, b, w, u: abs(a - b) < w),
            ("abs(l.v - r.v) <= -1", lambda a, b, w, u: False),
            ("l.v BETWEEN r.v - {w} AND r.v + {u}", lambda a, b, w, u: b - w <= a <= b + u),
            ("l.v - r.v > {w}", lambda a, b, w, u: a - b > w),
            ("r.v - l.v > {w} AND r.v - l.v <= {u}", lambda a, b, w, u: w < b - a <= u),
            ("l.v + 1 + {w} >= r.v - {u}", lambda a, b, w, u: a + 1 + w >= b - u),
            ("l.v < r.v + {w}.5", lambda a, b, w, u: a < b + Fraction(2 * w + 1, 2)),
        ]
    ),
    *(
        Case("date", text, ints(20), days, holds)
        for text, holds in [
            ("abs(datediff(r.v, l.v)) < {w}", lambda a, b, w, u: abs(a - b) < w),
            ("abs(l.v - r.v) <= INTERVAL {w} DAYS", lambda a, b, w, u: abs(a - b) <= w),
            ("l.v BETWEEN date_sub(r.v, {w}) AND r.v + {u}", lambda a, b, w, u: b - w <= a <= b + u),
            ("l.v > r.v - INTERVAL {w} DAYS", lambda a, b, w, u: a > b - w),
        ]
    ),
    *(
        Case("timestamp_ntz", text, (ints(20) | ints(44)).map(lambda v: v * SECOND // 2), moments, holds)
        for text, holds in [
            ("abs(l.v - r.v) <= INTERVAL {w} SECONDS", lambda a, b, w, u: abs(a - b) <= w * SECOND),
            ("l.v - INTERVAL {w} SECONDS < r.v", lambda a, b, w, u: a - w * SECOND < b),
            (
                "l.v BETWEEN r.v - INTERVAL {w} SECONDS AND r.v + INTERVAL {u} DAYS",
                lambda a, b, w, u: b - w * SECOND <= a <= b + u * 86_400 * SECOND,
            ),
        ]
    ),
    *(
        Case(f"decimal({digits},2)", text, cents(digits), decimals(digits), holds)
        for digits in (9, 18, 19, 25, 37, 38)
        for text, holds in [
            ("l.v <= r.v", lambda a, b, w, u: a <= b),
            ("abs(l.v - r.v) < {w}.25", lambda a, b, w, u: abs(a - b) < 100 * w + 25),
            (
                "l.v BETWEEN r.v - {w}.125 AND r.v + {u}",
                lambda a, b, w, u: 10 * b - 1000 * w - 125 <= 10 * a <= 10 * b + 1000 * u,
            ),
        ]
    ),
    *(
        Case("double", text, doubles, as_double, holds)
        for text, holds in [
            ("l.v < r.v", lambda a, b, w, u: not at_most(b, a)),
            ("abs(l.v - r.v) <= {w}", lambda a, b, w, u: at_most(abs(a - b), w)),
            ("abs(l.v - r.v) <= 0.1", lambda a, b, w, u: at_most(abs(a - b), 0.1)),
            ("l.v BETWEEN r.v - {w} AND r.v + {u}", between_floats),
            ("l.v - r.v <= {w}", lambda a, b, w, u: at_most(a - b, w)),
            ("l.v - r.v >= {w}", lambda a, b, w, u: at_most(w, a - b)),
            ("l.v - r.v BETWEEN -{w} AND {u}", lambda a, b, w, u: at_most(-w, a - b) and at_most(a - b, u)),
            ("l.v - 1e308 <= r.v", lambda a, b, w, u: at_most(a - 1e308, b)),
            ("r.v > l.v - 1e16 AND l.v >= r.v", lambda a, b, w, u: not at_most(b, a - 1e16) and at_most(b, a)),
        ]
    ),
    *(
        Case("float", text, floats, as_float, holds)
        for text, holds in [
            ("l.v < r.v", lambda a, b, w, u: not at_most(b, a)),
            ("abs(l.v - r.v) <= {w}", lambda a, b, w, u: at_most(abs(float(np.float32(a) - np.float32(b))), w)),
            (
                "l.v - 1e38F <= r.v AND l.v + 1e38F >= r.v",
                lambda a, b, w, u: at_most(float(np.float32(a) - np.float32(1e38)), b)
                and at_most(b, float(np.float32(a) + np.float32(1e38))),
            ),
        ]
    ),
    *(
        Case("string", text, st.text("abcdefgh", max_size=11), pa.array, holds)
        for text, holds in [
            ("l.v <= r.v", lambda a, b, w, u: a <= b),
            ("l.v > r.v AND r.v >= 'abc'", lambda a, b, w, u: a > b >= "abc"),
        ]
    ),
    Case("boolean", "l.v < r.v", st.booleans(), pa.array, lambda a, b, w, u: a < b),
]  # fmt: skip


def runs_of(case: Case, side: Expression, name: str, lists: list[list[Any]]) -> Iterator[Sorted]:
    start = 0
    for values in lists:
        column = case.column(values)
        keys = words(evaluate(side, {(name, "v"): column}, len(values), ansi=True))
        rows = pa.RecordBatch.from_arrays(
            [column, pa.array(np.arange(start, start + len(values)))], ["v", "id"]
        )
        order = np.argsort(keys, kind="stable")
        yield Sorted(keys[order], rows.take(pa.array(order)))
        start += len(values)


def side_of(name: str, case: Case, side: Expression, old: list[list[Any]], new: list[list[Any]]) -> Side:
    runs = list(runs_of(case, side, name, old + new))
    return Side(name, runs[len(old) :], runs[: len(old)])


def joined(left: Side, right: Side, join: BandJoin, piece: int = 100, output: int = 7) -> Counter[Any]:
    limits = Limits(piece_rows=piece, output_rows=output)
    batches = list(join.results((left, right), None, limits))
    assert all(0 < batch.num_rows <= output for batch in batches)
    return Counter(pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True))


@pytest.mark.parametrize("type_", dict.fromkeys(case.type for case in CASES))
@given(data=st.data())
def test_band_joins_give_what_the_predicate_says(type_, data):
    case = data.draw(st.sampled_from([case for case in CASES if case.type == type_]))
    lists = st.lists(st.lists(case.values, max_size=8), max_size=3)
    old_left, new_left, old_right, new_right = (data.draw(lists) for _ in range(4))
    w, u = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    schemas = {name: {"v": parse_type(case.type)} for name in "lr"}
    bands = parse_predicate(case.text.format(w=w, u=u), schemas).bands
    if not bands:
        assert case.text in ("l.v - r.v >= {w}", "abs(l.v - r.v) < {w}.25")
        return
    (band,) = bands
    left, right = band.left.expression, band.right.expression
    # Sums of decimals of 38 digits are Spark's to compute.
    assume(supports(left) and supports(right))
    owed = Counter(_owed(case, old_left, new_left, old_right, new_right, w, u))
    sides = (
        side_of("l", case, left, old_left, new_left),
        side_of("r", case, right, old_right, new_right),
    )
    piece = data.draw(st.integers(1, 20))
    found = joined(*sides, BandJoin(band.type, band.low, band.high, None, OUTPUT), piece)
    assert max(found.values(), default=1) == 1
    assert found >= owed
    if band.exact and band.residual is None:
        assert found == owed
    elif band.residual is not None and all(map(supports, conjuncts_of(band.residual))):
        assert joined(*sides, BandJoin(band.type, band.low, band.high, band.residual, OUTPUT), piece) == owed


def _owed(case, old_left, new_left, old_right, new_right, w, u):
    def numbered(old, new):
        rows = [(v, False) for values in old for v in values] + [(v, True) for values in new for v in values]
        return list(enumerate(rows))

    with np.errstate(all="ignore"):
        for i, (a, fresh_a) in numbered(old_left, new_left):
            for j, (b, fresh_b) in numbered(old_right, new_right):
                if (fresh_a or fresh_b) and case.holds(a, b, w, u):
                    yield i, j


some_words = st.lists(st.integers(0, 30) | st.integers(2**64 - 9, 2**64 - 1), max_size=20).map(sorted)
bounds = st.none() | st.integers(-40, 40) | st.sampled_from([-(2**65), -(2**64) + 1, 2**64 - 1, 2**65])


@given(some_words, some_words, bounds, bounds, st.integers(1, 9))
def test_close_pairs_are_all_pairs_within_the_bounds(left, right, low, high, limit):
    join = BandJoin(INT, low, high, None, ())
    steps = list(close_pairs(np.array(left, np.uint64), np.array(right, np.uint64), join, limit))
    found = Counter((int(i), int(j)) for one, other in steps for i, j in zip(one, other, strict=True))
    assert found == Counter(
        (i, j)
        for i, x in enumerate(left)
        for j, y in enumerate(right)
        if (low is None or x - y >= low) and (high is None or x - y <= high)
    )
    assert all(len(one) <= limit for one, _ in steps)


@given(some_words, some_words, bounds, bounds, st.lists(st.integers(1, 35) | st.just(2**64 - 4), max_size=3))
def test_tasks_that_share_the_left_words_find_every_pair_once(left, right, low, high, cuts):
    join = BandJoin(INT, low, high, None, ())
    lefts, rights = np.array(left, np.uint64), np.array(right, np.uint64)
    edges = [0, *sorted(set(cuts)), KEY_SPACE]
    found: Counter[tuple[int, int]] = Counter()
    for start, stop in itertools.pairwise(edges):
        range_ = BandFacing(join.type, join.low, join.high)(KeyRange(start, stop))
        here = [(int(x), k) for k, x in enumerate(left) if start <= x < stop]
        there = [(int(y), k) for k, y in enumerate(right) if range_.low <= y < range_.high]
        keys = [np.array([word for word, _ in rows], np.uint64) for rows in (here, there)]
        for one, other in close_pairs(keys[0], keys[1], join, 100):
            found.update((here[i][1], there[j][1]) for i, j in zip(one, other, strict=True))
    whole = [(int(i), int(j)) for one, other in close_pairs(lefts, rights, join, 100)
             for i, j in zip(one, other, strict=True)]  # fmt: skip
    assert found == Counter(whole)


@given(
    st.lists(doubles, max_size=15), st.lists(doubles, max_size=15), st.floats(0, 1e300), st.floats(-1e300, 0)
)
def test_a_range_of_the_left_side_reaches_all_its_partners_among_floats(left, right, high, low):
    join = BandJoin(DOUBLE, low, high, None, ())
    lefts, rights = (np.sort(words(as_double(values))) for values in (left, right))
    for start, stop in [(0, 2**63), (2**63, 2**63 + 2**62), (2**63 + 2**62, KEY_SPACE)]:
        range_ = BandFacing(join.type, join.low, join.high)(KeyRange(start, stop))
        mine = np.array([x for x in lefts.tolist() if start <= x < stop], np.uint64)
        for _, other in close_pairs(mine, rights, join, 1000):
            assert all(range_.low <= int(rights[j]) < range_.high for j in other)


@pytest.mark.parametrize(
    "type_, text",
    [
        ("int", "abs(l.v - r.v) <= 3"),
        ("date", "l.v BETWEEN r.v - 2 AND r.v + 5"),
        ("timestamp_ntz", "l.v BETWEEN r.v - INTERVAL 90 SECONDS AND r.v + INTERVAL 2 HOURS"),
        ("decimal(12,2)", "l.v - r.v < 1.5 AND r.v - l.v <= 0.25"),
    ],
)
def test_duckdb_agrees(type_, text):
    arrow = {"int": pa.int32(), "date": pa.date32(), "timestamp_ntz": pa.timestamp("us")}
    rng = np.random.default_rng(7)

    def run(start: int) -> Sorted:
        drawn = rng.integers(0, 2_000, 150)
        if type_ == "timestamp_ntz":
            column = moments((drawn * 60 * SECOND).tolist())
        elif type_ == "decimal(12,2)":
            column = decimals(12)(drawn.tolist())
        else:
            column = pa.array(drawn.astype(np.int32)).cast(arrow[type_])
        order = np.argsort(words(column), kind="stable")
        rows = pa.RecordBatch.from_arrays([column, pa.array(np.arange(start, start + 150))], ["v", "id"])
        return Sorted(words(column)[order], rows.take(pa.array(order)))

    lefts, rights = ([run(150 * k) for k in range(6)] for _ in range(2))
    (band,) = parse_predicate(text, {name: {"v": parse_type(type_)} for name in "lr"}).bands
    join = BandJoin(band.type, band.low, band.high, band.residual, OUTPUT)
    found = joined(Side("l", lefts[4:], lefts[:4]), Side("r", rights[3:], rights[:3]), join, 400, 500)
    con = duckdb.connect()
    for name, runs in (("l", lefts), ("r", rights)):
        con.register(name, pa.Table.from_batches([run.rows for run in runs]))
    fresh = "(l.id >= 600 OR r.id >= 450)"
    assert len(found) > 1000
    assert found == Counter(con.execute(f"SELECT l.id, r.id FROM l, r WHERE {fresh} AND {text}").fetchall())
