"""A planner says which runs it will look into: on an object store those are fetched together, all others one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tests import life
from watersmeet.engine.operator import Operator
from watersmeet.local.join import LocalJoin
from watersmeet.log.runs import RunReader
from watersmeet.model.limits import Limits

SCHEMA = pa.schema({"k": pa.int64()})


def test_a_planner_expects_the_runs_of_its_batch_and_merged_ones_too(tmp_path, monkeypatch):
    announced, agreed = [], []
    expect, agree = RunReader.expect_keys, Operator.agree_and_merge

    def listen(reader, runs):
        announced.append(runs)
        expect(reader, runs)

    def watch(operator, *task):
        agreed.append(agree(operator, *task))
        return agreed[-1]

    monkeypatch.setattr(RunReader, "expect_keys", listen)
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


def test_a_planner_that_samples_walks_expects_rows(tmp_path, monkeypatch):
    announced, expected = [], []
    expect, agree = RunReader.expect, Operator._agree

    def listen(reader, runs):
        announced.append(runs)
        expect(reader, runs)

    def watch(*given):
        announced.clear()
        manifest = agree(*given)
        expected.append((manifest, [run.path for runs in announced for run in runs()]))
        return manifest

    monkeypatch.setattr(RunReader, "expect", listen)
    monkeypatch.setattr(Operator, "_agree", watch)
    schemas = {
        name: pa.schema([(column, pa.int64()) for column in name]) for name in ("ax", "bxy", "cyz", "dz")
    }
    join = life.start(
        schemas,
        tmp_path,
        "ax.x = bxy.x AND bxy.y = cyz.y AND cyz.z = dz.z",
        select=["ax.a"],
        settings={"limits": Limits(least_sampled_rows=1)},
    )
    for _ in range(2):
        expected.clear()
        join.count(
            **{name: pa.table([range(60)] * len(schema), schema=schema) for name, schema in schemas.items()}
        )
    manifest, paths = expected[0]
    assert manifest.history
    assert {run.path for run in manifest.history} <= set(paths)
