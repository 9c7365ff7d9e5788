"""Seeded input files, made once and reused.

Layout: `<cache>/<workload>-<fingerprint>/{l,r}/part-00000.parquet ...`. Spark's file source takes
files in the order of their modification time, so times are set one second apart: the i-th file of
either side is in the i-th micro-batch, in every run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.workloads import Workload
from watersmeet.reproduce.zipf import rank_shares

# Part of the fingerprint: raise it when the generator changes, so that no old file is reused.
GENERATOR_VERSION = 1
FIRST_MTIME = 1_700_000_000

SIDES = {"l": "x", "r": "y"}


def cache_dir() -> Path:
    """Where data, logs and results go: $WATERSMEET_BENCH_DIR, else bench/.data."""
    return Path(os.environ.get("WATERSMEET_BENCH_DIR") or Path(__file__).parent / ".data").resolve()


def schema_ddl(side: str) -> str:
    """The Spark schema of one side, so that no source has to infer it."""
    return f"k bigint, id bigint, {SIDES[side]} double"


def input_dir(workload: Workload) -> Path:
    """Generate the files of a workload unless they are there, and return their directory."""
    facts = f"{workload.rows},{workload.keys},{workload.batches},{workload.seed},{GENERATOR_VERSION}"
    if workload.alpha:
        facts += f",{workload.alpha}"
    fingerprint = hashlib.sha256(facts.encode()).hexdigest()[:8]
    home = cache_dir() / "input" / f"{workload.name}-{fingerprint}"
    if not home.exists():
        # Written beside and renamed, so that an interrupted generation is never taken for data.
        draft = home.with_name(home.name + f".{os.getpid()}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        for number, side in enumerate(SIDES):
            _write_side(workload, side, np.random.default_rng((workload.seed, number)), draft)
        draft.rename(home)
    return home


def _write_side(workload: Workload, side: str, rng: np.random.Generator, home: Path) -> None:
    (home / side).mkdir(parents=True)
    reached = np.cumsum(rank_shares(workload.keys, workload.alpha))
    for batch in range(workload.batches):
        rows = workload.batch_rows
        table = pa.table(
            {
                "k": _draw_keys(workload, reached, rng),
                "id": np.arange(batch * rows, (batch + 1) * rows, dtype=np.int64),
                SIDES[side]: rng.random(rows),
            }
        )
        path = home / side / f"part-{batch:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (FIRST_MTIME + batch, FIRST_MTIME + batch))


def _draw_keys(workload: Workload, reached: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The keys of one batch: even, or by Zipf's law, where the key is its rank. `reached` sums up the shares."""
    if not workload.alpha:
        return rng.integers(0, workload.keys, workload.batch_rows, dtype=np.int64)
    ranks = np.searchsorted(reached, rng.random(workload.batch_rows), side="right")
    # A draw above a sum that rounding left below 1 would fall behind the last rank.
    return np.minimum(ranks, workload.keys - 1).astype(np.int64)
