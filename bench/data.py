"""Seeded input files, made once and reused.

Layout: `<cache>/<workload>-<fingerprint>/<input>/part-00000.parquet ...`. Spark's file source takes
files in the order of their modification time, so times are set one second apart: the i-th file of
each stream is in the i-th micro-batch, in every run. A table is one file.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.nexmark import EventWorkload
from bench.workloads import AnyWorkload, Drawn, TableWorkload, Workload
from papers.shared.zipf import rank_shares

# Part of the fingerprint: raise it when the generator changes, so that no old file is reused.
GENERATOR_VERSION = 1
FIRST_MTIME = 1_700_000_000

SIDES = {"l": "x", "r": "y"}

# The Spark schema of each stream, so that no source has to infer it.
_SCHEMAS = {side: f"k bigint, id bigint, {value} double" for side, value in SIDES.items()} | {
    "s": "sale bigint, product bigint, qty bigint"
}

# Rows that are drawn and written at a time.
ROW_GROUP_ROWS = 1_000_000
CATEGORIES = 997


def cache_dir() -> Path:
    """Where data, logs and results go: $WATERSMEET_BENCH_DIR, else bench/.data."""
    return Path(os.environ.get("WATERSMEET_BENCH_DIR") or Path(__file__).parent / ".data").resolve()


def input_dir(workload: AnyWorkload) -> Path:
    """Generate the files of a workload unless they are there, and return their directory."""
    fingerprint = hashlib.sha256(_facts(workload).encode()).hexdigest()[:8]
    # The queries over one set of events share its files.
    name = "nexmark" if isinstance(workload, EventWorkload) else workload.name
    home = cache_dir() / "input" / f"{name}-{fingerprint}"
    if not home.exists():
        # Written beside and renamed, so that an interrupted generation is never taken for data.
        draft = home.with_name(home.name + f".{os.getpid()}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(workload, Drawn):
            for number, name in enumerate(workload.inputs):
                for batch, rows in enumerate(workload.batches_of(number)):
                    _write_batch(rows, draft, name, batch)
        elif isinstance(workload, TableWorkload):
            _write_sales(workload, draft)
            _write_products(workload, draft)
        else:
            for number, side in enumerate(SIDES):
                for batch, rows in enumerate(side_batches(workload, number)):
                    _write_batch(rows, draft, side, batch)
        try:
            draft.rename(home)
        except OSError:
            # Another run has made the same files meanwhile.
            if not home.exists():
                raise
            shutil.rmtree(draft)
    return home


def schema_of(workload: AnyWorkload, stream: str) -> str:
    return workload.schema(stream) if isinstance(workload, Drawn) else _SCHEMAS[stream]


def stream_file(home: Path, stream: str, batch: int) -> Path:
    return home / stream / f"part-{batch:05d}.parquet"


def _facts(workload: AnyWorkload) -> str:
    if isinstance(workload, Drawn):
        return f"{workload.facts()},{GENERATOR_VERSION}"
    if isinstance(workload, TableWorkload):
        sizes = (workload.rows, workload.table_rows, workload.batches, workload.seed)
        return ",".join(
            map(str, (*sizes, workload.alpha, workload.by_id, GENERATOR_VERSION, *_shape(workload)))
        )
    facts = f"{workload.rows},{workload.keys},{workload.batches},{workload.seed},{GENERATOR_VERSION}"
    return facts + (f",{workload.alpha}" if workload.alpha else "")


def side_batches(workload: Workload, number: int) -> Iterator[pa.Table]:
    """The batches of one input, by its number."""
    side, rng, rows = (
        workload.inputs[number],
        np.random.default_rng((workload.seed, number)),
        workload.batch_rows,
    )
    reached = np.cumsum(rank_shares(workload.keys, workload.alpha)) if workload.alpha else None
    for batch in range(workload.batches):
        columns = {
            "k": _draw_keys(workload, reached, rng),
            "id": np.arange(batch * rows, (batch + 1) * rows, dtype=np.int64),
            SIDES[side]: rng.random(rows),
        }
        yield pa.table(columns)


def _draw_keys(workload: Workload, reached: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """The keys of one batch: even, or by Zipf's law, where the key is its rank. `reached` sums up the shares."""
    if reached is None:
        return rng.integers(0, workload.keys, workload.batch_rows, dtype=np.int64)
    return _draw_ranks(reached, workload.batch_rows, rng)


def _draw_ranks(reached: np.ndarray, rows: int, rng: np.random.Generator) -> np.ndarray:
    ranks = np.searchsorted(reached, rng.random(rows), side="right")
    # A draw above a sum that rounding left below 1 would fall behind the last rank.
    return np.minimum(ranks, len(reached) - 1).astype(np.int64)


def _write_batch(rows: pa.Table, home: Path, stream: str, batch: int) -> None:
    path = stream_file(home, stream, batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    os.utime(path, (FIRST_MTIME + batch, FIRST_MTIME + batch))


def _shape(workload: TableWorkload) -> tuple[int, ...]:
    """What makes a table other than the first ones, whose files are kept."""
    return (workload.group_rows, workload.numbers) if workload.numbers else ()


def _write_sales(workload: TableWorkload, home: Path) -> None:
    rng = np.random.default_rng((workload.seed, 0))
    products = np.arange(workload.table_rows)
    by_popularity = products if workload.by_id else rng.permutation(products)
    reached = np.cumsum(rank_shares(workload.table_rows, workload.alpha))
    rows = workload.batch_rows
    for batch in range(workload.batches):
        columns = {
            "sale": np.arange(batch * rows, (batch + 1) * rows, dtype=np.int64),
            "product": by_popularity[_draw_ranks(reached, rows, rng)],
            "qty": rng.integers(1, 10, rows),
        }
        _write_batch(pa.table(columns), home, "s", batch)


def _write_products(workload: TableWorkload, home: Path) -> None:
    """About 120 bytes a row, in order of id, as a database dumps it."""
    rng = np.random.default_rng((workload.seed, 1))
    (home / "p").mkdir()
    pieces = (
        _products(np.arange(first, min(first + ROW_GROUP_ROWS, workload.table_rows)), rng, workload.numbers)
        for first in range(0, workload.table_rows, ROW_GROUP_ROWS)
    )
    first = next(pieces)
    with pq.ParquetWriter(home / "p" / "part-00000.parquet", first.schema) as writer:
        for piece in itertools.chain([first], pieces):
            writer.write_table(piece, row_group_size=workload.group_rows)


def _products(ids: np.ndarray, rng: np.random.Generator, numbers: int) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "name": _numbered("product number ", ids, 12),
            "category": _numbered("category ", ids % CATEGORIES, 4),
            "price": np.round(rng.uniform(1, 1000, len(ids)), 2),
            "stock": rng.integers(0, 1000, len(ids)),
            "note": _numbered("", rng.integers(0, 1 << 62, len(ids)), 40),
            **{f"m{at}": rng.random(len(ids)) for at in range(numbers)},
        }
    )


def _numbered(text: str, numbers: np.ndarray, digits: int) -> pa.Array:
    padded = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(text, padded, "")
