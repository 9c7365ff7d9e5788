"""The benchmarks' own arithmetic: data, balances, pages, and verdicts that do not call a gap in the runs a success."""

from __future__ import annotations

import sys
from dataclasses import replace
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


def timed_run(who: str, seconds: float, cold: float | None = None) -> dict:
    batches = [{"seconds": s, "cpu_s": s} for s in (9.0, 9.0, seconds, seconds)]
    run = {
        "workload": "uniform-2m",
        "competitor": who,
        "batches": batches,
        "usage": {"foreign_cpu_share": 0.0},
    }
    return run if cold is None else run | {"cold": [{"seconds": s} for s in (20.0, 9.0, cold, cold)]}


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
    assert (finding.measured, finding.met) == ("6.00x (1.000 s vs 6.000 s; cold 4.00x)", True)
    finding = at_most(results, "uniform-2m", DEFAULT, 0.2, CUBE)
    assert (finding.measured, finding.met) == ("0.17x (1.000 s vs 6.000 s; cold 0.25x)", True)


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


def table_workload(**changes):
    from bench.workloads import TableWorkload

    facts = {"name": "few", "rows": 8_000, "table_rows": 20_000, "batches": 4, "heap_gb": 1}
    return TableWorkload(**facts | changes)


def read_sales(workload) -> list[pa.Table]:
    from bench.data import input_dir, stream_file

    return [pq.read_table(stream_file(input_dir(workload), "s", n)) for n in range(workload.batches)]


@pytest.mark.parametrize("by_id", [True, False], ids=["popular ids first", "popularity scattered"])
def test_sales_follow_zipfs_law(by_id):
    from papers.shared.zipf import rank_shares

    workload = table_workload(by_id=by_id)
    sales = pa.concat_tables(read_sales(workload))
    assert sales.column("sale").to_pylist() == list(range(workload.rows))
    counts = np.bincount(sales.column("product").to_numpy(), minlength=workload.table_rows)
    expected = workload.rows * rank_shares(workload.table_rows, 1.0)[:100].sum()
    assert np.sort(counts)[-100:].sum() == pytest.approx(expected, rel=0.1)
    assert (counts[:100].sum() == pytest.approx(expected, rel=0.1)) == by_id


def test_products_are_one_file_of_rows_of_120_bytes():
    from bench.data import input_dir

    workload = table_workload()
    (path,) = (input_dir(workload) / "p").iterdir()
    products = pq.read_table(path)
    assert products.column("id").to_pylist() == list(range(workload.table_rows))
    assert products.nbytes / len(products) == pytest.approx(120, rel=0.05)
    assert len(set(products.column("note").to_pylist())) == len(products)


def page_through(workload, strategy: str, state: Path) -> list[dict]:
    import watersmeet as wm
    from bench.data import input_dir
    from bench.pages import note_reads, pages_of_ids, run_batches
    from watersmeet.local.join import LocalJoin
    from watersmeet.tables.source import PreparedTable

    sales = read_sales(workload)
    products = wm.table(str(input_dir(workload) / "p"), key="id", in_place=False, page_rows=10)
    schemas = {"s": sales[0].schema, "p": products}
    join = LocalJoin(schemas, on=workload.on, select=workload.select, state=str(state), strategy=strategy)
    source = note_reads(join)
    homes = pages_of_ids(PreparedTable.open(source), "id", workload.table_rows)
    assert (homes == np.arange(workload.table_rows) // 10).all()
    return list(run_batches(sales, join, source, homes))


@pytest.mark.parametrize(
    "strategy, reads, stray",
    [
        ("hybrid", "holding", lambda batch: 0),
        ("mesh", "pages", lambda batch: batch["pages"] - batch["holding"]),
        ("index", "rows", lambda batch: 0),
    ],
)
def test_which_pages_each_strategy_reads(strategy, reads, stray, tmp_path):
    workload = table_workload(rows=400, table_rows=5_000)
    batches = page_through(workload, strategy, tmp_path / "state")
    holding = [len({k // 10 for k in sales.column("product").to_pylist()}) for sales in read_sales(workload)]
    assert [batch["holding"] for batch in batches] == holding
    assert all(batch["results"] == batch["rows"] == 100 for batch in batches)
    # Nothing is kept from earlier batches in the first one.
    assert batches[0]["reads"] == batches[0][reads]
    assert batches[0]["stray"] == stray(batches[0])
    if strategy != "mesh":
        assert [batch["needed"] for batch in batches] == holding
        assert not any(batch["stray"] for batch in batches)


def test_pages_needed_are_found_in_the_state_afterwards(tmp_path):
    from bench.pages import pages_needed

    workload = table_workload(rows=400, table_rows=5_000)
    batches = page_through(workload, "hybrid", tmp_path / "state")
    assert pages_needed(tmp_path / "state" / "join") == [
        {"pages": batch["needed"], "bytes": batch["needed_bytes"], "of": batch["pages"]} for batch in batches
    ]
    assert pages_needed(tmp_path / "no state") == []


def table_results(paging: list[dict], needed: list[int] | None = None):
    from bench.report import HYBRID, Results

    run = {"workload": "table-4m", "competitor": HYBRID}
    runs = [run | {"paging": paging}] if paging else []
    if needed is not None:
        runs.append(run | {"batches": [], "needed": [{"pages": pages} for pages in needed]})
    return Results(runs)


def paged(**changes) -> dict:
    batch = {"rows": 9, "results": 9, "pages": 5, "holding": 3, "needed": 3, "reads": 2, "stray": 0}
    return batch | changes


@pytest.mark.parametrize(
    "paging, on_spark, met",
    [
        ([paged(), paged(holding=2, needed=2)], [3, 2], True),
        ([paged(), paged(needed=4)], [3, 3], False),
        ([paged(), paged()], [3, 4], False),
        ([paged(), paged()], [3], False),
        ([paged()], None, None),
        ([], [3], None),
    ],
    ids=[
        "equal",
        "more than hold keys",
        "more on Spark",
        "a batch missing",
        "no run on Spark",
        "not counted",
    ],
)
def test_the_status_must_say_what_the_keys_say(paging, on_spark, met):
    from bench.tables import needed

    assert needed(table_results(paging, on_spark), "table-4m").met is met


@pytest.mark.parametrize(
    "paging, met",
    [
        ([paged(), paged()], True),
        ([paged(), paged(stray=1)], False),
        ([paged(), paged(results=8, reads=0)], False),
        ([], None),
    ],
    ids=["none", "one page too many", "a row without a result", "not counted"],
)
def test_a_page_without_a_key_is_one_too_many(paging, met):
    from bench.tables import strays

    assert strays(table_results(paging), "table-4m").met is met


@pytest.mark.parametrize("suite", ["equality", "band", "skew", "tables"])
@pytest.mark.parametrize("is_quick", [True, False], ids=["quick", "full"])
def test_every_job_of_a_suite_can_be_started(suite, is_quick):
    pytest.importorskip("pyspark")
    import importlib

    from bench.__main__ import plan_jobs
    from bench.peers import COMPETITORS
    from bench.suites import SUITES
    from bench.workloads import by_name

    chosen = SUITES[suite]
    jobs = plan_jobs(chosen, set(chosen.parts), chosen.competitors, 1, is_quick)
    assert len({job.name for job in jobs}) == len(jobs)
    assert {by_name(job.workload).name.removesuffix("-quick") for job in jobs} == set(chosen.parts)
    for job in jobs:
        assert job.competitor in COMPETITORS
        module = importlib.import_module(job.command[2])
        assert callable(module.main)


@pytest.mark.parametrize("part", ["plan", "tasks", "runs", "cleaning"])
def test_the_suite_of_many_tasks_runs_and_meets_what_does_not_depend_on_the_machine(part):
    from bench.many import measure

    said: list[str] = []
    findings = measure({part}, True, said.append)
    assert said and findings
    for one in findings:
        assert one.met or " ms" in one.measured, one


def test_a_count_of_requests_tells_reads_from_writes(tmp_path):
    from bench.many_state import Count, CountedFiles
    from watersmeet.log.files import LocalFiles

    count = Count()
    files = CountedFiles(LocalFiles(tmp_path), count)
    files.publish("x/a", b"four")
    assert files.read("x/a") == b"four" and files.exists("x/a") and len(files.entries("x")) == 1
    assert (count.reads, count.read_bytes, count.written_bytes) == (3, 4, 4)


@pytest.mark.parametrize("late, met", [(1.2, True), (1.3, False)])
def test_batches_that_take_longer_and_longer_are_found(late, met):
    from bench.many_batches import _growth

    assert _growth("x", 1.0, late, "ms").met is met


def test_every_distribution_of_the_balance_is_drawn_alike_each_time():
    from bench.balance import DISTRIBUTIONS

    for distribution in DISTRIBUTIONS.values():
        first, second = distribution.draw(0.01), distribution.draw(0.01)
        assert all(
            np.array_equal(a, b)
            for pair in zip(first, second, strict=True)
            for a, b in zip(*pair, strict=True)
        )
        assert all(len(side) for pair in first for side in pair)


def test_hot_keys_come_when_they_should():
    from bench.balance import DISTRIBUTIONS

    def hottest(name: str) -> list[tuple[int, float]]:
        counts = [np.bincount(left) for left, _ in DISTRIBUTIONS[name].draw(0.3)]
        return [(int(count.argmax()), count.max() / count.sum()) for count in counts]

    turns = hottest("keys take turns")
    assert [key for key, _ in turns] == [0, 1, 2]
    assert all(share == pytest.approx(0.1, rel=0.1) for _, share in turns)
    middle = hottest("hot from the middle")
    assert all(share < 0.001 for _, share in middle[:2])
    assert [key for key, _ in middle[2:]] == [7, 7]
    # A run lists keys of at least 32 rows: in a partition this one has fewer.
    new = hottest("32 partitions")
    assert [key for key, _ in new] == [0, 1]
    rows = len(DISTRIBUTIONS["32 partitions"].draw(1.0)[0][0])
    assert 0.03 * rows / 32 < 32


@pytest.mark.parametrize(
    "name, scheme",
    [("Zipf 1", "hypercube"), ("one key", "range"), ("32 partitions", "hash"), ("hot values in a band", "range"),
     ("inputs of 64:1", "biclique"), ("no equality, no band", "grid")],
)  # fmt: skip
def test_a_case_of_the_balance_has_the_results_that_its_keys_give(name, scheme):
    from bench.balance import Case, measure

    found = measure(Case(name, scheme, 3), 0.02)
    assert found["emitted"] == found["want"] > 0
    ratios = [1, found["run"], found["batch_by_batch"], found["worst_batch"], 3]
    assert (np.diff(ratios) > -1e-9).all(), "a run cannot be less even than its batches"


def balance_case(scheme: str, **changes):
    from bench.balance import Case

    result = {"run": 1.1, "judged": 1.2, "units": 5000, "emitted": 7, "want": 7, "rows": 3, "probed": 3}
    return {Case("Zipf 1", scheme, 200): result | changes}


@pytest.mark.parametrize(
    "results, problem",
    [
        (balance_case("hypercube"), None),
        (balance_case("hypercube", judged=1.26), "hypercube, Zipf 1, 200 tasks: 1.26"),
        (balance_case("grid", judged=1.26), "grid, Zipf 1, 200 tasks: 1.26"),
        (balance_case("hypercube", run=1.26), None),
        (balance_case("hash", judged=90.0), None),
        (balance_case("hash", emitted=6), "hash, Zipf 1, 200 tasks: 6 results instead of 7"),
        (balance_case("range", judged=None), "no batch has 1,000 units"),
    ],
    ids=[
        "even",
        "uneven in a batch",
        "uneven on the grid",
        "uneven over the run, which no batch is",
        "an uneven control",
        "a control with wrong results",
        "too little work",
    ],
)
def test_what_misses_the_demand_of_balance(results, problem):
    from bench.balance import problems, section

    found = problems(results)
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]
    assert ("NOT MET" in section(results, "2026-01-01", "x.svg")) == (problem is not None)


def test_a_batch_with_little_work_is_not_judged():
    from bench.balance import LEAST_UNITS, judged

    work = np.array([[0, 2 * LEAST_UNITS - 2], [LEAST_UNITS, LEAST_UNITS]])
    assert judged(work) == {"judged": 1.0, "judged_batches": 1, "units": LEAST_UNITS}
    assert judged(work[:1])["judged"] is None


def test_the_balance_is_printed_and_kept(tmp_path):
    from typer.testing import CliRunner

    from bench.__main__ import app
    from bench.balance import load

    chosen = ["--only", "one key", "--scheme", "hypercube", "--scheme", "hash", "--tasks", "4"]
    done = CliRunner().invoke(app, ["balance", "--quick", "--jobs", "1", *chosen])
    assert done.exit_code == 0, done.output
    assert "4.00 (4.00)" in done.output, "one task of the hash join does everything"
    assert len(load(tmp_path / "results" / "balance-quick")) == 2


def small_cluster(**changes):
    from bench.simulate import Cluster

    return Cluster(**{"executors": 4, "cores": 2, "tasks": 4, "partitions": 3} | changes)


def simulated(name: str, rows: int = 6_000, scale: int = 1, batches: int = 3, **changes):
    from bench.simulate import WORKLOADS, simulate

    return list(simulate(WORKLOADS[name], small_cluster(**changes), rows, scale, batches))


def calls(tasks, phase: str, call: str) -> list[int]:
    return [task.phases[phase].calls[call] if phase in task.phases else 0 for task in tasks]


@pytest.mark.parametrize("name", ["even keys", "Zipf 1", "band", "grid"])
def test_every_executor_fetches_the_new_runs_that_others_wrote(name):
    from bench.counted import INGEST, NEW

    for use in simulated(name):
        written = calls(use.ingest, INGEST, "write")
        assert written == [1] * 6
        for task, fetched in zip(use.join, calls(use.join, NEW, "fetch"), strict=True):
            own = sum(one.executor == task.executor for one in use.ingest)
            assert fetched == 6 - own


def test_all_results_are_counted_and_only_missing_runs_are_fetched():
    from bench.counted import HISTORY, NEW

    first, second = simulated("even keys", batches=2)
    assert sum(task.rows for task in second.join) > sum(task.rows for task in first.join) > 0
    # What was fetched in the first batch is held in the second.
    assert sum(calls(second.join, HISTORY, "fetch")) == 0
    moved = sum(task.phases[NEW].run_bytes_read for task in first.join)
    written = sum(task.phases["ingest"].run_bytes_written for task in first.ingest)
    assert moved == pytest.approx(written * 3, rel=0.01), "three executors fetch what the fourth wrote"


def test_tasks_race_for_the_manifest_as_on_a_cluster():
    from bench.counted import AGREE

    *_, last = simulated("even keys")
    assert calls(last.join, AGREE, "publish") == [1, 1, 1, 1]
    # The manifest that is not there yet, the parent, and for all but the winner the manifest.
    reads = calls(last.join, AGREE, "read")
    assert reads[0] + 1 == reads[1] == reads[2] == reads[3]


def test_a_merge_and_a_clean_up_are_seen_as_such():
    from bench.counted import CLEAN, HISTORY, MERGE
    from bench.simulate import CLEAN_EVERY

    uses = simulated("even keys", batches=CLEAN_EVERY + 1, partitions=8)
    assert sum(calls(uses[1].join, HISTORY, "fetch")) == 0, "every executor has fetched the first batch"
    assert sum(calls(uses[2].join, HISTORY, "fetch")) > 0, "what another executor has merged"
    assert sum(calls(uses[1].join, MERGE, "write")) > 0
    assert sum(calls(uses[1].join, MERGE, "publish")) > 0, "a receipt"
    cleaning = [number for number, use in enumerate(uses) if sum(calls(use.join, CLEAN, "delete"))]
    assert cleaning == [CLEAN_EVERY]
    assert sum(calls(uses[CLEAN_EVERY].join, CLEAN, "removed")) > 16 * (CLEAN_EVERY - 2)


def test_a_scaled_run_has_the_files_of_the_whole_one():
    from bench.counted import INGEST, MERGE, NEW

    whole = simulated("even keys", rows=400_000, partitions=8, batches=2)
    tenth = simulated("even keys", rows=400_000, partitions=8, batches=2, scale=10)
    assert sum(calls(whole[1].join, MERGE, "write")) == 4, "two parts of each input"
    for one, other in zip(whole, tenth, strict=True):
        for phase, call in ((NEW, "fetch"), (MERGE, "write")):
            assert sum(calls(one.join, phase, call)) == sum(calls(other.join, phase, call))
        sizes = [sum(task.phases[INGEST].run_bytes_written for task in use.ingest) for use in (one, other)]
        # Headers of the files are multiplied, too.
        assert sizes[1] == pytest.approx(sizes[0], rel=0.05)
        assert sum(task.rows for task in one.ingest) == sum(task.rows for task in other.ingest) == 400_000


def use_of(executor: int, rows: int = 0, **phases):
    from bench.counted import Usage
    from bench.simulate import TaskUse

    return TaskUse(executor, {name.replace("_", " "): Usage(**usage) for name, usage in phases.items()}, rows)


def test_a_batch_waits_for_the_slowest_executor_of_each_stage():
    from bench.costs import OBJECT_STORE, SparkCosts, batch_times, total
    from bench.simulate import BatchUse

    ingest = [use_of(0, 1_000, ingest={"cpu_s": 1.0}), use_of(1, 1_000, ingest={"cpu_s": 3.0})]
    join = [
        # Two cores: the third task of executor 0 begins when the first ends.
        use_of(0, join={"cpu_s": 1.0}),
        use_of(0, join={"cpu_s": 5.0}),
        use_of(0, join={"cpu_s": 2.0}, new_rows={"waits": 100, "stream_bytes": 100_000_000}),
        use_of(1, join={"cpu_s": 1.0}, merge={"cpu_s": 4.5}),
    ]
    spark = SparkCosts(batch_s=0.5, launch_s=0.0, row_s=0.001, result_s=0.0)
    times = batch_times(BatchUse(ingest, join), OBJECT_STORE, spark, small_cluster())
    # 100 requests of 20 ms, and 100 MB at 100 MB/s: three seconds beside three of joining.
    assert times["new rows"] == pytest.approx(3.0)
    assert (times["Spark"], times["JVM"], times["ingest"], times["join"], times["merge"]) == (
        0.5,
        1.0,
        3.0,
        3.0,
        0.0,
    )
    assert total(times) == pytest.approx(10.5)


def test_requests_that_are_under_way_together_are_waited_for_together():
    from bench.costs import OBJECT_STORE
    from bench.counted import Recorder

    recorder = Recorder()
    with recorder.together(40):
        for _ in range(40):
            usage = recorder.count("read", 1, 3, 1_000_000)
    recorder.count("publish", 1, 5, 1_000_000)
    assert usage.requests == 41
    assert usage.waits == pytest.approx(3 + 1), "forty at most sixteen at a time, and one"
    assert OBJECT_STORE.seconds(usage, 1) == pytest.approx(4 * 0.02 + 4 * 0.01)
    assert replace(OBJECT_STORE, at_once=False).seconds(usage, 1) == pytest.approx(41 * 0.02)


def test_tasks_that_wait_for_the_planner_agree_at_their_first_look_after_it():
    """A second task of the same core begins when the manifest is there."""
    from bench.costs import OBJECT_STORE, SparkCosts, stage_times
    from bench.simulate import TaskUse

    planner = use_of(0, agree={"cpu_s": 0.2}, join={"cpu_s": 0.1})
    planner = TaskUse(0, planner.phases, 0, {"agree": planner.phases["agree"]})
    others = [use_of(1, agree={"cpu_s": 0.01}, join={"cpu_s": 1.0}) for _ in range(2)]
    one_core = small_cluster(cores=1)
    times = stage_times([planner, *others], OBJECT_STORE, SparkCosts(), one_core)
    assert times["agree"] == pytest.approx(0.3 + 0.01 + 0.01), "looks after 0.1 and 0.3 s"
    assert times["join"] == pytest.approx(2.0)


def test_a_file_server_is_shared_by_all_executors():
    from bench.costs import FILE_SERVER
    from bench.counted import Usage

    usage = Usage(trips=10, requests=1_000, run_bytes_read=5_000_000_000)
    assert FILE_SERVER.seconds(usage, executors=1) == pytest.approx(0.005 + 5)
    assert FILE_SERVER.seconds(usage, executors=10) == pytest.approx(0.005 + 10)


def test_a_clean_up_is_that_of_sixteen_batches_and_spread_over_them():
    from bench.costs import OBJECT_STORE, SparkCosts, clean_seconds, mean_times
    from bench.simulate import BatchUse

    quiet = BatchUse([use_of(0, ingest={})], [use_of(0, join={})])
    busy = BatchUse(
        [use_of(0, ingest={})], [use_of(0, join={}, **{"clean-up": {"waits": 100}})], manifest_cpu_s=0.01
    )
    uses = [quiet, busy]
    # 100 waits for 8 batches are 200 for 16; 100 manifests, 16 at a time, are 7 waits and a second of CPU.
    assert clean_seconds(uses, 8, OBJECT_STORE) == pytest.approx(200 * 0.02 + 7 * 0.02 + 1.0)
    times = mean_times(uses, 8, OBJECT_STORE, SparkCosts(), small_cluster())
    assert times["clean-up"] == pytest.approx(5.14 / 16)
    assert clean_seconds([quiet], 8, OBJECT_STORE) == 0


def test_only_what_grows_with_the_rows_is_stretched():
    from bench.costs import fixed_cpu, stretched
    from bench.simulate import BatchUse

    small = [
        BatchUse([use_of(0, ingest={"cpu_s": 0.1})], [use_of(0, join={"cpu_s": 0.2}, agree={"cpu_s": 0.3})])
    ]
    large = [
        BatchUse([use_of(0, ingest={"cpu_s": 0.5})], [use_of(0, join={"cpu_s": 0.1}, agree={"cpu_s": 0.7})])
    ]
    (use,) = stretched(large, 10, fixed_cpu(small))
    assert use.ingest[0].phases["ingest"].cpu_s == pytest.approx(0.1 + 0.4 * 10)
    assert use.join[0].phases["join"].cpu_s == pytest.approx(0.1), "less than a small task takes"
    assert use.join[0].phases["agree"].cpu_s == pytest.approx(0.7)


def test_what_was_simulated_is_kept_and_makes_a_page(tmp_path):
    from bench.cluster import load, save
    from bench.cluster_page import CLUSTERS, Model, Trial, answer, section

    uses = simulated("grid", batches=2)
    save(tmp_path / "x.json", uses)
    assert load(tmp_path / "x.json") == uses
    found = {Trial("grid", 200_000, CLUSTERS[0]): uses}
    assert "next bottleneck" in answer(found, Model())
    page = section(found, Model(), "2026-01-01", "x.svg")
    assert "| grid | 200K | object store |" in page


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


# --- Mappings of the grid ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["equality", "band", "any condition"])
def test_searches_do_not_follow_the_sections_of_a_mapping(name, tmp_path):
    """At 64 tasks and sizes of 1:64 the best mapping reads a quarter of the rows, with as many searches."""
    from bench import mappings

    (predicate,) = (one for one in mappings.PREDICATES if one.name == name)
    found = mappings.measure(replace(predicate, rows=13_000), 64, 64, 3, tmp_path)
    mid, opt, dynamic = (found[name] for name in mappings.OPERATORS)
    assert (mid["mapping"], opt["mapping"], dynamic["mapping"]) == ((8, 8), (1, 64), (1, 64))
    assert opt["rows_read"] == dynamic["rows_read"] < 0.3 * mid["rows_read"]
    assert mid["results"] == opt["results"] == dynamic["results"]
    # Of the new rows there is one piece of each input, and each meets two runs of each of the two batches before.
    assert mid["searches"] == opt["searches"] == dynamic["searches"] == 64 * (4 + 4 + 1)


@pytest.mark.parametrize(
    ("rows", "ms", "predicate", "met"),
    [
        pytest.param(50, 1.9, "equality", [True], id="reads less, takes less"),
        pytest.param(50, 2.1, "equality", [False], id="reads less, takes longer"),
        pytest.param(50, 2.1, "any condition", [True], id="all pairs, within the noise"),
        pytest.param(50, 2.3, "any condition", [False], id="all pairs, longer"),
        pytest.param(99, 9.0, "equality", [], id="reads as much"),
    ],
)
def test_a_mapping_that_reads_less_must_take_less_time(rows, ms, predicate, met):
    from bench import mappings

    same = {"rows_read": 100, "slowest_ms": 2.0, "mean_ms": 1.0, "results": 7}
    operators = {
        "STATICMID": same,
        "STATICOPT": same | {"rows_read": rows, "slowest_ms": ms, "mean_ms": 0.9},
        "DYNAMIC": same,
    }
    found = [{"predicate": predicate, "tasks": 16, "ratio": 8, "operators": operators}]
    assert [finding.met for finding in mappings.find(found)] == met
    # The slowest task decides, for which all others wait; a mean task that is not ahead is named.
    operators["STATICOPT"]["mean_ms"] = 1.2
    assert [finding.met for finding in mappings.find(found)] == met


def test_the_table_of_mappings_says_how_often_the_mean_task_was_ahead(tmp_path):
    from bench import mappings

    figures = mappings.measure(replace(mappings.PREDICATES[0], rows=2_000), 4, 8, 4, tmp_path)
    mid, opt = (figures[name] for name in ("STATICMID", "STATICOPT"))
    opt["batch_ms"], mid["batch_ms"] = [1.0, 3.0], [2.0, 2.0]
    found = [{"predicate": "equality", "tasks": 4, "ratio": 8, "operators": figures}]
    opt["mean_ms"] = opt["slowest_ms"] = 2 * max(mid["slowest_ms"], mid["mean_ms"])
    text = mappings.section(found, "today")
    assert text.startswith("Measured today") and "NOT MET: equality, 4 tasks, 1:8: STATICOPT reads" in text
    assert "The mean task is not ahead: equality, 4 tasks, 1:8: STATICOPT" in text
    header, _, *lines = (line.split(" | ") for line in text.splitlines() if line.startswith("|"))
    assert len(lines) == 3 and all(len(line) == len(header) for line in lines)
    assert lines[1][-1] == "1 of 2 |" and lines[0][-1].strip(" |") == ""


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


def order_runs(chosen: list[int], fixed: list[int], results: int = 9) -> dict:
    lives = {"chosen": chosen, "b:acd c:dba": fixed}
    orders = {
        name: [{"results": results if name == "chosen" else 9, "work": w, "cpu_s": 1.0} for w in work]
        for name, work in lives.items()
    }
    return {"workload": "path-swap", "competitor": "watersmeet", "change": 4, "orders": orders}


@pytest.mark.parametrize(
    "run, met",
    [
        (order_runs([9, 9, 9, 12, 50, 50, 50, 12], [10] * 8), [True, True]),
        (order_runs([10] * 7 + [13], [10] * 8), [True, False]),
        (order_runs([10] * 8, [10] * 8, results=8), [False, False]),
    ],
    ids=["three batches to settle", "late", "other results"],
)
def test_chosen_orders_are_compared_with_the_best_fixed_one(run, met):
    from bench.orders import near_best
    from bench.report import Results

    assert [finding.met for finding in near_best(Results([run]), "path-swap")] == met
    assert [finding.met for finding in near_best(Results([]), "path-swap")] == [None, None]


def test_a_fixed_order_is_walked_and_changes_no_result(tmp_path):
    from bench.graphs import PATH_SWAP
    from bench.orders import measure

    found = measure(replace(PATH_SWAP, rows=1_800, batches=3, change=2), tmp_path)["orders"]
    assert len({tuple(batch["results"] for batch in life) for life in found.values()}) == 1
    assert found["b:acd c:dba"][1]["work"] > 1.2 * found["b:cda c:dba"][1]["work"]
