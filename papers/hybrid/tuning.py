"""Figure 6: the service rate of HYBRIDJOIN as its disk buffer, which is one page, grows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from papers.hybrid import paper
from papers.hybrid.cases import Size
from papers.hybrid.rates import equation2, megabytes, million
from papers.hybrid.results import ALGORITHMS, HYBRIDJOIN, INLJ, MESHJOIN, Measured, Service
from papers.shared.exhibit import Control, Exhibit, Lines, Series, Table, Verdict

# A rise or a fall below this counts as none.
NOISE = 0.05
# The page size that the model gives is right if its rate is predicted to be within this share of the best one measured.
NEAR_BEST = 0.1


def fig6(measured: Measured, size: Size) -> Exhibit:
    by = {a: [measured.pages[rows][a] for rows in size.pages] for a in ALGORITHMS}
    pages = by[HYBRIDJOIN]
    kilobytes = [rows * paper.ROW_BYTES / 1000 for rows in size.pages]
    names = [_text(value) for value in kilobytes]
    return Exhibit(
        "fig6",
        "Figure 6: tuning of the disk buffer",
        f"HYBRIDJOIN, {million(size.rows)} rows, {megabytes(size.budget_bytes)}: what the page takes, the rows in memory lack. The "
        f"others have the same pages, as controls. Cost of a read: the mean of the same reads by themselves.",
        [_table(measured, size, names)],
        [
            _rises(names, by),
            _falls(names, by),
            _why_it_falls(measured, size, names, pages),
            equation2(names, [measured.pages[rows] for rows in size.pages], [size.rows] * len(names), size.rows),
            _tuned(names, pages),
        ],
        [
            Lines(
                "6: service rate and cost of reading, by page size",
                "page (log)",
                "rows a second",
                [
                    Series(
                        HYBRIDJOIN,
                        HYBRIDJOIN,
                        kilobytes,
                        [page.rate.mean for page in pages],
                        spread=[page.rate.spread for page in pages],
                    ),
                    Series(
                        "predicted",
                        HYBRIDJOIN,
                        kilobytes,
                        [page.predicted.rate for page in pages],
                        dashed=True,
                    ),
                    Series(MESHJOIN, MESHJOIN, kilobytes, [page.rate.mean for page in by[MESHJOIN]]),
                    Series(
                        "reading, right axis",
                        "reads",
                        kilobytes,
                        [measured.read_s[n] / page.answered * 1e6 for n, page in zip(size.pages, pages, strict=True)],
                        right=True,
                    ),
                ],
                ylabel_right="us of reading for each row answered",
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
            f"{measured.read_s[count] / page.answered * 1e6:.2f}",
            f"{page.k(size.rows):.2f}",
            f"{page.rate.mean:,.0f} ± {page.rate.spread:,.0f}",
            f"{page.predicted.rate:,.0f}",
            *(f"{measured.pages[count][a].rate.mean:,.0f}" for a in (MESHJOIN, INLJ)),
        ]
        for name, count in zip(names, size.pages, strict=True)
        for page in (measured.pages[count][HYBRIDJOIN],)
    ]
    return Table(
        "by page size",
        ["page", "its rows", "rows in memory", "read us", "read from disk us", "rows a read", "read us for each", "k", "rows/s", "predicted", "MESHJOIN rows/s", "INLJ rows/s"],
        rows,
        "Read: from the operating system's cache; from disk: the file dropped from it before each read. Read for each: of the rows "
        "that a read answers, by the first of the two.",
    )  # fmt: skip


def _best(pages: Sequence[Service]) -> int:
    return max(range(len(pages)), key=lambda place: pages[place].rate.mean)


def _does_rise(pages: Sequence[Service]) -> bool:
    """To its best rate, from a lower one, without a fall in between."""
    rates = [page.rate.mean for page in pages[: _best(pages) + 1]]
    return rates[-1] > rates[0] * (1 + NOISE) and all(
        b > a * (1 - NOISE) for a, b in itertools.pairwise(rates)
    )


def _rises(names: Sequence[str], by: Mapping[str, Sequence[Service]]) -> Verdict:
    def told(pages: Sequence[Service]) -> str:
        best = _best(pages)
        return (
            f"from {pages[0].rate.mean:,.0f} rows/s at {names[0]} ({pages[0].answered:,.1f} rows a read) to "
            f"{pages[best].rate.mean:,.0f} at {names[best]} ({pages[best].answered:,.1f} rows a read)"
        )

    return Verdict(
        "for a small disk buffer the service rate is small, since fewer rows match, and it increases with the buffer",
        told(by[HYBRIDJOIN]),
        _does_rise(by[HYBRIDJOIN]),
        controls=[Control(a, _does_rise(by[a]), told(by[a])) for a in (MESHJOIN, INLJ)],
    )


def _falls(names: Sequence[str], by: Mapping[str, Sequence[Service]]) -> Verdict:
    def last(pages: Sequence[Service]) -> float:
        return pages[-1].rate.mean / pages[_best(pages)].rate.mean

    def told(pages: Sequence[Service]) -> str:
        return f"at {names[-1]} {last(pages):.3g} times the rate at {names[_best(pages)]}"

    return Verdict(
        "after a particular size the trend changes and the rate decreases with further increments",
        told(by[HYBRIDJOIN]),
        last(by[HYBRIDJOIN]) < 1 - NOISE,
        controls=[Control(a, last(by[a]) < 1 - NOISE, told(by[a])) for a in (MESHJOIN, INLJ)],
    )


def _why_it_falls(measured: Measured, size: Size, names: Sequence[str], pages: Sequence[Service]) -> Verdict:
    """By what a row answered costs: all of its time, and of that the read's part."""
    best = _best(pages)
    read_us = [measured.read_s[size.pages[n]] / pages[n].answered * 1e6 for n in (best, -1)]
    all_us = [1e6 / pages[n].rate.mean for n in (best, -1)]
    row_us = [measured.read_s[size.pages[n]] / size.pages[n] * 1e6 for n in (best, -1)]
    risen = read_us[1] - read_us[0]
    rest = all_us[1] - all_us[0] - risen
    kept = pages[-1].held_rows / pages[best].held_rows
    agrees = risen > max(0.0, rest)
    return Verdict(
        "the reason of the decrease is the rapid increment in the cost of disk I/O",
        f"from {names[best]} to {names[-1]} reading costs {read_us[0]:.2f} and {read_us[1]:.2f} us for each row that is answered, of "
        f"{all_us[0]:.2f} and {all_us[1]:.2f} us in all",
        agrees,
        f"a row of a page costs {row_us[0]:.2f} and {row_us[1]:.2f} us to read; reading is dearer since {kept:.2f} times as many rows "
        "have room in memory beside the page, and a read answers fewer of them for each row that it brings",
        controls=[
            Control(
                "all other work",
                rest > max(0.0, risen),
                f"it rises by {rest:.2f} us for each row answered, reading by {risen:.2f}",
            )
        ],
    )  # fmt: skip


def _tuned(names: Sequence[str], pages: Sequence[Service]) -> Verdict:
    best = _best(pages)
    told = max(range(len(pages)), key=lambda place: pages[place].predicted.rate)
    reached = [page.rate.mean / pages[best].rate.mean for page in pages]
    return Verdict(
        "the size at which the service rate is maximum can be determined from equations 2 to 4",
        f"of these sizes the model takes {names[told]}, with {reached[told]:.2f} times the rate of the best, {names[best]}",
        reached[told] >= 1 - NEAR_BEST,
        controls=[
            Control(f"no model, {names[n]} for all,", part >= 1 - NEAR_BEST, f"{part:.2f} times")
            for n, part in enumerate(reached)
            if n != told
        ],
    )
