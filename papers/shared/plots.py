"""The pictures, as PNG. Needs matplotlib; nothing is shown on a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.shared.exhibit import Bars, Boards, Exhibit, Lines, Series
from papers.shared.tpch import INSTALL
from watersmeet.errors import UsageError

# Okabe and Ito: told apart by colour-blind readers and in print. One colour for one thing in all pictures.
_BLUE, _ORANGE, _GREEN, _PINK, _YELLOW, _GREY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#8a8a8a",
)
COLOURS = {
    "DYNAMIC": _BLUE,
    "STATICMID": _ORANGE,
    "STATICOPT": _GREEN,
    "SHJ": _PINK,
    "EQ5": _BLUE,
    "EQ7": _GREEN,
    "B_NCI": _ORANGE,
    "B_CI": _PINK,
    "SHC": _BLUE,
    "PHJ": _PINK,
    "JB": _ORANGE,
    "JB best": _GREEN,
    "HYBRIDJOIN": _BLUE,
    "MESHJOIN": _ORANGE,
    "INLJ": _GREEN,
    "law": _YELLOW,
    "reads": _GREY,
    "ratio": _BLUE,
    "spark": _YELLOW,
    "sizes": _GREY,
    "RJoin": _BLUE,
    "requests": _YELLOW,
    "random": _ORANGE,
    "random triple": _PINK,
    "first": _GREEN,
    "worst": _GREY,
    "line 1": _BLUE,
    "line 2": _GREEN,
    "line 3": _YELLOW,
    "line 4": _ORANGE,
    "line 5": _PINK,
    "line 6": _GREY,
    "k=2": _BLUE,
    "k=4": _GREEN,
    "k=6": _YELLOW,
    "k=8": _ORANGE,
    "low-output": _BLUE,
    "high-output": _ORANGE,
    "random groups": _PINK,
    "largest-input": _GREEN,
    "lazy-disk": _BLUE,
    "active-disk": _ORANGE,
    "alone": _ORANGE,
    "none": _GREY,
    "0%": _GREY,
    "10%": _BLUE,
    "30%": _GREEN,
    "50%": _YELLOW,
    "70%": _GREEN,
    "80%": _PINK,
    "90%": _ORANGE,
    "100%": _ORANGE,
    "every 15 s": _BLUE,
    "every 30 s": _GREEN,
    "every 45 s": _ORANGE,
    "M1": _BLUE,
    "M2": _ORANGE,
    "M3": _GREEN,
    "M4": _PINK,
    "M5": _YELLOW,
}
MARKERS = {
    "DYNAMIC": "o",
    "STATICMID": "s",
    "STATICOPT": "^",
    "SHJ": "D",
    "EQ5": "o",
    "EQ7": "s",
    "B_NCI": "^",
    "PHJ": "D",
    "JB": "s",
    "JB best": "^",
    "MESHJOIN": "s",
    "INLJ": "^",
    "requests": "D",
    "random": "s",
    "first": "^",
    "worst": "v",
}
# Lines that often lie on one another: a broad, pale one below, a dashed one above it.
_BELOW, _ABOVE = {"DYNAMIC", "EQ5"}, {"STATICOPT", "EQ7"}
_BROAD, _PLAIN, _THIN = 3.6, 1.8, 1.5
_DASHES = (0, (4, 3))
_WIDTH, _HEIGHT, _BOARDS_HEIGHT, _DPI = 6.4, 4.0, 2.6, 130
_BAR_ROOM = 0.82
_MANY_DECADES = 1e4
# Beyond this number of points markers would run together.
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
        height = _BOARDS_HEIGHT if isinstance(chart, Boards) else _HEIGHT
        figure, axes = pyplot.subplots(figsize=(_WIDTH, height), layout="constrained")
        if isinstance(chart, Lines):
            _lines(axes, chart)
        elif isinstance(chart, Bars):
            _bars(axes, chart)
        else:
            _boards(axes, chart)
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
    handles = [_line(right if s.right and right is not None else axes, s) for s in chart.series]
    for number, (start, end) in enumerate(chart.shaded):
        span = axes.axvspan(start, end, color="#000000", alpha=0.12, linewidth=0, label=chart.shaded_name)
        if number == 0:
            handles.append(span)
    if chart.bound is not None:
        style = {"color": "#333333", "linewidth": 1, "linestyle": ":", "label": chart.bound_name}
        handles.append((right or axes).axhline(chart.bound, **style))
    axes.set(xlabel=chart.xlabel, ylabel=chart.ylabel)
    if chart.log_x:
        _make_log(axes, "x")
    if chart.log_y:
        _make_log(axes, "y")
    else:
        axes.yaxis.set_major_formatter(_number)
        axes.set_ylim(bottom=0)
    if chart.ticks:
        axes.set_xticks(chart.ticks, chart.tick_names)
        axes.tick_params(axis="x", which="minor", bottom=False)
    if right is None:
        axes.spines[["right"]].set_visible(False)
    else:
        right.set_ylabel(chart.ylabel_right)
        right.spines[["top"]].set_visible(False)
        right.margins(y=0.12)
    axes.grid(alpha=0.25)
    _legend(axes, handles)


def _line(axes: Any, series: Series) -> Any:
    above = series.dashed or series.role in _ABOVE
    (line,) = axes.plot(
        series.x,
        series.y,
        label=series.name,
        color=COLOURS[series.role],
        linewidth=_BROAD if series.role in _BELOW else _THIN if above else _PLAIN,
        linestyle=_DASHES if above else "-",
        marker=MARKERS.get(series.role, "o") if len(series.x) <= _MARKED_POINTS else None,
        markersize=7 if series.role in _BELOW else 5,
        alpha=0.45 if series.role in _BELOW else 1.0,
        zorder=3 if above else 2,
    )
    if series.spread:
        axes.errorbar(
            series.x,
            series.y,
            series.spread,
            fmt="none",
            ecolor=COLOURS[series.role],
            elinewidth=1,
            capsize=3,
        )
    return line


def _make_log(axes: Any, which: str) -> None:
    """Powers of ten and their doubles and fives, written out: 10^3 is no number to read a time from.

    Over many decades the powers of ten alone: more would run into one another.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < _MANY_DECADES else (1,)))
    axis.set_major_formatter(FuncFormatter(_number))
    axis.set_minor_formatter(NullFormatter())


def _number(value: float, _: object = None) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _bars(axes: Any, chart: Bars) -> None:
    width = _BAR_ROOM / len(chart.values)
    handles = []
    for place, (role, values) in enumerate(chart.values.items()):
        at = [group + (place - (len(chart.values) - 1) / 2) * width for group in range(len(chart.groups))]
        shown = [(x, v, g) for x, v, g in zip(at, values, chart.groups, strict=True) if v is not None]
        x, heights = [x for x, _, _ in shown], [v for _, v, _ in shown]
        bars = axes.bar(x, heights, width * 0.92, color=COLOURS[role], label=role)
        handles.append(bars)
        labels = [chart.form.format(v) + ("*" if (g, role) in chart.starred else "") for _, v, g in shown]
        axes.bar_label(bars, labels, fontsize=7, padding=1.5)
    axes.set_xticks(range(len(chart.groups)), chart.groups)
    axes.set_ylabel(chart.ylabel)
    # Room for the numbers above the highest bars.
    axes.margins(y=0.12)
    if chart.log_y:
        _make_log(axes, "y")
        lowest = min(v for values in chart.values.values() for v in values if v)
        # A bar on a log scale has no true foot: a third of the lowest leaves every bar to be seen.
        axes.set_ylim(bottom=lowest / 3)
    axes.spines[["right"]].set_visible(False)
    axes.grid(alpha=0.25, axis="y")
    axes.set_axisbelow(True)
    _legend(axes, handles, note=f"* {chart.star_name}" if chart.starred else None)


def _boards(axes: Any, chart: Boards) -> None:
    left = 0.0
    seen: dict[str, Any] = {}
    for board in chart.boards:
        for row in range(board.rows):
            for col in range(board.cols):
                old = row < board.old_rows and col < board.old_cols
                name = chart.old_name if old else chart.new_name
                (mark,) = axes.plot(
                    left + col,
                    -row,
                    "o",
                    markersize=26,
                    color=_BLUE if old else "white",
                    markeredgecolor=_BLUE,
                    markeredgewidth=1.4,
                    linestyle="none",
                    label=name,
                )
                seen.setdefault(name, mark)
                place = f"{row + 1},{col + 1}"
                axes.text(
                    left + col, -row, place, size=8, color="white" if old else _BLUE, ha="center", va="center"
                )
        axes.text(left - 0.35, 0.6, board.title, fontsize=9.5)
        left += board.cols + 1
    axes.set(xlim=(-0.8, left - 1.2), ylim=(0.6 - max(board.rows for board in chart.boards) - 0.4, 1.1))
    axes.set_aspect("equal")
    axes.set_axis_off()
    _legend(axes, list(seen.values()), markerscale=0.35)


def _legend(axes: Any, handles: list[Any], note: str | None = None, markerscale: float = 1.0) -> None:
    """Below the picture, where it covers nothing."""
    axes.figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 4),
        frameon=False,
        fontsize=8.5,
        title=note,
        title_fontsize=8,
        markerscale=markerscale,
    )
