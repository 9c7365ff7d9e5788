"""A join under a budget of memory on a real session: it owes results, a restart pays them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame

import watersmeet as wm
from tests.spark.state_helpers import newest
from watersmeet.errors import UsageError
from watersmeet.schemes.budget.facts import BudgetPlan
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, id long"
BATCHES = 4


def rows(batch: int) -> list[tuple[int, int]]:
    return [(key, 1000 * batch + key) for key in range(40)]


def test_a_small_budget_owes_results_that_a_start_without_it_pays(spark, tmp_path):
    names = "abc"
    budget: dict[str, Any] = {"memory": "3 KB", "options": {"partitionGroups": 16}}

    def build(**streams: DataFrame) -> DataFrame:
        on = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
        ids = [f"{name}.id AS {name}" for name in names]
        return wm.join(streams, on=on, select=ids, state=str(tmp_path / "state"), tasks=2, **budget)

    with StreamScript(spark, tmp_path, **dict.fromkeys(names, SCHEMA)) as script:
        script.start(build)
        for batch in range(BATCHES):
            script.batch(**{name: rows(batch) for name in names})
            if batch == 1:
                script.restart()
        owing = newest(tmp_path / "state", "-".join(names))
        plan = owing.plan.scheme
        assert isinstance(plan, BudgetPlan) and owing.pushes
        assert all(load.active_bytes <= 3 << 10 for load in plan.loads)
        assert sum(load.owed_rows for load in plan.loads) > 0
        emitted = Counter(script.results())
        assert max(emitted.values()) == 1, "a result came out twice"
        assert len(emitted) < 40 * BATCHES ** len(names)
        budget.clear()
        script.restart()
        script.batch(**{names[0]: [(99, 1)]})
        everything = [(key, *ids) for key in range(40) for ids in _ids(key, len(names))]
        assert_same_rows(script.results(), [found[1:] for found in everything])
    assert not newest(tmp_path / "state", "-".join(names)).pushes


def _ids(key: int, inputs: int) -> list[tuple[int, ...]]:
    """The ids of all combinations of rows of one key."""
    found: list[tuple[int, ...]] = [()]
    for _ in range(inputs):
        found = [(*before, 1000 * batch + key) for before in found for batch in range(BATCHES)]
    return found


def test_a_join_of_batches_refuses_memory(spark, tmp_path):
    frame = spark.createDataFrame(rows(0), SCHEMA)
    with pytest.raises(UsageError, match="memory= is for streams"):
        wm.join({"l": frame, "r": frame}, on="l.k = r.k", memory="1 MB", state=str(tmp_path))
