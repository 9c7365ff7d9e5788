"""The kernel for many inputs on two of them, against the kernels and schemes for two: the same results in any life.

Equalities are shared out by hash, hypercube, biclique and grid, bands by range and grid, other conditions by grid.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.life import LIVES, TINY, ask_duckdb, difference, restarted, run_batch, start

SCHEMA = pa.schema(
    {"id": pa.int64(), "k": pa.int32(), "s": pa.string(), "x": pa.int32(), "f": pa.float64(), "t": pa.int64()}
)
# What joins two inputs, and the schemes for two that can do it.
CONDITIONS = {
    "l.k = r.k": ("hash", "hypercube", "biclique", "grid"),
    "l.k = r.k AND l.s = r.s AND l.x < r.x": ("hash", "hypercube", "biclique", "grid"),
    "abs(l.x - r.x) <= 1": ("range", "grid"),
    "l.x <= r.x AND r.x <= l.x + 2 AND l.s <> r.s": ("range", "grid"),
    "abs(l.f - r.f) <= 0.5": ("range", "grid"),
    "l.f < r.f": ("range", "grid"),
    "l.s < r.s": ("range", "grid"),
    "l.x + r.x = 3": ("grid",),
}
WINDOWS: dict[str, dict[str, Any]] = {
    "none": {},
    "time": {"within": 3, "time": {"l": "t", "r": "t"}, "lateness": 9},
    "rows": {"within": "4 rows"},
}
FLOATS = [None, 0.0, -0.0, 0.5, 1.0, float("nan"), float("inf"), float("-inf")]

row = st.tuples(
    st.none() | st.integers(0, 2),
    st.sampled_from(["", "a", "ab"]),
    st.none() | st.integers(0, 5),
    st.sampled_from(FLOATS),
    st.integers(0, 9),
)
batch = st.fixed_dictionaries({"l": st.lists(row, max_size=6), "r": st.lists(row, max_size=6)})


def tables(batches: list[dict[str, list[tuple]]]) -> list[dict[str, pa.Table]]:
    first, found = 0, []
    for given_ in batches:
        made = {}
        for name, rows in given_.items():
            numbered = [(first + place, *values) for place, values in enumerate(rows)]
            first += len(rows)
            columns = list(zip(*numbered, strict=True)) or [()] * len(SCHEMA)
            made[name] = pa.table(
                [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
            )
        found.append(made)
    return found


def life(folder: str, on: str, strategy: str, window: str, batches, tasks: list[int]) -> list[Counter]:
    """The results of each batch; the query is started again before every one, with another number of tasks."""
    join = start(
        SCHEMA,
        folder,
        on,
        tasks=tasks[0],
        strategy=strategy,
        settings={"run_rows": 3, "limits": TINY},
        select=["l.id AS l", "r.id AS r"],
        **({"cells": 4} if strategy == "grid" else {}),
        **WINDOWS[window],
    )
    found = []
    for count, given_ in zip(tasks, batches, strict=False):
        # The units of a biclique are cut for a number of tasks.
        join = restarted(join, tasks=tasks[0] if strategy == "biclique" else count)
        found.append(run_batch(join, {name: [rows] for name, rows in given_.items()}))
    return found


@settings(LIVES, max_examples=LIVES.max_examples // 2)
@given(
    st.sampled_from([(on, scheme) for on, schemes in CONDITIONS.items() for scheme in schemes]),
    st.lists(batch, min_size=2, max_size=4),
    st.sampled_from(list(WINDOWS)),
    st.lists(st.integers(2, 4), min_size=4, max_size=4),
)
def test_two_inputs_give_the_same_by_delta_as_by_their_own_schemes(case, drawn, window, tasks):
    (on, strategy), batches = case, tables(drawn)
    with tempfile.TemporaryDirectory() as delta, tempfile.TemporaryDirectory() as other:
        wanted = life(delta, on, "delta", window, batches, tasks)
        found = life(other, on, strategy, window, batches, tasks)
    for number, (one, same) in enumerate(zip(found, wanted, strict=True)):
        assert not difference(one, same), f"batch {number}"
    if window == "none":
        joined = {name: pa.concat_tables([one[name] for one in batches]) for name in "lr"}
        answer = ask_duckdb(f"SELECT l.id, r.id FROM l, r WHERE {on}", **joined)
        assert not difference(sum(wanted, Counter()), answer)
