"""Figures 14 to 17: groups that move from one machine to another."""

from __future__ import annotations

import numpy as np

from papers.shared.exhibit import Control, Exhibit, Table, Verdict
from papers.state import paper
from papers.state.cases import DIFFERENCES, FULL_ROWS, SPANS_S, alternating, uneven
from papers.state.curves import SAME, Runs, active, descends, ratio, runs_table, spread, throughput, told
from papers.state.run import UNLIMITED_ROWS, CaseRun
from watersmeet.model.figures import size as shown_size

# What moving may add to the processor's time and still count as low.
LOW_COST = 1.25
# A number of adaptations agrees within this factor: it depends on the rates, which the paper does not give.
FACTOR = 2.0
# "Balanced": what the emptier machine has at least of the fuller one; below that the paper's own rule would start to move.
BALANCED = 0.8
# The first turns of the stream, in which there is little state to compare.
_SETTLED_MIN = 10.0

_STREAM = (
    "Two machines with half of the partitions each; a row every 30 ms for each input, tuple range 30K, join ratio 1, 60 minutes. One "
    "machine's partitions get ten times as many rows as the other's, by turns of 10 minutes after the first 5. Memory is enough."
)


def _within(found: int, said: int) -> bool:
    return max(found, 1) / said <= FACTOR and said / max(found, 1) <= FACTOR


def _moved_table(title: str, first: str, runs: dict[str, CaseRun]) -> Table:
    return Table(
        title,
        (first, "adaptations", "groups moved", "state read anew", "largest", "results", "CPU s"),
        [
            (
                name,
                str(run.moves),
                f"{sum(event.groups for event in run.events):,}",
                shown_size(sum(event.bytes for event in run.events)),
                shown_size(max((event.bytes for event in run.events), default=0)),
                f"{run.total:,}",
                f"{run.seconds.sum():.2f}",
            )
            for name, run in runs.items()
        ],
        "A move copies nothing: the state is what another machine opens from then on.",
    )


def _same_throughput(none: CaseRun, runs: dict[str, CaseRun]) -> list[Verdict]:
    """All strategies have one throughput, and moving costs little."""
    totals = [none.total, *(run.total for run in runs.values())]
    cost = {name: ratio(float(run.seconds.sum()), float(none.seconds.sum())) for name, run in runs.items()}
    dearest = max(cost.values())
    return [
        Verdict(
            "the throughput is almost the same with each, and as without adaptations",
            f"{min(totals):,} to {max(totals):,} results",
            spread(totals) <= SAME,
            controls=[Control("any exact join", True, "in a virtual clock no result is late")],
        ),
        Verdict(
            "so the cost of adaptations is low",
            f"CPU time against none: {told(cost, '{:.2f}')}",
            dearest <= LOW_COST,
            "" if dearest <= LOW_COST else "a machine opens the runs of the groups that it gets, and looks them up in more places",
            controls=[
                Control(
                    "the strategy with the fewest adaptations",
                    cost[min(runs, key=lambda name: runs[name].moves)] <= LOW_COST,
                    f"{cost[min(runs, key=lambda name: runs[name].moves)]:.2f} times",
                )
            ],
        ),
    ]  # fmt: skip


def fig14(runs: Runs) -> Exhibit:
    none, always = runs[alternating(0.0)], runs[alternating(1.0)]
    mine = {f"{share:.0%}": runs[alternating(share)] for share in DIFFERENCES}
    moves = {name: run.moves for name, run in mine.items()}
    each = {name: sum(e.bytes for e in run.events) / max(1, run.moves) for name, run in mine.items()}
    few, many = paper.MOVES_BY_SHARE[0.5], paper.MOVES_BY_SHARE[0.9]
    return Exhibit(
        "fig14",
        "Figure 14: the difference that starts an adaptation",
        f"{_STREAM} At least 45 s between two adaptations.",
        [_moved_table("by the share that starts an adaptation", "least / most", {"none": none, **mine})],
        [
            *_same_throughput(none, mine),
            Verdict(
                f"in 60 minutes 90% has {many} adaptations and 50% has {few}",
                told(moves),
                _within(moves["90%"], many) and _within(moves["50%"], few),
                f"agrees within a factor of {FACTOR:.0f}, at batch borders of 15 s: the paper does not give the rates",
                controls=[
                    Control("an adaptation whenever 45 s have passed", _within(always.moves, many), f"{always.moves} adaptations")
                ],
            ),
            Verdict(
                "the higher the share, the more adaptations, each of which moves less",
                f"state moved by one: {', '.join(f'{shown_size(size)} at {name}' for name, size in each.items())}",
                descends(list(each.values())) and descends([-number for number in moves.values()]),
                controls=[
                    Control(
                        "any rule that moves half of the difference",
                        True,
                        "a smaller difference starts it earlier and has less to move",
                    )
                ],
            ),
        ],
        [
            throughput(
                "Figure 14: results by the difference",
                {("none", "none"): none} | {(name, name): run for name, run in mine.items()},
            )
        ],
    )  # fmt: skip


def fig15(runs: Runs) -> Exhibit:
    none = runs[alternating(0.0)]
    mine = {f"{span} s": runs[alternating(0.9, span)] for span in SPANS_S}
    seldom = {f"{span} s": runs[alternating(0.5, span)] for span in SPANS_S}
    moves, seldom_moves = ({name: run.moves for name, run in them.items()} for them in (mine, seldom))
    said = {f"{span} s": number for span, number in paper.MOVES_BY_SPAN.items()}
    near = {
        name: all(_within(found[one], number) for one, number in said.items())
        for name, found in (("90%", moves), ("50%", seldom_moves))
    }
    falls = {name: descends(list(found.values())) for name, found in (("90%", moves), ("50%", seldom_moves))}
    return Exhibit(
        "fig15",
        "Figure 15: the time between two adaptations",
        f"{_STREAM} An adaptation starts at 90 %.",
        [_moved_table("by the time between two adaptations", "at least", {"none": none, **mine})],
        [
            *_same_throughput(none, mine),
            Verdict(
                f"the numbers of adaptations: {told(said)}",
                told(moves),
                near["90%"],
                f"agrees within a factor of {FACTOR:.0f}, with batches as long as the shortest time: the paper does not give the rates",
                controls=[Control("an adaptation at 50 %", near["50%"], told(seldom_moves))],
            ),
            Verdict(
                "the shorter the time, the more adaptations",
                told(moves),
                falls["90%"],
                ""
                if falls["90%"]
                else "once half of the difference has moved, the stream needs longer than 45 s to make a new one of 10 %",
                controls=[Control("an adaptation at 50 %", falls["50%"], told(seldom_moves))],
            ),
        ],
        [
            throughput(
                "Figure 15: results by the time between moves",
                {("none", "none"): none} | {(f"every {name}", f"every {name}"): run for name, run in mine.items()},
            )
        ],
    )  # fmt: skip


def fig16(runs: Runs) -> Exhibit:
    none, mine, seldom = runs[alternating(0.0)], runs[alternating(0.9, 15)], runs[alternating(0.5, 15)]
    even = {name: _evenness(run) for name, run in (("90%", mine), ("none", none), ("50%", seldom))}
    turns = int((np.diff(np.sign(np.diff(none.active_rows, axis=1).ravel())) != 0).sum())
    return Exhibit(
        "fig16",
        "Figure 16: memory of two machines",
        f"{_STREAM} An adaptation starts at 90 %, at least 15 s after the one before.",
        [
            Table(
                "active state of the emptier machine, as a share of the fuller one's, from the tenth minute on",
                ("adaptations", "least", "mean"),
                [(name, f"{least:.1%}", f"{mean:.1%}") for name, (least, mean) in even.items()],
            )
        ],
        [
            Verdict(
                "without adaptations the memory of the machines grows by turns",
                f"the fuller machine changes {turns} times",
                turns > 0,
                "",
                controls=[Control("the stream", True, "rows come so, whoever joins them")],
            ),
            *(
                Verdict(
                    f"adaptations balance the memory, {when}",
                    f"the emptier machine has {even['90%'][place]:.0%} of the fuller one",
                    even["90%"][place] >= BALANCED,
                    controls=[
                        Control("no adaptation", even["none"][place] >= BALANCED, f"{even['none'][place]:.0%}"),
                        Control("an adaptation at 50 %", even["50%"][place] >= BALANCED, f"{even['50%'][place]:.0%}"),
                    ],
                )
                for place, when in enumerate(("at any time", "on average"))
            ),
        ],
        [
            active(
                "Figure 16: active state of two machines",
                {
                    ("none, M1", "M1", True): (none, 0),
                    ("none, M2", "M2", True): (none, 1),
                    ("90%, 15 s, M1", "M1", False): (mine, 0),
                    ("90%, 15 s, M2", "M2", False): (mine, 1),
                },
                None,
            )
        ],
    )  # fmt: skip


def _evenness(run: CaseRun) -> tuple[float, float]:
    """What the emptier machine has of the fuller one: the least, and the mean."""
    rows = run.active_rows[run.minutes > _SETTLED_MIN]
    shares = rows.min(axis=1) / np.maximum(rows.max(axis=1), 1)
    return float(shares.min()), float(shares.mean())


def fig17(runs: Runs) -> Exhibit:
    mine, none = runs[uneven(0.8)], runs[uneven(0.0)]
    enough, longer = runs[uneven(0.0, UNLIMITED_ROWS)], runs[uneven(0.8, minutes=60)]
    first = none.first_push()
    close = first is not None and abs(first - paper.OVERFLOWS_AT) <= 0.1 * paper.OVERFLOWS_AT
    behind = mine.share
    return Exhibit(
        "fig17",
        "Figure 17: moving groups against pushing them",
        f"Three machines, of which one begins with half of the partitions; a row every 30 ms for each input, tuple range 30K, join ratio 2, "
        f"50 minutes; memory for {runs.rows(FULL_ROWS):,} rows on each. Groups move at 80 % and every 45 s.",
        [
            runs_table(
                "all machines together",
                "",
                {"adaptations": mine, "none": none, "none, enough memory": enough, "adaptations, 60 min": longer},
            )
        ],
        [
            Verdict(
                f"without adaptations the throughput drops after {paper.OVERFLOWS_AT} minutes, when one machine begins to push",
                f"it pushes first after {first or 0:.0f} minutes" if first else "it never pushes",
                None,
                f"{runs.rows(FULL_ROWS):,} rows are {paper.MEMORY_MB} MB here because of this sentence" if close else "",
                controls=[Control("any join that keeps all rows", True, "half of the rows that came are counted")],
            ),
            Verdict(
                "with adaptations it goes on: the state of all machines stays in memory",
                f"{mine.total:,} results against {none.total:,}; {behind:.1%} of all, {mine.pushes} pushes",
                mine.total > none.total and behind >= 1 - SAME,
                ""
                if behind >= 1 - SAME
                else "the machines together have no room for all rows, or not each for its share of them",
                controls=[
                    Control("no adaptation", none.share >= 1 - SAME, f"{none.share:.1%} of all"),
                    Control("no adaptation, enough memory", True, f"{enough.share:.1%} of all"),
                ],
            ),
        ],
        [
            throughput(
                "Figure 17: results with and without adaptations",
                {("adaptations", "lazy-disk"): mine, ("none", "alone"): none, ("enough memory", "none"): enough},
            )
        ],
    )  # fmt: skip
