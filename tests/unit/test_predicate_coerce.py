"""The type in which an equality is compared, against what Spark 4.3 does.

MEASURED is Spark's own answer, taken from the analysed plan of `l.a = r.b` for every pair of TYPES: the type
that both sides are cast to in ANSI mode and in legacy mode, `-` where Spark refuses. Pairs that are not in
it are refused by Spark in both modes. on_purpose() says where we refuse and Spark does not.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from watersmeet.model.types import SqlType, parse_type
from watersmeet.predicate import common_type
from watersmeet.predicate.type_rules import cannot_compare

TYPE_NAMES = (
    "tinyint | smallint | int | bigint | float | double | decimal(10,2) | decimal(38,0) | decimal(38,10)"
    " | decimal(5,5) | boolean | string | varchar(5) | binary | date | timestamp | timestamp_ntz"
    " | struct<a:int> | struct<b:int> | struct<a:bigint> | array<int> | array<bigint> | map<string,int> | variant"
    " | interval day to second | interval hour | interval year to month | interval month"
)
TYPES = TYPE_NAMES.split(" | ")

MEASURED = """
tinyint | smallint | smallint | smallint
tinyint | int | int | int
tinyint | bigint | bigint | bigint
tinyint | float | double | float
tinyint | double | double | double
tinyint | decimal(10,2) | decimal(10,2) | decimal(10,2)
tinyint | decimal(38,0) | decimal(38,0) | decimal(38,0)
tinyint | decimal(38,10) | decimal(38,10) | decimal(38,10)
tinyint | decimal(5,5) | decimal(8,5) | decimal(8,5)
tinyint | boolean | - | tinyint
tinyint | string | bigint | tinyint
tinyint | varchar(5) | bigint | tinyint
smallint | int | int | int
smallint | bigint | bigint | bigint
smallint | float | double | float
smallint | double | double | double
smallint | decimal(10,2) | decimal(10,2) | decimal(10,2)
smallint | decimal(38,0) | decimal(38,0) | decimal(38,0)
smallint | decimal(38,10) | decimal(38,10) | decimal(38,10)
smallint | decimal(5,5) | decimal(10,5) | decimal(10,5)
smallint | boolean | - | smallint
smallint | string | bigint | smallint
smallint | varchar(5) | bigint | smallint
int | bigint | bigint | bigint
int | float | double | float
int | double | double | double
int | decimal(10,2) | decimal(12,2) | decimal(12,2)
int | decimal(38,0) | decimal(38,0) | decimal(38,0)
int | decimal(38,10) | decimal(38,10) | decimal(38,10)
int | decimal(5,5) | decimal(15,5) | decimal(15,5)
int | boolean | - | int
int | string | bigint | int
int | varchar(5) | bigint | int
bigint | float | double | float
bigint | double | double | double
bigint | decimal(10,2) | decimal(22,2) | decimal(22,2)
bigint | decimal(38,0) | decimal(38,0) | decimal(38,0)
bigint | decimal(38,10) | decimal(38,10) | decimal(38,10)
bigint | decimal(5,5) | decimal(25,5) | decimal(25,5)
bigint | boolean | - | bigint
bigint | string | bigint | bigint
bigint | varchar(5) | bigint | bigint
float | double | double | double
float | decimal(10,2) | double | double
float | decimal(38,0) | double | double
float | decimal(38,10) | double | double
float | decimal(5,5) | double | double
float | boolean | - | float
float | string | double | float
float | varchar(5) | double | float
double | decimal(10,2) | double | double
double | decimal(38,0) | double | double
double | decimal(38,10) | double | double
double | decimal(5,5) | double | double
double | boolean | - | double
double | string | double | double
double | varchar(5) | double | double
decimal(10,2) | decimal(38,0) | decimal(38,0) | decimal(38,0)
decimal(10,2) | decimal(38,10) | decimal(38,10) | decimal(38,10)
decimal(10,2) | decimal(5,5) | decimal(13,5) | decimal(13,5)
decimal(10,2) | boolean | - | decimal(10,2)
decimal(10,2) | string | double | double
decimal(10,2) | varchar(5) | double | double
decimal(38,0) | decimal(38,10) | decimal(38,0) | decimal(38,0)
decimal(38,0) | decimal(5,5) | decimal(38,0) | decimal(38,0)
decimal(38,0) | boolean | - | decimal(38,0)
decimal(38,0) | string | double | decimal(38,0)
decimal(38,0) | varchar(5) | double | decimal(38,0)
decimal(38,10) | decimal(5,5) | decimal(38,10) | decimal(38,10)
decimal(38,10) | boolean | - | decimal(38,10)
decimal(38,10) | string | double | double
decimal(38,10) | varchar(5) | double | double
decimal(5,5) | boolean | - | decimal(5,5)
decimal(5,5) | string | double | double
decimal(5,5) | varchar(5) | double | double
boolean | string | boolean | boolean
boolean | varchar(5) | boolean | boolean
string | varchar(5) | string | string
string | binary | binary | binary
string | date | date | date
string | timestamp | timestamp | timestamp
string | timestamp_ntz | timestamp_ntz | timestamp_ntz
binary | varchar(5) | binary | binary
date | varchar(5) | date | date
timestamp | varchar(5) | timestamp | timestamp
timestamp_ntz | varchar(5) | timestamp_ntz | timestamp_ntz
date | timestamp | timestamp | timestamp
date | timestamp_ntz | timestamp_ntz | timestamp_ntz
timestamp | timestamp_ntz | timestamp | timestamp
interval day to second | interval hour | interval day to second | interval day to second
interval year to month | interval month | interval year to month | interval year to month
struct<a:int> | struct<b:int> | struct<a:int> | struct<a:int>
struct<a:int> | struct<a:bigint> | struct<a:bigint> | struct<a:bigint>
array<int> | array<bigint> | array<bigint> | array<bigint>
"""

NESTED_CASTS = {("struct<a:int>", "struct<a:bigint>"), ("array<int>", "array<bigint>")}
LOST_DIGITS = {
    ("decimal(10,2)", "decimal(38,0)"),
    ("decimal(38,0)", "decimal(38,10)"),
    ("decimal(38,0)", "decimal(5,5)"),
}
TEXT = {"string", "varchar(5)"}
NUMBERS = set(TYPES[:10])


def measured() -> dict[tuple[str, str, bool], str]:
    found = {}
    for line in MEASURED.strip().splitlines():
        left, right, ansi, legacy = line.split(" | ")
        for one, other in ((left, right), (right, left)):
            found[one, other, True], found[one, other, False] = ansi, legacy
    return found


def on_purpose(left: str, right: str, ansi: bool) -> bool:
    """Spark would drop digits, turn bad text into NULL, count booleans, or cast inside a nested type."""
    if {(left, right), (right, left)} & (NESTED_CASTS | LOST_DIGITS):
        return True
    one_is_text = (left in TEXT) != (right in TEXT)
    one_is_boolean = (left == "boolean") != (right == "boolean")
    return not ansi and (one_is_text or (one_is_boolean and bool({left, right} & NUMBERS)))


def expected(left: str, right: str, ansi: bool) -> str:
    if on_purpose(left, right, ansi):
        return "None"
    if left == right:
        own = {"varchar(5)": "string", "map<string,int>": "None", "variant": "None"}
        return own.get(left, left)
    found = measured().get((left, right, ansi), "-")
    return "None" if found == "-" else found


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "legacy"])
def test_every_pair_is_compared_as_spark_does(ansi: bool) -> None:
    pairs = [*combinations_with_replacement(TYPES, 2)]
    pairs += [(right, left) for left, right in pairs]
    ours = {pair: str(common_type(parse_type(pair[0]), parse_type(pair[1]), ansi)) for pair in pairs}
    # Field names do not matter: either side's type will do.
    alike = {"struct<b:int>": "struct<a:int>"}
    wrong = {
        pair: (type_, expected(*pair, ansi))
        for pair, type_ in ours.items()
        if alike.get(type_, type_) != alike.get(expected(*pair, ansi), expected(*pair, ansi))
    }
    assert wrong == {}


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "legacy"])
def test_nothing_that_spark_compares_is_called_a_type_error(ansi: bool) -> None:
    compared = [pair[:2] for pair, type_ in measured().items() if pair[2] == ansi and type_ != "-"]
    assert [pair for pair in compared if cannot_compare(parse_type(pair[0]), parse_type(pair[1]), ansi)] == []


def test_the_table_has_spark_lines_and_refusals() -> None:
    assert len(measured()) > 300
    assert any(on_purpose(left, right, ansi) for left, right, ansi in measured())


@pytest.mark.parametrize(
    "left, right, type_",
    [
        pytest.param("void", "int", "int", id="null takes the other side's type"),
        pytest.param("void", "map<string,int>", "None", id="null does not make a map comparable"),
        pytest.param("unknown", "int", "None", id="unknown has no common type"),
        pytest.param("unknown", "unknown", "None", id="unknown not even with itself"),
        pytest.param("interval", "interval", "None", id="calendar intervals have no equality"),
        pytest.param("interval day", "interval second", "interval day to second", id="intervals span both"),
        pytest.param("interval day", "interval month", "None", id="days and months do not mix"),
        pytest.param(
            "array<struct<a:int>>", "array<struct<b:int>>", "array<struct<a:int>>", id="names inside"
        ),
        pytest.param("array<map<string,int>>", "array<map<string,int>>", "None", id="a map inside"),
        pytest.param("struct<a:int>", "struct<a:int,b:int>", "None", id="structs of different lengths"),
        pytest.param("decimal(20,10)", "decimal(28,0)", "decimal(38,10)", id="38 digits are enough"),
        pytest.param("decimal(20,10)", "decimal(29,0)", "None", id="39 digits are not"),
    ],
)
def test_common_type_of(left: str, right: str, type_: str) -> None:
    assert str(common_type(parse_type(left), parse_type(right), True)) == type_
    assert str(common_type(parse_type(right), parse_type(left), True)).replace("b:", "a:") == type_


def test_collations_must_be_the_same() -> None:
    lcase, unicode = SqlType("string", collation="UTF8_LCASE"), SqlType("string", collation="UNICODE")
    assert common_type(lcase, lcase, True) == lcase
    assert common_type(lcase, unicode, True) is None
    assert common_type(lcase, SqlType("string"), True) is None
    assert common_type(SqlType("string", collation="UTF8_BINARY"), SqlType("string"), True) == SqlType(
        "string"
    )
