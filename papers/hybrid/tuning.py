"""Figure 6: the service rate of HYBRIDJOIN as its disk buffer, which is one page, grows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from papers.hybrid import paper
from papers.hybrid.cases import Size
from papers.hybrid.model import dense_k
from papers.hybrid.rates import megabytes, million
from papers.hybrid.results import Measured, Service
from papers.shared.exhibit import Exhibit, Lines, Series, Table, Verdict

# A rise or a fall below this counts as none.
NOISE = 0.05
# The page size that the model gives is right if its rate is predicted to be within so much of the best one measured.
NEAR_BEST = 0.1


def fig6(measured: Measured, size: Size) -> Exhibit:
    pages = [measured.pages[rows] for rows in size.pages]
    kilobytes = [rows * paper.ROW_BYTES / 1000 for rows in size.pages]
    names = [_text(value) for value in kilobytes]
    return Exhibit(
        "fig6",
        "Figure 6: tuning of the disk buffer",
        f"HYBRIDJOIN, {million(size.rows)} rows, {megabytes(size.budget_bytes)}: what the page takes, the rows in memory lack. "
        f"Cost of a read: the mean of the same reads by themselves.",
        [_table(measured, size, names)],
        [
            _rises(names, pages),
            _falls(names, pages),
            _why_it_falls(measured, size, names, pages),
            _equation2(size, names, pages),
            _tuned(names, pages),
        ],
        [
            Lines(
                "6: service rate and cost of a read, by page size",
                "page, KB (log)",
                "rows a second",
                [
                    Series(
                        "service rate",
                        "HYBRIDJOIN",
                        kilobytes,
                        [page.rate.mean for page in pages],
                        spread=[page.rate.spread for page in pages],
                    ),
                    Series(
                        "predicted",
                        "HYBRIDJOIN",
                        kilobytes,
                        [page.predicted.rate for page in pages],
                        dashed=True,
                    ),
                    Series(
                        "read of a page, ms",
                        "reads",
                        kilobytes,
                        [measured.read_s[rows] * 1000 for rows in size.pages],
                        right=True,
                    ),
                ],
                ylabel_right="ms",
                log_x=True,
                ticks=kilobytes,
                tick_names=names,
            )
        ],
    )  # fmt: skip


def _text(kilobytes: float) -> str:
    return f"{kilobytes / 1000:.3g} MB" if kilobytes >= 1000 else f"{kilobytes:.3g} KB"


def _table(measured: Measured, size: Size, names: Sequence[str]) -> Table:
    rows = [
        [
            name,
            f"{count:,}",
            f"{page.held_rows:,}",
            f"{measured.read_s[count] * 1e6:,.0f}",
            f"{measured.cold_read_s[count] * 1e6:,.0f}",
            f"{page.answered:,.1f}",
            f"{page.k(size.rows):.2f}",
            f"{page.rate.mean:,.0f} ± {page.rate.spread:,.0f}",
            f"{page.predicted.rate:,.0f}",
        ]
        for name, count in zip(names, size.pages, strict=True)
        for page in (measured.pages[count],)
    ]
    return Table(
        "by page size",
        ["page", "its rows", "rows in memory", "read us", "read from disk us", "rows a read", "k", "rows/s", "predicted"],
        rows,
        "Read: from the operating system's cache; from disk: the file dropped from it before each read.",
    )  # fmt: skip


def _best(pages: Sequence[Service]) -> int:
    return max(range(len(pages)), key=lambda place: pages[place].rate.mean)


def _rises(names: Sequence[str], pages: Sequence[Service]) -> Verdict:
    best = _best(pages)
    rates = [page.rate.mean for page in pages]
    return Verdict(
        "for a small disk buffer the service rate is small, since fewer rows match, and it increases with the buffer",
        f"from {rates[0]:,.0f} rows/s at {names[0]} ({pages[0].answered:.1f} rows a read) to {rates[best]:,.0f} at "
        f"{names[best]} ({pages[best].answered:,.0f} rows a read)",
        rates[best] > rates[0] * (1 + NOISE)
        and all(b > a * (1 - NOISE) for a, b in itertools.pairwise(rates[: best + 1])),
    )


def _falls(names: Sequence[str], pages: Sequence[Service]) -> Verdict:
    best = _best(pages)
    last = pages[-1].rate.mean / pages[best].rate.mean
    return Verdict(
        "after a particular size the trend changes and the rate decreases with further increments",
        f"at {names[-1]} {last:.2f} times the rate at {names[best]}",
        last < 1 - NOISE,
    )


def _why_it_falls(measured: Measured, size: Size, names: Sequence[str], pages: Sequence[Service]) -> Verdict:
    best = _best(pages)
    row_us = [measured.read_s[rows] / rows * 1e6 for rows in size.pages]
    kept = pages[-1].held_rows / pages[best].held_rows
    dearer = row_us[-1] / row_us[best]
    return Verdict(
        "the reason of the decrease is the rapid increment in the cost of disk I/O",
        f"from {names[best]} to {names[-1]} a row of a page costs {row_us[best]:.2f} and {row_us[-1]:.2f} us to read, "
        f"{dearer:.2f} times; {kept:.2f} times as many rows have room in memory beside the page",
        dearer > 1 / kept,
        "the larger reads answer more rows in proportion; what the page takes from the rows in memory costs more than reading it"
        if dearer <= 1 / kept
        else "",
    )


def _equation2(size: Size, names: Sequence[str], pages: Sequence[Service]) -> Verdict:
    values = [page.k(size.rows) for page in pages]
    return Verdict(
        f"equation 2: a read answers k x H_t x D_t / R_t rows, with k = {paper.K} in the paper's settings",
        ", ".join(f"k = {value:.2f} at {name}" for name, value in zip(names, values, strict=True)),
        all(abs(value / paper.K - 1) <= 0.1 for value in values),
        "k is no constant: by the law it is 2 / (1 + sum of the squared shares of the pages) where rows wait on every page, and "
        f"more where they do not. {paper.K} is what pages of {_text(_page_of(size.rows) * paper.ROW_BYTES / 1000)} have",
    )


def _tuned(names: Sequence[str], pages: Sequence[Service]) -> Verdict:
    best = _best(pages)
    told = max(range(len(pages)), key=lambda place: pages[place].predicted.rate)
    reached = pages[told].rate.mean / pages[best].rate.mean
    return Verdict(
        "the size at which the service rate is maximum can be determined from equations 2 to 4",
        f"of these sizes the model takes {names[told]}, with {reached:.2f} times the rate of the best, {names[best]}",
        reached >= 1 - NEAR_BEST,
    )


def _page_of(rows: int) -> int:
    """The page size in rows at which k is the paper's, by halving."""
    low, high = 1, rows
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if dense_k(rows, middle) > paper.K else (low, middle)
    return low
