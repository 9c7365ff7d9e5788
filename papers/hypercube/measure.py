"""Running the cases: data, streams, one Spark session for all, the operators in turns.

With 48 tasks there are several rounds. In each of them every operator runs a case once, and each round starts with another
operator: drift falls on all of them. The fastest counts, since a disturbance only adds to a run's time. A first run of each
operator on Spark is thrown away: it starts Python workers and compiles Spark's code.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from papers.hypercube.cases import Case, Size, first_rows, make_inputs, one_key_inputs, operators_of
from papers.hypercube.many import TaskRun, fastest, handing_cost, run_tasks
from papers.hypercube.operators import PHJ, TASKS, THREE, Operator
from papers.shared.arrival import cut, steady, write_streams
from papers.shared.queries import Inputs
from papers.shared.reproduction import Watch
from papers.shared.timed import CORES, SETTINGS, remove, run_timed
from watersmeet.jobs.session import spark_session


@dataclass(frozen=True, slots=True)
class CaseRun:
    """One case: rows, results, the share of all rows that the heaviest key has; 48 tasks; and on Spark, with how many rows
    and results.
    """

    rows: tuple[int, int]
    results: int
    heaviest: float
    spark_rows: tuple[int, int]
    spark_results: int
    spark_s: dict[Operator, float]
    tasks: dict[Operator, TaskRun]


Measured = dict[Case, CaseRun]


def count_steps(cases: Sequence[Case], size: Size) -> int:
    """How often `Watch.step` will be called."""
    if not cases:
        return 0
    runs = len(THREE) * len(cases)
    runs += sum(size.rounds_of(case) * len(operators_of(case)) for case in cases)
    handing = len(size.one_key_rows) * (1 + size.one_key_rounds) + len(THREE)
    return 1 + handing + len(cases) + runs


def measure(
    cases: Sequence[Case],
    size: Size,
    scratch: Path,
    watch: Watch,
    stop: Event,
    arm: Callable[[], None],
) -> Measured:
    """Run all of them. `arm` is called when the session is there: from then on `stop` is listened to."""
    if not cases:
        return {}
    watch.step("starting Spark")
    with spark_session("watersmeet papers", SETTINGS, scratch / "spark.log") as session:
        arm()
        place = _Place(session.spark, size, scratch, watch, stop)
        handing_s = _measure_handing(place)
        return {
            case: _measure_case(
                _Workload(place, case.text, functools.partial(make_inputs, case, size)),
                operators_of(case),
                size.rounds_of(case),
                handing_s,
            )
            for case in cases
        }


def _measure_handing(place: _Place) -> float:
    """Seconds that a result costs on Spark: of two joins of one key, whose results one task gives out.

    They differ in a few thousand rows too, which take a few milliseconds. A first run of each operator is thrown away.
    """
    workloads = [
        _Workload(
            place, f"one key, {rows:,} rows", functools.partial(one_key_inputs, rows), f"one-key-{rows}"
        )
        for rows in place.size.one_key_rows
    ]
    workloads[0].warm_up()
    seconds = [[workload.on_spark(PHJ) for workload in workloads] for _ in range(place.size.one_key_rounds)]
    best = [min(times) for times in zip(*seconds, strict=True)]
    return handing_cost(
        [(workload.spark_inputs.count_results(), s) for workload, s in zip(workloads, best, strict=True)]
    )


def _measure_case(
    workload: _Workload, operators: Sequence[Operator], rounds: int, handing_s: float
) -> CaseRun:
    spark_s = {operator: workload.on_spark(operator) for operator in THREE}
    runs: dict[Operator, list[TaskRun]] = {}
    for turn in range(rounds):
        for operator in _turned(operators, turn):
            runs.setdefault(operator, []).append(workload.in_tasks(operator, handing_s))
    return CaseRun(
        workload.inputs.rows,
        workload.inputs.count_results(),
        workload.inputs.heaviest_share(),
        workload.spark_inputs.rows,
        workload.spark_inputs.count_results(),
        spark_s,
        {operator: fastest(found) for operator, found in runs.items()},
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where everything runs."""

    spark: SparkSession
    size: Size
    scratch: Path
    watch: Watch
    stop: Event


class _Workload:
    """All runs over the same rows; on Spark over the first of them, unless `whole` names a folder for all of them."""

    def __init__(self, place: _Place, text: str, make: Callable[[], Inputs], whole: str = ""):
        place.watch.step(f"{text}: data")
        size, self.place, self.inputs = place.size, place, make()
        self.spark_inputs = (
            self.inputs if whole else first_rows(self.inputs, size.spark_results, size.spark_rows)
        )
        self._text = text
        self._files = place.scratch / "files" / (whole or "case")
        shutil.rmtree(self._files, ignore_errors=True)
        ends = cut(steady(*self.spark_inputs.rows), size.spark_batches)
        write_streams(self.spark_inputs, ends, self._files)

    def warm_up(self) -> None:
        for operator in THREE:
            self.place.watch.step(f"{self._text}, {operator.name}: warming up")
            self._stream(operator)

    def on_spark(self, operator: Operator) -> float:
        self.place.watch.step(f"{self._text}, {operator.name} on Spark")
        return self._stream(operator)

    def _stream(self, operator: Operator) -> float:
        run = self.place.scratch / "run"
        remove(run)
        try:
            return run_timed(
                self.place.spark,
                self.spark_inputs,
                self._files,
                run,
                operator.arguments(CORES),
                stop=self.place.stop,
                watch=functools.partial(self.place.watch.batch, of=self.place.size.spark_batches),
            ).total_s
        finally:
            remove(run)

    def in_tasks(self, operator: Operator, handing_s: float) -> TaskRun:
        self.place.watch.step(f"{self._text}, {operator.name}, {TASKS} tasks")
        return run_tasks(
            operator,
            TASKS,
            self.inputs,
            cut(steady(*self.inputs.rows), self.place.size.batches),
            self.place.scratch / "run",
            handing_s=handing_s,
            stop=self.place.stop,
            watch=functools.partial(self.place.watch.batch, of=self.place.size.batches),
        )


def _turned(operators: Sequence[Operator], turn: int) -> Sequence[Operator]:
    start = turn % len(operators)
    return [*operators[start:], *operators[:start]]
