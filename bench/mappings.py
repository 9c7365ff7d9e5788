"""What a task of the grid reads, searches and takes, under three mappings: a part of `python -m bench adaptive`.

STATICMID has a square mapping, STATICOPT the best one for the sizes, DYNAMIC finds it. The load of a task is the rows
that it reads (Elseidy et al. 2014, 3.3), so a mapping that reads less must take less time. That is judged everywhere, also
where all pairs are compared: there the work is the area of a cell, which is the same for every mapping, and times are level.

No Spark: the tasks run one after the other in this process, by the same code over the same files. Each has a reader of
its own, as in a cluster with a process for each task, so what tasks would do at the same time is not done once for all.

Rows and searches (a piece of new rows sought in one slice, or compared with it) are counted in the last batch. The time
is CPU time, in which a task that waits for the processor does not get slower. The operators take turns task by task, within
milliseconds, so that a slow moment of the machine falls on all of them. Each task is timed twice in a batch, and the better
time counts. It has the median of the later half of the batches, since one disturbed batch must not decide; the slowest task is
judged, as all others wait for it. Beside it stand the mean task, and in how many batches the median task was ahead.
Planning, merging and clean-up are not in the time: they are the same for all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.report import Finding, markdown_table
from papers.adaptive.operators import DYNAMIC, STATICMID, STATICOPT, static_mid, static_opt
from papers.adaptive.tasks import GridTasks, run_batch
from watersmeet.local.join import LocalJoin
from watersmeet.schemes.grid.policy import GridPolicy, dynamic

MAPPINGS = "mappings"
OPERATORS = (STATICMID, STATICOPT, DYNAMIC)
TASKS = (16, 64)
BATCHES = 12
# How often each task is timed in a batch.
TURNS = 2
# Less than this much of STATICMID's rows is "reads less": hashing spreads rows unevenly by about a per cent.
READS_LESS = 0.95

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64(), "id": pa.int64(), "s": pa.string()})


@dataclass(frozen=True, slots=True)
class Predicate:
    """A kind of join, the rows of a batch, and the number of different keys: results are few. Ratios of the inputs' sizes."""

    name: str
    on: str
    rows: int
    keys: int = 10_000_000
    all_pairs: bool = False
    ratios: tuple[int, ...] = (1, 8, 64)


# All pairs are compared by any condition, so it has fewer rows. At 1:1 all mappings are the same, which shows what is noise.
PREDICATES = (
    Predicate("equality", "l.k = r.k", 195_000),
    Predicate("band", "abs(l.k - r.k) <= 3", 195_000),
    Predicate(
        "any condition", "l.k = r.k OR l.x = r.x", 24_000, keys=100_000_000, all_pairs=True, ratios=(8, 64)
    ),
)

# Their work is the area of a cell.
BY_AREA = frozenset(predicate.name for predicate in PREDICATES if predicate.all_pairs)


def operation(predicate: Predicate, tasks: int, policy: GridPolicy, state: Path) -> GridTasks:
    """One operator over a state of its own."""
    return GridTasks.of(
        LocalJoin(
            {"l": SCHEMA, "r": SCHEMA},
            on=predicate.on,
            select=["l.id AS a", "r.id AS b"],
            state=str(state),
            tasks=tasks,
            cells=tasks,
            partitions=2,
            strategy="grid",
            policy=policy,
        ),
        TURNS,
    )


def figures_of(operation: GridTasks) -> dict[str, Any]:
    later = np.array(operation.seconds[len(operation.seconds) // 2 :])
    return {
        "mapping": operation.shape,
        "rows_read": max(operation.rows_read),
        "searches": operation.searches,
        "slowest_ms": 1e3 * float(np.median(later, axis=0).max()),
        "mean_ms": 1e3 * float(np.median(later, axis=0).mean()),
        "batch_ms": (1e3 * np.median(later, axis=1)).tolist(),
        "results": operation.results,
    }


def arriving(predicate: Predicate, count: int, batch: int, side: int) -> pa.Table:
    rng = np.random.default_rng([batch, side])
    keys, other = rng.integers(0, predicate.keys, (2, count))
    texts = pa.array([f"value {number:07d}" for number in range(1000)])
    ids = batch * predicate.rows + np.arange(count)
    return pa.table([keys, other, ids, texts.take(pa.array(ids % 1000))], schema=SCHEMA)


def measure(
    predicate: Predicate, tasks: int, ratio: int, batches: int, scratch: Path
) -> dict[str, dict[str, Any]]:
    """The figures of the three operators, on the same rows."""
    left = max(1, predicate.rows // (1 + ratio))
    right = predicate.rows - left
    policies = {STATICMID: static_mid(), STATICOPT: static_opt(left, right), DYNAMIC: dynamic()}
    with tempfile.TemporaryDirectory(prefix="mappings-", dir=scratch) as folder:
        operations = {
            name: operation(predicate, tasks, policy, Path(folder) / name)
            for name, policy in policies.items()
        }
        for batch in range(batches):
            inputs = {"l": arriving(predicate, left, batch, 0), "r": arriving(predicate, right, batch, 1)}
            run_batch(list(operations.values()), batch, inputs)
        return {name: figures_of(operations[name]) for name in OPERATORS}


def measure_all(console: Console, batches: int, share: float, scratch: Path) -> list[dict[str, Any]]:
    """Every predicate, number of tasks and ratio. `share` makes batches smaller, to check that everything runs."""
    found = []
    for predicate in PREDICATES:
        small = replace(predicate, rows=int(predicate.rows * share))
        for tasks in TASKS:
            for ratio in predicate.ratios:
                figures = measure(small, tasks, ratio, batches, scratch)
                found.append(
                    {"predicate": predicate.name, "tasks": tasks, "ratio": ratio, "operators": figures}
                )
                console.print(f"{predicate.name}, {tasks} tasks, 1:{ratio}: {_line(figures)}")
    return found


def _line(figures: dict[str, dict[str, Any]]) -> str:
    return ", ".join(f"{name} {one['slowest_ms']:.2f} ms" for name, one in figures.items())


COLUMNS = (
    "join", "tasks", "sizes", "operator", "mapping", "rows read", "searches", "slowest task, ms", "mean task, ms", "time of STATICMID's",
    "ahead in batches",
)  # fmt: skip


def lines(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A line for each operator: counts, times, and the times of the slowest and the mean task against STATICMID's."""
    return [
        [
            one["predicate"],
            str(one["tasks"]),
            f"1:{one['ratio']}",
            name,
            "({}, {})".format(*figures["mapping"]),
            f"{figures['rows_read']:,}",
            f"{figures['searches']:,}",
            f"{figures['slowest_ms']:.2f}",
            f"{figures['mean_ms']:.2f}",
            "" if name == STATICMID else "{:.2f}, {:.2f}".format(*_times(figures, mid)),
            "" if name == STATICMID else _ahead(figures, mid),
        ]
        for one in found
        for mid in (one["operators"][STATICMID],)
        for name, figures in one["operators"].items()
    ]


def _times(one: dict[str, Any], mid: dict[str, Any]) -> tuple[float, float]:
    """Of the time of STATICMID: the slowest task, and the mean one."""
    slowest, mean = (one[figure] / mid[figure] for figure in ("slowest_ms", "mean_ms"))
    return slowest, mean


def _ahead(one: dict[str, Any], mid: dict[str, Any]) -> str:
    pairs = list(zip(one["batch_ms"], mid["batch_ms"], strict=True))
    return f"{sum(a < b for a, b in pairs)} of {len(pairs)}"


def show(found: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(*COLUMNS)
    for line in lines(found):
        table.add_row(*line)
    console.print(table)


MISSED = (
    "join", "tasks", "sizes", "operator", "rows read", "slowest task, ms", "its ratio", "mean task", "reason",
)  # fmt: skip


def section(found: Sequence[dict[str, Any]], date: str) -> str:
    """The section of docs/benchmarks.md: the demand, what misses it and why, then the table."""
    cases = _cases(found)
    missed = [case for case in cases if not case.met]
    text = (
        f"Measured {date}, without Spark. {len(cases) - len(missed)} of {len(cases)} cases that read less than "
        "STATICMID take less time."
    )
    if missed:
        text += f" NOT MET in these, by the time of STATICMID's:\n\n{markdown_table(MISSED, map(_missed, missed))}\n"
    if level := _level(found):
        text += "\n" if missed else " "
        text += f"The mean task is not ahead: {'; '.join(level)}."
    return f"{text}\n\n{markdown_table(COLUMNS, lines(found))}\n"


def _missed(case: Case) -> list[str]:
    one, other, mid = case.measured, case.other, case.mid
    return [
        one["predicate"],
        str(one["tasks"]),
        f"1:{one['ratio']}",
        case.name,
        f"{case.less:.3f}",
        f"{other['slowest_ms']:.2f} / {mid['slowest_ms']:.2f}",
        f"{case.slowest:.3f}",
        f"{case.mean:.3f}",
        _reason(case),
    ]


def _reason(case: Case) -> str:
    """What the time of a task follows instead of the rows that it reads."""
    if case.measured["predicate"] in BY_AREA:
        return "all pairs are compared: the work is the area of a cell, the same under both"
    same = case.other["searches"] == case.mid["searches"]
    return f"{'as many searches and' if same else 'as many'} results under both: reading is a small part of the time"


def _level(found: Sequence[dict[str, Any]]) -> list[str]:
    """Where the mean task is not ahead although the slowest reads less, but for joins of all pairs."""
    return [
        f"{one['predicate']}, {one['tasks']} tasks, 1:{one['ratio']}: {name} {mean:.2f}"
        for one in found
        if one["predicate"] not in BY_AREA
        for mid in (one["operators"][STATICMID],)
        for name in (STATICOPT, DYNAMIC)
        for other in (one["operators"][name],)
        for mean in (_times(other, mid)[1],)
        if other["rows_read"] <= READS_LESS * mid["rows_read"] and mean >= 1
    ]


@dataclass(frozen=True, slots=True)
class Case:
    """One operator that reads less than STATICMID: the parts of STATICMID's rows and times that it has."""

    measured: dict[str, Any]
    name: str

    @property
    def mid(self) -> dict[str, Any]:
        return dict(self.measured["operators"][STATICMID])

    @property
    def other(self) -> dict[str, Any]:
        return dict(self.measured["operators"][self.name])

    @property
    def title(self) -> str:
        one = self.measured
        return f"{one['predicate']}, {one['tasks']} tasks, 1:{one['ratio']}"

    @property
    def less(self) -> float:
        return float(self.other["rows_read"] / self.mid["rows_read"])

    @property
    def slowest(self) -> float:
        return _times(self.other, self.mid)[0]

    @property
    def mean(self) -> float:
        return _times(self.other, self.mid)[1]

    @property
    def met(self) -> bool:
        return self.slowest < 1


def _cases(found: Sequence[dict[str, Any]]) -> list[Case]:
    cases = [Case(one, name) for one in found for name in (STATICOPT, DYNAMIC)]
    for case in cases:
        assert case.other["results"] == case.mid["results"], f"{case.title}: results differ"
    return [case for case in cases if case.less <= READS_LESS]


def find(found: Sequence[dict[str, Any]]) -> list[Finding]:
    """Whoever reads less than STATICMID must take less time, by the slowest task, with the same results."""
    return [
        Finding(
            f"{case.title}: {case.name} reads {case.less:.2f} of the rows",
            "less time",
            f"slowest task {case.slowest:.3f} ({case.other['slowest_ms']:.2f} / {case.mid['slowest_ms']:.2f} ms), "
            f"mean {case.mean:.3f}",
            case.met,
        )
        for case in _cases(found)
    ]
