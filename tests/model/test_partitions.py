"""The local driver cuts a batch into partitions, as Spark does."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tests import life
from watersmeet.errors import UsageError

SCHEMA = pa.schema({"id": pa.int64(), "k": pa.int64()})


def rows(seed: int, count: int) -> pa.Table:
    keys = np.random.default_rng(seed).integers(0, 20, count)
    return pa.table({"id": np.arange(count), "k": keys}, schema=SCHEMA)


@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.k - r.k) <= 1", "l.k + r.k > 30"])
def test_each_partition_is_stored_by_itself_and_results_stay_the_same(tmp_path, on):
    def outcome(partitions: int) -> tuple[Counter, list[int]]:
        state = tmp_path / str(partitions)
        join = life.start(SCHEMA, state, on, select=["l.id AS a", "r.id AS b"], partitions=partitions)
        found: Counter = Counter()
        for seed in range(3):
            right = rows(seed + 50, 90).to_batches(max_chunksize=40)
            found += life.multiset(join.batch(l=rows(seed, 100), r=right))
            life.check_plan(join)
        return found, sorted(run.rows for run in life.newest(state).fresh)

    whole, runs = outcome(1)
    assert runs == [90, 100]
    cut, runs = outcome(8)
    assert runs == [11] * 6 + [12] * 6 + [13] * 4
    assert cut == whole


def test_an_unknown_input_is_refused(tmp_path):
    join = life.start(SCHEMA, tmp_path, partitions=2)
    with pytest.raises(UsageError, match="there is no input x"):
        join.batch(x=rows(1, 5))
