"""The walk along bands and on two inputs, in CPU time, without Spark: `python -m bench.walks`.

*Bands*: joins of three inputs that a band connects, by the value arrangements that the compiler chooses, and as if
the bands were unknown: then all rows of an input are read, and the conditions decide.

*Two inputs*: the walk beside the schemes for two, on the same rows.

The ways take turns, batch by batch, in one process: planning, storing, joining and merging, with two tasks one after the
other. Counted is the mean of the batches from the third on, and the last batch. All ways must give the same number of
results.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from watersmeet.engine import compile_many
from watersmeet.local.join import LocalJoin
from watersmeet.predicate.graph import JoinGraph, join_graph

SEED = 20_260_101
BATCHES, TASKS = 10, 2
# Values are drawn from this many times the rows: a band of +-10 has one partner for a row.
SPREAD = 20
SCHEMA = pa.schema({name: pa.int64() for name in ("id", "k", "t", "u")})
VALUES, SCANS = "values", "scans"


@dataclass(frozen=True, slots=True)
class Walk:
    """A join of inputs with this many rows each, and the ways to run it."""

    name: str
    on: str
    rows: int
    ways: tuple[str, ...]

    @property
    def inputs(self) -> list[str]:
        return [name for name in "abclr" if f"{name}." in self.on]


PATH, TWO = "a.k = b.k AND abs(b.t - c.t) <= 10", "abs(a.t - b.t) <= 10 AND abs(b.u - c.u) <= 10"
CYCLE = "abs(a.t - b.t) <= 10 AND abs(b.t - c.t) <= 10 AND abs(a.t - c.t) <= 10"
# A difference may overflow, so as a condition it waits for the last input: scans of two bands are products of all rows.
BANDS = (
    Walk("key, then band", PATH, 10_000, (VALUES, SCANS)),
    Walk("key, then band", PATH, 200_000, (VALUES,)),
    Walk("bands of two values", TWO, 1_000, (VALUES, SCANS)),
    Walk("bands of two values", TWO, 200_000, (VALUES,)),
    Walk("cycle of one value", CYCLE, 500, (VALUES, SCANS)),
    Walk("cycle of one value", CYCLE, 200_000, (VALUES,)),
    Walk("key, then inequality", "a.k = b.k AND b.t < c.t AND c.u < a.u - 190000", 10_000, (VALUES, SCANS)),
)
PAIRS = (
    Walk("equality", "l.k = r.k", 400_000, ("delta", "hash", "hypercube")),
    Walk("band", "abs(l.t - r.t) <= 10", 200_000, ("delta", "range", "grid")),
    Walk("inequality", "l.t < r.t AND l.u < r.u - 190000", 10_000, ("delta", "range", "grid")),
    Walk("any condition", "l.t + r.t = 100000", 30_000, ("delta", "grid")),
)


@contextlib.contextmanager
def without_bands(way: str) -> Iterator[None]:
    """Compile as if no band was known, if the way is that of scans."""

    def blind(predicate: object) -> JoinGraph:
        return replace(join_graph(predicate), bands=())  # type: ignore[arg-type]

    if way != SCANS:
        yield
        return
    with mock.patch.object(compile_many, "join_graph", blind):
        yield


def measure(walk: Walk, batches: int = BATCHES) -> dict[str, tuple[float, float, int]]:
    """For each way the CPU seconds of a batch, of the last batch, and the number of results."""
    rng = np.random.default_rng(SEED)
    spent: dict[str, list[float]] = {way: [] for way in walk.ways}
    results = dict.fromkeys(walk.ways, 0)
    with contextlib.ExitStack() as stack:
        joins = {}
        for way in walk.ways:
            state = stack.enter_context(tempfile.TemporaryDirectory())
            with without_bands(way):
                joins[way] = LocalJoin(
                    dict.fromkeys(walk.inputs, SCHEMA),
                    on=walk.on,
                    state=state,
                    tasks=TASKS,
                    select=[f"{name}.id AS {name}" for name in walk.inputs],
                    strategy="auto" if way in (VALUES, SCANS) else way,
                )
        for batch in range(batches):
            given = {name: _rows(walk, batch, batches, rng) for name in walk.inputs}
            for way, join in joins.items():
                with without_bands(way):
                    began = time.process_time()
                    results[way] += join.batch(**given).num_rows
                    spent[way].append(time.process_time() - began)
    assert len(set(results.values())) == 1, results
    return {way: (float(np.mean(one[2:])), one[-1], results[way]) for way, one in spent.items()}


def _rows(walk: Walk, batch: int, batches: int, rng: np.random.Generator) -> pa.Table:
    count = walk.rows // batches
    columns = {
        "id": np.arange(batch * count, (batch + 1) * count),
        "k": rng.integers(0, walk.rows, count),
        "t": rng.integers(0, SPREAD * walk.rows, count),
        "u": rng.integers(0, SPREAD * walk.rows, count),
    }
    return pa.table(columns, schema=SCHEMA)


def show(title: str, walks: Sequence[Walk], console: Console) -> None:
    table = Table(title=title)
    for heading in ("join", "rows each", "way", "CPU s/batch", "last", "against the first", "results"):
        table.add_column(heading)
    for walk in walks:
        found = measure(walk)
        first = found[walk.ways[0]][0]
        for way, (mean, last, results) in found.items():
            figures = (f"{mean:.4f}", f"{last:.4f}", f"{mean / first:.2f}", f"{results:,}")
            table.add_row(walk.name, f"{walk.rows:,}", way, *figures)
    console.print(table)


if __name__ == "__main__":
    out = Console(width=140)
    show("Bands of many inputs", BANDS, out)
    show("Two inputs", PAIRS, out)
