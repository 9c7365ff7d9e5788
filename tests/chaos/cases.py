"""The joins that chaos befalls: every strategy, window and table, two inputs and more, with rows and the right answer.

The answer is DuckDB's, over all rows of the life at once. It knows nothing of batches, runs or manifests; what a window
takes is said in SQL too. Rows are small and keys few, so that a few dozen rows meet in many ways.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.life import Row, ask_duckdb
from watersmeet.hubs.stored import COMMANDS
from watersmeet.local.hub import COMMAND_SCHEMA
from watersmeet.schemes.budget.policy import Pushing
from watersmeet.schemes.grid.policy import dynamic

# `id` is unique, `n` counts the rows of an input in their order of arrival, `b` is the batch.
SCHEMA = pa.schema(
    {"k": pa.int64(), "x": pa.int64(), "t": pa.int64(), "id": pa.int64(), "n": pa.int64(), "b": pa.int64()}
)
TABLE_SCHEMA = pa.schema({"k": pa.int64(), "y": pa.int64()})

KEYS = 6
TABLE_ROWS = 40
DELAY_S = 5.0
# Rows of a partition, by the number of inputs: the results of four grow with the fourth power.
MOST_ROWS = {1: 8, 2: 8, 3: 6, 4: 4}
# Partitions of a batch, and their most rows, where no partition shows that a key is hot.
MANY_PARTS, FEW_ROWS = 12, 3
# A row has 48 bytes: cells split in four at 10 of them, and again.
GROWING = dynamic(capacity_bytes=1_000, max_cells=16)

# A window over time: a batch moves on by up to STRIDE, a row lies up to SPREAD around it, and some are too late.
WIDTH, LATENESS, STRIDE, SPREAD = 6, 3, 4, 4
WINDOW_ROWS = 15


def _unequal(l: pa.RecordBatch, r: pa.RecordBatch) -> pa.Array:
    return pc.greater(pc.abs(pc.subtract(l["k"], r["k"])), 1)


@dataclass(frozen=True)
class Case:
    """A join and its condition in DuckDB's words. `how` are arguments of `LocalJoin`; `inputs` are its streams.

    A batch has up to `parts` partitions of each input.

    With several streams and a table, the condition in DuckDB's words is all that it joins.
    """

    name: str
    on: Any
    sql: str
    how: Mapping[str, Any] = field(default_factory=dict)
    inputs: str = "lr"
    parts: int = 2
    # Many queries over the streams, which come and go (hubs.py).
    is_hub: bool = False

    @property
    def window(self) -> str | None:
        return None if "within" not in self.how else "time" if "time" in self.how else "rows"

    @property
    def has_table(self) -> bool:
        return "how" in self.how

    @property
    def owes(self) -> bool:
        """Whether results are put off until a batch without a budget."""
        return "memory" in self.how

    @property
    def is_chain(self) -> bool:
        """Whether the join has several stages."""
        return self.has_table and len(self.inputs) > 1

    @property
    def waits(self) -> bool:
        """Whether the batch in which a row is answered depends on the clock."""
        return bool(self.how.get("max_delay"))


_STRATEGIES = [
    Case("hash", "l.k = r.k", "l.k = r.k", {"strategy": "hash"}),
    Case("hypercube", "l.k = r.k AND l.x <= r.x", "l.k = r.k AND l.x <= r.x", {"strategy": "hypercube"}),
    Case("hypercube-parts", "l.k = r.k", "l.k = r.k", {"strategy": "hypercube"}, parts=MANY_PARTS),
    Case("biclique", "l.k = r.k", "l.k = r.k", {"strategy": "biclique", "groups": 1}),
    Case("range", "abs(l.k - r.k) <= 1", "abs(l.k - r.k) <= 1", {"strategy": "range"}),
    Case("grid", "l.k < r.k OR l.x = r.x", "l.k < r.k OR l.x = r.x", {"strategy": "grid", "cells": 3}),
    Case("grid-equality", "l.k = r.k", "l.k = r.k", {"strategy": "grid", "cells": 1, "policy": GROWING}),
    Case(
        "grid-band",
        "abs(l.k - r.k) <= 1",
        "abs(l.k - r.k) <= 1",
        {"strategy": "grid", "cells": 1, "policy": GROWING},
    ),
    Case("python", _unequal, "abs(l.k - r.k) > 1", {"cells": 2}),
]


def _many(name: str, inputs: str, on: str, **how: Any) -> Case:
    return Case(name, on, on, how, inputs)


_THREE = "l.k = m.k AND m.k = r.k"
# On one key, and on different ones: then inputs in the middle are stored twice.
_MANY = [
    _many("hash-three", "lmr", _THREE, strategy="hash"),
    _many("hypercube-three", "lmr", f"{_THREE} AND l.x <= r.x", strategy="hypercube"),
    _many("path-three", "lmr", "l.k = m.k AND m.x = r.x"),
    _many("path-four", "lmnr", "l.k = m.k AND m.x = n.x AND n.k = r.k AND l.x <= r.x"),
    _many("cycle-three", "lmr", "l.k = m.k AND m.x = r.x AND r.k = l.x"),
]


def _windows(inputs: str) -> dict[str, dict[str, Any]]:
    return {
        "time": {"within": WIDTH, "time": dict.fromkeys(inputs, "t"), "lateness": LATENESS},
        "rows": {"within": f"{WINDOW_ROWS} rows"},
    }


_TABLES = [
    Case(
        f"table-{how}{'-wait' if delay else ''}",
        "s.k = t.k",
        "s.k = t.k",
        {"how": how, "max_delay": delay},
        "s",
    )
    for how in ("inner", "left")
    for delay in (0.0, DELAY_S)
]

# A table that one stream has the key of, and one whose key takes both.
_CHAINS = [
    Case(
        f"chain-{how}",
        "l.k = r.k AND l.x = t.k",
        f"l JOIN r ON l.k = r.k {how} JOIN t ON l.x = t.k",
        {"how": how},
        "lr",
    )
    for how in ("inner", "left")
] + [
    Case(
        "chain-after",
        "l.k = r.k AND l.x + r.x = t.k",
        "l JOIN r ON l.k = r.k JOIN t ON l.x + r.x = t.k",
        {"how": "inner"},
        "lr",
    )
]

# Most of the state is set aside. The last batch of a life is run without a budget: it pays everything.
_BUDGETS = [
    Case(f"budget{name}", on, on, {"memory": memory, "pushing": Pushing(groups=6)}, inputs)
    for name, on, inputs, memory in [
        ("", "l.k = r.k", "lr", 1500),
        ("-less-than-a-group", "l.k = r.k AND l.x <= r.x", "lr", 1),
        ("-three", _THREE, "lmr", 4000),
    ]
]

STREAMS = [
    *_STRATEGIES,
    *_MANY,
    *(
        replace(case, name=f"{case.name}-{name}", how={**case.how, **window})
        for case in [*_STRATEGIES, *_MANY]
        for name, window in _windows(case.inputs).items()
    ),
    *_BUDGETS,
    *(
        replace(case, name=f"{case.name}-time", how={**case.how, **_windows(case.inputs)["time"]})
        for case in _BUDGETS
    ),
]
# Rows have the time of their batch, or their own, and may be late.
_HUBS = [
    Case("hub", "", "", {}, "lmr", is_hub=True),
    Case("hub-time", "", "", {"time": dict.fromkeys("lmr", "t"), "lateness": LATENESS}, "lmr", is_hub=True),
]
CASES = {case.name: case for case in [*STREAMS, *_TABLES, *_CHAINS, *_HUBS]}

# By side, the partitions of a batch. The commands of a hub are a side.
Batch = dict[str, list[list[Row]]]


def make_batches(case: Case, seed: int, count: int) -> list[Batch]:
    """The rows of a life; the last batches of rows that may wait bring nothing, so that all are answered."""
    rng = random.Random(seed)
    ids, numbers = itertools.count(), {side: itertools.count() for side in case.inputs}
    most = FEW_ROWS if case.parts == MANY_PARTS else MOST_ROWS[len(case.inputs)]
    moment = 0
    batches = []
    for number in range(count):
        moment += rng.randint(0, STRIDE)
        idle = case.waits and number >= count - 3
        batch: Batch = {}
        for side in case.inputs:
            partitions = 0 if idle or rng.random() < 0.1 else rng.randint(1, case.parts)
            batch[side] = [
                [
                    (
                        _key(rng, case),
                        rng.randint(0, 3),
                        moment + rng.randint(-SPREAD, SPREAD),
                        next(ids),
                        next(numbers[side]),
                        number,
                    )
                    for _ in range(rng.randint(0, most))
                ]
                for _ in range(partitions)
            ]
        batches.append(batch)
    return batches


def _key(rng: random.Random, case: Case) -> int | None:
    # Rows without a key do not count in a window: there they would only make the oracle harder to read.
    if case.window is None and rng.random() < 0.05:
        return None
    return rng.randint(0, KEYS * 3 if case.inputs == "s" else KEYS)


def make_table(seed: int) -> pa.Table:
    rng = random.Random(f"table {seed}")
    return to_table([(rng.randint(0, KEYS * 3), number) for number in range(TABLE_ROWS)], TABLE_SCHEMA)


def to_table(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def to_tables(batch: Batch) -> dict[str, list[pa.Table]]:
    schemas = {COMMANDS: COMMAND_SCHEMA}
    return {
        side: [to_table(part, schemas.get(side, SCHEMA)) for part in parts] for side, parts in batch.items()
    }


def expected(case: Case, batches: list[Batch], seed: int) -> Counter[Row]:
    """The results of all batches together."""
    tables = {
        side: to_table([row for batch in batches for part in batch[side] for row in part])
        for side in batches[0]
    }
    if case.has_table:
        tables["t"] = make_table(seed)
    return ask_duckdb(_query(case), **tables)


def _query(case: Case) -> str:
    if case.inputs == "s":
        return f"SELECT s.id, t.y FROM s {case.how['how']} JOIN t ON {case.sql}"
    wanted, streams = ", ".join(f"{side}.id" for side in case.inputs), ", ".join(case.inputs)
    if case.has_table:
        return f"SELECT {wanted}, t.y FROM {case.sql}"
    if case.window is None:
        return f"SELECT {wanted} FROM {streams} WHERE {case.sql}"
    if case.window == "rows":
        # The row came with the newest one, or is one of the last of its input before that batch.
        newest = f"greatest({', '.join(f'{side}.b' for side in case.inputs)})"
        near = " AND ".join(
            f"({side}.b = {newest} OR "
            f"{side}.n >= (SELECT count(*) FROM {side} i WHERE i.b < {newest}) - {WINDOW_ROWS})"
            for side in case.inputs
        )
        return f"SELECT {wanted} FROM {streams} WHERE ({case.sql}) AND {near}"
    # The watermark before a batch: the input that is behind, less the lateness. There is none until all have rows, and
    # a late row does not move it.
    before = [f"(SELECT max(t) FROM {side} WHERE {side}.b < batch.b)" for side in case.inputs]
    batches = " UNION ".join(f"SELECT b FROM {side}" for side in case.inputs)
    times = ", ".join(f"{side}.t" for side in case.inputs)
    on_time = " AND ".join(
        f"{side}.t >= (SELECT coalesce(min(t), {side}.t) FROM passed WHERE b = {side}.b)"
        for side in case.inputs
    )
    return f"""
        WITH passed AS (
            SELECT b, CASE WHEN {" AND ".join(f"{one} IS NOT NULL" for one in before)}
                           THEN least({", ".join(before)}) - {LATENESS} END AS t
            FROM ({batches}) batch
        )
        SELECT {wanted} FROM {streams}
        WHERE ({case.sql}) AND greatest({times}) - least({times}) <= {WIDTH} AND {on_time}"""
