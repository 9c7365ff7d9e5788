"""Seconds per batch over the batch number, one line per competitor, as SVG."""

from __future__ import annotations

from pathlib import Path

from bench.report import Results

# The same competitor has the same colour in every picture (Okabe and Ito: safe for colour-blind).
COLOURS = {
    "watersmeet": "#0072b2",
    "spark-default": "#d55e00",
    "spark-rocksdb": "#cc79a7",
    "floor": "#999999",
    "watersmeet-grid": "#56b4e9",
    "spark-buckets": "#d55e00",
    "spark-buckets-tuned": "#cc79a7",
}


def draw(results: Results, workload: str, path: Path) -> bool:
    """Write the picture; False when nothing of this workload ran."""
    curves = {name: results.batch_curve(workload, name) for name in COLOURS}
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return False
    import matplotlib

    matplotlib.use("Agg")
    # A fixed salt and no date: the same figures give the same file, so that a diff means something.
    matplotlib.rcParams["svg.hashsalt"] = "watersmeet"
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    for name, curve in curves.items():
        axes.plot(range(1, len(curve) + 1), curve, label=name, color=COLOURS[name], linewidth=1.6)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="micro-batch", ylabel="seconds (log)", title=f"{workload}: seconds per micro-batch")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True
