"""Pictures as SVG: seconds per batch over the batch number; balance and time over skew; the table of balances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import BICLIQUE, CUBE, DEFAULT, HASH, ROCKSDB, Results
from bench.workloads import BALANCE, BALANCE_TASKS, Workload, by_name

# The same competitor has the same colour in every picture (Okabe and Ito: safe for colour-blind).
COLOURS = {
    "watersmeet": "#0072b2",
    "watersmeet-files": "#009e73",
    "spark-default": "#d55e00",
    "spark-rocksdb": "#cc79a7",
    "floor": "#999999",
    "watersmeet-grid": "#56b4e9",
    "watersmeet-hypercube": "#0072b2",
    "watersmeet-hash": "#009e73",
    "watersmeet-biclique": "#e69f00",
    "spark-buckets": "#d55e00",
    "spark-buckets-tuned": "#cc79a7",
    "watersmeet-hybrid": "#0072b2",
    "watersmeet-mesh": "#009e73",
    "watersmeet-index": "#e69f00",
    "spark-static": "#d55e00",
    "spark-static-adaptive": "#000000",
    "spark-static-hash": "#cc79a7",
    "spark-static-cached": "#999999",
    "watersmeet-chained": "#56b4e9",
    "spark-chained": "#d55e00",
    "sources": "#999999",
}


def draw_batches(results: Results, workloads: Sequence[str], folder: Path, suite: str) -> list[Path]:
    """One picture for each workload that ran."""
    images = {w: folder / f"{suite}-{w}.svg" for w in workloads}
    return [image for w, image in images.items() if _draw_batches(results, w, image)]


def _draw_batches(results: Results, workload: str, path: Path) -> bool:
    """Write the picture; False when nothing of this workload ran."""
    curves = {name: results.batch_curve(workload, name) for name in COLOURS}
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return False
    pyplot = matplot()
    from matplotlib.ticker import MaxNLocator

    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    for name, curve in curves.items():
        axes.plot(range(1, len(curve) + 1), curve, label=name, color=COLOURS[name], linewidth=1.6)
    _log_scale(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="micro-batch", ylabel="seconds (log)", title=f"{workload}: seconds per micro-batch")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, path)
    return True


def draw_skew(results: Results, workloads: Sequence[str], folder: Path, suite: str) -> list[Path]:
    """Balance over alpha, and the time of each workload."""
    drawn = {
        folder / f"{suite}-balance.svg": _draw_balance(results),
        folder / f"{suite}-time.svg": _draw_times(results, workloads),
    }
    for path, figure in drawn.items():
        if figure is not None:
            save(figure, path)
    return [path for path, figure in drawn.items() if figure is not None]


def _draw_balance(results: Results) -> Any | None:
    """Busiest / mean over alpha, a panel for each number of tasks."""
    found = {
        (alpha, name): run["balance"]
        for alpha, workload in BALANCE.items()
        for name in (HASH, BICLIQUE, CUBE)
        if (run := results.balance(workload.name, name))
    }
    if not found:
        return None
    figure, panels = matplot().subplots(1, len(BALANCE_TASKS), figsize=(9, 3.4), layout="constrained")
    for axes, tasks in zip(panels, BALANCE_TASKS, strict=True):
        for name in (HASH, BICLIQUE, CUBE):
            curve = [(a, b[str(tasks)]["run"]) for (a, who), b in sorted(found.items()) if who == name]
            if curve:
                axes.plot(
                    *zip(*curve, strict=True), label=name, color=COLOURS[name], marker="o", markersize=3
                )
        _log_scale(axes)
        axes.set_ylim(0.95, tasks * 1.1)
        axes.set(xlabel="alpha of Zipf's law", title=f"{tasks} tasks")
    panels[0].set_ylabel("busiest task / mean (log)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=len(labels))
    return figure


def _draw_times(results: Results, workloads: Sequence[str]) -> Any | None:
    """Seconds of a batch, a group of bars for each workload, by ascending alpha."""
    entrants = [HASH, CUBE, BICLIQUE, DEFAULT, ROCKSDB]
    shown = [w for w in workloads if any(results.timed(w, name) for name in entrants)]
    if not shown:
        return None
    figure, axes = matplot().subplots(figsize=(9, 3.8), layout="constrained")
    width = 0.8 / len(entrants)
    for place, name in enumerate(entrants):
        found = [(at, results.seconds_per_batch(w, name)) for at, w in enumerate(shown)]
        bars = [(at + (place - (len(entrants) - 1) / 2) * width, s) for at, s in found if s is not None]
        if bars:
            axes.bar(*zip(*bars, strict=True), width=width, label=name, color=COLOURS[name])
    # Bars begin at zero: on a log scale their lengths would mean nothing.
    axes.grid(alpha=0.3, axis="y")
    axes.set_xticks(range(len(shown)), [_tick(w) for w in shown])
    axes.set(ylabel="seconds per micro-batch", title="two tasks on Spark")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _tick(name: str) -> str:
    workload = by_name(name)
    assert isinstance(workload, Workload)
    skew = "one key" if workload.keys == 1 else f"alpha {workload.alpha:g}"
    return f"{skew}\n{workload.expected_results / 1e6:.0f}M results\n{workload.batches} batches"


# From here on a ratio has the darkest colour: a task with four times the mean's work is bad enough.
_DARKEST = 4.0


def draw_table(
    values: Mapping[tuple[str, str, int], float | None],
    distributions: Sequence[str],
    schemes: Sequence[str],
    tasks: Sequence[int],
    judged: Sequence[str],
    most: float,
    path: Path,
) -> None:
    """Busiest / mean as colours and figures: a line for each distribution, a block of columns for each scheme."""
    pyplot = matplot()
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    figure, axes = pyplot.subplots(figsize=(11, 0.36 * len(distributions) + 1.3), layout="constrained")
    colours, norm = pyplot.colormaps["YlOrRd"], LogNorm(1.0, _DARKEST, clip=True)
    gap = 0.35
    for block, scheme in enumerate(schemes):
        left = block * (len(tasks) + gap)
        for column, count in enumerate(tasks):
            axes.text(left + column + 0.5, -0.12, str(count), ha="center", va="bottom", fontsize=8)
            for line, name in enumerate(distributions):
                value = values.get((name, scheme, count))
                if value is None:
                    continue
                missed = scheme in judged and value > most
                axes.add_patch(
                    Rectangle((left + column, line), 1, 1, facecolor=colours(norm(value)), edgecolor="white")
                )
                axes.text(
                    left + column + 0.5,
                    line + 0.5,
                    f"{value:.2f}" if value < 9.995 else f"{value:.0f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if norm(value) > 0.6 else "black",
                    weight="bold" if missed else "normal",
                )
                if missed:
                    inside = Rectangle(
                        (left + column + 0.06, line + 0.06), 0.88, 0.88, fill=False, linewidth=1.2
                    )
                    axes.add_patch(inside)
        about = scheme if scheme in judged else f"{scheme} (control)"
        axes.text(left + len(tasks) / 2, -0.75, about, ha="center", va="bottom", weight="bold", fontsize=9)
    axes.set_xlim(0, len(schemes) * (len(tasks) + gap) - gap)
    axes.set_ylim(len(distributions), -1.4)
    axes.set_yticks([line + 0.5 for line in range(len(distributions))], distributions)
    axes.set_xticks([])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(
        f"busiest task / mean in the worst batch, with 2 to 200 tasks; framed: a scheme that auto takes, above {most:g}"
    )
    save(figure, path)


# Segments of a batch, from what Spark takes to what we do; greys for Spark (Okabe and Ito for the rest).
_STACK_COLOURS = (
    "#bbbbbb", "#888888", "#009e73", "#cc79a7", "#d55e00", "#e69f00", "#0072b2", "#56b4e9", "#f0e442",
)  # fmt: skip


def draw_stacks(
    bars: Mapping[str, Mapping[str, Mapping[str, float]]], segments: Sequence[str], path: Path
) -> None:
    """A panel for each storage; a bar for each case, cut by segment."""
    figure, panels = matplot().subplots(
        1,
        len(bars),
        figsize=(11, 0.32 * max(map(len, bars.values())) + 1.6),
        layout="constrained",
        sharey=True,
    )
    for axes, (title, cases) in zip(panels, bars.items(), strict=True):
        places = range(len(cases), 0, -1)
        reached = [0.0] * len(cases)
        for segment, colour in zip(segments, _STACK_COLOURS, strict=True):
            widths = [times[segment] for times in cases.values()]
            axes.barh(places, widths, left=reached, color=colour, height=0.72, label=segment)
            reached = [before + width for before, width in zip(reached, widths, strict=True)]
        for place, end in zip(places, reached, strict=True):
            axes.text(end, place, f" {end:.1f} s", va="center", fontsize=8)
        axes.set_yticks(places, list(cases))
        axes.set_xlim(0, max(reached) * 1.15)
        axes.set(xlabel="seconds of a batch", title=title)
        axes.grid(alpha=0.3, axis="x")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=len(labels))
    save(figure, path)


def matplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    # A fixed salt and no date: the same figures give the same file, so that a diff means something.
    matplotlib.rcParams["svg.hashsalt"] = "watersmeet"
    from matplotlib import pyplot

    return pyplot


def _log_scale(axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3, which="both")


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    matplot().close(figure)
