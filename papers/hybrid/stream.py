"""Figures 8 and 9: what the stream is like, before anything is joined."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from papers.hybrid import paper
from papers.hybrid.cases import SEED, Size
from papers.hybrid.results import Measured
from papers.hybrid.sales import Zipf, bursts, mean_burst
from papers.shared.exhibit import Control, Exhibit, Lines, Series, Table, Verdict

Figures = npt.NDArray[np.float64]

# "Approximately" 80 %: within this many points.
_NEAR_SHARE = 0.05
# Numbers of products at which the 80/20 rule is looked at; with the first it holds.
_PRODUCTS = (3_125, 100_000, 2_000_000, 8_000_000)
# Rows and steps that are drawn to be counted.
_SALES, _STEPS = 2_000_000, 131_072
# Scales of Figure 9, in steps: well below the longest source, which may last 1,024.
_SCALES = (1, 2, 4, 8, 16, 32, 64, 128)
_SHOWN_STEPS = 4096
# What is independent has 0.5; a flow that is as bursty on every scale has 1.
_BURSTY_HURST = 0.8
# A flow is bursty if a step's rows deviate by this share of their mean.
_BURSTY = 0.25


def fig8(measured: Measured, size: Size) -> Exhibit:
    law = Zipf(paper.ROWS)
    sold = np.bincount(law.draw(_SALES, np.random.default_rng(SEED)), minlength=law.products + 1)[1:]
    edges = np.unique(np.geomspace(1, law.products, 40).astype(np.int64))
    middles = np.sqrt(edges[:-1].astype(np.float64) * edges[1:])
    counts = np.add.reduceat(sold, edges[:-1] - 1)
    counts[-1] -= sold[edges[-1] - 1]
    found = counts / np.diff(edges) / _SALES
    exact = np.diff(law.reached(edges - 1)) / np.diff(edges)
    often = round(paper.SOLD_OFTEN * law.products)
    share = float(sold[:often].sum() / _SALES)
    ever = float((sold[often:] == 0).mean())
    return Exhibit(
        "fig8",
        "Figure 8: sales by product, Zipf's law",
        f"{_SALES:,} sales of {law.products:,} products drawn through the inverse integral, exponent 1.",
        [_law_table(), _rule_table()],
        [
            Verdict(
                "an exponent of -1 approximately models the 80/20 rule: 80 % of the sales are of 20 % of the products",
                f"{share:.1%} of the sales are of 20 % of {law.products:,} products, {law.reached(often):.1%} by the law",
                abs(share - paper.SOLD_SHARE) <= _NEAR_SHARE,
                "the more products there are, the more the first fifth sells: 80 % with 3,125 of them, 89 % with two million. "
                f"With {law.products:,} it takes an exponent of {_exponent_for(law.products):.2f}",
                controls=[Control("a stream without skew", False, "20 % of the sales")],
            ),
            Verdict(
                "only a limited number of products (20 %) are sold frequently, the rest rarely",
                f"one of the first 20 % is sold {share / (1 - share) * 4:.0f} times as often as one of the others, "
                f"of which {ever:.0%} are not sold once in {_SALES:,} sales",
                share > paper.SOLD_SHARE,
                controls=[Control("a stream without skew", False, "as often as one of the others")],
            ),
        ],
        [
            Lines(
                "8: sales of a product, by its rank",
                "rank of the product (log)",
                "share of all sales (log)",
                [
                    Series("drawn", "HYBRIDJOIN", middles.tolist(), np.maximum(found, 1e-12).tolist()),
                    Series("by the law", "law", middles.tolist(), exact.tolist(), dashed=True),
                ],
                log_x=True,
                log_y=True,
            ),
            Lines(
                "8: sales of the first products together",
                "share of the products",
                "share of all sales",
                [_rule_series(products, role) for products, role in zip(_PRODUCTS[:3], _ROLES, strict=True)],
                bound=paper.SOLD_SHARE,
                bound_name="80 % of the sales",
            ),
        ],
    )  # fmt: skip


_ROLES = ("INLJ", "MESHJOIN", "HYBRIDJOIN")


def _rule_series(products: int, role: str) -> Series:
    parts = np.linspace(0, 1, 101)
    shares = Zipf(products).reached(parts * products)
    return Series(f"{products:,} products", role, parts.tolist(), shares.tolist())


def _law_table() -> Table:
    law = Zipf(paper.ROWS)
    weights = np.arange(1, law.products + 1) ** -1.0
    reached = np.cumsum(weights) / weights.sum()
    ranks = [1, 10, 100, 1_000, 10_000, 100_000, 400_000, 2_000_000]
    rows = [[f"{rank:,}", f"{law.reached(rank):.1%}", f"{reached[rank - 1]:.1%}"] for rank in ranks]
    return Table(
        "share of all sales that the first products have",
        ["first", "inverse integral", "Zipf's own sum of 1/k"],
        rows,
        "The integral from k to k + 1 in place of 1/k takes some sales from the first few products.",
    )


def _rule_table() -> Table:
    rows = [
        [
            f"{products:,}",
            f"{Zipf(products).reached(paper.SOLD_OFTEN * products):.1%}",
            f"{_exponent_for(products):.3f}",
        ]
        for products in _PRODUCTS
    ]
    return Table("the 80/20 rule", ["products", "sales of the first 20 %", "exponent for 80 %"], rows)


def _exponent_for(products: int) -> float:
    """The exponent with which a fifth of the products has 80 % of the sales, by halving."""
    low, high = 0.0, 2.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if Zipf(products, middle).reached(paper.SOLD_OFTEN * products) < paper.SOLD_SHARE:
            low = middle
        else:
            high = middle
    return low


def fig9(measured: Measured, size: Size) -> Exhibit:
    flow = np.fromiter(
        itertools.islice(bursts(np.random.default_rng(SEED), paper.SOURCES), _STEPS), np.float64, _STEPS
    )
    even = np.random.default_rng(SEED).permutation(flow)
    kept, lost = spread_by_scale(flow, _SCALES), spread_by_scale(even, _SCALES)
    bursty, independent = hurst(_SCALES, kept), hurst(_SCALES, lost)
    poisson = float(1 / np.sqrt(flow.mean()))
    return Exhibit(
        "fig9",
        "Figure 9: the stream in time",
        f"{paper.SOURCES} on-off sources in a priority queue, source i with 2^i rows a step, {_STEPS:,} steps of a virtual clock.",
        [
            Table(
                "how the flow varies, by the length of what is averaged",
                ["steps", "deviation / mean", "the same steps in random order"],
                [[f"{m}", f"{k:.2f}", f"{l:.2f}"] for m, k, l in zip(_SCALES, kept, lost, strict=True)],
                f"{flow.mean():.0f} rows a step on average ({mean_burst(paper.SOURCES)} by the sources), from {flow.min():.0f} to "
                f"{flow.max():.0f}. Hurst's exponent from these: {bursty:.2f}, in random order {independent:.2f}.",
            )
        ],
        [
            Verdict(
                "the flow varies with time and is bursty rather than appearing at a regular rate",
                f"deviation of a step's rows {kept[0]:.2f} times their mean; the busiest tenth of all steps has "
                f"{np.sort(flow)[-_STEPS // 10 :].sum() / flow.sum():.0%} of the rows",
                kept[0] > _BURSTY,
                controls=[
                    Control("the same steps in random order", lost[0] > _BURSTY, f"{lost[0]:.2f} times their mean"),
                    Control("independent arrivals", poisson > _BURSTY, f"{poisson:.2f} times, by Poisson's law"),
                ],
            ),
            Verdict(
                "the timing of the stream is self-similar",
                f"over {_SCALES[0]} to {_SCALES[-1]} steps the deviation falls from {kept[0]:.2f} to {kept[-1]:.2f} of the mean "
                f"(Hurst's exponent {bursty:.2f}); without bursts it would fall to {lost[-1]:.2f} ({independent:.2f})",
                bursty > _BURSTY_HURST,
                "up to the longest source, 1,024 steps; over longer times the flow evens out",
                controls=[
                    Control("the same steps in random order", independent > _BURSTY_HURST, f"exponent {independent:.2f}")
                ],
            ),
        ],
        [
            Lines(
                "9: rows in each step",
                "step",
                "rows",
                [
                    Series(
                        "rows",
                        "HYBRIDJOIN",
                        list(range(_SHOWN_STEPS)),
                        flow[:_SHOWN_STEPS].tolist(),
                    )
                ],
            ),
            Lines(
                "9: bursts on every scale",
                "steps that are averaged (log)",
                "deviation / mean (log)",
                [
                    Series("the stream", "HYBRIDJOIN", _SCALES, kept),
                    Series("its steps in random order", "MESHJOIN", _SCALES, lost),
                ],
                log_x=True,
                log_y=True,
                ticks=_SCALES,
                tick_names=[str(m) for m in _SCALES],
            ),
        ],
    )  # fmt: skip


def spread_by_scale(flow: Figures, scales: Sequence[int]) -> list[float]:
    """The deviation of means over blocks of this many steps, relative to the mean of all."""
    means = [flow[: len(flow) // m * m].reshape(-1, m).mean(axis=1) for m in scales]
    return [float(mean.std() / flow.mean()) for mean in means]


def hurst(scales: Sequence[int], spread: Sequence[float]) -> float:
    """The deviation of means over m steps falls as m^(H - 1)."""
    return 1 + float(np.polyfit(np.log(scales), np.log(spread), 1)[0])
