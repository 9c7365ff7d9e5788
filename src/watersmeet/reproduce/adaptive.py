"""Table 2 and Figures 5a to 5l of Elseidy et al. 2014: choose, run, write.

Times of wm.join are measured on Spark; 16 machines and more are simulated. Each exhibit says which is which.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Event

from watersmeet import __version__
from watersmeet.errors import UsageError
from watersmeet.reproduce import paper
from watersmeet.reproduce.exhibit import Exhibit
from watersmeet.reproduce.fluctuation import fig5k, fig5l
from watersmeet.reproduce.mappings import fig5g, fig5h
from watersmeet.reproduce.page import write_page
from watersmeet.reproduce.performance import fig5a, fig5b, fig5c, fig5d, fig5e, fig5f
from watersmeet.reproduce.plots import draw, require_matplotlib
from watersmeet.reproduce.queries import SEED
from watersmeet.reproduce.scaling import fig5i, fig5j
from watersmeet.reproduce.spark_run import Stopped
from watersmeet.reproduce.table2 import table2
from watersmeet.reproduce.tpch import find_generator
from watersmeet.reproduce.trials import Measured, Size, Trial, Watch, run_trials, trials_for

EXHIBITS: dict[str, Callable[[Measured, Size], Exhibit]] = {
    make.__name__: make
    for make in (table2, fig5a, fig5b, fig5c, fig5d, fig5e, fig5f, fig5g, fig5h, fig5i, fig5j, fig5k, fig5l)
}
PAGE, FIGURES = "index.html", "figures.json"
# Memory: lineitem is held whole while inputs are made, some 100 bytes a row.
MAX_SCALE = 10.0


def choose(only: Sequence[str]) -> list[str]:
    """The exhibits to make, in the paper's order; all of them if none is named."""
    for name in only:
        if name not in EXHIBITS:
            raise UsageError(f"--only {name}: there is no such exhibit; use {', '.join(EXHIBITS)}")
    return [name for name in EXHIBITS if not only or name in only]


def require(names: Sequence[str], size: Size) -> None:
    """Refuse at once if something is not installed that will be needed."""
    require_matplotlib()
    if _trials(names, size):
        find_generator()


def count_steps(names: Sequence[str], size: Size) -> int:
    """How often `Watch.step` will be called."""
    trials = _trials(names, size)
    data = {(t.query, t.z, t.cells, t.k) for t in trials}
    return len(names) + (len(trials) + len(data) + 3 if trials else 0)


def run(
    names: Sequence[str],
    size: Size,
    data: Path,
    scratch: Path,
    *,
    watch: Watch,
    stop: Event,
    arm: Callable[[], None],
) -> list[Exhibit]:
    """Measure and simulate what these exhibits need. `Stopped` if it was asked to end."""
    measured = run_trials(_trials(names, size), size, data, scratch, watch, stop, arm)
    exhibits = []
    for name in names:
        if stop.is_set():
            raise Stopped("stopped")
        watch.step(f"{name}: simulating")
        exhibits.append(EXHIBITS[name](measured, size))
    return exhibits


def _trials(names: Sequence[str], size: Size) -> set[Trial]:
    return {trial for name in names for trial in trials_for(name, size)}


def write(exhibits: Sequence[Exhibit], size: Size, out: Path) -> Path:
    """Pictures, all figures as JSON, and the page, whose path is returned."""
    images = {exhibit.name: draw(exhibit, out) for exhibit in exhibits}
    (out / FIGURES).write_text(json.dumps([_plain(e) for e in exhibits], indent=1), encoding="utf-8")
    facts = [
        "Times are measured on Spark on two cores; what needs 16 machines and more is simulated, by the same planner.",
        f"Watersmeet {__version__}, Python {platform.python_version()}, TPC-H scale {size.scale:g}, seed {SEED}.",
    ]
    page = out / PAGE
    write_page(page, f"Reproduced: {paper.TITLE}", facts, exhibits, images)
    return page


def _plain(exhibit: Exhibit) -> dict[str, object]:
    return {
        "name": exhibit.name,
        "title": exhibit.title,
        "how": exhibit.how,
        "tables": [asdict(table) for table in exhibit.tables],
        "verdicts": [asdict(verdict) for verdict in exhibit.verdicts],
    }
