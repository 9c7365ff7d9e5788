"""Name the only batch of a join of batch DataFrames.

Spark gives such a join no batch number. It may also run any part of it again later, under another execution id: a
second `collect()` of one DataFrame reuses the shuffle, and a lost partition of a cached result is recomputed.
So the id depends on the rows that were read, not on when:

- All executions of one DataFrame share a folder. Run files are named by their content, so an ingest task that runs
  again over the same rows in the same order writes the same files.
- The manifest is named by the rows that arrived, in any order and partitioning (`engine/digest.py`). Every join task
  receives all descriptors. A task that runs again finds the manifest that the other tasks used, even if the rows were
  read in another order. Grids and heavy keys are cut by position, so tasks that used two manifests would miss pairs.
  An execution that read other rows gets its own manifest.

A result cannot be recomputed once its files are removed, a day after they were written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from watersmeet.engine.digest import MODULUS
from watersmeet.log.clean import BATCH_FOLDER
from watersmeet.log.codec import checksum
from watersmeet.model.facts import BatchId, Descriptor
from watersmeet.plan.batch import count_arrived

# An ingest task does not know what the other tasks read. It needs only the folder.
_INGESTING = "ingest"


def id_for_ingest(instance: str) -> BatchId:
    return BatchId(query=BATCH_FOLDER + instance, run=_INGESTING, number=0)


def id_for_join(instance: str, descriptors: Sequence[Descriptor]) -> BatchId:
    """Return the id shared by all executions that read these rows."""
    totals: Counter[str] = Counter()
    for descriptor in descriptors:
        totals[descriptor.input] += int(descriptor.digest or "0", 16)
    rows = count_arrived(descriptors)
    read = [f"{name} {rows[name]} {totals[name] % MODULUS:x}" for name in sorted(rows)]
    return BatchId(query=BATCH_FOLDER + instance, run=checksum("\n".join(read).encode()), number=0)
