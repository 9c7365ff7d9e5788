"""Running the cases: relations, calibration, then each run that the chosen figures need, once.

In a case the algorithms run at the same time, in slices by turns, so that drift falls on all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event

import numpy as np
import numpy.typing as npt

from papers.hybrid import paper
from papers.hybrid.cases import DISK_BYTE_S, SEED, Size
from papers.hybrid.equations import CostConstants, fit_reads
from papers.hybrid.machines import capacity_of, draw_rows, make_machine
from papers.hybrid.model import (
    INDEX_PAGE_ROWS,
    best_page,
    fit_constants,
    with_reads,
)
from papers.hybrid.rates import megabytes, million
from papers.hybrid.relation import Relation, make_relation, warm
from papers.hybrid.results import (
    ALGORITHMS,
    HYBRIDJOIN,
    INLJ,
    MESHJOIN,
    Case,
    Measured,
    Services,
    Slow,
    Use,
)
from papers.hybrid.runs import Run, read_together, run_slow, time_reads
from papers.hybrid.sales import Zipf, arrivals
from papers.shared.reproduction import Stopped, Watch

# The calibration has a quarter of the relation, and an eighth and a half of the memory: few and many rows for a page.
_CALIBRATION_PART = 4
_CALIBRATION_BUDGETS = (1 / 8, 1 / 2)
# Rows that are read to time a page, and pages at least.
_TIMED_ROWS, _TIMED_PAGES = 200_000, 12
_MOST_TIMED = 400
# Of Figure 10b: with ten sources a few thousand rows would be no more than one burst.
_SLOW_SOURCES = 5
# At high rates so large a part of the rows of a second: below that a backlog has no time to grow.
_SLOW_PART = 4
# Beginnings of Figure 3's segments, as parts of the relation.
_SEGMENTS = (0, 1 / 800, 1 / 200, 1 / 80, 1 / 32, *(part / 8 for part in range(1, 8)), 0.99)
_USE_ROWS = 4_000_000
# In one turn a page is read once or not at all: means over 20 pages would be coarse.
_READ_SEGMENT_PAGES = 10 * paper.SEGMENT_PAGES


def cases_of(names: Sequence[str], size: Size) -> list[Case]:
    """Those in which all three algorithms run."""
    cases = set()
    if {"fig10a", "fig10c", "fig11"} & set(names):
        cases |= {Case(rows, size.budget_bytes) for rows in size.relations}
    if "fig10d" in names:
        cases |= {Case(size.rows, budget) for budget in (*size.budgets, size.budget_bytes)}
        cases |= {Case(size.rows, size.budget_bytes, cold=True)}
    return sorted(cases)


def needs_relation(names: Sequence[str]) -> bool:
    return any(name not in ("fig8", "fig9") for name in names)


def count_steps(names: Sequence[str], size: Size) -> int:
    """How often `Watch.step` will be called."""
    if not needs_relation(names):
        return 0
    cases = cases_of(names, size)
    relations = len({size.rows, _calibration_rows(size), *(case.rows for case in cases)})
    return (
        relations
        + 1
        + len(cases)
        + (len(size.pages) if "fig6" in names else 0)
        + (len(size.rates) * (1 + len(size.seeks)) if "fig10b" in names else 0)
        + (2 if "fig3" in names else 0)
    )


def measure(names: Sequence[str], size: Size, data: Path, watch: Watch, stop: Event) -> Measured:
    """Run all that these figures need."""
    services: dict[Case, Services] = {}
    pages: dict[int, Services] = {}
    read_s: dict[int, float] = {}
    cold_read_s: dict[int, float] = {}
    slow: dict[tuple[float, int], dict[str, Slow]] = {}
    use, slow_input = None, 0
    if needs_relation(names):
        session = _Session(size, data, watch, stop)
        cases = cases_of(names, size)
        session.make_relations(sorted({size.rows, _calibration_rows(size), *(case.rows for case in cases)}))
        session.calibrate()
        services = {case: session.serve(case) for case in cases}
        if "fig6" in names:
            for page_rows in size.pages:
                pages[page_rows] = session.serve_page(page_rows)
                read_s[page_rows] = session.time_page(page_rows, cold=False)
                cold_read_s[page_rows] = session.time_page(page_rows, cold=True)
        if "fig10b" in names:
            slow = {
                (seek, rate): session.wait(seek, rate) for seek in (0.0, *size.seeks) for rate in size.rates
            }
            slow_input = session.mesh_input()
        if "fig3" in names:
            use = session.watch_use()
    return Measured(services, pages, read_s, cold_read_s, slow, slow_input, use)


def _calibration_rows(size: Size) -> int:
    return size.rows // _CALIBRATION_PART


class _Session:
    """All runs of one reproduction, over the same files."""

    def __init__(self, size: Size, data: Path, watch: Watch, stop: Event):
        self._size, self._data, self._watch, self._stop = size, data, watch, stop
        self._constants: dict[str, CostConstants] = {}
        self._reads = {False: (0.0, 0.0), True: (0.0, 0.0)}

    def make_relations(self, relations: Sequence[int]) -> None:
        for rows in relations:
            self._watch.step(f"relation of {million(rows)} rows")
            warm(make_relation(self._data, rows, self._told(rows)))

    def _told(self, rows: int) -> Callable[[int], None]:
        def told(done: int) -> None:
            if self._stop.is_set():
                raise Stopped("stopped")
            self._watch.batch(done, rows)

        return told

    def calibrate(self) -> None:
        """Reads on the relation of all figures; turns on a smaller one, so that no figure is predicted from itself."""
        self._watch.step("calibrating the cost model")
        for cold in (True, False):
            sizes = (INDEX_PAGE_ROWS, *self._size.read_pages)
            timed = [self.time_page(rows, cold=cold) for rows in sizes]
            self._reads[cold] = fit_reads([rows * paper.ROW_BYTES for rows in sizes], timed)
        rows = _calibration_rows(self._size)
        budgets = [round(part * self._size.budget_bytes) for part in _CALIBRATION_BUDGETS]
        for algorithm in (HYBRIDJOIN, MESHJOIN):
            observed = []
            for page_rows in self._size.calibration_pages:
                for budget_bytes in budgets:
                    with self._relation(rows, page_rows) as relation:
                        run = Run(algorithm, relation, budget_bytes, self._stop)
                        run.warm_up()
                        run.read()
                        observed.append(run.observed(page_rows))
            self._constants[algorithm] = fit_constants(self._reads[False], observed)
        observed = []
        for page_rows in (INDEX_PAGE_ROWS, 8 * INDEX_PAGE_ROWS):
            with self._relation(rows, page_rows) as relation:
                run = Run(INLJ, relation, budgets[0], self._stop)
                run.warm_up()
                run.read(self._size.reading_s)
                observed.append(run.observed(page_rows))
        self._constants[INLJ] = fit_constants(self._reads[False], observed)

    def serve(self, case: Case) -> Services:
        """The three algorithms, each with its best page size."""
        where = ", from the disk" if case.cold else ""
        self._watch.step(f"{million(case.rows)} rows, {megabytes(case.budget_bytes)}{where}: all three")
        constants = {a: self._constants_for(a, case.cold) for a in ALGORITHMS}
        pages = {a: best_page(a, constants[a], case.rows, case.budget_bytes) for a in ALGORITHMS}
        return self._serve(case, pages, constants)

    def serve_page(self, page_rows: int) -> Services:
        """The three algorithms, all with a given page size."""
        size = self._size
        self._watch.step(f"pages of {page_rows:,} rows: all three")
        return self._serve(
            Case(size.rows, size.budget_bytes), dict.fromkeys(ALGORITHMS, page_rows), self._constants
        )

    def _serve(
        self, case: Case, pages: Mapping[str, int], constants: Mapping[str, CostConstants]
    ) -> Services:
        with contextlib.ExitStack() as stack:
            runs = {}
            for algorithm in ALGORITHMS:
                relation = stack.enter_context(self._relation(case.rows, pages[algorithm], cold=case.cold))
                runs[algorithm] = Run(algorithm, relation, case.budget_bytes, self._stop)
                runs[algorithm].warm_up()
            self._read(list(runs.values()))
            return {a: run.service(case.rows, pages[a], constants[a]) for a, run in runs.items()}

    def _read(self, runs: Sequence[Run]) -> None:
        for number in range(self._size.readings):
            read_together(runs, self._size.reading_s)
            self._watch.batch(number + 1, self._size.readings)

    def time_page(self, page_rows: int, *, cold: bool) -> float:
        with self._relation(self._size.rows, page_rows, cold=cold) as relation:
            count = min(_MOST_TIMED, max(_TIMED_PAGES, _TIMED_ROWS // page_rows))
            return time_reads(relation, count, np.random.default_rng(SEED))

    def wait(self, seek_s: float, rate: int) -> dict[str, Slow]:
        """The three algorithms with rows that come slowly; with a seek time, on a disk of the paper's time."""
        where = f", seeks of {1000 * seek_s:g} ms" if seek_s else ""
        self._watch.step(f"{rate:,} rows a second{where}: all three")
        found = {}
        for algorithm in ALGORITHMS:
            # MESHJOIN reads the relation from its beginning to its end, and does not seek.
            own_seek_s = 0.0 if algorithm == MESHJOIN else seek_s
            byte_s = DISK_BYTE_S if seek_s else 0.0
            page_rows = self._best(algorithm, own_seek_s, byte_s)
            with self._relation(self._size.rows, page_rows) as relation:
                machine = make_machine(algorithm, relation, self._size.budget_bytes)
                counted = max(self._size.slow_rows, rate // _SLOW_PART)
                total = counted
                if algorithm == MESHJOIN:
                    # Those of a whole turn, and then another one, in which the last of them are answered.
                    counted = capacity_of(relation, self._size.budget_bytes)
                    total = 2 * counted
                times, keys = np.random.default_rng(SEED).spawn(2)
                at = arrivals(total, rate, times, _SLOW_SOURCES)
                # A few thousand rows are not many bursts: stretched, so that they come at the rate on average.
                at *= total / rate / at[-1]
                rows = draw_rows(Zipf(self._size.rows), 0, total, keys)
                disk_s = own_seek_s + page_rows * paper.ROW_BYTES * byte_s
                found[algorithm] = run_slow(machine, rows, at, counted, self._stop, disk_s)
        return found

    def mesh_input(self) -> int:
        with self._relation(self._size.rows, self._best(MESHJOIN)) as relation:
            return capacity_of(relation, self._size.budget_bytes) // len(relation.index)

    def watch_use(self) -> Use:
        """HYBRIDJOIN and MESHJOIN over the paper's 16,000 pages, once around; and which pages the stream asks for."""
        pages = self._size.use_pages
        page_rows = self._size.rows // pages
        law = Zipf(self._size.rows)
        keys = law.draw(_USE_ROWS, np.random.default_rng(SEED))
        asked = np.bincount((keys - 1) // page_rows, minlength=pages) / _USE_ROWS
        edges = np.arange(pages + 1) * page_rows
        exact = np.diff(law.reached(edges))
        reads, unused = {}, {}
        for algorithm in (HYBRIDJOIN, MESHJOIN):
            self._watch.step(f"{pages:,} pages: {algorithm}")
            with self._relation(self._size.rows, page_rows) as relation:
                run = Run(algorithm, relation, self._size.budget_bytes, self._stop)
                # Another round would change HYBRIDJOIN's reads by some per cent, and take long, as there are many pages.
                run.warm_up(rounds=1 if algorithm == HYBRIDJOIN else 2)
                before = run.reads.copy()
                reading = run.read()
                reads[algorithm] = _by_segment((run.reads - before) / reading.answered, _READ_SEGMENT_PAGES)
                unused[algorithm] = reading.unused / reading.turns
        return Use(_firsts(pages), _by_segment(asked), _by_segment(exact), reads, unused)

    def _best(self, algorithm: str, seek_s: float = 0.0, byte_s: float = 0.0) -> int:
        """The best page size in rows; on a disk that takes this much more for a read and for a byte."""
        reads = self._reads[False]
        slower = reads[0] + 1e9 * seek_s, reads[1] + 1e9 * byte_s
        constants = with_reads(self._constants[algorithm], reads, slower)
        return best_page(algorithm, constants, self._size.rows, self._size.budget_bytes)

    def _constants_for(self, algorithm: str, cold: bool) -> CostConstants:
        constants = self._constants[algorithm]
        return with_reads(constants, self._reads[False], self._reads[True]) if cold else constants

    @contextlib.contextmanager
    def _relation(self, rows: int, page_rows: int, *, cold: bool = False) -> Iterator[Relation]:
        path = make_relation(self._data, rows)
        with Relation(path, rows, page_rows, cold=cold) as relation:
            yield relation
        if cold:
            warm(path)


def _firsts(pages: int) -> tuple[int, ...]:
    return tuple(round(part * pages) for part in _SEGMENTS)


def _by_segment(pages: npt.NDArray[np.float64], length: int = paper.SEGMENT_PAGES) -> tuple[float, ...]:
    """Means over the pages of each segment, for a million rows of the stream."""
    return tuple(float(pages[first : first + length].mean() * 1e6) for first in _firsts(len(pages)))
