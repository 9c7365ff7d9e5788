"""Benchmarks of joins of many inputs: their state, how they are shared out, and the orders of walks."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.unit.bench.run_helpers import timed_run


def graph_run(live_bytes: int, answers: int | None = None) -> list[dict]:
    """A timed run of the triangle with this much live state, of 1,000 bytes that are allowed, and its check."""
    stored = {"live_bytes": live_bytes, "row_bytes": 840, "further_rows": 10}
    run = timed_run("watersmeet", 1.0) | {"workload": "triangle", "stored": stored}
    check = {
        "workload": "triangle",
        "competitor": "watersmeet",
        "equal": True,
        "want": {"rows": str(answers)},
    }
    return [run] if answers is None else [run, check]


@pytest.mark.parametrize(
    "runs, met",
    [
        ([], None),
        (graph_run(1_000, 200_000), True),
        (graph_run(1_020, 200_000), False),
        (graph_run(1_000), None),
        (graph_run(1_000, 250_000), False),
    ],
    ids=["not run", "at the limit", "above it", "answers not counted", "few intermediate results"],
)
def test_the_state_is_compared_with_the_rows_that_it_holds(runs, met):
    from bench.graph_demands import INTERMEDIATE
    from bench.graphs import TRIANGLE
    from bench.report import Results
    from bench.stored import state_bytes

    assert state_bytes(Results(runs), TRIANGLE, INTERMEDIATE).met is met


def test_no_intermediate_result_is_in_the_state(tmp_path):
    """80 paths of two edges for each triangle; the verdict of the benchmark, from a join's own manifest."""
    from bench.graphs import TRIANGLE
    from bench.stored import OF_FRAMES, Stored, stored_by
    from watersmeet.local.join import LocalJoin

    small = replace(TRIANGLE, batches=2, rows=40_000)
    batches = {name: list(small.batches_of(number)) for number, name in enumerate(small.inputs)}
    join = LocalJoin({n: b[0].schema for n, b in batches.items()}, on=small.on, state=str(tmp_path))
    for number in range(small.batches):
        join.count(**{name: mine[number] for name, mine in batches.items()})
    found = stored_by(tmp_path / "join")
    assert found is not None
    stored = Stored(**found)
    assert stored.row_bytes == 3 * 40_000 * 32
    assert 0 < stored.live_bytes <= OF_FRAMES * stored.allowed_bytes


@pytest.mark.parametrize("emitted, worst, met", [(7, 1.25, True), (7, 1.26, False), (6, 1.0, False)])
def test_three_inputs_are_shared_out_evenly_and_completely(emitted, worst, met):
    from bench.graph_demands import even
    from bench.report import CUBE, Results

    found = {"48": {"run": 1.0, "worst_batch": worst, "emitted": emitted}}
    run = {"workload": "zipf-three", "competitor": CUBE, "results": 7, "balance": found}
    assert even(Results([run]), 48).met is met


def test_the_relations_of_query_5_fit_together():
    from bench.tpch import Q5_CHECK

    small = replace(Q5_CHECK, scale=0.001)
    rows = {name: pa.concat_tables(small.batches_of(n)) for n, name in enumerate(small.inputs)}
    assert small.new_rows[0] == sum(len(next(small.batches_of(n))) for n in range(6))
    assert sum(small.new_rows) == sum(map(len, rows.values()))
    for one, other in (condition.split(" = ") for condition in small.conditions):
        (name, key), (also, other_key) = one.split("."), other.split(".")
        values = [set(rows[name][key].to_pylist()), set(rows[also][other_key].to_pylist())]
        assert min(values, key=len) <= max(values, key=len)
    assert rows["l"].equals(pa.concat_tables(small.batches_of(2)))


def test_the_parts_of_a_warm_batch_are_those_of_spark(tmp_path):
    from bench.report import OURS, Results
    from bench.warm import table, task_ms

    parts = {
        "latestOffset": 10,
        "getBatch": 4,
        "queryPlanning": 6,
        "walCommit": 3,
        "commitOffsets": 2,
        "addBatch": 75,
    }
    run = timed_run(OURS, 0.1) | {"workload": "three-500k", "task_ms": 30.4}
    run["batches"] = [batch | {"duration_ms": parts} for batch in run["batches"]]
    run["usage"] |= {"jvm_cpu_s": 0.4, "python_cpu_s": 0.2}
    _, text = table(Results([run]), ["three-500k", "path-4"])
    *_, line = text.splitlines()
    assert line == "| three-500k | watersmeet | 100 | 10 | 10 | 5 | 75 | 100 | 50 | 30 |"
    assert table(Results([]), ["three-500k"]) == []
    assert task_ms(tmp_path / "none") is None


def test_walks_along_values_and_by_scans_give_the_same():
    from bench import walks

    walk = walks.BANDS[0]
    found = walks.measure(replace(walk, rows=300), batches=3)
    assert list(found) == list(walk.ways)
    assert len({results for _, _, results in found.values()} - {0}) == 1


def order_runs(chosen: list[int], fixed: list[int], results: int = 9, cpu_s: float = 1.0) -> dict:
    lives = {"chosen": chosen, "b:acd c:dba": fixed}
    orders = {
        name: [
            {"results": results, "work": w, "cpu_s": cpu_s}
            if name == "chosen"
            else {"results": 9, "work": w, "cpu_s": 1.0}
            for w in work
        ]
        for name, work in lives.items()
    }
    return {"workload": "path-swap", "competitor": "watersmeet", "change": 4, "orders": orders}


@pytest.mark.parametrize(
    "run, met",
    [
        (order_runs([9, 9, 9, 12, 50, 50, 50, 12], [10] * 8), [True, True, True, True]),
        (order_runs([10] * 7 + [13], [10] * 8), [True, False, True, True]),
        (order_runs([10] * 8, [10] * 8, results=8), [False] * 4),
        (order_runs([10] * 8, [10] * 8, cpu_s=1.21), [True, True, False, False]),
    ],
    ids=["three batches to settle", "late", "other results", "slow"],
)
def test_chosen_orders_are_compared_with_the_best_fixed_one(run, met):
    from bench.orders import near_best
    from bench.report import Results

    assert [finding.met for finding in near_best(Results([run]), "path-swap")] == met
    assert [finding.met for finding in near_best(Results([]), "path-swap")] == [None] * 4


def test_a_fixed_order_is_walked_and_changes_no_result(tmp_path):
    from bench.graphs import PATH_SWAP
    from bench.orders import measure

    found = measure(replace(PATH_SWAP, rows=1_800, batches=3, change=2), tmp_path)["orders"]
    assert len({tuple(batch["results"] for batch in life) for life in found.values()}) == 1
    assert found["b:acd c:dba"][1]["work"] > 1.2 * found["b:cda c:dba"][1]["work"]
