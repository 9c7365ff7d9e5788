"""A planner says which runs it will look into: on an object store those are fetched together, all others one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.engine.operator import Operator
from watersmeet.local.join import LocalJoin
from watersmeet.log.runs import RunReader

SCHEMA = pa.schema({"k": pa.int64()})


def test_a_planner_expects_the_runs_of_its_batch_and_merged_ones_too(tmp_path, monkeypatch):
    announced, agreed = [], []
    expect, agree = RunReader.expect, Operator.agree_and_merge

    def listen(reader, runs):
        announced.append(runs)
        expect(reader, runs)

    def watch(operator, *task):
        agreed.append(agree(operator, *task))
        return agreed[-1]

    monkeypatch.setattr(RunReader, "expect", listen)
    monkeypatch.setattr(Operator, "agree_and_merge", watch)
    rng = np.random.default_rng(1)
    join = LocalJoin(
        dict.fromkeys("lr", SCHEMA), on="l.k = r.k", state=str(tmp_path), partitions=16, strategy="hypercube"
    )
    merged = 0
    for _ in range(4):
        announced.clear()
        join.count(**{name: pa.table({"k": rng.integers(0, 99, 400)}, SCHEMA) for name in "lr"})
        live = {run.path for run in agreed[-1].live}
        assert {run.path for run in announced[0]()} == live
        merged += sum("-m" in path for path in live)
    assert merged
