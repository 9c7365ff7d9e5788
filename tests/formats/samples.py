"""Small states of every kind of join, as some version of watersmeet writes them: what `tests/formats/<format>/` holds.

Whoever raises `FORMAT` writes the samples of the format before once more, with the last code that wrote it, and never
changes them again. Format 3 was written by commit e8a5a05, format 4 by 2710bec, format 5 by 423a5d5, format 6 by
0683225, format 7 by d169b77, format 8 by f625783, format 9 by e0642f6:

    git worktree add ../old e8a5a05
    PYTHONPATH=../old/src:. python -m tests.formats.samples tests/formats/3

So this file must run with old code too: it uses no more than `LocalJoin`, and `LocalHub` since format 9. Rows are drawn by batch number, and a test
goes on with the batches after `WRITTEN`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet as wm
from watersmeet.local.join import LocalJoin

# Batches that the samples hold.
WRITTEN = 3
QUERY, RUN = "sample", "run-0"
TASKS = 2
BEGAN_S = 1_700_000_000.0

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64()})
# With a second key, for joins on different keys.
WIDE = SCHEMA.append(pa.field("j", pa.int64()))
PRICES = pa.schema({"k": pa.int64(), "price": pa.int64()})
TABLE_KEYS = 12
DELAY_S = 1000.0
# The argument's name since format 9, and before.
_WAITING: dict[str, Any] = {
    "max_delay" if "max_delay" in LocalJoin.__dataclass_fields__ else "max_delay_s": DELAY_S
}


@dataclass(frozen=True)
class Sample:
    """A join, and rows of each input by batch. Every `hot`-th row of a batch has the key 7, if given."""

    on: str
    how: Mapping[str, Any] = field(default_factory=dict)
    # A pair must also satisfy this, in SQL, because of the window.
    near: str = "true"
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: {"l": (10,) * 5, "r": (10,) * 5})
    hot: int | None = None
    # Whether merges are under way, with receipts of their parts.
    merges: bool = False
    # The first format whose code can write it.
    since: int = 3

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.rows)

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA if self.inputs == ("l", "r") else WIDE

    @property
    def select(self) -> list[str]:
        return [f"{name}.id AS {alias}" for name, alias in zip(self.inputs, "abcd", strict=False)]


# Rows of a batch lie up to ten ticks apart, and batches ten: none is late.
WINDOW = {"within": 15, "time": {"l": "t", "r": "t"}, "lateness": 20}
THREE = {"a": (10,) * 5, "b": (10,) * 5, "c": (10,) * 5}
PATH = "a.k = b.k AND b.j = c.k"
SAMPLES = {
    "hash": Sample("l.k = r.k", {"strategy": "hash"}, merges=True),
    "hypercube": Sample(
        "l.k = r.k",
        {"strategy": "hypercube"},
        merges=True,
        hot=2,
        rows={"l": (80, 4, 80, 9, 9), "r": (80, 80, 4, 9, 9)},
    ),
    "biclique": Sample("l.k = r.k", {"strategy": "biclique", "groups": 1, "tasks": 4}),
    "range": Sample("abs(l.k - r.k) <= 1", {"strategy": "range"}),
    "grid": Sample(
        "l.k <> r.k", {"strategy": "grid", "cells": 4}, rows={"l": (8, 2, 2, 9, 9), "r": (8, 40, 2, 9, 9)}
    ),
    "window": Sample("l.k = r.k", WINDOW, near="abs(l.t - r.t) <= 15", merges=True),
    "three": Sample(
        "a.k = b.k AND b.k = c.k",
        hot=2,
        rows={"a": (40, 4, 40, 9, 9), "b": (40, 40, 4, 9, 9), "c": (4, 9, 9, 9, 9)},
        merges=True,
        since=6,
    ),
    "path": Sample(PATH, rows=THREE, merges=True, since=6),
    "path-window": Sample(
        PATH,
        WINDOW | {"time": {"a": "t", "b": "t", "c": "t"}},
        near="greatest(a.t, b.t, c.t) - least(a.t, b.t, c.t) <= 15",
        rows=THREE,
        merges=True,
        since=6,
    ),
    "triangle": Sample(f"{PATH} AND c.j = a.j", rows=THREE, merges=True, since=6),
    "comparison": Sample("a.k = b.k AND b.j < c.k", rows=THREE, merges=True, since=6),
    # It owes results. What came out is in a file beside the state.
    "budget": Sample("a.k = b.k AND b.k = c.k", {"memory": 1500}, rows=THREE, merges=True, since=8),
}


def arriving(sample: Sample, side: str, batch: int) -> pa.Table:
    count = sample.rows[side][batch]
    rng = np.random.default_rng([batch, ord(side)])
    keys, times = rng.integers(0, 6, count), 10 * batch + rng.integers(0, 10, count)
    if sample.hot is not None:
        keys[:: sample.hot] = 7
    ids = 1000 * batch + np.arange(count)
    second = [rng.integers(0, 5, count)] if sample.schema is WIDE else []
    return pa.table([keys, times, ids, *second], schema=sample.schema)


def join_of(sample: Sample, state: Path, number: int, run: str) -> LocalJoin:
    how = {"tasks": TASKS, **sample.how}
    return LocalJoin(
        dict.fromkeys(sample.inputs, sample.schema),
        on=sample.on,
        select=sample.select,
        state=str(state),
        query=QUERY,
        run=run,
        number=number,
        clock=lambda: BEGAN_S,
        **how,
    )


# A table. Every row waits: pages have few rows each, and there is time.


def asked(batch: int) -> pa.Table:
    keys = np.random.default_rng(batch).integers(0, TABLE_KEYS, 6)
    return pa.table([keys, np.full(6, 10 * batch), 1000 * batch + np.arange(6)], schema=SCHEMA)


def prices(add: int) -> pa.Table:
    keys = np.arange(TABLE_KEYS)
    return pa.table([keys, keys + add], schema=PRICES)


def lookup_of(state: Path, table: Path, number: int, run: str, now_s: float) -> LocalJoin:
    return LocalJoin(
        {"s": SCHEMA, "p": wm.table(table, key="k", page_rows=2, in_place=False)},
        on="s.k = p.k",
        select=["s.id AS a", "p.price AS b"],
        state=str(state),
        tasks=TASKS,
        query=QUERY,
        run=run,
        number=number,
        clock=lambda: now_s,
        **_WAITING,
    )


# A hub. A command of its second batch brings a query, so that there are rows which it does not count.

HUB_SINCE = 9
HUB_TEXTS = {
    "given": "SELECT l.id AS a, r.id AS b FROM l, r WHERE l.k = r.k AND l.k > 1",
    "came": "SELECT l.id AS a, r.id AS b FROM l, r WHERE l.k = r.k AND l.k > 3",
    "alone": "SELECT r.id AS b FROM r WHERE r.k = 2",
}
# The first batch whose rows each query counts.
HUB_FIRST = {"given": 0, "came": 2, "alone": 0}


def hub_of(state: Path, number: int, run: str) -> Any:
    from watersmeet.local.hub import LocalHub

    given = {id_: text for id_, text in HUB_TEXTS.items() if id_ != "came"}
    return LocalHub(
        {"l": SCHEMA, "r": SCHEMA},
        str(state),
        given,
        tasks=TASKS,
        query=QUERY,
        run=run,
        number=number,
        clock=lambda: BEGAN_S,
    )


def hub_rows(batch: int) -> dict[str, pa.Table]:
    return {side: arriving(SAMPLES["hash"], side, batch) for side in ("l", "r")}


def write_hub(state: Path) -> None:
    hub = hub_of(state, 0, RUN)
    came = pa.table({"op": ["add"], "id": ["came"], "sql": [HUB_TEXTS["came"]]})
    for batch in range(WRITTEN):
        hub.batch(came if batch == 1 else None, **hub_rows(batch))


def write(folder: Path) -> None:
    from watersmeet.model.facts import FORMAT

    for name, sample in SAMPLES.items():
        if sample.since > FORMAT:
            continue
        join = _small_parts(sample, folder / name)
        found = [
            row
            for batch in range(WRITTEN)
            for row in join.batch(
                **{side: arriving(sample, side, batch) for side in sample.inputs}
            ).to_pylist()
        ]
        if "memory" in sample.how:
            (folder / f"{name}.json").write_text(json.dumps([list(row.values()) for row in found]) + "\n")
    if FORMAT >= HUB_SINCE:
        write_hub(folder / "hub")
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / "prices.parquet"
        pq.write_table(prices(100), table)
        join = lookup_of(folder / "table", table, 0, RUN, BEGAN_S)
        for batch in range(WRITTEN):
            assert not len(join.batch(s=asked(batch))), "a row did not wait"
    (facts,) = folder.glob("table/tables/*/table.json")
    forget_place(facts)


def _small_parts(sample: Sample, state: Path) -> LocalJoin:
    """A join with merges of a few rows in several parts, if the sample has merges.

    Up to format 4 the limits were constants of a module, since then they are in the settings.
    """
    from watersmeet.plan import merges

    if (fan_in := vars(merges).get("FAN_IN")) is not None:
        vars(merges)["MIN_PART_ROWS"] = 8
        vars(merges)["FAN_IN"] = 2 if sample.merges else fan_in
        return join_of(sample, state, 0, RUN)
    from watersmeet.engine.spec import Settings
    from watersmeet.model.limits import Limits

    limits = Limits(min_part_rows=8, fan_in=2 if sample.merges else Limits().fan_in)
    settings = Settings(state=str(state), tasks=sample.how.get("tasks", TASKS), limits=limits)
    return replace(join_of(sample, state, 0, RUN), settings=settings)


def forget_place(path: Path) -> None:
    """The label of a table names its file on the machine that wrote the sample."""
    from watersmeet.log.codec import decode_checked, encode_checked
    from watersmeet.tables import catalogue

    # Its name up to format 4, and since.
    kind = vars(catalogue).get("TableFacts") or vars(catalogue)["TableEntry"]
    facts = decode_checked(kind, path.read_bytes(), str(path))
    path.write_bytes(encode_checked(replace(facts, label="table prices.parquet")))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
