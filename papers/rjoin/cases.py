"""Which experiments each figure needs, and running them, two at a time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import get_context
from threading import Event
from typing import Any

from papers.rjoin import paper
from papers.rjoin.sim.cases import (
    FIRST,
    NODES,
    QUERIES,
    RANDOM,
    RANDOM_TRIPLE,
    RATE,
    THETA,
    TUPLES,
    WAYS,
    WORST,
    Case,
    Found,
)
from papers.rjoin.sim.run import run_case
from papers.shared.reproduction import Stopped, Watch

# One process for each core of the machine that the figures are published from; together they need up to 4 GB.
PROCESSES = 2
_POLL_S = 0.5
_LARGE_WAYS = 8


@dataclass(frozen=True, slots=True)
class Size:
    """`controls` are the tuples of the runs in which other strategies are asked the same."""

    queries: int = QUERIES
    nodes: int = NODES
    tuples: int = TUPLES
    fig2_tuples: tuple[int, ...] = paper.FIG2_TUPLES
    fig3_tuples: tuple[int, ...] = (100, 200, 400, 700, 1000, 1500, 2000, paper.FIG3_TUPLES)
    fig4_queries: tuple[int, ...] = paper.FIG4_QUERIES
    thetas: tuple[float, ...] = paper.FIG5_THETAS
    ways: tuple[int, ...] = paper.FIG6_WAYS
    windows: tuple[int, ...] = (50, 100, 200, 400)
    controls: int = 200

    def case(self, *, queries: int = 0, tuples: tuple[int, ...] = (), **others: Any) -> Case:
        return Case(
            snapshots=tuples or (self.tuples,), queries=queries or self.queries, nodes=self.nodes, **others
        )

    def control(self, case: Case, rule: str = RANDOM_TRIPLE) -> Case:
        """The same with other choices, over fewer tuples: they make many times as many rewritten queries."""
        return replace(case, rule=rule, snapshots=(min(self.controls, case.tuples),))


FULL = Size()
QUICK = Size(
    queries=2_000,
    nodes=200,
    tuples=200,
    fig2_tuples=(50, 100, 200),
    fig3_tuples=(50, 100, 200, 400),
    fig4_queries=(500, 1_000, 2_000),
    thetas=(0.3, 0.9),
    ways=(4, 6),
    windows=(25, 100),
    controls=100,
)

FIG2_RULES = (RATE, RANDOM, RANDOM_TRIPLE, FIRST, WORST)
Axis = dict[Any, Case]


def fig2_cases(size: Size, *, own_ranks: bool = False) -> Axis:
    return {rule: size.case(tuples=size.fig2_tuples, rule=rule, own_ranks=own_ranks) for rule in FIG2_RULES}


def fig3_case(size: Size) -> Case:
    return size.case(tuples=size.fig3_tuples)


def fig4_cases(size: Size) -> Axis:
    return {queries: size.case(queries=queries) for queries in size.fig4_queries}


def fig5_cases(size: Size, *, own_ranks: bool = False) -> Axis:
    return {theta: size.case(theta=theta, own_ranks=own_ranks) for theta in size.thetas}


def fig6_cases(size: Size) -> Axis:
    return {ways: size.case(ways=ways) for ways in size.ways}


def fig7_cases(size: Size) -> Axis:
    """The last one is without a window."""
    return {window: size.case(window=window) for window in (*size.windows, 0)}


def fig7_controls(size: Size) -> Axis:
    """Windows that the tuples of a control do not fit into; a longer one would be none."""
    fitting = {window: case for window, case in fig7_cases(size).items() if window < size.controls}
    return controls(size, fitting)


def fig9_cases(size: Size, *, own_ranks: bool = False) -> Axis:
    return {moving: size.case(moving=moving, own_ranks=own_ranks) for moving in (False, True)}


def controls(size: Size, cases: Axis) -> Axis:
    return {x: size.control(case) for x, case in cases.items()}


def no_history(size: Size) -> Case:
    return size.case(tuples=size.fig2_tuples, history=0)


def without_tables(case: Case) -> Case:
    return replace(case, valid=-1)


def fig3_others(size: Size) -> tuple[Case, Case, Case]:
    """Beside the growing run: frequent values by attribute, no candidate tables, random triples, over fewer tuples."""
    few = fig2_cases(size)
    return size.case(own_ranks=True), without_tables(few[RATE]), few[RANDOM_TRIPLE]


NEEDED: Mapping[str, Callable[[Size], Iterable[Case]]] = {
    "fig2": lambda size: [
        *fig2_cases(size).values(),
        *fig2_cases(size, own_ranks=True).values(),
        no_history(size),
        without_tables(fig2_cases(size)[RATE]),
    ],
    "fig3": lambda size: [fig3_case(size), *fig3_others(size)],
    "fig4": lambda size: [
        *fig4_cases(size).values(),
        *controls(size, fig4_cases(size)).values(),
    ],
    "fig5": lambda size: [
        *fig5_cases(size).values(),
        *fig5_cases(size, own_ranks=True).values(),
        *controls(size, fig5_cases(size)).values(),
    ],
    "fig6": lambda size: [*fig6_cases(size).values(), *controls(size, fig6_cases(size)).values()],
    "fig7": lambda size: [*fig7_cases(size).values(), *fig7_controls(size).values()],
    "fig8": lambda size: [*fig7_cases(size).values(), *fig7_controls(size).values()],
    "fig9": lambda size: [
        *fig9_cases(size).values(),
        *fig9_cases(size, own_ranks=True).values(),
        *controls(size, fig9_cases(size)).values(),
    ],
}
Runs = Mapping[Case, Found]


def needed(names: Iterable[str], size: Size) -> list[Case]:
    """Each once, those that take longest first, so that none is waited for at the end."""
    found = dict.fromkeys(case for name in names for case in NEEDED[name](size))
    return sorted(found, key=lambda case: -_effort(case))


def _effort(case: Case) -> float:
    """Roughly how long a case takes: queries in flight grow with tuples, by a power that grows with the joins."""
    slower = {RANDOM: 12.0, WORST: 40.0}.get(case.rule, 1.0)
    return (
        slower
        * case.queries
        * (min(case.tuples, case.window or case.tuples) / TUPLES) ** 2
        * 3 ** (case.ways - WAYS)
        * (0.3 if case.own_ranks or case.theta < THETA else 1.0)
    )


def run_all(cases: list[Case], watch: Watch, stop: Event) -> Runs:
    """`Stopped` if it is asked to end."""
    context = get_context("spawn")
    told = context.Event()
    waiting, found = list(cases), dict[Case, Found]()
    running: dict[Future[Found | None], Case] = {}
    # A process of its own for each case: it gives its memory back.
    with ProcessPoolExecutor(
        PROCESSES, context, initializer=_listen, initargs=(told,), max_tasks_per_child=1
    ) as pool:
        try:
            while waiting or running:
                while (case := _next(waiting, running.values())) and len(running) < PROCESSES:
                    waiting.remove(case)
                    watch.step(case.text)
                    running[pool.submit(_run, case)] = case
                done, _ = wait(running, _POLL_S, FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    assert result is not None
                    found[running.pop(future)] = result
                if stop.is_set():
                    raise Stopped("stopped")
        except BaseException:
            told.set()
            raise
    return found


def _next(waiting: list[Case], running: Iterable[Case]) -> Case | None:
    """The next case to begin; two that need gigabytes do not run at once."""
    full = any(map(_is_large, running))
    return next((case for case in waiting if not (full and _is_large(case))), None)


def _is_large(case: Case) -> bool:
    return case.rule in (RANDOM, WORST) or case.ways >= _LARGE_WAYS or case.tuples >= paper.FIG3_TUPLES


_told: Any = None


def _listen(told: Any) -> None:
    global _told
    _told = told
    # The first Ctrl-C goes to all processes; the one that asked them to run tells them when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(case: Case) -> Found | None:
    return run_case(case, lambda: _told is None or not _told.is_set())
