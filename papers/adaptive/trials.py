"""What is run on Spark for which exhibit, and running it: data, streams, one session for all trials.

Trials on the same data follow each other, after a first one that is thrown away: it starts Python workers and
compiles Spark's code, which would fall on whoever comes first. There are several rounds, each of which starts with another
operator, and of each batch the best time counts: a disturbance only adds to it.

The same joins also run without Spark, task by task (papers/adaptive/tasks.py): on Spark here there are two tasks, the paper has
one for each cell.
"""

from __future__ import annotations

import functools
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from papers.adaptive.operators import DYNAMIC, OPERATORS, SHJ, STATICMID, STATICOPT, arguments, runs_with
from papers.adaptive.spark_run import Setting, SparkRun, fastest, run_on_spark
from papers.adaptive.tasks import GridTasks, run_batch
from papers.shared.arrival import Point, alternating, cut, steady, write_streams
from papers.shared.queries import FLUCT, QUERIES, SKEWS, Inputs, materialise
from papers.shared.reproduction import Stopped, Watch
from papers.shared.timed import CORES, SETTINGS
from papers.shared.tpch import tables
from watersmeet.jobs.session import spark_session
from watersmeet.local.join import LocalJoin

# The skew of the evaluation after Table 2: the equality joins at Z4, the bands on uniform data.
SKEWED, UNIFORM = 1.0, 0.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run: the TPC-H scale, micro-batches, skews of Table 2, and how often each trial runs."""

    scale: float
    batches: int
    fluct_batches: int
    skews: tuple[float, ...]
    rounds: int


# How strongly the arrival of Figure 5k fluctuates on Spark. Up to 4 the square mapping keeps the bound too.
FLUCT_KS = (4, 8)

# Few batches: what each of them costs Spark by itself, some 0.3 s, is the same for all operators and hides the join.
FULL = Size(scale=0.5, batches=8, fluct_batches=32, skews=SKEWS, rounds=2)
QUICK = Size(scale=0.05, batches=4, fluct_batches=16, skews=(SKEWS[0], SKEWS[-1]), rounds=1)


@dataclass(frozen=True, slots=True, order=True)
class Trial:
    """One operator on one query under one skew, on `cells` cells; `k` only for Fluct-join."""

    query: str
    z: float
    operator: str
    cells: int
    k: int = 0


# Those of the paper's Table 2, one for each cell, beside the two on Spark.
TABLE2_CELLS = 16
TABLE2_TASKS = (CORES, TABLE2_CELLS)
GRIDS = (STATICMID, STATICOPT, DYNAMIC)


@dataclass(frozen=True, slots=True)
class InTasks:
    """A grid whose tasks ran one after the other without Spark, in seconds of the processor: by batch those of taking rows in, by
    batch and task those of joining.
    """

    ingest_s: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]

    @property
    def join_s(self) -> float:
        """Of as many workers as tasks: in each batch the slowest."""
        return float(self.seconds.max(axis=1).sum())


@dataclass(frozen=True, slots=True)
class Measured:
    """Runs on Spark; and by query and number of tasks those of each grid without it."""

    runs: Mapping[Trial, SparkRun]
    tasks: Mapping[tuple[str, int], Mapping[str, InTasks]]


def table2_trial(query: str, z: float, operator: str) -> Trial:
    return Trial(query, z, operator, TABLE2_CELLS)


def query_trial(query: str, operator: str) -> Trial:
    """The four joins of Figures 5a to 5e."""
    return Trial(query, SKEWED if QUERIES[query].equality else UNIFORM, operator, TABLE2_CELLS)


def fluct_trial(k: int) -> Trial:
    return Trial(FLUCT.name, UNIFORM, DYNAMIC, 64, k)


def trials_for(exhibit: str, size: Size) -> list[Trial]:
    """The runs that an exhibit shows."""
    if exhibit == "table2":
        names = itertools.product(("EQ5", "EQ7"), size.skews, (SHJ, DYNAMIC, STATICMID))
        # A control, which runs at the strongest skew only.
        return [
            *(table2_trial(*name) for name in names),
            *(query_trial(q, STATICOPT) for q in ("EQ5", "EQ7")),
        ]
    if exhibit in ("fig5c", "fig5d", "fig5e"):
        queries = ("EQ5",) if exhibit == "fig5c" else ("EQ5", "EQ7", "B_NCI", "B_CI")
        pairs = itertools.product(queries, OPERATORS)
        return [query_trial(q, o) for q, o in pairs if runs_with(o, equality=QUERIES[q].equality)]
    return [fluct_trial(k) for k in FLUCT_KS] if exhibit == "fig5k" else []


def in_tasks_for(exhibit: str) -> list[tuple[str, int]]:
    """The queries and numbers of tasks that an exhibit shows without Spark."""
    return list(itertools.product(("EQ5", "EQ7"), TABLE2_TASKS)) if exhibit == "table2" else []


def rounds_of(trial: Trial, size: Size) -> int:
    """Of a fluctuating arrival only counts are shown."""
    return 1 if trial.k else size.rounds


def count_steps(trials: Iterable[Trial], in_tasks: Sequence[tuple[str, int]], size: Size) -> int:
    """How often `Watch.step` will be called."""
    todo = set(trials)
    if not todo:
        return 0
    data = {(t.query, t.z, t.cells, t.k) for t in todo}
    return 3 + len(data) + sum(rounds_of(trial, size) for trial in todo) + size.rounds * len(in_tasks)


def run_trials(
    trials: Iterable[Trial],
    in_tasks: Sequence[tuple[str, int]],
    size: Size,
    data: Path,
    scratch: Path,
    watch: Watch,
    stop: Event,
    arm: Callable[[], None],
) -> Measured:
    """Run all of them. `arm` is called when the session is there: from then on `stop` is listened to."""
    todo = sorted(set(trials), key=lambda t: (t.query, t.z, t.cells, t.k, OPERATORS.index(t.operator)))
    runs: dict[Trial, SparkRun] = {}
    tasks: dict[tuple[str, int], Mapping[str, InTasks]] = {}
    if not todo:
        return Measured(runs, tasks)
    watch.step(f"TPC-H tables, scale factor {size.scale:g}")
    home = tables(data, size.scale)
    watch.step("starting Spark")
    with spark_session("watersmeet papers", SETTINGS, scratch / "spark.log") as session:
        arm()
        is_warm = False
        for _, group in itertools.groupby(todo, key=lambda t: (t.query, t.z, t.cells, t.k)):
            same = list(group)
            watch.step(f"{same[0].query}, z = {same[0].z:g}: data")
            inputs = materialise(home, QUERIES[same[0].query], same[0].z)
            ends = batch_ends(inputs, same[0], size)
            shutil.rmtree(scratch / "files", ignore_errors=True)
            write_streams(inputs, ends, scratch / "files")

            def run(
                trial: Trial, what: str = "", inputs: Inputs = inputs, count: int = len(ends)
            ) -> SparkRun:
                watch.step(f"{trial.query}, z = {trial.z:g}, {trial.operator}{what}")
                return run_on_spark(
                    session.spark,
                    trial.operator,
                    inputs,
                    scratch / "files",
                    Setting(trial.cells, CORES),
                    scratch / "run",
                    stop=stop,
                    watch=functools.partial(watch.batch, of=count),
                )

            if not is_warm:
                run(same[0], ": warming up")
                is_warm = True
            found: dict[Trial, list[SparkRun]] = {trial: [] for trial in same}
            for turn in range(rounds_of(same[0], size)):
                first = turn % len(same)
                for trial in (*same[first:], *same[:first]):
                    found[trial].append(run(trial))
            runs |= {trial: fastest(several) for trial, several in found.items()}
            if same[0].z == SKEWED:
                for query, count in in_tasks:
                    if query == same[0].query:
                        tasks[query, count] = run_in_tasks(
                            inputs, ends, count, size.rounds, scratch, watch, stop
                        )
    return Measured(runs, tasks)


def run_in_tasks(
    inputs: Inputs, ends: Sequence[Point], tasks: int, rounds: int, scratch: Path, watch: Watch, stop: Event
) -> dict[str, InTasks]:
    """The three grids side by side, each with as many cells as in Table 2."""
    found: dict[str, list[GridTasks]] = {operator: [] for operator in GRIDS}
    for _ in range(rounds):
        watch.step(f"{inputs.query.name}, {tasks} tasks one by one")
        with tempfile.TemporaryDirectory(prefix="tasks-", dir=scratch) as folder:
            grids = {
                operator: GridTasks.of(
                    LocalJoin(
                        {side: table.schema for side, table in inputs.tables.items()},
                        on=inputs.query.on,
                        select=list(inputs.query.select),
                        state=str(Path(folder) / operator),
                        tasks=tasks,
                        partitions=2,
                        **arguments(operator, inputs, TABLE2_CELLS),
                    )
                )
                for operator in GRIDS
            }
            for number, (before, end) in enumerate(itertools.pairwise([Point(0, 0), *ends])):
                if stop.is_set():
                    raise Stopped("stopped")
                run_batch(list(grids.values()), number, _between(inputs, before, end))
                watch.batch(number + 1, len(ends))
        for operator, grid in grids.items():
            found[operator].append(grid)
    return {
        operator: InTasks(
            np.min([grid.ingest_s for grid in several], axis=0),
            np.min([grid.seconds for grid in several], axis=0),
        )
        for operator, several in found.items()
    }


def _between(inputs: Inputs, before: Point, end: Point) -> dict[str, pa.Table]:
    left, right = inputs.query.sides
    spans = {left: (before.left, end.left), right: (before.right, end.right)}
    return {side: inputs.tables[side].slice(low, high - low) for side, (low, high) in spans.items()}


def batch_ends(inputs: Inputs, trial: Trial, size: Size) -> Sequence[Point]:
    left, right = inputs.rows
    if not trial.k:
        return cut(steady(left, right), size.batches)
    # As in the paper, about 1 % of all rows come before the first turn.
    return cut(alternating(left, right, trial.k, (left + right) // 200), size.fluct_batches)
