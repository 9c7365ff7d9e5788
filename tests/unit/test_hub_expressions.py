"""What a hub computes for its output columns: values at the edges of types, and nothing that depends on the session."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from tests.property.hub_helpers import MemoryHub
from watersmeet.hubs.catalogue import ADD, Command
from watersmeet.hubs.expressions import compute, from_text, to_text
from watersmeet.hubs.templates import TemplateReader
from watersmeet.kernel.evaluate import arrow_type
from watersmeet.model.expression import columns_of
from watersmeet.model.types import parse_type

KINDS = {"a": "int", "b": "bigint", "s": "tinyint", "d": "double", "c": "string", "e": "decimal(9,2)"}
SCHEMAS = {"R": {name: parse_type(kind) for name, kind in KINDS.items()}}
I8, I32, I64 = 127, (1 << 31) - 1, (1 << 63) - 1


def values_of(text: str, **columns: list) -> list:
    query = TemplateReader(SCHEMAS).read(f"SELECT {text} AS x FROM R")
    (item,) = query.template.items
    assert item.expression is not None
    expression = from_text(to_text(item.expression))
    rows = len(next(iter(columns.values())))
    values = {}
    for one in columns_of(expression):
        given = [query.constants[int(one.name)]] * rows if one.input == "?" else columns[one.name]
        array = pa.array(given)
        values[one] = array.cast(arrow_type(one.type)) if array.type != arrow_type(one.type) else array
    found = compute(expression, values, rows)
    assert found.type == arrow_type(expression.type)
    return found.to_pylist()


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("R.a + 1", {"a": [1, I32, None]}, [2, None, None]),
        ("R.b - 1", {"b": [0, -I64 - 1, -I64]}, [-1, None, -I64 - 1]),
        ("R.b + R.b", {"b": [I64, -I64, 1 << 61, -(1 << 62)]}, [None, None, 1 << 62, -I64 - 1]),
        ("R.b * 3", {"b": [I64 // 3, I64 // 3 + 1, -5]}, [I64 // 3 * 3, None, -15]),
        ("R.b * -1", {"b": [-I64 - 1, -I64, 0]}, [None, I64, 0]),
        ("-1 * R.b", {"b": [-I64 - 1, -I64, 0]}, [None, I64, 0]),
        ("-R.s", {"s": [-I8 - 1, I8, None]}, [None, -I8, None]),
        ("abs(R.b)", {"b": [-I64 - 1, -3]}, [None, 3]),
        ("R.a / 0", {"a": [1, 0]}, [None, None]),
        ("R.a % 0", {"a": [1, 0]}, [None, None]),
        ("R.a % R.s", {"a": [-7, 7, -I32 - 1], "s": [2, -2, -1]}, [-1, 1, 0]),
        ("CAST(R.d AS int)", {"d": [1.9, -1.9, 3e9, float("nan"), None]}, [1, -1, None, None, None]),
        ("CAST(R.d AS bigint)", {"d": [2.0**63, -(2.0**63), 1e300]}, [None, -I64 - 1, None]),
        ("CAST(R.b AS tinyint)", {"b": [127, 128, -128, -129]}, [127, None, -128, None]),
        ("CASE WHEN R.a > 1 THEN R.a * 2 ELSE R.s END", {"a": [2, I32, None], "s": [1, 1, 1]}, [4, None, 1]),
        ("R.e * -1.5", {"e": [Decimal("0.10"), None]}, [Decimal("-0.150"), None]),
        ("-R.e", {"e": [Decimal("0.10"), None]}, [Decimal("-0.10"), None]),
        ("R.d * -0.1", {"d": [1.0, None]}, [-0.1, None]),
        ("R.c || 'x' <=> R.c", {"c": ["a", None]}, [False, True]),
        ("coalesce(R.s, R.a, 7)", {"s": [1, None, None], "a": [5, 5, None]}, [1, 5, 7]),
    ],
)
def test_what_leaves_its_type_is_null_and_stops_nothing(text, columns, expected):
    assert values_of(text, **columns) == expected


def test_expressions_of_many_queries_are_computed_by_shape(monkeypatch):
    """Not by query, and not by template: the number of evaluations must not grow with them."""
    calls = []
    hub = MemoryHub(1000)
    hub.batch(
        {name: [] for name in ("R", "S", "P")},
        [
            Command(ADD, f"q{n}", f"SELECT R.{'ab'[n % 2]} + {n} AS x{n % 5}, R.c || '{n}' AS y FROM R")
            for n in range(100)
        ],
    )

    def counted(expression, values, rows):
        calls.append(rows)
        return compute(expression, values, rows)

    monkeypatch.setattr("watersmeet.hubs.outputs.compute", counted)
    row = (1, 2, "x", 0.5, 0.5, None)
    found, _ = hub.batch({"R": [row] * 3, "S": [], "P": []})
    assert found.total() == 300
    assert sorted(calls) == [150, 150, 300]
    assert found["q7", 1, '{"x2": 9.0, "y": "x7"}'] == 3
