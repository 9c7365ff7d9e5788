"""The section of docs/benchmarks.md on where a warm batch spends its time: tables, and the picture."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.graphs import GraphWorkload
from bench.nexmark import EventWorkload
from bench.plot import matplot, save
from bench.report import Finding, markdown_table
from bench.timeline_facts import Batch, Task, python_of, shares_of, typical
from bench.workloads import by_name

FLOOR, DATAFRAMES, FILES = "floor", "watersmeet", "watersmeet-files"
# Rows of a batch up to which its cost is that of a batch, whatever its rows.
SMALL_ROWS = 1_000
MOST_OF_FLOOR, MOST_OF_FLOOR_FILES = 1.1, 0.8


@dataclass
class Measured:
    """What the counted rounds of one competitor on one workload gave: the mean batch of each round, and all batches."""

    workload: str
    competitor: str
    round_ms: list[float] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)

    @property
    def ms(self) -> float:
        """The median over the rounds of their mean batch."""
        return statistics.median(self.round_ms)


def batch_rows(workload: str) -> int:
    """The new rows of a batch, all inputs together."""
    work = by_name(workload)
    if isinstance(work, GraphWorkload | EventWorkload):
        return work.new_rows[0]
    return work.batch_rows * len(work.streams)


def demands(measured: Sequence[Measured]) -> list[Finding]:
    """What is demanded beside the floor, which reads, shuffles and passes rows through Python."""
    of = {(one.workload, one.competitor): one for one in measured}
    found = []
    for workload in dict.fromkeys(one.workload for one in measured):
        floor, rows = of.get((workload, FLOOR)), batch_rows(workload)
        for who, most in ((DATAFRAMES, MOST_OF_FLOOR), (FILES, MOST_OF_FLOOR_FILES)):
            ours = of.get((workload, who))
            if floor is None or ours is None or (who == DATAFRAMES and rows > SMALL_ROWS):
                continue
            # Neighbours in time: a slow minute of the machine hits both.
            ratio = statistics.median(
                mine / theirs for mine, theirs in zip(ours.round_ms, floor.round_ms, strict=True)
            )
            found.append(
                Finding(
                    f"{who}, {rows:,} rows a batch",
                    f"<= {most}x the floor",
                    f"{ratio:.2f}x ({ours.ms:.0f} ms vs {floor.ms:.0f} ms)",
                    ratio <= most,
                )
            )
    return found


def section(measured: Sequence[Measured], about: Mapping[str, str], date: str, picture: str | None) -> str:
    setting = (
        f"Measured {date} with Spark {about['spark']}, Java {about['java']}, Python {about['python']}, "
        f"{about['cores']} cores. All in turn in one session; the mean batch of {len(measured[0].round_ms)} rounds."
    )
    verdicts = [[f.demand, f.target, f.measured, f.verdict] for f in demands(measured)]
    parts = [setting, markdown_table(("demand", "target", "measured", "verdict"), verdicts)]
    if any(one.batches for one in measured):
        parts += [
            "The parts of a batch in milliseconds, one after the other. A stage lasts from its first task to its last.",
            _table(measured, lambda one: shares_of(one.batches)),
            "A task in milliseconds: what the JVM does before its worker begins, the worker, and the JVM behind it.",
            _table(measured, tasks_of),
            "What the workers of a batch do, all tasks together, in milliseconds of CPU.",
            _table(measured, lambda one: {label: cpu for label, (_, cpu) in python_of(one.batches).items()}),
        ]
    return "\n\n".join([*parts, *([f"![a warm batch]({picture})"] if picture else [])]) + "\n"


def _table(measured: Sequence[Measured], figures: Callable[[Measured], Mapping[str, float]]) -> str:
    columns = [(f"{one.competitor}, {batch_rows(one.workload):,}", figures(one)) for one in measured]
    # In the order of the column that has most of them.
    longest = max(columns, key=lambda column: len(column[1]))
    labels = dict.fromkeys([*longest[1], *(label for _, found in columns for label in found)])
    rows = [
        [label, *(f"{found[label]:.1f}" if label in found else "-" for _, found in columns)]
        for label in labels
    ]
    return markdown_table(["", *(name for name, _ in columns)], rows)


def tasks_of(measured: Measured) -> dict[str, float]:
    """The median task of each stage: before, in and behind Python."""
    by_stage: dict[int, list[Task]] = {}
    for task in (task for batch in measured.batches for task in batch.tasks):
        by_stage.setdefault(task.stage, []).append(task)
    found: dict[str, float] = {}
    for stage, tasks in sorted(by_stage.items()):
        name = f"stage {stage + 1}"
        found[f"{name}: tasks"] = len(tasks) / len(measured.batches)
        found[f"{name}: all of it"] = statistics.median(task.ms for task in tasks)
        inside = [task for task in tasks if task.parts]
        if inside:
            found |= {
                f"{name}: before Python": statistics.median(t.worker_ms[0] - t.begin_ms for t in inside),
                f"{name}: Python": statistics.median(t.worker_ms[1] - t.worker_ms[0] for t in inside),
                f"{name}: behind Python": statistics.median(t.end_ms - t.worker_ms[1] for t in inside),
            }
        if any(task.shuffle_ms for task in tasks):
            found[f"{name}: shuffle write"] = statistics.median(task.shuffle_ms for task in tasks)
        found[f"{name}: CPU of the JVM"] = statistics.median(task.jvm_cpu_ms for task in tasks)
    return found


# Okabe and Ito, as in all pictures.
_STEPS = {
    "find files": "#e69f00",
    "log of offsets": "#cc79a7",
    "plan": "#f0e442",
    "run": "#dddddd",
    "log of commits": "#cc79a7",
}
_PARTS = {
    "receive": ("waits for rows, reads files", "#999999"),
    "sort": ("sorts and writes runs", "#009e73"),
    "write runs": ("sorts and writes runs", "#009e73"),
    "agree": ("agrees and plans", "#d55e00"),
    "plan": ("agrees and plans", "#d55e00"),
    "publish": ("agrees and plans", "#d55e00"),
    "merge": ("joins and merges", "#0072b2"),
    "join": ("joins and merges", "#0072b2"),
    "garbage": ("collects garbage", "#000000"),
}
_OTHERS = ("other Python", "#56b4e9")
_JVM = ("JVM", "#bbbbbb")


def draw(measured: Sequence[Measured], path: Path) -> None:
    """A panel for each competitor and size: the steps on the driver, and below them a bar for each task."""
    workloads = list(dict.fromkeys(one.workload for one in measured))
    entrants = list(dict.fromkeys(one.competitor for one in measured))
    figure, panels = matplot().subplots(
        len(entrants),
        len(workloads),
        figsize=(5.5 * len(workloads), 1.75 * len(entrants) + 0.9),
        layout="constrained",
        sharex="col",
        squeeze=False,
    )
    for one in measured:
        axes = panels[entrants.index(one.competitor)][workloads.index(one.workload)]
        _draw_batch(axes, typical(one.batches))
        axes.set_title(
            f"{one.competitor}, {batch_rows(one.workload):,} rows: {one.ms:.0f} ms", fontsize=9, loc="left"
        )
    for axes in panels[-1]:
        axes.set_xlabel("milliseconds since the batch began", fontsize=8)
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(),
        handles,
        frameon=False,
        loc="outside lower center",
        ncols=3 * len(workloads),
        fontsize=8,
    )
    save(figure, path)


def _draw_batch(axes: Any, batch: Batch) -> None:
    for step in batch.steps:
        axes.barh(
            0, step.ms, left=step.begin_ms, height=0.8, color=_STEPS[step.label], label=_of_log(step.label)
        )
    rows = {task: place for place, task in enumerate(batch.tasks, 1)}
    for task, place in rows.items():
        axes.barh(place, task.ms, left=task.begin_ms, height=0.8, color=_JVM[1], label=_JVM[0])
        for part in task.parts:
            label, colour = _PARTS.get(part.label, _OTHERS)
            axes.barh(place, part.ms, left=part.begin_ms, height=0.8, color=colour, label=label)
    axes.set_yticks(
        [0, *rows.values()], ["driver", *(f"stage {task.stage + 1}" for task in rows)], fontsize=7
    )
    axes.tick_params(axis="x", labelsize=7, labelbottom=True)
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")


def _of_log(label: str) -> str:
    return "Spark's logs" if label.startswith("log of") else f"driver: {label}"
