"""Scripts of joins of two to six inputs of all types, and what DuckDB gives over all their rows at once.

Every input has columns of all families; their widths differ from input to input. A graph is drawn over these columns: a
tree, with more edges that close cycles, cliques, composite keys, equalities over two types, comparisons, alternatives,
sums over three inputs, and conditions on one. Any column may be null.
"""

from __future__ import annotations

import datetime
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.life import Row, ask_duckdb
from tests.model.test_many import PLACES

NAMES = "abcdef"
# Doubles hold only every second integer from here on.
EDGE = 1 << 53
# A time that counts as null, so that no difference overflows.
FAR = (1 << 61) + 1

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
DECIMALS = (pa.decimal128(5, 2), pa.decimal128(9, 0), pa.decimal128(18, 4), pa.decimal128(30, 6))
# The values of each family, few and close; a column's type holds all of them.
VALUES: dict[str, list[Any]] = {
    "n": [0, 1, 2, -1],
    "m": [0, 1, 2, 100],
    "big": [EDGE, EDGE + 1, EDGE + 2, 0],
    "s": ["", "a", "a\x00", "é" * 9],
    "d": [Decimal(0), Decimal(1), Decimal(2), Decimal(-1)],
    "f": [0.0, -0.0, math.nan, 1.0, math.inf, -math.inf],
    "g": [float(EDGE), float(EDGE + 2), -0.0, math.nan, math.inf, 1.0],
    "ts": [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.datetime(2024, 3, 31), None],
    "day": [datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)],
    "yes": [True, False],
    "raw": [b"", b"\x00", b"a"],
}
# Columns of one type in all inputs: only Spark casts what stands for a null.
EVEN = ["big", "s", "g", "ts", "day", "yes", "raw"]
# Columns of unlike families, which are compared in a type that both are cast to. Not integers with floats: if that is a
# condition, only Spark tests it.
MIXED = [("n", "m"), ("n", "d"), ("m", "g"), ("big", "g"), ("g", "big"), ("n", "big")]
# Bands and inequalities of all types, with one bound and with two, of columns and of what is computed of them.
BANDS = [
    "abs({a}.n - {b}.m) <= 1",
    "{a}.n <= {b}.n AND {b}.n <= {a}.n + 1",
    "{a}.m < {b}.n",
    "{a}.big BETWEEN {b}.big - 1 AND {b}.big",
    "{a}.n + {a}.m <= {b}.big",
    "{a}.s <= {b}.s",
    "{a}.raw < {b}.raw",
    "abs(CAST({a}.d AS DECIMAL(9, 2)) - CAST({b}.d AS DECIMAL(9, 2))) <= 1",
    "{a}.d > {b}.d",
    "abs({a}.g - {b}.g) <= 1",
    "{a}.f >= {b}.f",
    "{a}.f <= {b}.f + 1 AND {b}.f <= {a}.f",
    "{a}.ts <= {b}.ts AND {b}.ts <= {a}.ts + INTERVAL 1 SECOND",
    "{a}.day <= {b}.day + INTERVAL 1 DAY AND {b}.day <= {a}.day",
    "{a}.yes < {b}.yes",
]
# Alternatives over two and three inputs, and equalities and inequalities that read three.
ANY = [
    "({a}.n = {b}.n OR {a}.m = {b}.m)",
    "({a}.n = {b}.n AND {a}.m = 1 OR {a}.n = {b}.n AND {b}.m = 0)",
    "({a}.s = {b}.s OR {b}.n = {c}.m)",
    "({a}.n IS NULL OR {b}.n = {c}.n)",
]
SUMS = [
    "{a}.n + {b}.n = {c}.n",
    "{a}.n + {b}.n <= {c}.m",
    "{a}.n BETWEEN {b}.n AND {c}.n",
    "-{a}.n = {b}.m - {c}.n",
]
# On one input: rows that fail them are not stored. An equality of a column with itself is one too: its nulls fail.
OWN = [
    "{a}.n = {a}.n",
    "{a}.f = {a}.f",
    "{a}.n = {a}.m",
    "{a}.n <=> {a}.m",
    "{a}.n + 1 > 0",
    "{a}.s IS NOT NULL",
    "({a}.n IS NULL OR {a}.m > 0)",
]


@dataclass(frozen=True)
class Script:
    """`steps` are the tasks of each batch, the crash in it, whether a zombie follows and how far to go back before."""

    inputs: int
    on: str
    seed: int
    # How many values of each family there are: with one all rows share it.
    spread: int
    window: str | None
    steps: list[tuple[int, str | None, bool, int]]
    # Whether each term gets any order in each batch, and is dealt in any way, and whether tasks get any shares of keys.
    any_order: bool = False
    any_shares: bool = False


KINDS = ("key", "key", "two", "mixed", "mixed", "safe", "less", "band", "any", "sum")


@st.composite
def graphs(draw, inputs: int, kinds: tuple[str, ...] = KINDS) -> str:
    """A tree of conditions with up to two more; or one key, single or composite, that all inputs share."""
    tree = [(draw(st.integers(0, number - 1)), number) for number in range(1, inputs)]
    if kinds == KINDS and draw(st.integers(0, 3)) == 0:
        shared = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=2, unique=True))
        parts = [f"{NAMES[one]}.{x} = {NAMES[other]}.{x}" for one, other in tree for x in shared]
        return " AND ".join(draw(st.permutations(parts)))
    more = draw(st.lists(st.tuples(*[st.integers(0, inputs - 1)] * 2), max_size=2))
    parts = []
    for one, other in [*tree, *((a, b) for a, b in more if a != b)]:
        a, b = NAMES[one], NAMES[other]
        # Two inputs without a key or a band are joined by a grid, which does not go on with other tasks.
        kind = draw(st.sampled_from([one for one in kinds if inputs > 2 or one not in ("any", "sum")]))
        if kind == "mixed":
            x, y = draw(st.sampled_from(MIXED))
            parts.append(f"{a}.{x} = {b}.{y}")
        elif kind == "safe":
            x = draw(st.sampled_from(EVEN))
            parts.append(f"{a}.{x} <=> {b}.{x}")
        elif kind == "less":
            parts.append(f"{a}.n <= {b}.m")
        elif kind == "band":
            parts.append(draw(st.sampled_from(BANDS)).format(a=a, b=b))
        elif kind in ("any", "sum"):
            c = NAMES[draw(st.integers(0, inputs - 1))]
            parts.append(draw(st.sampled_from(ANY if kind == "any" else SUMS)).format(a=a, b=b, c=c))
        else:
            width = 1 + (kind == "two")
            keys = draw(st.lists(st.sampled_from(list(VALUES)), min_size=width, max_size=width, unique=True))
            parts += [f"{b}.{x} = {a}.{x}" for x in keys]
    return " AND ".join(draw(st.permutations(parts)))


@st.composite
def cliques(draw, inputs: int) -> str:
    """A key of their own for any two of four inputs, and a tree to the others.

    Each of the four has three keys: it is found by one, or by one and then another, and a third is only compared.
    """
    columns = draw(st.permutations(list(VALUES)))
    parts = [
        f"{a}.{x} = {b}.{x}" for (a, b), x in zip(itertools.combinations(NAMES[:4], 2), columns, strict=False)
    ]
    for number in range(4, inputs):
        x = draw(st.sampled_from(list(VALUES)))
        parts.append(f"{NAMES[draw(st.integers(0, number - 1))]}.{x} = {NAMES[number]}.{x}")
    return " AND ".join(draw(st.permutations(parts)))


step = st.tuples(
    st.integers(1, 4), st.none() | st.sampled_from(PLACES), st.booleans(), st.sampled_from([0, 0, 0, 1, 2])
)


@st.composite
def scripts(
    draw,
    least: int = 2,
    windows: tuple[str | None, ...] = (None,),
    most: int = 6,
    kinds: tuple[str, ...] = KINDS,
    spreads: tuple[int, ...] = (1, 1, 2, 2, 4),
    all_pairs: bool = False,
) -> Script:
    inputs = draw(st.integers(least, most))
    on = draw(cliques(inputs) if all_pairs else graphs(inputs, kinds))
    if kinds == KINDS:
        own = draw(st.lists(st.tuples(st.sampled_from(OWN), st.sampled_from(NAMES[:inputs])), max_size=2))
        on = " AND ".join([on, *(part.format(a=name) for part, name in own)])
    return Script(
        inputs,
        on,
        draw(st.integers(0, 1 << 30)),
        draw(st.sampled_from(spreads if inputs < 5 or kinds != KINDS else (2, 2, 3))),
        draw(st.sampled_from(windows)),
        draw(st.lists(step, min_size=2, max_size=5)),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def schema_of(number: int) -> pa.Schema:
    """Of an input: other widths of the same families than the inputs beside it have."""
    return pa.schema(
        {
            "id": pa.int64(),
            "n": INTEGERS[number % 4],
            "m": INTEGERS[(number + 2) % 4],
            "big": pa.int64(),
            "s": pa.string(),
            "d": DECIMALS[number % 4],
            "f": (pa.float64(), pa.float32())[number % 2],
            "g": pa.float64(),
            "ts": pa.timestamp("us"),
            "day": pa.date32(),
            "yes": pa.bool_(),
            "raw": pa.binary(),
            # The time, and the batch.
            "t": pa.int64(),
            "batch": pa.int64(),
        }
    )


Batches = list[dict[str, list[pa.Table]]]


def batches_of(script: Script) -> Batches:
    """The partitions of each batch, with nulls in every column but `id`. A window has more of them: they count there."""
    rng = random.Random(script.seed)
    ids = itertools.count()
    most = {2: 12, 3: 6, 4: 3, 5: 3, 6: 2}[script.inputs]
    null_share = 0.03 if script.window is None else 0.1

    def value(name: str) -> Any:
        return None if rng.random() < null_share else rng.choice(VALUES[name][: script.spread])

    def time(moment: int) -> int | None:
        return rng.choice([None, FAR]) if rng.random() < null_share else moment + rng.randint(-5, 5)

    batches, moment = [], 0
    for number in range(len(script.steps)):
        moment += rng.randint(0, 4)
        batch = {}
        for place, name in enumerate(NAMES[: script.inputs]):
            parts = []
            for _ in range(rng.choice([0, 1, 1, 1, 2])):
                rows = [
                    [next(ids), *map(value, VALUES), time(moment), number]
                    for _ in range(rng.randint(1, most))
                ]
                columns = list(zip(*rows, strict=True))
                schema = schema_of(place)
                arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
                parts.append(pa.table(arrays, schema=schema))
            batch[name] = parts
        batches.append(batch)
    return batches


WIDTH, LATENESS, ROWS = 6, 3, 5
WINDOWS: dict[str | None, Callable[[str], dict[str, Any]]] = {
    None: lambda names: {},
    "time": lambda names: {"within": WIDTH, "time": dict.fromkeys(names, "t"), "lateness": LATENESS},
    "rows": lambda names: {"within": f"{ROWS} rows"},
}


def expected(script: Script, batches: Batches, counted: Set[int]) -> Counter[Row]:
    """The results over all rows at once. `counted` are the ids of the rows that a window counts.

    The others can be in no result. They are not left out here, so that one that should have been counted is missed.
    """
    names = NAMES[: script.inputs]
    tables = {
        name: pa.concat_tables(
            [schema_of(i).empty_table(), *(part for batch in batches for part in batch[name])]
        )
        for i, name in enumerate(names)
    }
    on = script.on.replace("<=>", "IS NOT DISTINCT FROM")
    wanted = ", ".join(f"{name}.id" for name in names)
    query = f"SELECT {wanted} FROM {', '.join(names)} WHERE {on}"
    if script.window == "rows":
        tables = {name: with_places(table, counted) for name, table in tables.items()}
        newest = f"greatest({', '.join(f'{name}.batch' for name in names)})"
        query += "".join(
            f" AND ({name}.batch = {newest} OR {name}.place IS NULL OR {name}.place >= "
            f"(SELECT count(place) FROM {name} i WHERE i.batch < {newest}) - {ROWS})"
            for name in names
        )
    if script.window == "time":
        times = ", ".join(f"{name}.t" for name in names)
        query += f" AND greatest({times}) - least({times}) <= {WIDTH}"
        query += "".join(f" AND {name}.t < {FAR}" for name in names)
        marks = watermarks(tables, len(batches), counted)
        tables = {name: on_time(table, marks) for name, table in tables.items()}
    return ask_duckdb(query, **tables)


def with_places(table: pa.Table, counted: Set[int]) -> pa.Table:
    """The rows with their number among those that count, null for all others."""
    numbers = itertools.count()
    places = [next(numbers) if one in counted else None for one in table["id"].to_pylist()]
    return table.append_column("place", pa.array(places, pa.int64()))


def watermarks(tables: dict[str, pa.Table], batches: int, counted: Set[int]) -> list[int | None]:
    """The watermark of each batch: the newest time of the input that is behind, less the lateness."""
    times = [
        [
            (t, b)
            for one, t, b in zip(*(table[c].to_pylist() for c in ("id", "t", "batch")), strict=True)
            if one in counted and t is not None and t < FAR
        ]
        for table in tables.values()
    ]
    found: list[int | None] = []
    for number in range(batches):
        seen = [[t for t, b in mine if b < number] for mine in times]
        found.append(min(map(max, seen)) - LATENESS if all(seen) else None)
    return found


def on_time(table: pa.Table, marks: list[int | None]) -> pa.Table:
    def is_late(t: int | None, mark: int | None) -> bool:
        return t is not None and mark is not None and t < mark

    pairs = zip(table["t"].to_pylist(), table["batch"].to_pylist(), strict=True)
    return table.filter(pa.array([not is_late(t, marks[b]) for t, b in pairs], pa.bool_()))
