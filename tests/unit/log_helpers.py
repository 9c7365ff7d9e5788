"""A join's state for tests of the log: rows, plans and committed batches over a real directory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.kernel.rows import Sorted
from watersmeet.log.manifests import agree
from watersmeet.log.parents import find_parent
from watersmeet.log.starts import claim_start
from watersmeet.log.storage import Files
from watersmeet.model.facts import BatchId, BatchSpan, Descriptor, Manifest, Run
from watersmeet.model.limits import DEFAULT_LIMITS
from watersmeet.model.signature import Compared, InputSpec, JoinSignature, StoredColumn
from watersmeet.plan.batch import plan_batch
from watersmeet.schemes.hash import Hash
from watersmeet.schemes.scheme import Circumstances

SIGNATURE = JoinSignature(
    (InputSpec("l", (StoredColumn("x", "bigint"),), ("k",)), InputSpec("r", (), ("k",))),
    "l.k = r.k",
    ("bigint",),
    Compared.WORD,
    scheme="hash",
)


def rows(*keys: int) -> Sorted:
    ordered = np.array(sorted(keys), np.uint64)
    return Sorted(ordered, pa.RecordBatch.from_pydict({"x": pa.array(ordered.astype(np.int64))}))


def plan(batch: BatchId, *descriptors: Descriptor, receipts=(), instance: str = "one", run_seq: int = 0):
    return lambda parent: plan_batch(
        batch,
        parent,
        descriptors,
        receipts,
        signature=SIGNATURE,
        instance=instance,
        run_seq=run_seq,
        scheme=Hash(),
        given=Circumstances(
            tasks=2, limits=DEFAULT_LIMITS, now_ms=1, keys_of=lambda run: np.zeros(0, np.uint64)
        ),
    )


def commit(
    files: Files,
    number: int,
    run: str = "run-a",
    *runs: Run,
    instance: str = "one",
    accepted: tuple[BatchSpan, ...] = (),
) -> Manifest:
    """Publish one batch as the tasks of a query do: claim a start, find the parent, agree."""
    batch = BatchId("q", run, number)
    start = claim_start(files, run, number)
    decide = plan(batch, Descriptor("l", 0, runs, 0), instance=instance, run_seq=start.number)
    return agree(files, batch, start, instance, lambda: find_parent(files, batch, start, accepted), decide)
