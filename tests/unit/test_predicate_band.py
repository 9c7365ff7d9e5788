"""Which predicates are bands, with which sides and bounds, and what is left to check."""

from __future__ import annotations

import pytest

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Band
from watersmeet.model.types import parse_type
from watersmeet.predicate import check_reads_every_input, parse_predicate
from watersmeet.predicate.write import sql_of

TYPES = {
    "y": "tinyint", "i": "int", "b": "bigint", "x": "double", "f": "float", "px": "decimal(10,2)", "u": "decimal(8,3)",
    "m": "decimal(20,4)", "w": "decimal(38,4)", "d": "date", "ts": "timestamp", "n": "timestamp_ntz", "s": "string",
    "lc": "string collate UTF8_LCASE", "flag": "boolean", "bin": "binary", "iv": "interval day to second",
    "ym": "interval year to month", "c": "char(5)",
}  # fmt: skip
SCHEMAS = {name: {column: parse_type(type_) for column, type_ in TYPES.items()} for name in "lr"}
HOUR = 3_600_000_000
SLACK = 60 * HOUR


def band_of(text: str, ansi: bool = True, fixed_zone: bool = False) -> Band | None:
    bands = parse_predicate(text, SCHEMAS, ansi=ansi, fixed_zone=fixed_zone).bands
    assert all(band.inputs == ("l", "r") for band in bands) and len(bands) <= 1
    return bands[0] if bands else None


def shown(band: Band | None) -> tuple[str, str, str, object, object] | None:
    if band is None:
        return None
    return (
        band.left.sql.replace("`", ""),
        band.right.sql.replace("`", ""),
        str(band.type),
        band.low,
        band.high,
    )


EXACT = [
    ("l.i < r.i", ("l.i", "r.i", "int", None, -1)),
    ("l.i <= r.i", ("l.i", "r.i", "int", None, 0)),
    ("l.i > r.i", ("l.i", "r.i", "int", 1, None)),
    ("r.i >= l.b", ("l.b", "r.i", "bigint", None, 0)),
    ("l.y < r.b + 3", ("l.y", "r.b", "bigint", None, 2)),
    ("3 + l.i < r.i", ("l.i", "r.i", "int", None, -4)),
    ("l.i + 1 - 5 >= r.i - 2", ("l.i", "r.i", "int", 2, None)),
    ("l.i * 2 < r.i + r.b", ("l.i * 2", "r.i + r.b", "bigint", None, -1)),
    ("abs(l.i - r.i) <= 5", ("l.i", "r.i", "int", -5, 5)),
    ("abs(r.i - l.i) < 5", ("l.i", "r.i", "int", -4, 4)),
    ("5 >= abs(l.i - r.i)", ("l.i", "r.i", "int", -5, 5)),
    ("abs(l.i - r.i) <= -1", ("l.i", "r.i", "int", 1, -1)),
    ("abs(l.i - r.i) <= 2.5", ("l.i", "r.i", "int", -2, 2)),
    ("abs(l.i - r.i) < 2.5e0", ("l.i", "r.i", "int", -2, 2)),
    ("abs(l.i + 1 - r.i * 2) <= 5", ("l.i + 1", "r.i * 2", "int", -5, 5)),
    ("l.i BETWEEN r.i - 2 AND r.i + 3", ("l.i", "r.i", "int", -2, 3)),
    ("r.i BETWEEN l.i - 2 AND l.i + 3", ("l.i", "r.i", "int", -3, 2)),
    ("l.i - r.i <= 4 AND r.i - l.i < 2", ("l.i", "r.i", "int", -1, 4)),
    ("l.i - r.i > -7 AND l.i < r.i AND l.i < r.i + 9", ("l.i", "r.i", "int", -6, -1)),
    ("l.px - r.u <= 1.555", ("l.px", "r.u", "decimal(11,3)", None, 1555)),
    ("l.px < r.px + 1.555", ("l.px", "r.px", "decimal(10,2)", None, 155)),
    ("l.px > r.px - 1.555", ("l.px", "r.px", "decimal(10,2)", -155, None)),
    ("abs(l.px - r.i) <= 1", ("l.px", "r.i", "decimal(12,2)", -100, 100)),
    ("l.d BETWEEN r.d - 1 AND date_add(r.d, 2)", ("l.d", "r.d", "date", -1, 2)),
    ("l.d > date_sub(r.d, 3)", ("l.d", "r.d", "date", -2, None)),
    ("l.d >= r.d - INTERVAL 1 WEEK", ("l.d", "r.d", "date", -7, None)),
    ("l.d >= r.d - INTERVAL 1 MONTH", ("l.d", "r.d - INTERVAL 1 MONTH", "date", 0, None)),
    ("abs(datediff(r.d, l.d)) <= 1", ("l.d", "r.d", "date", -1, 1)),
    ("datediff(r.d, l.d) <= 1", ("l.d", "r.d", "date", -1, None)),
    ("abs(l.d - r.d) <= INTERVAL 1 DAY", ("l.d", "r.d", "date", -1, 1)),
    ("abs(l.d - r.d) < INTERVAL 36 HOURS", ("l.d", "r.d", "date", -1, 1)),
    ("l.n BETWEEN r.n - INTERVAL 2 DAYS AND r.n", ("l.n", "r.n", "timestamp_ntz", -48 * HOUR, 0)),
    ("abs(l.n - r.n) < INTERVAL 1 HOUR", ("l.n", "r.n", "timestamp_ntz", 1 - HOUR, HOUR - 1)),
    ("l.ts BETWEEN r.ts - INTERVAL 1 HOUR AND r.ts + INTERVAL 23 HOURS", ("l.ts", "r.ts", "timestamp", -HOUR, 23 * HOUR)),
    ("l.ts >= r.ts - INTERVAL 2 DAYS", ("l.ts", "r.ts - INTERVAL 2 DAY", "timestamp", 0, None)),
    ("l.x < r.x", ("l.x", "r.x", "double", None, -1)),
    ("l.f >= r.b", ("l.f", "r.b", "double", 0, None)),
    ("l.x + 3 < r.x * 2", ("l.x + 3", "r.x * 2", "double", None, -1)),
    ("l.x < r.f + 1F", ("l.x", "r.f + 1.0F", "double", None, -1)),
    ("l.flag < r.flag", ("l.flag", "r.flag", "boolean", None, -1)),
    ("l.iv <= r.iv", ("l.iv", "r.iv", "interval day to second", None, 0)),
]  # fmt: skip


@pytest.mark.parametrize("text, expected", EXACT, ids=[text for text, _ in EXACT])
def test_exact_bands_leave_nothing_of_themselves_to_check(text, expected):
    band = band_of(f"{text} AND l.s <> r.s")
    assert shown(band) == expected
    assert band is not None and band.exact
    assert sql_of(band.residual) == "`l`.`s` <> `r`.`s`"


SUPERSETS = [
    ("abs(l.x - r.x) <= 0.5", ("l.x", "r.x", "double", -0.5, 0.5)),
    ("l.x BETWEEN r.x - 1 AND r.x + 2", ("l.x", "r.x", "double", -1.0, 2.0)),
    ("l.x - r.x BETWEEN -1 AND 2", ("l.x", "r.x", "double", -1.0, 2.0)),
    ("l.x - r.x <= 1", ("l.x", "r.x", "double", None, 1.0)),
    ("r.x - l.x < 1", ("l.x", "r.x", "double", -1.0, None)),
    ("l.x >= r.x AND l.x <= r.x + 5", ("l.x", "r.x", "double", 0.0, 5.0)),
    ("abs(l.f - r.f) < 2", ("l.f", "r.f", "float", -2.0, 2.0)),
    ("abs(l.i - r.x) <= 1", ("l.i", "r.x", "double", -1.0, 1.0)),
    ("l.m < r.m + 1", ("l.m", "r.m", "decimal(20,4)", None, (9_999 >> 4) + 1)),
    ("l.b <= r.px", ("l.b", "r.px", "decimal(22,2)", None, 1)),
    ("l.w <= r.w", ("l.w", "r.w", "decimal(38,4)", None, 1)),
    ("l.s < r.s", ("l.s", "r.s", "string", None, 0)),
    ("l.bin >= r.bin", ("l.bin", "r.bin", "binary", 0, None)),
    ("abs(l.ts - r.ts) <= INTERVAL 1 HOUR", ("l.ts", "r.ts", "timestamp", -HOUR - SLACK, HOUR + SLACK)),
    ("l.ts - r.ts > INTERVAL 1 HOUR", ("l.ts", "r.ts", "timestamp", HOUR - SLACK, None)),
]


@pytest.mark.parametrize("text, expected", SUPERSETS, ids=[text for text, _ in SUPERSETS])
def test_bands_that_are_too_wide_are_checked_again(text, expected):
    predicate = parse_predicate(text, SCHEMAS)
    (band,) = predicate.bands
    assert shown(band) == expected
    assert not band.exact
    assert band.residual == predicate.residual


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("l.i <> r.i", id="different"),
        pytest.param("l.i < 5 AND r.i > 3", id="filters"),
        pytest.param("l.i < r.i OR l.b < r.b", id="a disjunction"),
        pytest.param("NOT l.i < r.i", id="a negation"),
        pytest.param("l.i + r.i < 5", id="a sum of both"),
        pytest.param("l.i - r.i < l.b", id="a width that is a column"),
        pytest.param("abs(l.i - r.i) >= 5", id="outside a band"),
        pytest.param("abs(l.i - r.i) <= NULL", id="no width"),
        pytest.param("l.b - r.b < 1e0", id="a long as a double"),
        pytest.param("l.px - r.px < 1e0", id="a decimal as a double"),
        pytest.param("l.w - r.w < 1", id="a decimal that is rounded"),
        pytest.param("l.x - r.x >= 1", id="NaN is above all"),
        pytest.param("l.d < r.ts", id="a date and a timestamp"),
        pytest.param("l.ts < r.n", id="with and without zone"),
        pytest.param("l.d - r.ts < INTERVAL 1 DAY", id="a date minus a timestamp"),
        pytest.param("datediff(l.ts, r.ts) <= 1", id="days between timestamps"),
        pytest.param("l.s < r.i", id="text and a number"),
        pytest.param("l.lc < r.lc", id="text under a collation"),
        pytest.param("l.c < r.c", id="padded text"),
        pytest.param("l.ym < r.ym", id="months"),
    ],
)
def test_not_a_band(text):
    predicate = parse_predicate(text, SCHEMAS)
    assert not predicate.bands
    assert predicate.residual is not None


def test_where_there_is_a_key_there_is_no_band():
    predicate = parse_predicate("l.i = r.i AND l.b < r.b", SCHEMAS)
    assert predicate.keys and not predicate.bands
    assert sql_of(predicate.residual) == "`l`.`b` < `r`.`b`"


def test_two_bounds_are_better_than_one_and_exact_better_than_not():
    assert shown(band_of("l.s < r.s AND l.i < r.i"))[:2] == ("l.i", "r.i")
    assert shown(band_of("l.i < r.i AND abs(l.x - r.x) <= 1"))[:2] == ("l.x", "r.x")
    for text in ("l.i < r.i AND l.b < r.b", "l.b < r.b AND l.i < r.i"):
        assert shown(band_of(text))[:2] == ("l.b", "r.b"), "of equal ones the same in any order of the text"
    band = band_of("l.i < r.i AND l.b BETWEEN r.b - 1 AND r.b AND l.s <> r.s")
    assert sql_of(band.residual) == "`l`.`i` < `r`.`i` AND `l`.`s` <> `r`.`s`"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("l.i < r.i", ("l.i", "r.i", "int", None, -1)),
        ("abs(l.i - r.i) <= 5", None),
        ("l.i - r.i <= 5", None),
        ("l.i <= r.i + 5", ("l.i", "r.i + 5", "int", None, 0)),
        ("CAST(l.i AS bigint) - r.i <= 4", ("CAST(l.i AS BIGINT)", "r.i", "bigint", None, 4)),
        ("abs(CAST(l.i AS bigint) - r.i) < 4", ("CAST(l.i AS BIGINT)", "r.i", "bigint", -3, 3)),
        ("l.i <= CAST(r.i AS bigint) + 5 + 5", ("l.i", "CAST(r.i AS BIGINT)", "bigint", None, 10)),
        ("l.b <= CAST(r.b AS bigint) + 5", ("l.b", "CAST(r.b AS BIGINT) + 5", "bigint", None, 0)),
        ("abs(l.px - r.px) <= 1", ("l.px", "r.px", "decimal(10,2)", -100, 100)),
        ("abs(datediff(l.d, r.d)) <= 1", ("l.d", "r.d", "date", -1, 1)),
    ],
)
def test_without_ansi_sums_that_can_wrap_are_left_alone(text, expected):
    assert shown(band_of(text, ansi=False)) == expected


def test_a_zone_that_never_changes_makes_bands_of_timestamps_exact():
    for text, low, high in [
        ("abs(l.ts - r.ts) <= INTERVAL 1 HOUR", -HOUR, HOUR),
        ("l.ts BETWEEN r.ts - INTERVAL 2 DAYS AND r.ts", -48 * HOUR, 0),
    ]:
        band = band_of(text, fixed_zone=True)
        assert shown(band) == ("l.ts", "r.ts", "timestamp", low, high)
        assert band.exact and band.residual is None
    wide = band_of("l.ts BETWEEN r.ts - INTERVAL 2 DAYS AND r.ts")
    assert (wide.low, wide.high, wide.exact) == (-48 * HOUR - SLACK, 0, False)
    assert sql_of(wide.residual) == "`l`.`ts` >= `r`.`ts` - INTERVAL 2 DAY"


@pytest.mark.parametrize(
    "text, problem",
    [
        ("l.x > 3", "this condition reads only l"),
        ("r.flag", "this condition reads only r"),
        ("1 = 1", "this condition reads no input"),
        ("TRUE AND 1 < 2", "this condition reads no input"),
    ],
)
def test_a_condition_that_joins_nothing_is_refused(text, problem):
    with pytest.raises(PredicateError, match=problem):
        check_reads_every_input(parse_predicate(text, SCHEMAS))


@pytest.mark.parametrize("text", ["TRUE", "FALSE", "l.i < r.i", "l.i = r.i", "l.flag OR r.flag"])
def test_a_condition_on_both_inputs_or_none_at_all_passes(text):
    check_reads_every_input(parse_predicate(text, SCHEMAS))
