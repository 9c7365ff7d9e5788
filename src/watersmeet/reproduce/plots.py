"""The pictures, as PNG. Needs matplotlib; nothing is shown on a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from watersmeet.errors import UsageError
from watersmeet.reproduce.exhibit import Bars, Exhibit, Lines
from watersmeet.reproduce.tpch import INSTALL

# Okabe and Ito: told apart by colour-blind readers and in print. One colour for one thing in all pictures.
COLOURS = {
    "DYNAMIC": "#0072b2",
    "STATICMID": "#d55e00",
    "STATICOPT": "#009e73",
    "SHJ": "#cc79a7",
    "EQ5": "#0072b2",
    "EQ7": "#009e73",
    "B_NCI": "#d55e00",
    "B_CI": "#cc79a7",
    "ratio": "#0072b2",
    "spark": "#e69f00",
    "sizes": "#999999",
    "k=2": "#0072b2",
    "k=4": "#009e73",
    "k=6": "#e69f00",
    "k=8": "#d55e00",
}
MARKERS = {"DYNAMIC": "o", "STATICMID": "s", "STATICOPT": "^", "SHJ": "D"}
# STATICOPT and DYNAMIC often lie on one another: the dashes let the one below be seen.
DASHED = {"STATICOPT"}
_WIDTH, _HEIGHT, _DPI = 6.4, 4.0, 130
_BAR_ROOM = 0.82
_MARKED_POINTS = 20


def require_matplotlib() -> None:
    """Refuse at the start, not after minutes of work."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(f"the pictures need matplotlib, which is not installed: {INSTALL}") from error
    matplotlib.use("Agg")


def draw(exhibit: Exhibit, folder: Path) -> list[Path]:
    """One file for each chart of an exhibit."""
    require_matplotlib()
    from matplotlib import pyplot

    paths = []
    for number, chart in enumerate(exhibit.charts):
        figure, axes = pyplot.subplots(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        if isinstance(chart, Lines):
            _lines(axes, chart)
        else:
            _bars(axes, chart)
        axes.set_title(chart.title, fontsize=10.5, loc="left")
        axes.spines[["top"]].set_visible(False)
        suffix = f"-{number + 1}" if len(exhibit.charts) > 1 else ""
        path = folder / f"{exhibit.name}{suffix}.png"
        figure.savefig(path, dpi=_DPI, facecolor="white")
        pyplot.close(figure)
        paths.append(path)
    return paths


def _lines(axes: Any, chart: Lines) -> None:
    right = axes.twinx() if any(s.right for s in chart.series) else None
    handles = []
    for series in chart.series:
        target = right if series.right and right is not None else axes
        few = len(series.x) <= _MARKED_POINTS
        (line,) = target.plot(
            series.x,
            series.y,
            label=series.name,
            color=COLOURS[series.role],
            linewidth=1.8,
            linestyle="--" if series.dashed or series.role in DASHED else "-",
            marker=MARKERS.get(series.role, "o") if few else None,
            markersize=5,
        )
        handles.append(line)
    for number, (start, end) in enumerate(chart.shaded):
        label = chart.shaded_name if number == 0 else None
        span = axes.axvspan(start, end, color="#000000", alpha=0.12, linewidth=0, label=label)
        if number == 0:
            handles.append(span)
    if chart.bound is not None:
        bound = (right or axes).axhline(
            chart.bound, color="#333333", linewidth=1, linestyle=":", label=chart.bound_name
        )
        handles.append(bound)
    axes.set(xlabel=chart.xlabel, ylabel=chart.ylabel)
    if chart.log_x:
        axes.set_xscale("log", base=2)
    if chart.log_y:
        axes.set_yscale("log")
    elif right is None:
        axes.set_ylim(bottom=0)
    if chart.ticks:
        axes.set_xticks(chart.ticks, chart.tick_names)
        axes.minorticks_off()
    if right is None:
        axes.spines[["right"]].set_visible(False)
    else:
        right.set_ylabel(chart.ylabel_right)
        right.spines[["top"]].set_visible(False)
    axes.grid(alpha=0.25)
    _legend(axes, handles)


def _bars(axes: Any, chart: Bars) -> None:
    width = _BAR_ROOM / len(chart.values)
    handles = []
    for place, (role, values) in enumerate(chart.values.items()):
        at = [group + (place - (len(chart.values) - 1) / 2) * width for group in range(len(chart.groups))]
        shown = [(x, v, g) for x, v, g in zip(at, values, chart.groups, strict=True) if v is not None]
        bars = axes.bar(
            [x for x, _, _ in shown],
            [v for _, v, _ in shown],
            width * 0.92,
            color=COLOURS[role],
            label=role,
        )
        handles.append(bars)
        labels = [chart.form.format(v) + ("*" if (g, role) in chart.starred else "") for _, v, g in shown]
        axes.bar_label(bars, labels, fontsize=7, padding=1.5)
    axes.set_xticks(range(len(chart.groups)), chart.groups)
    axes.set_ylabel(chart.ylabel)
    if chart.log_y:
        axes.set_yscale("log")
    # Room for the numbers above the highest bars.
    axes.margins(y=0.12)
    axes.spines[["right"]].set_visible(False)
    axes.grid(alpha=0.25, axis="y")
    axes.set_axisbelow(True)
    _legend(axes, handles, note=f"* {chart.star_name}" if chart.starred else None)


def _legend(axes: Any, handles: list[Any], note: str | None = None) -> None:
    """Below the picture, where it covers nothing."""
    axes.figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 4),
        frameon=False,
        fontsize=8.5,
        title=note,
        title_fontsize=8,
    )
