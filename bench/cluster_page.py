"""The tables of docs/cluster.md: what was simulated (`cluster.py`) as times, by the costs of `costs.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from bench.costs import (
    FILE_SERVER,
    OBJECT_STORE,
    SEGMENTS,
    SPARK,
    SPARK_COSTS,
    SparkCosts,
    Storage,
    Times,
    clean_seconds,
    fixed_cpu,
    mean_times,
    stretched,
    total,
    with_own_rows_only,
)
from bench.counted import CLEAN, HISTORY, NEW, PHASES, Usage
from bench.report import markdown_table
from bench.simulate import BATCHES, CLEAN_EVERY, COUNTED, RETAINED, SEED, WORKLOADS, BatchUse, Cluster
from watersmeet.log.remote import AT_ONCE

MB = 1_000_000
# Rows of a batch, and how many of them one simulated row stands for.
SIZES = {200_000: 1, 2_000_000: 1, 20_000_000: 10}
SMALLEST = min(SIZES)
# More tasks than executors, on one workload and size.
CLUSTERS = (Cluster(), Cluster(tasks=128, partitions=128), Cluster(tasks=256, partitions=200))
SCALED_WORKLOAD, SCALED_ROWS = "even keys", 2_000_000


@dataclass(frozen=True, slots=True)
class Trial:
    workload: str
    rows: int
    cluster: Cluster = CLUSTERS[0]

    @property
    def scale(self) -> int:
        return SIZES.get(self.rows, 1)

    @property
    def name(self) -> str:
        shape = self.cluster
        return f"{self.workload}.{self.rows}.{shape.tasks}x{shape.partitions}"

    @property
    def text(self) -> str:
        return f"{self.workload}, {short(self.rows)} rows"

    @property
    def shaped(self) -> str:
        """With the number of tasks, if it is not the usual one."""
        return self.text if self.cluster == CLUSTERS[0] else f"{self.text}, {self.cluster.tasks} tasks"


def short(rows: int) -> str:
    """
    >>> short(200_000), short(2_000_000)
    ('200K', '2M')
    """
    return f"{rows // 1_000_000}M" if rows >= 1_000_000 else f"{rows // 1_000}K"


def trials() -> list[Trial]:
    """The smallest batches of a workload come first: they tell what does not grow with the rows."""
    main = [Trial(name, rows) for name in WORKLOADS for rows in SIZES]
    return main + [Trial(SCALED_WORKLOAD, SCALED_ROWS, cluster) for cluster in CLUSTERS[1:]]


Found = dict[Trial, list[BatchUse]]


@dataclass(frozen=True, slots=True)
class Model:
    """All that turns counts into times."""

    storages: tuple[Storage, ...] = (FILE_SERVER, OBJECT_STORE)
    spark: SparkCosts = SPARK_COSTS

    def times(self, found: Found, trial: Trial, storage: Storage) -> Times:
        uses = self.whole(found, trial)
        return mean_times(uses, CLEAN_EVERY - RETAINED, storage, self.spark, trial.cluster)

    def whole(self, found: Found, trial: Trial) -> list[BatchUse]:
        """The batches with all rows, if they were simulated with a part of them."""
        small = found.get(replace(trial, rows=SMALLEST))
        return stretched(found[trial], trial.scale, fixed_cpu(small)) if small else found[trial]


def time_rows(found: Found, model: Model) -> list[list[str]]:
    """Seconds of a batch by segment, for each trial and storage."""
    rows = []
    for trial in found:
        if trial.cluster != CLUSTERS[0]:
            continue
        for storage in model.storages:
            times = model.times(found, trial, storage)
            cleaned = clean_seconds(model.whole(found, trial), CLEAN_EVERY - RETAINED, storage)
            rows.append(
                [
                    trial.workload,
                    short(trial.rows),
                    storage.name,
                    f"**{seconds(total(times))}**",
                    *(seconds(times[segment]) for segment in SEGMENTS if segment != CLEAN),
                    seconds(cleaned),
                ]
            )
    return rows


TIME_HEAD = (
    "join", "rows", "storage", "batch s", *(s for s in SEGMENTS if s != CLEAN), "clean-up, one in 16 batches",
)  # fmt: skip


def seconds(value: float) -> str:
    """
    >>> seconds(0.0), seconds(0.0123), seconds(1.234), seconds(48.26)
    ('0', '0.01', '1.23', '48')
    """
    if value < 0.005:
        return "0"
    return f"{value:.2f}" if value < 9.995 else f"{value:.0f}"


def use_rows(found: Found) -> list[list[str]]:
    """What a join task does in a batch, mean of all; the busiest in brackets."""
    rows = []
    for trial, uses in found.items():
        tasks = [
            [task.phases[phase] for phase in PHASES if phase in task.phases and phase != CLEAN]
            for use in uses
            for task in use.join
        ]

        def both(value: Callable[[Usage], float], tasks: list[list[Usage]] = tasks) -> str:
            sums = [sum(map(value, phases)) for phases in tasks]
            return (
                f"{fmean(sums):,.1f} ({max(sums):,.1f})"
                if max(sums) < 10
                else f"{fmean(sums):,.0f} ({max(sums):,.0f})"
            )

        rows.append(
            [
                trial.workload,
                short(trial.rows),
                f"{trial.cluster.tasks} x {trial.cluster.partitions}",
                both(lambda usage: usage.requests),
                both(lambda usage: usage.calls["fetch"]),
                both(lambda usage: usage.run_bytes_read / MB),
                both(lambda usage: usage.run_bytes_written / MB),
                both(lambda usage: usage.calls["list"]),
                f"{uses[-1].shuffled_bytes / 1_000:,.0f}",
                f"{uses[-1].manifest_bytes / 1_000:,.0f}",
            ]
        )
    return rows


USE_HEAD = (
    "join", "rows", "tasks x partitions", "requests", "runs fetched", "MB fetched", "MB written", "listings",
    "KB of descriptors", "KB of manifest",
)  # fmt: skip


def scaling_rows(found: Found, model: Model) -> list[list[str]]:
    rows = []
    for cluster in CLUSTERS:
        trial = Trial(SCALED_WORKLOAD, SCALED_ROWS, cluster)
        if trial not in found:
            continue
        # Other shapes have no run with few rows: at full scale nothing is multiplied.
        times = [
            mean_times(found[trial], CLEAN_EVERY - RETAINED, storage, model.spark, cluster)
            for storage in model.storages
        ]
        fetched = fmean(
            sum(usage.calls["fetch"] for task in use.join for usage in task.phases.values())
            for use in found[trial]
        )
        rows.append(
            [
                str(cluster.tasks),
                str(cluster.partitions),
                *(seconds(total(one)) for one in times),
                *(largest(one) for one in times),
                f"{fetched:,.0f}",
            ]
        )
    return rows


def largest_part(times: Times) -> str:
    return max(times, key=lambda segment: times[segment])


def largest(times: Times) -> str:
    segment = largest_part(times)
    return f"{segment} ({times[segment] / total(times):.0%})"


def what_if_rows(found: Found, model: Model) -> list[list[str]]:
    """The batch on an object store, if the operator fetched otherwise."""
    rows = []
    storage = model.storages[-1]
    for trial in [trial for trial in found if trial.cluster == CLUSTERS[0]]:
        uses = model.whole(found, trial)
        own = with_own_rows_only(uses, trial.cluster.tasks)
        variants = ((uses, replace(storage, at_once=False)), (uses, storage), (own, storage))
        results = [
            mean_times(part, CLEAN_EVERY - RETAINED, one, model.spark, trial.cluster)
            for part, one in variants
        ]
        rows.append(
            [
                trial.workload,
                short(trial.rows),
                *(seconds(total(one)) for one in results),
                largest({segment: value for segment, value in results[-1].items() if segment != SPARK}),
            ]
        )
    return rows


# Why no answer is given for a file server where reading runs comes first: reading is counted too high there.
READ_WHOLE = (
    "In fact a process maps runs there and reads less of them than is counted "
    "([assumed](#what-was-measured-and-what-is-assumed)); how much less was not measured. If it read all that is counted"
)


def answer(found: Found, model: Model) -> str:
    """The first paragraph of docs/cluster.md: which part of a batch is the largest."""
    sentences = []
    for storage in reversed(model.storages):
        times = {trial: model.times(found, trial, storage) for trial in found if trial.cluster == CLUSTERS[0]}
        ours = {trial: {s: v for s, v in one.items() if s != SPARK} for trial, one in times.items()}
        winners = Counter(map(largest_part, ours.values()))
        first, count = winners.most_common(1)[0]
        middle = times.get(Trial(SCALED_WORKLOAD, SCALED_ROWS)) or next(iter(times.values()))
        rest = ", ".join(f"{name} in {number}" for name, number in winners.most_common()[1:])
        told, takes = f"the next bottleneck is **{first}**: it is", "takes"
        if storage.is_file_server and first in (NEW, HISTORY):
            told, takes = f"which part is next is not known. {READ_WHOLE}, **{first}** would be", "would take"
        sentences.append(
            f"On the {storage.name} {told} the largest part of our own time in {count} of {len(times)} cases"
            f"{f' ({rest})' if rest else ''}. A batch of {short(SCALED_ROWS)} rows with {SCALED_WORKLOAD} {takes} "
            f"{seconds(total(middle))} s, of which {largest(middle)}."
        )
    uses = found.get(Trial(SCALED_WORKLOAD, SCALED_ROWS)) or next(iter(found.values()))
    fetches = fmean(sum(u.calls["fetch"] for task in use.join for u in task.phases.values()) for use in uses)
    moved = fmean(sum(u.run_bytes_read for task in use.join for u in task.phases.values()) for use in uses)
    written = fmean(
        sum(u.run_bytes_written for task in use.ingest for u in task.phases.values()) for use in uses
    )
    sentences.append(
        f"In that batch {fetches:,.0f} run files are fetched, {moved / MB:,.0f} MB for {written / MB:,.0f} MB of new rows."
    )
    return " ".join(sentences) + "\n"


def section(found: Found, model: Model, date: str, picture: str) -> str:
    """All tables of docs/cluster.md."""
    *_, objects = model.storages
    bars = (
        "Seconds of a batch: the chain of tasks that it waits for, by phase. A clean-up is shown as it takes; in the "
        "total and in the picture it is spread over 16 batches."
    )
    more = (
        f"More tasks on the same executors ({SCALED_WORKLOAD}, {short(SCALED_ROWS)} rows): seconds of a batch, its "
        "largest part, run files fetched by all tasks."
    )
    names = [storage.name for storage in model.storages]
    scaling_head = (
        "tasks", "partitions", *(f"{name} s" for name in names), *(f"largest part, {name}" for name in names),
        "runs fetched",
    )  # fmt: skip
    help_ = (
        f"What helps on the {objects.name}: seconds of a batch if a task had one request under way at a time; as it is, "
        f"with {AT_ONCE}; if it also fetched only its own range of every new run, and the largest part of our own time "
        "then."
    )
    help_head = ("join", "rows", "one at a time", "as it is", "own range", "then the largest part")
    scaled = scaling_rows(found, model)
    parts = [
        _setting(model, date) + _not_simulated(found),
        f"![seconds of a batch by what it waits for]({picture})",
        bars,
        markdown_table(TIME_HEAD, time_rows(found, model)),
        "What one join task does in a batch without clean-up, mean and in brackets the most.",
        markdown_table(USE_HEAD, use_rows(found)),
        *([more, markdown_table(scaling_head, scaled)] if len(scaled) > 1 else []),
        help_,
        markdown_table(help_head, what_if_rows(found, model)),
    ]
    return "\n\n".join(parts) + "\n"


def _not_simulated(found: Found) -> str:
    """The page is written without trials that take too long for a session, but not as if there were none."""
    missing = [trial.shaped for trial in trials() if trial not in found]
    return f" Not simulated: {'; '.join(missing)}." if missing else ""


def _setting(model: Model, date: str) -> str:
    server, objects = model.storages
    cluster, spark = CLUSTERS[0], model.spark
    return (
        f"Simulated {date} on one machine, seed {SEED}: {cluster.executors} executors with {cluster.cores} cores, "
        f"{cluster.tasks} join tasks, {cluster.partitions} partitions of each input, means of the last {COUNTED} of "
        f"{BATCHES} batches. Parameters: {server.name} {server.request_s * 1000:g} ms a round trip, "
        f"{server.stream_bytes_s / MB:,.0f} MB/s a stream, {server.total_bytes_s / MB:,.0f} MB/s for all; "
        f"{objects.name} {objects.request_s * 1000:g} ms a request, {objects.stream_bytes_s / MB:,.0f} MB/s a stream; "
        f"Spark {spark.batch_s:g} s a batch, {spark.launch_s * 1000:g} ms a task, {spark.row_s * 1e9:.0f} ns a row, "
        f"{spark.result_s * 1e9:.0f} ns a result."
    )
