"""Scripts of joins of two streams, and the life of one on the local driver, against DuckDB over the same rows.

A script is a list of batches; each may crash at a named place, be replayed in a new start, and have a zombie of the old
start finish late. Thresholds are tiny, so that a few dozen rows go through several runs a partition, merges in several
parts and clean-up. The answer must be the join of all rows, as a multiset.
"""

from __future__ import annotations

import datetime
import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from tests import life
from watersmeet import failpoints
from watersmeet.model.facts import Manifest

# Every place that a join of two streams on a local disk comes by.
CRASHES = [
    name
    for name in failpoints.NAMES
    if not name.startswith(("table-", "put-", "fetch-"))
    and name not in ("manifest-lost", "clean-batch-removed")
]

KEYS = {
    pa.int64(): st.integers(-3, 3),
    pa.int32(): st.integers(-3, 3),
    pa.string(): st.sampled_from(["", "a", "b", "aa", "ab", "ä"]),
    pa.binary(): st.sampled_from([b"", b"a", b"\x00", b"a\x00"]),
    pa.float64(): st.sampled_from([0.0, -0.0, float("nan"), 1.5, float("inf")]),
    pa.bool_(): st.booleans(),
    pa.date32(): st.sampled_from([datetime.date(2024, 1, d) for d in (1, 2)]),
    pa.timestamp("us"): st.sampled_from([datetime.datetime(1969, 12, 31, 23), datetime.datetime(2024, 1, 1)]),
    pa.decimal128(10, 2): st.sampled_from([Decimal("1.10"), Decimal("-1.10"), Decimal("0.00")]),
    pa.decimal128(38, 4): st.sampled_from(
        [Decimal("9" * 30 + ".0001"), Decimal("1.1000"), Decimal("-1.1000")]
    ),
}


@dataclass(frozen=True)
class Step:
    """A batch: partitions of each input. Rows have their keys, and then `x`."""

    rows: dict[str, list[list[tuple]]]
    crash: str | None = None
    zombie: bool = False


def steps_of(row: st.SearchStrategy[tuple]) -> st.SearchStrategy[list[Step]]:
    """Up to eight batches of such rows, in up to two partitions of each input."""
    partitions = st.lists(st.lists(row, max_size=6), max_size=2)
    step = st.builds(
        Step,
        rows=st.fixed_dictionaries({"l": partitions, "r": partitions}),
        crash=st.none() | st.sampled_from(CRASHES),
        zombie=st.booleans(),
    )
    return st.lists(step, min_size=1, max_size=8)


@st.composite
def scripts(draw) -> tuple[list[pa.DataType], list[Step], int]:
    """The types of the keys, the batches, and the number of tasks."""
    kinds = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2))
    row = st.tuples(*(st.none() | KEYS[kind] for kind in kinds), st.integers(-2, 2))
    return kinds, draw(steps_of(row)), draw(st.integers(1, 3))


def with_one_key(steps: Iterable[Step], key: Callable[[Any], Any] = lambda value: value) -> list[Step]:
    """The same batches with one key only, made of the first one."""
    return [
        replace(
            step,
            rows={
                side: [[(key(row[0]), row[-1]) for row in part] for part in parts]
                for side, parts in step.rows.items()
            },
        )
        for step in steps
    ]


def equal_keys(kinds: Sequence[pa.DataType]) -> str:
    return " AND ".join(f"l.k{number} = r.k{number}" for number in range(len(kinds)))


def live(
    kinds: Sequence[pa.DataType],
    on: str,
    steps: Sequence[Step],
    tasks: int,
    *,
    keeps_nulls: bool = False,
    grace_s: float = -1.0,
    **how: Any,
) -> Manifest:
    """Run a script; its results must be those of one big join. Gives the last manifest."""
    keys = [f"k{number}" for number in range(len(kinds))]
    schema = pa.schema([*zip(keys, kinds, strict=True), ("x", pa.int64()), ("id", pa.int64())])
    ids = itertools.count()
    with tempfile.TemporaryDirectory() as state:
        join = life.start(
            schema,
            state,
            on,
            select=["l.id AS a", "r.id AS b"],
            tasks=tasks,
            settings={"run_rows": 4, "grace_s": grace_s, "retain_batches": 1, "limits": life.TINY},
            **how,
        )
        everything = {side: [schema.empty_table()] for side in "lr"}
        found: Counter = Counter()
        for step in steps:
            parts = {
                side: [pa.Table.from_pylist(_named(part, schema, ids), schema) for part in step.rows[side]]
                for side in "lr"
            }
            for side in "lr":
                everything[side] += parts[side]
            join, results = life.run_through(join, parts, step.crash, zombie=step.zombie)
            found += results
        whole = {side: pa.concat_tables(tables) for side, tables in everything.items()}
        condition = on.replace("1.5D", "1.5").replace("1.10BD", "1.10")
        expected = life.ask_duckdb(f"SELECT l.id, r.id FROM l JOIN r ON {condition}", **whole)
        assert found == expected, f"{on} {how}\n{life.difference(found, expected)}"
        return _check_invariants(state, whole, () if keeps_nulls else keys)


def _named(rows: Iterable[tuple], schema: pa.Schema, ids: Iterator[int]) -> list[dict[str, Any]]:
    return [dict(zip(schema.names, (*row, next(ids)), strict=True)) for row in rows]


def _check_invariants(state: str, everything: dict[str, pa.Table], keys: Sequence[str]) -> Manifest:
    """The newest manifest holds exactly the rows that came, and every file that it names is there."""
    newest = life.newest(state)
    for side, table in everything.items():
        rows = len(table.filter(_no_null(table, keys)))
        assert sum(run.rows for run in newest.live if run.input == side) == rows == newest.totals[side].rows
    for path in newest.named_paths:
        assert (life.files_of(state).root / path).is_file(), path
    return newest


def _no_null(table: pa.Table, keys: Sequence[str]) -> pa.ChunkedArray:
    mask = pc.is_valid(table.column("id"))
    for key in keys:
        mask = pc.and_(mask, pc.is_valid(table.column(key)))
    return mask
