"""Compare results as multisets: order does not count, repetition does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

# Differing rows that are printed; the rest is only counted.
_SHOWN_ROWS = 10


def row_difference(actual: Iterable[Any], expected: Iterable[Any]) -> tuple[Counter[Any], Counter[Any]]:
    """Rows that are missing from `actual`, and rows that it has too often, with their counts.

    Rows may be tuples, lists, dicts or Spark rows; NaN equals NaN and -0.0 equals 0.0, as in SQL.

    >>> row_difference([(1,), (1,)], [(1,), (2,)])
    (Counter({(2,): 1}), Counter({(1,): 1}))
    """
    have, want = Counter(map(_canonical, actual)), Counter(map(_canonical, expected))
    return want - have, have - want


def assert_same_rows(actual: Iterable[Any], expected: Iterable[Any]) -> None:
    """Fail with the missing and the surplus rows unless both hold the same rows equally often."""
    missing, surplus = row_difference(actual, expected)
    if missing or surplus:
        raise AssertionError("\n".join([*_describe("missing", missing), *_describe("surplus", surplus)]))


def _describe(what: str, rows: Counter[Any]) -> list[str]:
    if not rows:
        return []
    shown = [f"  {count} x {row}" for row, count in list(rows.items())[:_SHOWN_ROWS]]
    rest = len(rows) - len(shown)
    return [
        f"{rows.total()} row{'' if rows.total() == 1 else 's'} {what}:",
        *shown,
        *([f"  ... and {rest} more"] if rest > 0 else []),
    ]


def _canonical(value: Any) -> Hashable:
    if isinstance(value, dict):
        return tuple(
            (str(key), _canonical(item)) for key, item in sorted(value.items(), key=lambda i: str(i[0]))
        )
    if isinstance(value, (list, tuple)):
        return tuple(_canonical(item) for item in value)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value if isinstance(value, Hashable) else repr(value)
