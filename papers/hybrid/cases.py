"""What is run: sizes of relation, memory and page, and the values of each x axis.

Table 2 of the paper gives the range of relations and of arrival rates, and section 4.5 the setting in the middle: 50 MB and
2 million rows. The budgets of Figure 10d and the page sizes of Figure 6 are in its pictures only: those here are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from papers.hybrid import paper

SEED = 2010
MB = 1_000_000
# Desktop disks of the paper's time, added to Figure 10b: here no disk seeks. R has 240 MB of the paper's 160 GB, so that the
# arm hardly moves and half a turn at 7,200 rpm, 4.2 ms, is most of an access: the first, by which statements are judged. The
# second is one whose arm crosses the disk each time, 8.5 ms more. Both transfer 80 MB a second. Chosen before any run.
SEEKS_S = (0.005, 0.013)
DISK_BYTE_S = 1 / 80e6


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run. `rows` and `budget_bytes` are the setting that all figures have in common.

    `pages` are the page sizes of Figure 6 in rows, `rates` the arrivals a second of Figure 10b, `seeks` the seek times in
    seconds of the disks that are added to it, `slow_rows` how many rows are answered at each of them, `reading_s` how
    long a reading takes at least; `use_pages` are those of Figure 3. `calibration_pages` and `read_pages` are the page
    sizes, in rows, at which the cost model is calibrated: for turns, and for reads beside those of the index.
    """

    rows: int
    budget_bytes: int
    relations: tuple[int, ...]
    budgets: tuple[int, ...]
    pages: tuple[int, ...]
    rates: tuple[int, ...]
    seeks: tuple[float, ...]
    slow_rows: int
    readings: int
    reading_s: float
    use_pages: int
    calibration_pages: tuple[int, ...] = (512, 2048, 8192)
    read_pages: tuple[int, ...] = (256, 1024, 4096, 16_384)


FULL = Size(
    rows=paper.ROWS,
    budget_bytes=paper.BUDGET_BYTES,
    relations=(500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000),
    budgets=(10 * MB, 25 * MB, 50 * MB, 100 * MB),
    pages=(2048, 4096, 16_384, 65_536, 262_144),
    rates=(125, 500, 2000, 8000, 32_000),
    seeks=SEEKS_S,
    slow_rows=1500,
    readings=9,
    reading_s=0.5,
    use_pages=paper.PAGES,
)
# A quarter of relation and memory: as many rows of memory for each row of the relation.
QUICK = Size(
    rows=paper.ROWS // 4,
    budget_bytes=paper.BUDGET_BYTES // 4,
    relations=(125_000, 500_000, 1_000_000),
    budgets=(5 * MB, paper.BUDGET_BYTES // 4, 25 * MB),
    pages=(256, 1024, 16_384, 65_536),
    rates=(125, 2000, 32_000),
    seeks=SEEKS_S[:1],
    slow_rows=1000,
    readings=3,
    reading_s=0.2,
    use_pages=paper.PAGES // 8,
)
