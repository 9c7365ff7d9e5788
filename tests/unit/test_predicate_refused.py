"""What must never pass: hostile, malformed and unsupported predicates, each refused quickly and in words.

Each case gives the text, a word that the message must contain, and, where it matters, the place of the caret.
"""

from __future__ import annotations

import logging
import time

import pytest

from watersmeet.errors import PredicateError, UsageError
from watersmeet.model.types import Schema, parse_type
from watersmeet.predicate import parse_predicate

# Well under the second that the design allows, with room for a busy machine.
MAX_SECONDS = 0.5


def schema(**columns: str) -> Schema:
    return {name: parse_type(type_) for name, type_ in columns.items()}


LEFT = schema(
    k="int", a="bigint", s="string", d="date", ts="timestamp", flag="boolean", x="double", b="binary",
    st="struct<f:int,g:string>", arr="array<int>", mp="map<string,int>", big="decimal(38,10)", v="variant",
)  # fmt: skip
RIGHT = schema(
    k="int", a="bigint", s="string", d="date", ts="timestamp", flag="boolean", x="double",
    st="struct<f:int,g:string,h:int>", arr="array<int>", mp="map<string,int>", big="decimal(38,0)", v="variant",
)  # fmt: skip
SCHEMAS = {"l": LEFT, "r": RIGHT}

CODE = {
    "python import": ("__import__('os').system('x')", "__import__"),
    "python exec": ("exec('import os')", "exec"),
    "python eval": ("eval('1')", "eval"),
    "python open": ("open('/etc/passwd')", "open"),
    "python attribute": ("l.__class__ = 1", "not a column"),
    "python lambda": ("(lambda x: x)(1)", ":"),
    "python comparison chain": ("1 < l.k < 3", "brackets"),
    "python and not": ("l.k == r.k and not", "ends too early"),
    "python f-string": ("f'{l.k}' = r.s", "operator is missing"),
    "python format": ("'%s' % l.k = 'x' % 1 % ", "ends too early"),
    "python walrus": ("(x := 1) = 1", ":"),
    "python dict": ("{'a': 1} = 1", "parameters"),
    "python list": ("[l.k] = [r.k]", "expected a value"),
    "python power": ("l.k ** 2 = r.k", "star"),
    "python comment": ("l.k = r.k # x", "#"),
    "python backslash": ("l.k = \\ r.k", "\\"),
    "shell substitution": ("$(rm -rf /)", "parameters"),
    "jvm reflection": ("reflect('java.lang.Runtime', 'getRuntime') = 'x'", "reflect"),
    "java method": ("java_method('java.util.UUID', 'randomUUID') = l.s", "java_method"),
    "try reflect": ("try_reflect('a', 'b') = l.s", "try_reflect"),
    "user function": ("my_udf(l.k) = r.k", "my_udf"),
    "qualified user function": ("db.my_udf(l.k) = r.k", "not a function"),
    "function of an input": ("l.k(1) = r.k", "not a function"),
    "quoted function": ("`abs`(l.k) = r.k", "not a function"),
    "raise error": ("raise_error('x') = 1", "raise_error"),
    "assert true": ("assert_true(false) IS NULL", "assert_true"),
}
INJECTION = {
    "second statement": ("l.k = r.k; DROP TABLE t", "semicolon"),
    "semicolon at the end": ("l.k = r.k;", "semicolon"),
    "line comment": ("l.k = r.k -- AND false", "comment"),
    "line comment after quote": ("l.s = 'x' OR 1=1 --", "comment"),
    "block comment": ("l.k /* x */ = r.k", "comment"),
    "block comment unclosed": ("l.k = r.k /*", "comment"),
    "hint": ("/*+ BROADCAST(l) */ l.k = r.k", "comment"),
    "union": ("l.k = r.k UNION SELECT 1", "queries"),
    "or one is one": ("l.s = '' OR '1'='1", "not closed"),
    "stacked quotes": ("l.s = ''' OR 1=1", "not closed"),
    "parameter": ("l.k = ?", "parameter"),
    "named parameter": ("l.k = :k", "':'"),
    "dollar parameter": ("l.k = $1", "parameter"),
    "at parameter": ("l.k = @x", "parameter"),
    "widget": ("l.k = ${env.HOME}", "parameter"),
    "template": ("l.k = {{ k }}", "parameter"),
    "statement drop": ("DROP TABLE users", "statement"),
    "statement create": ("CREATE TABLE t AS SELECT 1", "statement"),
    "statement insert": ("INSERT INTO t VALUES (1)", "statement"),
    "statement set": ("SET spark.sql.ansi.enabled = false", "statement"),
    "statement add jar": ("ADD JAR '/tmp/x.jar'", "statement"),
    "statement delete": ("DELETE FROM l", "statement"),
    "statement show": ("SHOW TABLES", "statement"),
    "statement use": ("USE other", "statement"),
    "statement truncate": ("TRUNCATE TABLE t", "statement"),
    "statement begin": ("BEGIN l.k = r.k END", "statement"),
    "select": ("SELECT l.k = r.k", "queries"),
    "where": ("WHERE l.k = r.k", "queries"),
    "limit": ("l.k = r.k LIMIT 1", "queries"),
    "order by": ("l.k = r.k ORDER BY l.k", "queries"),
    "with": ("WITH x AS (SELECT 1) SELECT 1", "queries"),
    "values": ("VALUES (1)", "queries"),
}
QUERIES = {
    "scalar subquery": ("l.k = (SELECT max(k) FROM t)", "queries"),
    "in subquery": ("l.k IN (SELECT k FROM t)", "queries"),
    "exists": ("EXISTS (SELECT 1)", "queries"),
    "not exists": ("NOT EXISTS (SELECT 1 FROM t)", "queries"),
    "any": ("l.k = ANY (SELECT 1)", "queries"),
    "all": ("l.k > ALL (SELECT 1)", "queries"),
    "like any": ("l.s LIKE ANY ('a', 'b')", "queries"),
    "lateral": ("LATERAL VIEW explode(l.arr)", "queries"),
    "table function": ("range(10) = 1", "windows"),
    "read parquet": ("read_parquet('/etc/x') = 1", "read_parquet"),
    "read csv": ("read_csv('/etc/passwd') = 1", "read_csv"),
    "read files": ("read_files('s3://x') = 1", "read_files"),
    "file as a table": ("parquet.`/etc/x`.k = l.k", "not an input"),
    "load file": ("load_file('/etc/passwd') = l.s", "load_file"),
    "http get": ("http_get('http://x') = l.s", "http_get"),
    "from json": ("from_json(l.s, 'a int').a = 1", "from_json"),
    "window": ("row_number() OVER (ORDER BY l.k) = 1", "window"),
    "over": ("abs(l.k) OVER (PARTITION BY l.a) = 1", "windows"),
    "lag": ("lag(l.k) = r.k", "window"),
    "count star": ("count(*) > 1", "aggregate"),
    "sum": ("sum(l.k) > r.k", "aggregate"),
    "max": ("max(l.k) = r.k", "aggregate"),
    "count distinct": ("count(DISTINCT l.k) = 1", "aggregate"),
    "distinct argument": ("abs(DISTINCT l.k) = 1", "queries"),
    "filter clause": ("abs(l.k) FILTER (WHERE true) = 1", "aggregates"),
    "explode": ("explode(l.arr) = r.k", "explode"),
    "lambda": ("exists(l.arr, x -> x > 1)", "queries"),
    "transform": ("transform(l.arr, x -> x + 1) = r.arr", "lambda"),
    "arrow alone": ("abs(x -> x) = 1", "not allowed here"),
    "named argument": ("abs(expr => l.k) = 1", "not allowed here"),
    "star": ("l.* = r.*", "star"),
    "bare star": ("* = 1", "star"),
    "star argument": ("hash(*) = 1", "star"),
    "tablesample": ("l.k = r.k TABLESAMPLE (1 ROWS)", "tablesample"),
}
CHANGING = {
    "rand": ("rand() < 0.5", "rand"),
    "randn": ("randn(1) < l.x", "randn"),
    "uuid": ("uuid() = l.s", "uuid"),
    "shuffle": ("shuffle(l.arr) = r.arr", "shuffle"),
    "now": ("l.ts < now()", "clock"),
    "current timestamp": ("l.ts < current_timestamp()", "clock"),
    "current timestamp without brackets": ("l.ts < current_timestamp", "clock"),
    "current date": ("l.d = CURRENT_DATE", "clock"),
    "current user": ("l.s = current_user()", "clock"),
    "unix timestamp without argument": ("l.a < unix_timestamp()", "clock"),
    "input file": ("input_file_name() = l.s", "input_file_name"),
    "partition id": ("spark_partition_id() = l.k", "spark_partition_id"),
    "increasing id": ("monotonically_increasing_id() = l.a", "monotonically_increasing_id"),
    "timestamp now": ("l.ts < TIMESTAMP 'now'", "not a timestamp"),
    "date today": ("l.d = DATE 'today'", "not a date"),
    "text now beside a timestamp": ("l.ts < 'now'", "clock"),
    "text today beside a date": ("l.d IN ('2026-01-01', ' Today ')", "clock"),
    "text tomorrow between": ("l.d BETWEEN '2026-01-01' AND 'tomorrow'", "clock"),
    "cast now": ("l.ts < CAST('now' AS timestamp)", "clock"),
    "cast of constant text": ("l.d = CAST(concat('to', 'day') AS date)", "clock"),
    "to_date today": ("l.d = to_date('yesterday')", "clock"),
    "function of now": ("year('now') = l.k", "clock"),
    "time of day alone": ("l.ts < TIMESTAMP '12:30:00'", "not a timestamp"),
    "text time of day": ("l.ts < '12:30:00'", "clock"),
    "coalesce with now": ("coalesce(l.ts, 'now') = r.ts", "clock"),
}
MALFORMED = {
    "empty": ("", "empty"),
    "blank": (" \t\n", "empty"),
    "nul": ("l.k = r.k\0", "NUL"),
    "surrogate": ("l.s = '\ud800'", "surrogate"),
    "escaped surrogate": (r"l.s = '\ud800'", "surrogate"),
    "no such character": (r"l.s = '\UFFFFFFFF'", "no character"),
    "unclosed string": ("l.s = 'abc", "not closed"),
    "unclosed double quote": ('l.s = "abc', "not closed"),
    "unclosed name": ("l.`k = r.k", "not closed"),
    "backslash before the end": ("l.s = 'abc\\'", "not closed"),
    "unclosed bracket": ("(l.k = r.k", "never closed"),
    "unopened bracket": ("l.k = r.k)", "closes nothing"),
    "wrong bracket": ("abs(l.k] = r.k", "closes nothing"),
    "unclosed call": ("abs(l.k = r.k", "this abs( is never closed"),
    "two ampersands": ("l.k = r.k && l.flag", "write AND"),
    "unclosed index": ("l.arr[0 = 1", "never closed"),
    "unclosed case": ("CASE WHEN l.flag THEN 1", "never closed"),
    "case without when": ("CASE l.k END = 1", "END"),
    "case without then": ("CASE WHEN l.flag ELSE 1 END = 1", "ELSE"),
    "empty case": ("CASE END", "END"),
    "else twice": ("CASE WHEN l.flag THEN 1 ELSE 2 ELSE 3 END = 1", "ELSE"),
    "operator first": ("= r.k", "expected a value"),
    "operator last": ("l.k =", "ends too early"),
    "two operators": ("l.k = = r.k", "expected a value"),
    "two values": ("l.k r.k", "operator is missing"),
    "two strings and a name": ("'a' 'b' l.k", "operator is missing"),
    "and last": ("l.k = r.k AND", "ends too early"),
    "only not": ("NOT", "ends too early"),
    "empty list": ("l.k IN ()", "expected a value"),
    "gap in a list": ("l.k IN (1,,2)", "expected a value"),
    "comma at the end": ("l.k IN (1,)", "expected a value"),
    "comma at the end of arguments": ("greatest(l.k,) = 1", "expected a value"),
    "in without brackets": ("l.k IN 1, 2", "list"),
    "in square brackets": ("l.k IN [1, 2]", "list"),
    "row constructor": ("(l.k, l.a) = (r.k, r.a)", "list"),
    "between without and": ("l.k BETWEEN 1", "BETWEEN"),
    "between with or": ("l.k BETWEEN 1 OR 2", "BETWEEN"),
    "between values": ("l.k BETWEEN 1 2", "operator is missing"),
    "is something": ("l.k IS 5", "IS needs"),
    "is nothing": ("l.k IS", "IS needs"),
    "not in the middle": ("l.flag = NOT r.flag", "brackets"),
    "not after between": ("l.flag BETWEEN l.flag AND NOT r.flag", "brackets"),
    "postfix not": ("l.k NOT NULL", "not allowed here"),
    "comparison of a comparison": ("l.k = r.k = true", "brackets"),
    "is after a comparison": ("l.k = r.k IS NULL", "brackets"),
    "comparison after between": ("l.k BETWEEN 1 AND 2 = true", "brackets"),
    "concatenation and plus": ("l.s || 'x' + 'y' = r.s", "brackets"),
    "unary plus": ("l.k = + r.k", "plus"),
    "empty brackets": ("()", "expected a value"),
    "as": ("l.k = r.k AS x", "AS"),
    "escape": ("l.s LIKE 'a!%' ESCAPE '!'", "ESCAPE"),
    "collate": ("l.s COLLATE UNICODE = r.s", "COLLATE"),
    "double colon": ("l.k::string = r.s", "CAST"),
    "json path": ("l.v:a = 1", "':'"),
    "bitwise and": ("l.k & 1 = 1", "bitwise"),
    "bitwise or": ("l.k | 1 = 1", "bitwise"),
    "bitwise not": ("~l.k = 1", "bitwise"),
    "shift": ("l.k << 1 = 2", "expected a value"),
    "national string": ("l.s = N'x'", "operator is missing"),
    "name that begins with a digit": ("l.1a = 1", "backticks"),
    "number and letters": ("l.k = 12abc", "neither"),
    "two points": ("l.k = 1.2.3", "operator is missing"),
    "integral with a fraction": ("l.k = 1.5L", "bigint"),
    "too large for its suffix": ("l.k = 300Y", "tinyint"),
    "too large for a double": ("l.x = 1e400", "range"),
    "enormous exponent": ("l.x = 1e999999999", "exponent"),
    "too many digits": ("l.k = " + "9" * 39, "39 digits"),
    "bad hexadecimal": ("l.b = X'1G'", "hexadecimal"),
    "bad date": ("l.d = DATE '2026-02-30'", "day"),
    "bad timestamp": ("l.ts = TIMESTAMP '2026-01-31 25:00:00'", "hour"),
    "region in a timestamp": ("l.ts = TIMESTAMP '2026-01-31 12:00:00 Europe/Zurich'", "offset"),
    "offset out of range": ("l.ts = TIMESTAMP '2026-01-31 12:00:00+19:00'", "offset"),
    "bad unit": ("l.ts > r.ts - INTERVAL 5 FORTNIGHTS", "interval"),
    "bad interval text": ("l.ts > r.ts - INTERVAL '5 fortnights'", "fortnights"),
    "months and days": ("l.ts > r.ts - INTERVAL 1 MONTH 1 DAY", "mix"),
    "interval of a column": ("l.ts > r.ts - INTERVAL l.k DAYS", "interval"),
    "endless interval": ("l.ts > r.ts - INTERVAL 999999999999999999 DAYS", "too long"),
    "cast without type": ("CAST(l.k) = r.k", "type"),
    "cast to nothing": ("CAST(l.k AS) = r.k", "cast"),
    "cast to a struct": ("CAST(l.st AS struct<a:int>) = r.st", "struct"),
    "cast to an unknown type": ("CAST(l.k AS money) = r.k", "money"),
    "cast to too many digits": ("CAST(l.k AS decimal(39,0)) = r.k", "38"),
    "cast with a comma": ("CAST(l.k, 'int') = r.k", "type"),
    "too few arguments": ("substring(l.s) = r.s", "2 to 3 arguments, got 1"),
    "too many arguments": ("abs(l.k, 1) = r.k", "1 argument, got 2"),
    "special syntax of trim": ("trim(BOTH 'x' FROM l.s) = r.s", "operator is missing"),
    "special syntax of extract": ("extract(YEAR FROM l.d) = 1", "extract"),
    "alias in an argument": ("abs(l.k AS x) = 1", "AS"),
}
UNICODE = {
    "homoglyph": ("l.ｋ = r.k", "outside quotes"),
    "full width bracket": ("（l.k = r.k", "outside quotes"),
    "zero width space": ("l.k =\u200b r.k", "U+200B"),
    "no-break space": ("l.k\u00a0= r.k", "U+00A0"),
    "right to left override": ("l.k = \u202er.k", "U+202E"),
    "curly quotes": ("l.s = \u2018x\u2019", "outside quotes"),
    "cyrillic input": ("\u0433.k = l.k", "outside quotes"),
    "emoji": ("l.k = 😀", "😀"),
    "byte order mark": ("\ufeffl.k = r.k", "U+FEFF"),
    "control character": ("l.k = \x07 r.k", "U+0007"),
    "vertical tab": ("l.k =\x0br.k", "U+000B"),
    "other digits": ("l.k = \u0661", "outside quotes"),
    "dotless i": ("l.k \u0131n (1)", "outside quotes"),
}
NAMES = {
    "unqualified": ("k = r.k", "write l.k or r.k"),
    "unqualified and unknown": ("nope = r.k", "no input before it"),
    "whole row": ("l = r", "whole row"),
    "whole row in a function": ("hash(l) = 1", "whole row"),
    "whole row is null": ("r IS NULL", "whole row"),
    "both parts in one quote": ("`l.k` = r.k", "no input before it"),
    "unknown input": ("x.k = r.k", "the inputs are l, r"),
    "unknown column": ("l.keey = r.k", "not a column of l"),
    "unknown field": ("l.st.ff = 1", "did you mean f"),
    "field of a number": ("l.k.x = 1", "no fields"),
    "field of an array": ("l.arr.x = 1", "element"),
    "field of a map": ("l.mp.x = 1", "l.tags['name']"),
    "keyword as a column": ("date = l.d", "no input before it"),
    "system name": ("system.builtin.abs(l.k) = 1", "not a function"),
    "catalog": ("spark_catalog.default.l.k = 1", "not an input"),
    "metadata column": ("l._metadata.file_path = 'x'", "not a column of l"),
    "outer reference": ("outer.k = l.k", "not an input"),
}
TYPES = {
    "boolean with date": ("l.flag = r.d", "boolean (l.flag) with date (r.d)"),
    "number with date": ("l.k < r.d", "int (l.k) with date (r.d)"),
    "struct with number": ("l.st = r.k", "struct<f:int,g:string> (l.st) with int (r.k)"),
    "array with text": ("l.arr = r.s", "array<int> (l.arr) with string (r.s)"),
    "boolean with number": ("l.flag = 1", "boolean (l.flag) with int (1)"),
    "in a list": ("l.k IN (1, DATE '2026-01-31')", "date"),
    "between": ("l.k BETWEEN DATE '2026-01-31' AND 3", "date"),
    "maps": ("l.mp = r.mp", "cannot compare or join on map"),
    "variants": ("l.v = r.v", "variant"),
    "number alone": ("l.k + r.k", "not a condition"),
    "literal alone": ("1", "not a condition"),
    "date as a condition": ("l.k = r.k AND l.d", "date (l.d) is not a condition"),
    "text as a condition": ("l.s AND l.flag", "string (l.s) is not a condition"),
    "null alone": ("(NULL)", "NULL is not a condition"),
    "not of a number": ("NOT l.k", "not a condition"),
    "when of a number": ("CASE WHEN l.k THEN true END", "not a condition"),
    "array as a number": ("l.arr + 1 = 2", "+ does not work"),
    "product of dates": ("l.d * 2 = r.d", "* does not work"),
    "minus boolean": ("- l.flag = 1", "does not work"),
    "div of doubles": ("l.x div 2 = 1", "div does not work"),
    "element of a number": ("l.k[0] = 1", "no elements"),
    "element of a struct": ("l.st['f'] = 1", ".field"),
    "decimals too wide": ("l.big = r.big", "cast one side"),
    "structs of other shape": ("l.st = r.st", "cast one side"),
    "is true of a number": ("l.k IS TRUE", "cannot compare"),
}
LARGE = {
    "a million letters": ("x" * 1_000_000, "too long"),
    "a hundred thousand conjuncts": (" AND ".join(["l.k = r.k"] * 100_000), "too long"),
    "many small pieces": ("1," * 20_000, "too long"),
    "thousands of brackets": ("(" * 3_000 + "l.k = r.k" + ")" * 3_000, "deeply"),
    "unclosed brackets": ("(" * 7_000, "deeply"),
    "thousands of functions": ("abs(" * 2_000 + "l.k" + ")" * 2_000 + " = 1", "deeply"),
    "thousands of nots": ("NOT " * 5_000 + "l.flag", "deeply"),
    "thousands of bangs": ("!" * 5_000 + "l.flag", "deeply"),
    "thousands of signs": ("- " * 5_000 + "l.k = 1", "deeply"),
    "thousands of casts": ("CAST(" * 1_000 + "l.k" + " AS int)" * 1_000 + " = 1", "deeply"),
    "thousands of cases": ("CASE WHEN " * 3_000, "deeply"),
    "thousands of indexes": ("l.arr" + "[0]" * 2_000 + " = 1", "deeply"),
    "thousands of terms": ("+".join(["l.k"] * 1_500) + " = 1", "in a row"),
    "thousands of factors": ("*".join(["l.k"] * 1_500) + " = 1", "in a row"),
    "thousands of concatenations": ("||".join(["l.s"] * 1_500) + " = ''", "in a row"),
    "thousands of fields": (".".join(["l"] * 3_000) + " = 1", "not a column"),
    "thousands of quotes": ("'" * 50_001, "not closed"),
    "thousands of backslashes": ("'" + "\\" * 50_001, "not closed"),
    "thousands of backticks": ("`" * 50_001, "not closed"),
    "a name of thousands of letters": ("l." + "k" * 50_000 + " = 1", "not a column"),
    "a function of thousands of letters": ("f" * 50_000 + "(1) = 1", "not allowed"),
    "a string of thousands of letters": (
        "l.d = '" + "x" * 50_000 + "' AND l.flag = DATE '" + "x" * 9_000 + "'",
        "date",
    ),
    "thousands of digits": ("l.k = " + "1" * 50_000, "digits"),
    "thousands of zeros in an exponent": ("l.x = 1e" + "0" * 50_000 + "1", "exponent"),
    "huge interval": ("l.ts > INTERVAL " + "1 DAY " * 2_000, "cannot compare"),
    "nested repetition": (
        "CASE " * 6 + "l.k" + " WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END" * 6 + " = 1",
        "too large",
    ),
}

GROUPS = {
    "code": CODE, "injection": INJECTION, "queries": QUERIES, "changing": CHANGING, "malformed": MALFORMED,
    "unicode": UNICODE, "names": NAMES, "types": TYPES, "large": LARGE,
}  # fmt: skip
CASES = [
    pytest.param(text, word, id=f"{group}: {name}")
    for group, cases in GROUPS.items()
    for name, (text, word) in cases.items()
]


@pytest.mark.parametrize("text, word", CASES)
def test_is_refused_quickly_and_in_words(
    text: str, word: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.thread_time()
    with caplog.at_level(logging.DEBUG), pytest.raises(PredicateError) as caught:
        parse_predicate(text, SCHEMAS)
    assert time.thread_time() - start < MAX_SECONDS
    assert word in str(caught.value)
    assert len(str(caught.value)) < 2_000
    assert caught.value.__cause__ is None
    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 200


@pytest.mark.parametrize("text", [None, 5, b"l.k = r.k", ["l.k = r.k"], True, object()])
def test_only_text_is_read(text: object) -> None:
    with pytest.raises(PredicateError, match="expected Spark SQL text"):
        parse_predicate(text, SCHEMAS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schemas",
    [{}, {"l": LEFT}, {"l": LEFT, "L": RIGHT}, [LEFT, RIGHT], None],
    ids=["none", "one", "letter case", "a list", "nothing"],
)
def test_there_are_inputs_with_names_of_their_own(schemas: object) -> None:
    with pytest.raises(UsageError, match="input"):
        parse_predicate("l.k = r.k", schemas)  # type: ignore[arg-type]


def test_a_deep_caller_gets_a_refusal_and_no_recursion_error() -> None:
    def call(depth: int) -> None:
        if depth:
            call(depth - 1)
        else:
            parse_predicate("abs(" * 20 + "l.k" + ")" * 20 + " = r.k", SCHEMAS)

    with pytest.raises(PredicateError, match="deeply"):
        call(750)
