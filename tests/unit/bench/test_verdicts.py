"""Verdicts of the benchmarks: none calls a gap in the runs, or a noisy machine, a success."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.bench.run_helpers import timed_run


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


def test_a_warm_run_is_not_compared_with_a_cold_one():
    from bench.report import CUBE, DEFAULT, Results, times_faster

    mixed = Results([timed_run(CUBE, 1.0, 2.0), timed_run(DEFAULT, 6.0)])
    finding = times_faster(mixed, "uniform-2m", DEFAULT, 5.0, CUBE)
    assert finding.met is None
    assert "run both again" in finding.measured


def test_the_second_time_decides_and_the_first_is_said():
    from bench.report import CUBE, DEFAULT, Results, at_most, times_faster

    results = Results([timed_run(CUBE, 1.0, 2.0), timed_run(DEFAULT, 6.0, 8.0)])
    finding = times_faster(results, "uniform-2m", DEFAULT, 5.0, CUBE)
    assert (finding.measured, finding.met) == ("6.00x (1.000 s vs 6.000 s; cold 4.00x; CPU time 6.00x)", True)
    finding = at_most(results, "uniform-2m", DEFAULT, 0.2, CUBE)
    assert (finding.measured, finding.met) == ("0.17x (1.000 s vs 6.000 s; cold 0.25x; CPU time 0.17x)", True)


def test_of_two_times_in_a_jvm_the_second_counts_but_for_heap_and_start():
    from bench.run import warm_figures

    first = {
        "usage": {"jvm_rss_bytes": 5, "foreign_cpu_share": 0.3, "cpu_s": 1},
        "prepare_s": 9,
        "batches": [8],
    }
    second = {
        "usage": {"jvm_rss_bytes": 7, "foreign_cpu_share": 0.1, "cpu_s": 2},
        "prepare_s": 1,
        "batches": [4],
    }
    assert warm_figures(first, second) == {
        "usage": {"jvm_rss_bytes": 5, "foreign_cpu_share": 0.3, "cpu_s": 2},
        "prepare_s": 9,
        "batches": [4],
        "cold": [8],
    }


def test_a_wrong_number_of_results_is_found():
    from bench.skew import counted

    runs = balance_runs({0.0: 1.0, 1.0: 1.0})
    assert counted(runs).met
    runs.runs[1]["balance"]["48"]["emitted"] = 6
    assert not counted(runs).met
    assert "balance-1 with 48 tasks" in counted(runs).measured


def test_skewed_files_have_the_results_that_were_expected():
    from bench.data import SIDES, input_dir, stream_file
    from bench.work import count_results
    from bench.workloads import by_name

    workload = by_name("zipf-1-quick")
    folder = input_dir(workload)
    batches = [
        {side: pq.read_table(stream_file(folder, side, number)) for side in SIDES}
        for number in range(workload.batches)
    ]
    assert all(len(batch[side]) == workload.batch_rows for batch in batches for side in SIDES)
    assert count_results(batches, workload.keys) == pytest.approx(workload.expected_results, rel=0.15)


def test_what_each_strategy_does_with_one_key(tmp_path):
    from bench.work import figures, run_tasks

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


@pytest.mark.parametrize("suite", ["equality", "band", "skew", "tables", "nexmark", "window", "scale"])
@pytest.mark.parametrize("suffix", ["-quick", ""], ids=["quick", "full"])
def test_every_job_of_a_suite_can_be_started(suite, suffix):
    pytest.importorskip("pyspark")
    import importlib

    from bench.__main__ import plan_jobs
    from bench.peers import COMPETITORS
    from bench.suites import SUITES
    from bench.workloads import by_name

    chosen = SUITES[suite]
    jobs = plan_jobs(chosen, set(chosen.parts), chosen.competitors, 1, suffix)
    assert len({job.name for job in jobs}) == len(jobs)
    assert {by_name(job.workload).name.removesuffix("-quick") for job in jobs} == set(chosen.parts)
    for job in jobs:
        assert job.competitor in COMPETITORS or job.kind == "filled"
        module = importlib.import_module(job.command[2])
        assert callable(module.main)


@pytest.mark.parametrize(
    ("part", "about"),
    {
        "plan": "hypercube: ",
        "tasks": "20 tasks x 20 partitions, ",
        "runs": "1,000 live runs: ",
        "cleaning": "cleaning: ",
        "batches": "one-row batches: ",
        "shares": ": fetched by the busiest of 8 tasks",
    }.items(),
)
def test_the_suite_of_many_tasks_runs_and_meets_what_does_not_depend_on_the_machine(part, about):
    from bench.many import measure
    from bench.report import NO_TARGET

    said: list[str] = []
    findings = measure(part, True, said.append)
    assert said and findings
    for one in findings:
        assert about in one.demand
        assert one.met or one.target == NO_TARGET or " ms" in one.measured, one


def test_plans_are_timed_where_they_make_the_first_effort_too(monkeypatch):
    """The first batches, and every batch of a window: those are the figures beside the one that is judged."""
    from bench.many_plans import FIRST_BATCHES, WINDOW, Plans
    from watersmeet.schemes.hypercube import plan, suspects

    efforts: list[str] = []

    def choose(*of):
        effort = suspects.choose_effort(*of)
        efforts.append("first" if effort is suspects.FIRST else "next")
        return effort

    monkeypatch.setattr(plan, "choose_effort", choose)
    plans = Plans(4, 2, 2_000, 1.0)
    assert len(plans.timed(FIRST_BATCHES + 6)[0]) == len(efforts) == FIRST_BATCHES + 6
    assert efforts == ["first"] * FIRST_BATCHES + ["next"] * 6
    efforts.clear()
    plans.timed(WINDOW + 6, WINDOW)
    assert efforts[WINDOW:] == ["first"] * 6


def test_a_figure_without_a_target_misses_no_demand(tmp_path):
    import json

    from bench.many import PARTS, section
    from bench.parts import stored_outcome
    from bench.report import NO_TARGET, Finding

    figure = Finding("a plan", NO_TARGET, "5.0 ms", None)
    assert [figure.verdict, Finding("a plan", "under 3 ms", "-", None).verdict] == [NO_TARGET, "not measured"]
    for part in PARTS:
        (tmp_path / f"{part}.json").write_text(json.dumps({"notes": [], "findings": [asdict(figure)]}))
    assert "| a plan | no target | 5.0 ms | no target |" in section(
        stored_outcome(tmp_path, PARTS), "2026-11-19"
    )


def test_a_section_without_some_of_its_parts_is_not_written(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from bench import many, parts
    from bench.__main__ import app

    document = tmp_path / "page.md"
    document.write_text("as it was")
    monkeypatch.setattr(parts, "DOCUMENT", document)
    monkeypatch.setattr(many, "measure", lambda *_: [])
    done = CliRunner().invoke(app, ["many", "--only", "plan", "--only", "runs", "--date", "2026-01-01"])
    assert done.exit_code == 2
    assert "no results yet: tasks; cleaning; batches; shares." in " ".join(
        done.output.replace("│", " ").split()
    )
    assert document.read_text() == "as it was"
    done = CliRunner().invoke(app, ["many", "--date", "2026-01-01"])
    assert done.exit_code == 0 and "Measured 2026-01-01" in document.read_text()
    done = CliRunner().invoke(app, ["many", "--only", "plan", "--date", "2026-01-02"])
    assert done.exit_code == 0 and "Measured 2026-01-02" in document.read_text(), "the others are kept"


def test_a_part_of_the_suite_of_many_tasks_that_there_is_not_is_refused():
    from bench.many import measure

    with pytest.raises(ValueError, match="part must be one of plan, .*, got 'all'"):
        measure("all", True, print)


def test_the_table_of_files_names_every_file():
    from bench.report import DOCUMENT

    folder = DOCUMENT.parent.parent / "bench"
    table = (folder / "README.md").read_text().split("## Files")[1]
    files = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    assert not [name for name in sorted(files) if f"`{name}`" not in table]


def test_a_count_of_requests_tells_reads_from_writes(tmp_path):
    from bench.many_state import Count, CountedFiles
    from watersmeet.log.files import LocalFiles

    count = Count()
    files = CountedFiles(LocalFiles(tmp_path), count)
    files.publish("x/a", b"four")
    assert files.read("x/a") == b"four" and files.exists("x/a") and len(files.entries("x")) == 1
    assert (count.reads, count.read_bytes, count.written_bytes) == (3, 4, 4)


def test_keys_that_a_planner_fetches_are_counted_once():
    """The first that is missing makes all be fetched that are expected, as in `RunReader`."""
    from bench.many_state import Count, FetchedKeys
    from bench.zipf_runs import ZipfRuns

    shelf, count = ZipfRuns(1.0, 2, 0), Count()
    sizes = (10, 30, 1_200_000)
    runs = [shelf.store("l", 0, f"p{part}", shelf.draw(rows)) for part, rows in enumerate(sizes)]
    keys = FetchedKeys(shelf, count)
    keys.expect_keys(lambda: runs[:1])
    assert (count.fetched_bytes, count.fetches) == (0, 0), "nothing was read yet"
    assert len(keys.keys_alone(runs[0])) == 10
    assert (count.fetched_bytes, count.fetches) == (80, 1)
    keys.expect_keys(lambda: runs)
    keys.keys_alone(runs[0])
    assert count.fetches == 1, "a run that the machine has makes nothing be fetched"
    keys.keys_alone(runs[1])
    assert (count.fetched_bytes, count.fetches) == (8 * sum(sizes), 4), "9.6 MB take two requests"
    for run in runs:
        keys.keys_alone(run)
    assert count.fetches == 4
    other = FetchedKeys(shelf, count)
    other.expect_keys(lambda: runs[:2])
    other.keys_alone(runs[2])
    assert count.fetches == 6, "a run that was not expected is fetched alone"


def test_the_batch_in_which_a_planner_fetches_most_is_shown():
    from bench.many_tasks import Fetched, fetched_to_plan

    batches = [Fetched(1_000_000, 1, 5), Fetched(3_000_000, 9, 250_000)]
    found = fetched_to_plan("x", batches, 991)
    assert found.met
    assert found.measured == (
        "3 MB, 2 MB in the mean; keys of the batch's 250,000 rows are 2 MB; 9 requests, 1,000 with the log's"
    )
    assert not fetched_to_plan("x", batches, 992).met
    assert not fetched_to_plan("x", [Fetched(21_000_000, 1, 5)], 5).met


@pytest.mark.parametrize("late, met", [([1.2, 1.2, 9.0], True), ([1.3, 1.3, 0.1], False)])
def test_batches_that_take_longer_and_longer_are_found_whatever_one_round_says(late, met):
    from bench.many_batches import _growth

    assert _growth("x", [1.0, 1.0, 1.0], late, "ms").met is met


def test_calls_on_many_rows_may_grow_with_the_logarithm_and_no_more():
    from bench.many_batches import MILLION, MOST_CALLS_GROWTH, WARM, _growth

    assert np.log(sum(MILLION)) / np.log(WARM) == pytest.approx(MOST_CALLS_GROWTH, rel=0.01)
    assert _growth("x", [1.0], [1.9], "calls", MOST_CALLS_GROWTH).met
    assert not _growth("x", [1.0], [2.1], "calls", MOST_CALLS_GROWTH).met


def test_the_table_workload_of_two_versions_runs_all_of_its_batches(capsys):
    import json

    from bench import versions

    assert versions.TABLE_BATCHES >= 80, "shorter runs do not show a difference of three hundredths"
    versions.measure("a table", batches=3, rows=5_000)
    assert json.loads(capsys.readouterr().out)["results"] == 3 * 100_000


def test_the_interval_of_a_ratio_is_as_wide_as_its_pairs_differ():
    from bench.versions import interval

    low, high = interval(np.array([0.98, 0.99, 0.99, 1.0, 1.0, 1.0, 1.01, 1.01, 1.5]))
    assert 0.98 < low <= 1.0 <= high < 1.03, "one run that was disturbed does not decide"
    low, high = interval(np.linspace(0.9, 1.1, 9))
    assert low < 0.96 and high > 1.04
