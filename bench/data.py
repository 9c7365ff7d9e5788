"""Seeded input files, made once and reused.

Layout: `<cache>/<workload>-<fingerprint>/<input>/part-00000.parquet ...`. Spark's file source takes
files in the order of their modification time, so times are set one second apart: the i-th file of
each stream is in the i-th micro-batch, in every run. A table is one file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.graphs import GraphWorkload, input_files
from bench.workloads import AnyWorkload, TableWorkload, Workload
from papers.shared.zipf import rank_shares

# Part of the fingerprint: raise it when the generator changes, so that no old file is reused.
GENERATOR_VERSION = 1
FIRST_MTIME = 1_700_000_000

SIDES = {"l": "x", "r": "y"}

# The Spark schema of each stream, so that no source has to infer it.
_SCHEMAS = {side: f"k bigint, id bigint, {value} double" for side, value in SIDES.items()} | {
    "s": "sale bigint, product bigint, qty bigint"
}

# Spark closes a row group at 128 MB: about as many products.
ROW_GROUP_ROWS = 1_000_000
CATEGORIES = 997


def cache_dir() -> Path:
    """Where data, logs and results go: $WATERSMEET_BENCH_DIR, else bench/.data."""
    return Path(os.environ.get("WATERSMEET_BENCH_DIR") or Path(__file__).parent / ".data").resolve()


def input_dir(workload: AnyWorkload) -> Path:
    """Generate the files of a workload unless they are there, and return their directory."""
    fingerprint = hashlib.sha256(_facts(workload).encode()).hexdigest()[:8]
    home = cache_dir() / "input" / f"{workload.name}-{fingerprint}"
    if not home.exists():
        # Written beside and renamed, so that an interrupted generation is never taken for data.
        draft = home.with_name(home.name + f".{os.getpid()}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(workload, GraphWorkload):
            input_files(workload, draft, _write_batch)
        elif isinstance(workload, TableWorkload):
            _write_sales(workload, draft)
            _write_products(workload, draft)
        else:
            for number, side in enumerate(SIDES):
                _write_side(workload, side, np.random.default_rng((workload.seed, number)), draft)
        draft.rename(home)
    return home


def schema_of(workload: AnyWorkload, stream: str) -> str:
    return workload.schema(stream) if isinstance(workload, GraphWorkload) else _SCHEMAS[stream]


def stream_file(home: Path, stream: str, batch: int) -> Path:
    return home / stream / f"part-{batch:05d}.parquet"


def _facts(workload: AnyWorkload) -> str:
    if isinstance(workload, GraphWorkload):
        return f"{workload.facts()},{GENERATOR_VERSION}"
    if isinstance(workload, TableWorkload):
        sizes = (workload.rows, workload.table_rows, workload.batches, workload.seed)
        return ",".join(map(str, (*sizes, workload.alpha, workload.by_id, GENERATOR_VERSION)))
    facts = f"{workload.rows},{workload.keys},{workload.batches},{workload.seed},{GENERATOR_VERSION}"
    return facts + (f",{workload.alpha}" if workload.alpha else "")


def _write_side(workload: Workload, side: str, rng: np.random.Generator, home: Path) -> None:
    reached = np.cumsum(rank_shares(workload.keys, workload.alpha))
    for batch in range(workload.batches):
        rows = workload.batch_rows
        columns = {
            "k": _draw_keys(workload, reached, rng),
            "id": np.arange(batch * rows, (batch + 1) * rows, dtype=np.int64),
            SIDES[side]: rng.random(rows),
        }
        _write_batch(pa.table(columns), home, side, batch)


def _draw_keys(workload: Workload, reached: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The keys of one batch: even, or by Zipf's law, where the key is its rank. `reached` sums up the shares."""
    if not workload.alpha:
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
        _products(np.arange(first, min(first + ROW_GROUP_ROWS, workload.table_rows)), rng)
        for first in range(0, workload.table_rows, ROW_GROUP_ROWS)
    )
    first = next(pieces)
    with pq.ParquetWriter(home / "p" / "part-00000.parquet", first.schema) as writer:
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(piece)


def _products(ids: np.ndarray, rng: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "name": _numbered("product number ", ids, 12),
            "category": _numbered("category ", ids % CATEGORIES, 4),
            "price": np.round(rng.uniform(1, 1000, len(ids)), 2),
            "stock": rng.integers(0, 1000, len(ids)),
            "note": _numbered("", rng.integers(0, 1 << 62, len(ids)), 40),
        }
    )


def _numbered(text: str, numbers: np.ndarray, digits: int) -> pa.Array:
    padded = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(text, padded, "")
