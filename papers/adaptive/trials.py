"""What is run on Spark for which exhibit, and running it: data, streams, one session for all trials.

Trials on the same data follow each other, after a first one that is thrown away: it starts Python workers and
compiles Spark's code, which would fall on whoever comes first.
"""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from papers.adaptive.operators import DYNAMIC, OPERATORS, SHJ, STATICMID, STATICOPT, runs_with
from papers.adaptive.spark_run import Setting, SparkRun, run_on_spark
from papers.shared.arrival import Point, alternating, cut, steady, write_streams
from papers.shared.queries import FLUCT, QUERIES, SKEWS, Inputs, materialise
from papers.shared.reproduction import Watch
from papers.shared.timed import CORES, SETTINGS
from papers.shared.tpch import tables
from watersmeet.jobs.session import spark_session

# The skew of the evaluation after Table 2: the equality joins at Z4, the bands on uniform data.
SKEWED, UNIFORM = 1.0, 0.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run: the TPC-H scale, micro-batches, skews of Table 2."""

    scale: float
    batches: int
    fluct_batches: int
    skews: tuple[float, ...]


# How strongly the arrival of Figure 5k fluctuates on Spark. Up to 4 the square mapping keeps the bound too.
FLUCT_KS = (4, 8)

# Few batches: what each of them costs Spark by itself, some 0.3 s, is the same for all operators and hides the join.
FULL = Size(scale=0.5, batches=10, fluct_batches=40, skews=SKEWS)
QUICK = Size(scale=0.05, batches=5, fluct_batches=16, skews=(SKEWS[0], SKEWS[-1]))


@dataclass(frozen=True, slots=True, order=True)
class Trial:
    """One operator on one query under one skew, on so many cells; `k` only for Fluct-join."""

    query: str
    z: float
    operator: str
    cells: int
    k: int = 0


Measured = dict[Trial, SparkRun]


def table2_trial(query: str, z: float, operator: str) -> Trial:
    return Trial(query, z, operator, 16)


def query_trial(query: str, operator: str) -> Trial:
    """The four joins of Figures 5a to 5f."""
    return Trial(query, SKEWED if QUERIES[query].equality else UNIFORM, operator, 16)


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


def run_trials(
    trials: Iterable[Trial],
    size: Size,
    data: Path,
    scratch: Path,
    watch: Watch,
    stop: Event,
    arm: Callable[[], None],
) -> Measured:
    """Run all of them. `arm` is called when the session is there: from then on `stop` is listened to."""
    todo = sorted(set(trials), key=lambda t: (t.query, t.z, t.cells, t.k, OPERATORS.index(t.operator)))
    if not todo:
        return {}
    watch.step(f"TPC-H tables, scale factor {size.scale:g}")
    home = tables(data, size.scale)
    measured: Measured = {}
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
            for trial in same if is_warm else [same[0], *same]:
                label = f"{trial.query}, z = {trial.z:g}, {trial.operator}"
                watch.step(label if is_warm else f"{label}: warming up")
                measured[trial] = run_on_spark(
                    session.spark,
                    trial.operator,
                    inputs,
                    scratch / "files",
                    Setting(trial.cells, CORES),
                    scratch / "run",
                    stop=stop,
                    watch=functools.partial(watch.batch, of=len(ends)),
                )
                is_warm = True
    return measured


def batch_ends(inputs: Inputs, trial: Trial, size: Size) -> Sequence[Point]:
    left, right = inputs.rows
    if not trial.k:
        return cut(steady(left, right), size.batches)
    # As in the paper, about 1 % of all rows come before the first turn.
    return cut(alternating(left, right, trial.k, (left + right) // 200), size.fluct_batches)
