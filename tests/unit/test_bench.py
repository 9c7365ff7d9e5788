"""The benchmarks' own arithmetic: skewed data, balances, and verdicts that do not call a gap in the runs a success."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _bench_can_be_imported(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    monkeypatch.setenv("WATERSMEET_BENCH_DIR", str(tmp_path))


def balance_runs(uneven: dict[float, float]):
    """Results in which the hypercube was so uneven at these alphas, with any number of tasks."""
    from bench.report import CUBE, Results
    from bench.workloads import BALANCE, BALANCE_TASKS

    return Results(
        [
            {
                "workload": BALANCE[alpha].name,
                "competitor": CUBE,
                "results": 7,
                "balance": {str(t): {"run": run, "worst_batch": run, "emitted": 7} for t in BALANCE_TASKS},
            }
            for alpha, run in uneven.items()
        ]
    )


@pytest.mark.parametrize(
    "uneven, met",
    [
        (lambda alpha: 1.25, True),
        (lambda alpha: 1.26 if alpha == 0.5 else 1.0, False),
        (lambda alpha: None if alpha == 0.5 else 1.0, None),
        (lambda alpha: {0.5: None, 1.0: 1.3}.get(alpha, 1.0), False),
    ],
    ids=["at the target", "one alpha above it", "one alpha not measured", "one above it, one not measured"],
)
def test_every_alpha_must_be_even(uneven, met):
    from bench.skew import MOST_UNEVEN, evenness
    from bench.workloads import BALANCE

    found = {alpha: run for alpha in BALANCE if (run := uneven(alpha)) is not None}
    finding = evenness(balance_runs(found), list(BALANCE.values()), 16, MOST_UNEVEN)
    assert finding.met is met


def test_a_wrong_number_of_results_is_found():
    from bench.skew import counted

    runs = balance_runs({0.0: 1.0, 1.0: 1.0})
    assert counted(runs).met
    runs.runs[1]["balance"]["48"]["emitted"] = 6
    assert not counted(runs).met
    assert "balance-1 with 48 tasks" in counted(runs).measured


def test_skewed_files_have_the_results_that_were_expected():
    from bench.balance import count_results
    from bench.data import SIDES, input_dir
    from bench.workloads import by_name

    workload = by_name("zipf-1-quick")
    folder = input_dir(workload)
    batches = [
        {side: pq.read_table(folder / side / f"part-{number:05d}.parquet") for side in SIDES}
        for number in range(workload.batches)
    ]
    assert all(len(batch[side]) == workload.batch_rows for batch in batches for side in SIDES)
    assert count_results(batches, workload.keys) == pytest.approx(workload.expected_results, rel=0.15)


def test_what_each_strategy_does_with_one_key(tmp_path):
    from bench.balance import figures, run_tasks

    table = pa.table({"k": np.zeros(200, np.int64), "id": np.arange(200)})
    batches = [{"l": table, "r": table}] * 2
    hashed = figures(*run_tasks(batches, "hash", 4, tmp_path / "hash"))
    cube = figures(*run_tasks(batches, "hypercube", 4, tmp_path / "cube"))
    assert hashed["emitted"] == cube["emitted"] == 400 * 400
    assert hashed["run"] == 4, "one task does everything"
    assert cube["run"] < 1.1


@pytest.mark.parametrize("share, noisy", [(0.05, False), (0.6, True)], ids=["quiet", "others were busy"])
def test_a_verdict_from_noisy_runs_says_so(share, noisy):
    from bench.report import CUBE, HASH, Results, at_most

    def run(competitor: str, seconds: float, foreign: float) -> dict:
        batches = [{"seconds": seconds}] * 5
        usage = {"foreign_cpu_share": foreign}
        return {"workload": "uniform-2m", "competitor": competitor, "batches": batches, "usage": usage}

    finding = at_most(Results([run(HASH, 1.0, share), run(CUBE, 1.05, 0.0)]), "uniform-2m", HASH, 1.1, CUBE)
    assert finding.met
    assert ("NOISY, others took up to 60%" in finding.measured) == noisy
