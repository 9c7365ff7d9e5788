"""A table of a database as SQL speaks of it, and the few queries that are made from it.

Identifiers are quoted, values are always bound. Numbered parameters (`$1`, `?1`) let a query name one twice.
Several key columns are compared as rows, `(a, b) >= ($1, $2)`, which databases answer from one index over them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.errors import UsageError

_PART = re.compile(r'"(?:[^"]|"")+"|[^."]+')


def quote(name: str) -> str:
    """An identifier, exactly as written.

    >>> quote('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_table(name: str) -> str:
    """A table, with its schema or without; a part that holds a dot is written in quotes.

    >>> quote_table("shop.Products"), quote_table('"a.b"')
    ('"shop"."Products"', '"a.b"')
    """
    parts = _PART.findall(name)
    if ".".join(parts) != name or not parts:
        raise UsageError(f'table={name!r}: write "table", "schema.table" or "\\"odd.name\\""')
    return ".".join(part if part.startswith('"') else quote(part) for part in parts)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """`compared` is the column as it must be compared to be in our order; `cast` goes behind a parameter."""

    name: str
    compared: str
    cast: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """`name` is quoted; `selected` has the expression of each column; `sign` begins a parameter."""

    name: str
    keys: tuple[KeyColumn, ...]
    selected: tuple[tuple[str, str], ...]
    sign: str

    def mark(self, number: int, key: int) -> str:
        return f"{self.sign}{number}{self.keys[key].cast}"

    def columns(self, names: Sequence[str]) -> str:
        expressions = dict(self.selected)
        return ", ".join(f"{expressions[name]} AS {quote(name)}" for name in names) or "1"

    def rows_between(
        self, columns: Sequence[str], *, lower: bool, upper: bool, limit: int | None = None
    ) -> str:
        """The rows from a key up to, not including, another; the parameters are the keys that there are."""
        most = "" if limit is None else f" LIMIT {limit}"
        return f"SELECT {self.columns(columns)} FROM {self.name}{self._between(lower, upper)}{most}"

    def count_between(self, *, lower: bool, upper: bool, limit: int | None = None) -> str:
        """How many of these rows there are, as `n`, counted up to a limit."""
        return (
            f"SELECT count(*) AS n FROM ({self.rows_between([], lower=lower, upper=upper, limit=limit)}) AS t"
        )

    def _between(self, lower: bool, upper: bool) -> str:
        tests = [
            f"{self._row} {sign} {self._marks(start)}"
            for sign, start in ((">=", 1), ("<", 1 + lower * len(self.keys)))
            if (sign == ">=" and lower) or (sign == "<" and upper)
        ]
        return f" WHERE {' AND '.join(tests)}" if tests else ""

    def every_nth_key(self, step: int) -> str:
        """Each `step`-th key in order, with its place from 1 on."""
        keys = [key.name for key in self.keys]
        order = ", ".join(key.compared for key in self.keys)
        present = " AND ".join(f"{quote(name)} IS NOT NULL" for name in keys)
        return (
            f"SELECT * FROM (SELECT {self.columns(keys)}, row_number() OVER (ORDER BY {order}) AS __wm_place "
            f"FROM {self.name} WHERE {present}) AS numbered "
            f"WHERE (__wm_place - 1) % {step} = 0 ORDER BY __wm_place"
        )

    def first_rows(self, limit: int) -> str:
        return f"SELECT {self.columns([name for name, _ in self.selected])} FROM {self.name} LIMIT {limit}"

    @property
    def _row(self) -> str:
        return _tuple([key.compared for key in self.keys])

    def _marks(self, start: int) -> str:
        return _tuple([self.mark(start + place, place) for place in range(len(self.keys))])


def _tuple(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
