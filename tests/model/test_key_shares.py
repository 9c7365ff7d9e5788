"""Remote state: tasks get shares of the keys, read less than all, and give what one big join gives."""

from __future__ import annotations

import pytest

from bench.many_shares import GRAPHS, MOST_READ, run_shared
from tests import life
from watersmeet.schemes.delta.scheme import Delta, DeltaPlan


@pytest.mark.parametrize("graph", ["path of three", "triangle"])
def test_a_task_fetches_a_part_of_the_state_and_all_give_the_whole_join(tmp_path, graph):
    shared = run_shared(tmp_path / "shared", graph, tasks=8, rows=50, batches=4, scale=10_000)
    plan = shared.manifest.plan.scheme
    assert isinstance(plan, DeltaPlan) and plan.shares is not None, "keys are not shared"
    assert 1 < plan.shares.cells <= 8
    inputs, on = GRAPHS[graph]
    query = f"SELECT {', '.join(f'{name}.id' for name in inputs)} FROM {', '.join(inputs)} WHERE {on}"
    assert shared.results and shared.results == life.ask_duckdb(query, **shared.given)
    # Without shares every task fetches every run.
    assert max(shared.fetched_bytes) <= MOST_READ * sum(run.bytes for run in shared.manifest.live)
    shown = Delta.show(plan, tuple(inputs))
    assert f"keys cut into {' x '.join(map(str, plan.shares.sides))} shares" in shown.summary
    assert any(of == "keys" and "a task reads about" in text for _, of, text in shown.events)


def test_local_state_has_no_shares(tmp_path):
    inputs, on = GRAPHS["path of three"]
    join = life.start(
        {
            name: life.pa.schema({one: life.pa.int64() for one in ("id", *columns)})
            for name, columns in inputs.items()
        },
        tmp_path,
        on,
        tasks=4,
        settings={"limits": life.replace(life.TINY, least_saved_bytes=1)},
    )
    join.batch()
    plan = life.newest(tmp_path).plan.scheme
    assert isinstance(plan, DeltaPlan) and plan.shares is None
