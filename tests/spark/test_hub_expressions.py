"""Output columns of hub queries have the values and types of Spark, also at the edges of types."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import watersmeet as wm

I32, I64 = (1 << 31) - 1, (1 << 63) - 1
COLUMN = re.compile(r"\b(?=[a-gs]\b)")
NAN, INF = math.nan, math.inf
COLUMNS = "id int, a int, b bigint, s smallint, d double, f float, c string, e decimal(9,2), g boolean"
ROWS = [
    (1, I32, I64, 32767, 1e300, 3.25, "x", Decimal("1.25"), True),
    (2, -I32 - 1, -I64 - 1, -32768, -1e300, -0.5, "", Decimal("-9999999.99"), False),
    (3, 0, 0, 0, 0.0, 0.0, 'it\'s "é"\n', Decimal(0), None),
    (4, -1, -1, -1, -0.0, -0.0, "z", Decimal("0.01"), True),
    (5, 7, 1 << 53, 7, NAN, NAN, "x", Decimal("9999999.99"), False),
    (6, -7, 3, 100, INF, -INF, None, Decimal("-0.50"), True),
    (7, None, None, None, None, None, None, None, None),
    (8, 2, -I64, -2, 2147483647.9, 16777217.0, "x", Decimal("2.00"), False),
    (9, -2, I32 + 1, 1, -9.3e18, 0.1, "y", Decimal("3.33"), True),
]
# What a hub computes, and what Spark does instead where it would raise an error.
EXPRESSIONS = {
    "a + 1": "try_add(a, 1)",
    "b - 1": "try_subtract(b, 1)",
    "a * s": "try_multiply(a, s)",
    "b * a": "try_multiply(b, a)",
    "b * -1": "try_multiply(b, -1)",
    "-b": "try_subtract(0L, b)",
    "abs(a)": "if(a = -2147483648, null, abs(a))",
    "a / s": "try_divide(a, s)",
    "d / f": "try_divide(d, f)",
    "a % 7": "a % 7",
    "b % a": "try_mod(b, a)",
    "d % 2": "d % 2",
    "e * 1.5": "e * 1.5",
    "e + a": "e + a",
    "e - e": "e - e",
    "a * 1.25": "a * 1.25",
    "d * 0.1": "d * 0.1",
    "f + 0.1": "f + 0.1",
    "f + f": "f + f",
    "CAST(d AS int)": "try_cast(d AS int)",
    "CAST(d AS bigint)": "try_cast(d AS bigint)",
    "CAST(f AS smallint)": "try_cast(f AS smallint)",
    "CAST(b AS int)": "try_cast(b AS int)",
    "CAST(b AS double)": "CAST(b AS double)",
    "CAST(d AS float)": "CAST(d AS float)",
    "try_cast(a AS tinyint)": "try_cast(a AS tinyint)",
    "CAST(b AS string)": "CAST(b AS string)",
    "CAST(g AS string)": "CAST(g AS string)",
    "c || '!'": "c || '!'",
    "concat(c, c)": "concat(c, c)",
    "a <=> s": "a <=> s",
    "d <=> f": "d <=> f",
    "d > f": "d > f",
    "g AND a > 0": "g AND a > 0",
    "NOT g OR c IS NULL": "NOT g OR c IS NULL",
    "a IN (7, -1)": "a IN (7, -1)",
    "e >= 1.255": "e >= 1.255",
    "a BETWEEN s AND b": "a BETWEEN s AND b",
    "coalesce(a, s, 0)": "coalesce(a, s, 0)",
    "coalesce(c, 'none')": "coalesce(c, 'none')",
    "CASE WHEN a > 0 THEN a WHEN g THEN b END": "CASE WHEN a > 0 THEN a WHEN g THEN b END",
    "CASE c WHEN 'x' THEN 1 ELSE d END": "CASE c WHEN 'x' THEN 1 ELSE d END",
    "if(g, 'yes', 'no')": "if(g, 'yes', 'no')",
    "DATE '2026-01-31'": "DATE '2026-01-31'",
    "TIMESTAMP '2026-01-31 12:30:00Z'": "TIMESTAMP '2026-01-31 12:30:00Z'",
    "1.50": "1.50",
    "-2.5D": "-2.5D",
}


def test_output_columns_have_the_values_and_types_of_spark(spark, tmp_path):
    rows = spark.createDataFrame(ROWS, COLUMNS)
    rows.write.parquet(str(tmp_path / "r"))
    texts = {f"x{number}": text for number, text in enumerate(EXPRESSIONS)}
    # A hub wants every column with its input.
    named = [f"{COLUMN.sub('r.', text)} AS {name}" for name, text in texts.items()]
    shown = ", ".join(named)
    hub = wm.hub(
        {"r": spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "r"))},
        queries={
            "q": f"SELECT r.id, {shown} FROM r",
            "one": f"SELECT DISTINCT {shown} FROM r WHERE r.id = 1",
        },
        state=str(tmp_path / "state"),
    )
    query = (
        hub.answers()
        .writeStream.foreachBatch(hub.deliver(str(tmp_path / "out")))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = hub.read("q", str(tmp_path / "out")).drop("batch", "oldest", "newest").orderBy("id")
    expected = rows.selectExpr(
        "id", *(f"{text} AS x{number}" for number, text in enumerate(EXPRESSIONS.values()))
    ).orderBy("id")
    texts_of = dict(zip(texts, EXPRESSIONS, strict=True))
    assert {texts_of.get(name): kind for name, kind in found.dtypes} == {
        texts_of.get(name): kind for name, kind in expected.dtypes
    }
    for one, other in zip(found.collect(), expected.collect(), strict=True):
        for name, text in texts.items():
            assert repr(one[name]) == repr(other[name]), (one["id"], text)
    assert hub.read("one", str(tmp_path / "out")).count() == 1
