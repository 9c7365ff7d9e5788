"""The allow-list: the functions that a predicate may use, and the words and functions that it may not.

Allowed functions are deterministic, scalar and free of side effects, under their Spark names. A function that is not
here is refused: it may read the clock, a file, a random number or other rows, or run somebody's code. Each entry gives
the number of arguments and the type of the result, `unknown` where the type depends on more than the argument types.
Functions that mean the same have one name in the tree.

Spark's analyser has the last word on the types of arguments. Functions of vectors may never reach it, so their
arguments are checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from watersmeet.model.expression import Expression, Literal
from watersmeet.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_DECIMAL_DIGITS,
    STRING,
    TIMESTAMP,
    VECTOR,
    SqlType,
    decimal,
)
from watersmeet.predicate.lex import did_you_mean, words
from watersmeet.predicate.literals import brief
from watersmeet.predicate.type_rules import UNKNOWN, result_type, widest

Rule = Callable[[tuple[Expression, ...], bool], SqlType]
# No bound of our own: the length of the text bounds the number of arguments.
MANY: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Function:
    """`name` is the op of the call in the tree; `result` gives its type from the arguments and ansi."""

    name: str
    least: int
    most: int
    result: SqlType | Rule

    def type_of(self, args: tuple[Expression, ...], ansi: bool) -> SqlType:
        if any(arg.type.collation for arg in args):
            return UNKNOWN if not isinstance(self.result, SqlType) or self.result == STRING else self.result
        return self.result if isinstance(self.result, SqlType) else self.result(args, ansi)


def _widest(args: tuple[Expression, ...], ansi: bool) -> SqlType:
    return widest([arg.type for arg in args], ansi)


def _whole(args: tuple[Expression, ...], ansi: bool) -> SqlType:
    """The type of ceil and floor: the fraction goes, one digit may come."""
    rounded = _rounded(args, ansi)
    return BIGINT if rounded.integral or rounded.floating else rounded


def _rounded(args: tuple[Expression, ...], ansi: bool) -> SqlType:
    """A decimal loses digits after the point and may gain one before it (Spark's RoundBase)."""
    type_, places = args[0].type, args[1] if len(args) > 1 else Literal(0, INT)
    if type_.name != "decimal":
        return type_ if type_.integral or type_.floating else UNKNOWN
    if not isinstance(places, Literal) or not isinstance(places.value, int) or places.value < 0:
        return UNKNOWN
    scale = min(type_.scale or 0, places.value)
    return decimal(min((type_.precision or 0) - (type_.scale or 0) + 1 + scale, MAX_DECIMAL_DIGITS), scale)


def _text_or_bytes(args: tuple[Expression, ...], ansi: bool) -> SqlType:
    return BINARY if args[0].type == BINARY else STRING if args[0].type.name in _CASTS_TO_TEXT else UNKNOWN


def _concatenated(args: tuple[Expression, ...], ansi: bool) -> SqlType:
    types = {arg.type for arg in args}
    if types == {BINARY}:
        return BINARY
    return STRING if all(type_.name in _CASTS_TO_TEXT for type_ in types) else UNKNOWN


def element_type(collection: SqlType) -> SqlType:
    """What indexing gives: an array's element or a map's value."""
    return (collection.value if collection.name == "map" else collection.element) or UNKNOWN


_CASTS_TO_TEXT: Final = words(
    "string tinyint smallint int bigint float double decimal boolean date timestamp timestamp_ntz"
)

_TABLE: Final[tuple[tuple[str, int, int, SqlType | Rule], ...]] = (
    ("sqrt cbrt exp expm1 ln log10 log2 log1p sin cos tan cot asin acos atan sinh cosh tanh", 1, 1, DOUBLE),
    ("degrees radians rint signum", 1, 1, DOUBLE),
    ("log", 1, 2, DOUBLE),
    ("pow atan2 hypot", 2, 2, DOUBLE),
    ("abs", 1, 1, lambda args, _: args[0].type if args[0].type.numeric else UNKNOWN),
    ("ceil floor", 1, 1, _whole),
    ("round bround", 1, 2, _rounded),
    ("% pmod", 2, 2, lambda args, ansi: result_type("%", args[0], args[1], ansi)),
    ("greatest least", 2, MANY, _widest),
    ("coalesce", 1, MANY, _widest),
    ("nullif", 2, 2, lambda args, _: args[0].type),
    ("nvl2 if", 3, 3, lambda args, ansi: _widest(args[1:], ansi)),
    ("isnan", 1, 1, BOOLEAN),
    ("nanvl", 2, 2, _widest),
    ("lower upper trim initcap soundex chr", 1, 1, STRING),
    ("ltrim rtrim btrim", 1, 2, STRING),
    ("length char_length octet_length bit_length ascii bit_count", 1, 1, INT),
    ("levenshtein", 2, 3, INT),
    ("concat", 1, MANY, _concatenated),
    ("concat_ws", 2, MANY, STRING),
    ("substring lpad rpad", 2, 3, _text_or_bytes),
    ("left right repeat", 2, 2, STRING),
    ("translate substring_index split_part", 3, 3, STRING),
    ("reverse", 1, 1, lambda args, _: args[0].type if args[0].type.name in ("string", "array") else UNKNOWN),
    ("instr", 2, 2, INT),
    ("locate position", 2, 3, INT),
    ("startswith endswith contains regexp_like", 2, 2, BOOLEAN),
    ("replace regexp_extract", 2, 3, STRING),
    ("regexp_replace", 3, 4, STRING),
    ("split", 2, 3, SqlType("array", element=STRING)),
    ("hex base64 md5 sha", 1, 1, STRING),
    ("unhex unbase64", 1, 1, BINARY),
    ("sha2 get_json_object", 2, 2, STRING),
    ("crc32", 1, 1, BIGINT),
    ("hash", 1, MANY, INT),
    ("xxhash64", 1, MANY, BIGINT),
    ("date_add date_sub add_months next_day trunc", 2, 2, DATE),
    ("last_day date_from_unix_date", 1, 1, DATE),
    ("to_date", 1, 2, DATE),
    ("make_date", 3, 3, DATE),
    ("datediff", 2, 2, INT),
    ("months_between", 2, 3, DOUBLE),
    ("date_trunc from_utc_timestamp to_utc_timestamp", 2, 2, TIMESTAMP),
    ("to_timestamp", 1, 2, TIMESTAMP),
    ("timestamp_seconds timestamp_millis timestamp_micros", 1, 1, TIMESTAMP),
    ("unix_timestamp", 1, 2, BIGINT),
    ("from_unixtime", 1, 2, STRING),
    ("unix_seconds unix_millis unix_micros", 1, 1, BIGINT),
    ("unix_date", 1, 1, INT),
    ("date_format", 2, 2, STRING),
    ("year quarter month day dayofweek weekday dayofyear weekofyear hour minute second", 1, 1, INT),
    ("size", 1, 1, INT),
    ("array_contains arrays_overlap", 2, 2, BOOLEAN),
    ("array_position", 2, 2, BIGINT),
    ("array_join", 2, 3, STRING),
    ("array_min array_max", 1, 1, lambda args, _: element_type(args[0].type)),
    ("element_at get", 2, 2, lambda args, _: element_type(args[0].type)),
    ("vector_l2_distance vector_inner_product vector_cosine_similarity", 2, 2, FLOAT),
)

# Functions that are only another name for one above.
_SAME: Final = (
    "power=pow ceiling=ceil mod=% sign=signum nvl=coalesce ifnull=coalesce lcase=lower ucase=upper len=length"
    " character_length=char_length substr=substring char=chr sha1=sha dateadd=date_add date_diff=datediff"
    " to_unix_timestamp=unix_timestamp dayofmonth=day cardinality=size"
)

CAST_FUNCTIONS: Final = words(
    "boolean tinyint smallint int bigint float double decimal string binary date timestamp"
)
# Functions that are operators in the tree.
OPERATORS: Final = words("isnull isnotnull negative cast try_cast")


def _functions() -> dict[str, Function]:
    found = {
        name: Function(name, least, most, result)
        for names, least, most, result in _TABLE
        for name in names.split()
    }
    found |= {alias: found[name] for alias, name in (pair.split("=", 1) for pair in _SAME.split())}
    # An operator: only mod() calls it by a name.
    del found["%"]
    return found


FUNCTIONS: Final = _functions()

# Functions that turn text into a moment.
TIME_FUNCTIONS: Final = words(
    "date_add date_sub add_months next_day trunc last_day to_date datediff months_between date_trunc date_format"
    " from_utc_timestamp to_utc_timestamp to_timestamp unix_timestamp unix_seconds unix_millis unix_micros unix_date"
    " year quarter month day dayofweek weekday dayofyear weekofyear hour minute second"
)

_LATER: Final = "compute it as a column before the join"
_NO_QUERY: Final = ("a predicate has no queries", "join the other table first")
_NO_WINDOW: Final = (
    "a predicate sees one row of each input: no windows, no aggregates",
    "compute it before the join",
)
_NO_STATEMENT: Final = (
    "a predicate is one expression, not a statement",
    "give a condition such as l.k = r.k",
)
_NO_CLOCK: Final = ("a predicate does not read the clock or the session", _LATER)
_NO_LAMBDA: Final = ("a predicate has no lambda functions", _LATER)

# Words that are refused wherever they stand, whether or not brackets follow: the problem and a hint.
REFUSED_WORDS: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(words("SELECT WITH VALUES WHERE GROUP ORDER HAVING LIMIT FROM DISTINCT"), _NO_QUERY),
    **dict.fromkeys(words("UNION EXCEPT INTERSECT EXISTS ANY ALL SOME TABLE LATERAL JOIN UNNEST"), _NO_QUERY),
    **dict.fromkeys(words("OVER PARTITION FILTER WITHIN ROWS RANGE QUALIFY"), _NO_WINDOW),
    **dict.fromkeys(words("CREATE DROP INSERT UPDATE DELETE ALTER SET SHOW USE GRANT MERGE"), _NO_STATEMENT),
    **dict.fromkeys(words("TRUNCATE REFRESH CACHE LOAD ADD EXPLAIN DESCRIBE CALL"), _NO_STATEMENT),
    **dict.fromkeys(words("EXECUTE BEGIN"), _NO_STATEMENT),
    **dict.fromkeys(words("CURRENT_DATE CURRENT_TIMESTAMP CURRENT_TIME LOCALTIMESTAMP"), _NO_CLOCK),
    **dict.fromkeys(words("USER CURRENT_USER SESSION_USER CURRENT_DATABASE CURRENT_CATALOG"), _NO_CLOCK),
    "AS": ("AS is not allowed here", "an alias stands at the end of a selected column only"),
    "ESCAPE": ("ESCAPE is not allowed", "escape with a backslash, or use RLIKE"),
    "COLLATE": ("COLLATE is not allowed", "compare lower(x), or set the column's collation before the join"),
    "INTERVAL": ("not an interval", "write INTERVAL 5 MINUTES or INTERVAL 1 DAY 2 HOURS"),
    "LAMBDA": _NO_LAMBDA,
}
REFUSED_SYMBOLS: Final = {
    "*": ("a star is not allowed here", "name the columns one by one"),
    "->": _NO_LAMBDA,
    "=>": ("arguments have no names here", "give the arguments in order"),
    "+": ("a plus sign before a value is not allowed", "leave it out"),
}

# Functions about which we can say more than that they are not on the list.
_READS_CLOCK: Final = "reads the clock"
_REFUSED_FUNCTIONS: Final = {
    _READS_CLOCK: "now curdate",
    "gives another value each time": "rand random randn randstr uniform uuid shuffle monotonically_increasing_id",
    "depends on where the row is": "input_file_name input_file_block_start input_file_block_length"
    " spark_partition_id version current_schema current_timezone",
    "runs code or fails on purpose": "java_method reflect try_reflect assert_true raise_error",
    "is an aggregate: a predicate sees one row of each input": "count sum avg mean min max first last any_value"
    " collect_list collect_set stddev variance every bool_and bool_or approx_count_distinct percentile median mode"
    " max_by min_by corr listagg string_agg",
    "is a window function: a predicate sees one row of each input": "row_number rank dense_rank percent_rank cume_dist"
    " ntile lag lead nth_value window session_window",
    "makes rows or needs more than scalars": "explode explode_outer posexplode inline stack json_tuple sequence",
    "takes a lambda function": "transform forall aggregate reduce zip_with map_filter transform_keys",
}


def is_known(name: str) -> bool:
    return name in FUNCTIONS or name in CAST_FUNCTIONS or name in OPERATORS


def refusal(name: str) -> tuple[str, str]:
    """Why a function is refused, and what to do instead."""
    for reason, names in _REFUSED_FUNCTIONS.items():
        if name in names.split():
            return _not_allowed(name, reason), _LATER
    guess = did_you_mean(name, [*FUNCTIONS, *CAST_FUNCTIONS, *OPERATORS]).replace("? ", "()?")
    problem = _not_allowed(brief(name), "is not one of the scalar functions that a predicate may use")
    return problem, guess or _LATER


def _not_allowed(name: str, reason: str) -> str:
    return f"{name}() is not allowed: it {reason}"


def arity_problem(name: str, found: int) -> str:
    function = FUNCTIONS[name]
    if name == "unix_timestamp" and found == 0:
        return _not_allowed(name, _READS_CLOCK)
    most = "" if function.most in (function.least, MANY) else f" to {function.most}"
    more = " or more" if function.most == MANY else ""
    plural = "" if (function.least, function.most) == (1, 1) else "s"
    return f"{name}() takes {function.least}{most}{more} argument{plural}, got {found}"


def misfit(name: str, args: tuple[Expression, ...]) -> Expression | None:
    """The first argument of a vector function that is certainly no vector: Spark casts none, not even doubles."""
    if not name.startswith("vector_"):
        return None
    return next((arg for arg in args if arg.type not in (VECTOR, UNKNOWN)), None)
