"""Running the cases: data, streams, one Spark session for all, the operators in turns.

In each round every operator runs a case once, and another one begins: what drifts while a sitting lasts falls on all
of them. Of several rounds the fastest counts, since what disturbs a run only adds to it. A first run of each operator is
thrown away: it starts Python workers and compiles Spark's code.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from watersmeet.jobs.session import spark_session
from watersmeet.reproduce.arrival import cut, steady
from watersmeet.reproduce.hypercube.cases import Case, Size, make_inputs, operators_of
from watersmeet.reproduce.hypercube.many import TaskRun, fastest, run_tasks
from watersmeet.reproduce.hypercube.operators import TASKS, THREE, Operator
from watersmeet.reproduce.queries import Inputs
from watersmeet.reproduce.sitting import CORES, SETTINGS, Watch
from watersmeet.reproduce.streams import write_streams
from watersmeet.reproduce.timed import remove, run_timed
from watersmeet.reproduce.tpch import tables


@dataclass(frozen=True, slots=True)
class CaseRun:
    """One case: rows, results, the share of all rows that the heaviest key has; seconds on Spark, 48 tasks."""

    rows: tuple[int, int]
    results: int
    heaviest: float
    spark_s: dict[Operator, float]
    tasks: dict[Operator, TaskRun]


Measured = dict[Case, CaseRun]


def count_steps(cases: Sequence[Case], size: Size) -> int:
    """How often `Watch.step` will be called."""
    if not cases:
        return 0
    runs = sum(len(THREE) + len(operators_of(case)) for case in cases)
    return 1 + len(THREE) + _needs_tables(cases) + len(cases) + size.rounds * runs


def measure(
    cases: Sequence[Case],
    size: Size,
    data: Path,
    scratch: Path,
    watch: Watch,
    stop: Event,
    arm: Callable[[], None],
) -> Measured:
    """Run all of them. `arm` is called when the session is there: from then on `stop` is listened to."""
    if not cases:
        return {}
    home = data
    if _needs_tables(cases):
        watch.step(f"TPC-H tables, scale factor {size.scale:g}")
        home = tables(data, size.scale)
    measured: Measured = {}
    watch.step("starting Spark")
    with spark_session("watersmeet reproduce", SETTINGS, scratch / "spark.log") as session:
        arm()
        for number, case in enumerate(cases):
            sitting = _Sitting(session.spark, case, size, home, scratch, watch, stop)
            if number == 0:
                sitting.warm_up()
            measured[case] = sitting.run()
    return measured


def _needs_tables(cases: Sequence[Case]) -> bool:
    return any(case.figure == "fig6" for case in cases)


class _Sitting:
    """All runs of one case."""

    def __init__(
        self,
        spark: SparkSession,
        case: Case,
        size: Size,
        home: Path,
        scratch: Path,
        watch: Watch,
        stop: Event,
    ):
        watch.step(f"{case.text}: data")
        self._spark, self._case, self._size = spark, case, size
        self._scratch, self._watch, self._stop = scratch, watch, stop
        self._inputs: Inputs = make_inputs(case, size, home)
        self._ends = cut(steady(*self._inputs.rows), size.batches)
        shutil.rmtree(scratch / "files", ignore_errors=True)
        write_streams(self._inputs, self._ends, scratch / "files")

    def warm_up(self) -> None:
        for operator in THREE:
            self._watch.step(f"{self._case.text}, {operator.name}: warming up")
            self._on_spark(operator)

    def run(self) -> CaseRun:
        spark_s: dict[Operator, list[float]] = {}
        runs: dict[Operator, list[TaskRun]] = {}
        for turn in range(self._size.rounds):
            for operator in _turned(THREE, turn):
                self._watch.step(f"{self._case.text}, {operator.name} on Spark")
                spark_s.setdefault(operator, []).append(self._on_spark(operator))
        for turn in range(self._size.rounds):
            for operator in _turned(operators_of(self._case), turn):
                self._watch.step(f"{self._case.text}, {operator.name}, {TASKS} tasks")
                runs.setdefault(operator, []).append(self._in_tasks(operator))
        return CaseRun(
            self._inputs.rows,
            self._inputs.count_results(),
            self._inputs.heaviest_share(),
            {operator: min(seconds) for operator, seconds in spark_s.items()},
            {operator: fastest(found) for operator, found in runs.items()},
        )

    def _on_spark(self, operator: Operator) -> float:
        run = self._scratch / "run"
        remove(run)
        try:
            return run_timed(
                self._spark,
                self._inputs,
                self._scratch / "files",
                run,
                operator.arguments(CORES),
                stop=self._stop,
                watch=functools.partial(self._watch.batch, of=len(self._ends)),
            ).total_s
        finally:
            remove(run)

    def _in_tasks(self, operator: Operator) -> TaskRun:
        return run_tasks(
            operator,
            TASKS,
            self._inputs,
            self._ends,
            self._scratch / "run",
            stop=self._stop,
            watch=functools.partial(self._watch.batch, of=len(self._ends)),
        )


def _turned(operators: Sequence[Operator], turn: int) -> Sequence[Operator]:
    start = turn % len(operators)
    return [*operators[start:], *operators[:start]]
