"""The simulated cluster: what executors do is counted, and a batch waits for the slowest."""

from __future__ import annotations

from dataclasses import replace

import pytest


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


@pytest.mark.parametrize("scale", [1, 10])
def test_planners_fetch_the_keys_of_large_runs_and_tasks_their_rows(scale):
    from bench.counted import NEW

    (use,) = simulated("even keys", rows=60_000, scale=scale, batches=1)
    for task in use.join:
        others = [one for one in use.ingest if one.executor != task.executor]
        assert calls([task], NEW, "fetch") == [2 * len(others)]
        whole = sum(one.phases["ingest"].run_bytes_written for one in others)
        keys = 8 * sum(one.rows for one in others)
        assert task.phases[NEW].run_bytes_read == whole + keys


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
    from bench.cluster_page import CLUSTERS, Model, Trial, answer, section, trials

    uses = simulated("grid", batches=2)
    save(tmp_path / "x.json", uses)
    assert load(tmp_path / "x.json") == uses
    found = {Trial("grid", 200_000, CLUSTERS[0]): uses}
    assert "next bottleneck" in answer(found, Model())
    page = section(found, Model(), "2026-01-01", "x.svg")
    assert "| grid | 200K | object store |" in page
    missing = page.split("Not simulated: ")[1].split(".\n")[0].split("; ")
    assert len(missing) == len(trials()) - 1
    assert {"grid, 20M rows", "even keys, 2M rows", "even keys, 2M rows, 128 tasks"} <= {*missing}
    every = section(dict.fromkeys(trials(), uses), Model(), "2026-01-01", "x.svg")
    assert "Not simulated" not in every


@pytest.mark.parametrize(
    "largest, known", [("history", False), ("new rows", False), ("agree", True)], ids=lambda one: str(one)
)
def test_no_bottleneck_is_named_where_reads_are_counted_too_high(monkeypatch, largest, known):
    from bench import cluster_page
    from bench.costs import SEGMENTS

    times = dict.fromkeys(SEGMENTS, 1.0) | {largest: 2.0}
    monkeypatch.setattr(cluster_page.Model, "times", lambda *_: times)
    found = {cluster_page.Trial("grid", 200_000): simulated("grid", batches=2)}
    objects, server = cluster_page.answer(found, cluster_page.Model()).split("On the file server ")
    assert f"the next bottleneck is **{largest}**" in objects, "an object store gives runs whole"
    assert ("the next bottleneck is" in server) == known
    assert known or f"not known. {cluster_page.READ_WHOLE}, **{largest}** would be" in server
