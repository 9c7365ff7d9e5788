"""What the figures are made of: lines over time, tables of runs, and figures in words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from papers.shared.exhibit import Lines, Series, Table
from papers.state.cases import Size
from papers.state.run import Case, CaseRun

# Throughputs that differ by less count as the same.
SAME = 0.02
_MINUTES = "minutes of the stream"


class Runs:
    """The runs of a size, found by the case as the figures name it."""

    def __init__(self, found: Mapping[Case, CaseRun], size: Size):
        self._found, self.size = found, size

    def __getitem__(self, case: Case) -> CaseRun:
        return self._found[self.size.sized(case)]

    def rows(self, paper_rows: int) -> int:
        """The paper's number of rows at this size."""
        return round(paper_rows * self.size.rows)


def throughput(title: str, runs: Mapping[tuple[str, str], CaseRun]) -> Lines:
    """Results over time; runs by the name and the role of their lines. Some are dashed: they often lie on others."""
    found = list(runs.values())
    alike = all(np.array_equal(run.results, found[0].results) for run in found)
    return Lines(
        f"{title} (one line: all are the same)" if alike else title,
        _MINUTES,
        "results so far",
        [
            Series(
                name,
                role,
                run.minutes.tolist(),
                run.results.tolist(),
                dashed=role in ("random groups", "none"),
            )
            for (name, role), run in runs.items()
        ],
    )


def active(
    title: str, lines: Mapping[tuple[str, str, bool], tuple[CaseRun, int]], full_rows: int | None
) -> Lines:
    """Active rows of one task over time; lines by name, role and whether they are dashed."""
    return Lines(
        title,
        _MINUTES,
        "active state, rows",
        [
            Series(name, role, run.minutes.tolist(), run.active_rows[:, task].tolist(), dashed=dashed)
            for (name, role, dashed), (run, task) in lines.items()
        ],
        bound=full_rows,
        bound_name="" if full_rows is None else "the budget",
    )


def runs_table(title: str, first: str, runs: Mapping[str, CaseRun], note: str = "") -> Table:
    """A line for each run: results, and the clean-up's results and seconds."""
    return Table(
        title,
        (
            first,
            "results in the run",
            "of all",
            "pushes",
            "moves",
            "CPU s of the run",
            "results of the clean-up",
            "CPU s of the clean-up",
            "of its slowest machine",
        ),
        [
            (
                name,
                f"{run.total:,}",
                f"{run.share:.1%}",
                f"{run.pushes}",
                f"{run.moves}",
                f"{run.seconds.sum():.2f}",
                f"{sum(run.owed):,}",
                f"{sum(run.owed_s):.2f}",
                f"{max(run.owed_s):.2f}",
            )
            for name, run in runs.items()
        ],
        note,
    )


def descends(values: Sequence[float]) -> bool:
    return all(one > other for one, other in itertools.pairwise(values))


def spread(values: Sequence[float]) -> float:
    """How far the largest is above the least, as a share of it."""
    return max(values) / max(1, min(values)) - 1


def ratio(one: float, other: float) -> float:
    return one / other if other else math.inf


def told(values: Mapping[str, float], form: str = "{:,.0f}") -> str:
    """
    >>> told({"10%": 5000, "30%": 400})
    '5,000 at 10%, 400 at 30%'
    """
    return ", ".join(f"{form.format(value)} at {name}" for name, value in values.items())
