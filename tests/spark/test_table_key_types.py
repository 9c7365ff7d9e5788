"""Keys of tables, of every type and of two types at once, against Spark's own batch join of the same rows."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import functions as F

from tests.spark.shop import join, table, together
from watersmeet.testing import assert_same_rows

NAN = float("nan")
UTC = dt.timezone.utc

PREFIX = "the same beginning of every text, longer than any word; "
DAYS = [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
HOURS = [dt.datetime(1969, 12, 31), dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)]
FLOATS = [0.0, -0.0, NAN, 1.5, 0.1, float("inf"), -float("inf"), -2.5]


@dataclass(frozen=True)
class Kind:
    """A key: its type in the stream and in the table, and the values there."""

    stream: str
    table: str
    stream_values: list[Any]
    table_values: list[Any]


def same(kind: str, *values: Any) -> Kind:
    return Kind(kind, kind, [*values, None], [*values, None, values[0]])


def zoned(times: list[dt.datetime]) -> list[dt.datetime]:
    return [time.replace(tzinfo=UTC) for time in times]


KINDS = [
    same("tinyint", 1, -1, 127, -128),
    Kind("int", "bigint", [1, -1, 2**31 - 1, 0, None], [1, -1, 2**31 - 1, 2**40, None, -(2**63)]),
    Kind("bigint", "smallint", [1, -1, 2**40, 65_537, None], [1, -1, 32_767, None]),
    Kind("string", "int", ["1", "02", " -3", None], [1, 2, -3, None]),
    same("double", *FLOATS),
    Kind("float", "double", [*FLOATS, None], [*FLOATS, 16_777_217.0, None]),
    Kind("double", "float", [*FLOATS, 16_777_217.0, None], [*FLOATS, 16_777_216.0, None]),
    Kind("int", "double", [0, 1, 2**31 - 1, None], [0.0, -0.0, 1.0, 1.5, 2.0**31 - 1, NAN, None]),
    same("decimal(10,2)", Decimal("1.10"), Decimal("-1.10"), Decimal("0")),
    Kind(
        "decimal(10,2)",
        "decimal(22,4)",
        [Decimal("1.1"), Decimal("2"), None],
        [Decimal("1.1"), Decimal("2.0001"), Decimal("2"), None],
    ),
    same("decimal(38,10)", Decimal("1.1"), Decimal("2" + "0" * 20), Decimal("-1.1"), Decimal("1.1000000001")),
    same("boolean", True, False),
    same(
        "string",
        "",
        "a",
        "A",
        "ä",
        "a\x00b",
        *(f"{PREFIX}{n}" for n in range(9)),
        PREFIX,
        "\U0001f600",
        "\uffff",
    ),
    same(
        "binary", b"", b"a", b"\x00", b"\x00\x00", b"\xff", *(PREFIX.encode() + bytes([n]) for n in range(9))
    ),
    same("date", *DAYS),
    same("timestamp", *zoned(HOURS)),
    same("timestamp_ntz", *HOURS),
    Kind("date", "timestamp_ntz", [*DAYS[1:], None], [*HOURS, None]),
]
# Numbers of kinds, in the order of the table's key.
COMPOSITE = [(12, 4), (10, 14, 0), (15, 13), (11, 12)]


def values_at(values: list[Any], number: int, place: int) -> Any:
    """Columns of different lengths turn at different speeds, so that composite keys meet in many ways."""
    return values[(number + number // len(values) * (place % 3)) % len(values)]


def test_keys_of_every_type_join_as_in_spark(spark, tmp_path):
    rows = 44
    s = spark.createDataFrame(
        [(n, *(values_at(kind.stream_values, n, at) for at, kind in enumerate(KINDS))) for n in range(rows)],
        ", ".join(["n int", *(f"k{at} {kind.stream}" for at, kind in enumerate(KINDS))]),
    ).coalesce(1)
    p = spark.createDataFrame(
        [(n, *(values_at(kind.table_values, n, at) for at, kind in enumerate(KINDS))) for n in range(rows)],
        ", ".join(["no int", *(f"k{at} {kind.table}" for at, kind in enumerate(KINDS))]),
    )
    p.coalesce(1).write.parquet(str(tmp_path / "table"))
    keys = [*((at,) for at in range(len(KINDS))), *COMPOSITE]
    pairs = {}
    wanted = {}
    for key in keys:
        name = "-".join(str(at) for at in key)
        on = " AND ".join(f"s.k{at} = p.k{at}" for at in key)
        pairs[name] = join(
            {"s": s, "p": table(tmp_path / "table", [f"k{at}" for at in key], page_rows=3, in_place=False)},
            on=on,
            how="left",
            select=["s.n", "p.no"],
            state=str(tmp_path / "state"),
            name=name,
            tasks=1,
        )
        wanted[name] = s.alias("s").join(p.alias("p"), F.expr(on), "left").select("s.n", "p.no")
    results, by_spark = together(pairs).collect(), together(wanted).collect()
    for key in keys:
        name = "-".join(str(at) for at in key)
        mine = [row for row in by_spark if row.case == name]
        assert any(row.no is not None for row in mine) and any(row.no is None for row in mine)
        try:
            assert_same_rows([row for row in results if row.case == name], mine)
        except AssertionError as error:
            raise AssertionError(f"{[KINDS[at] for at in key]}: {error}") from None
