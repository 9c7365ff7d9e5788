"""The runs of each figure, with the paper's settings where it names them. `Size` shrinks all of them alike.

What the paper does not say, and what is taken here:

- How many rows 200 MB hold. In Figure 7 one machine is full after 25 minutes of 300 rows a second: 450,000 rows. In
  Figure 17 one of three is full after 40 minutes. With half of the partitions and the 30 ms of Figure 9 that are 120,000
  rows. Figures 9 to 12, 20 and 21 take the latter too. A budget is bytes of files: ten for each of these rows.
- How long Figures 17, 20 and 21 run. Figure 17 needs memory for all rows on three machines: 50 minutes have that.
- The stream of Figures 14 to 21: a row every 30 ms and a tuple range of 30K, as in Figure 9, with a join ratio of 1 or 2.
- The partitions that are one machine's at first: 1/2, 1/4, 1/4 in Figure 17 and in the run of six hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from papers.state import paper
from papers.state.run import UNLIMITED_ROWS, Case
from papers.state.stream import Stream, Turns, even, mixed
from watersmeet.schemes.budget.policy import Disk, Pushing, PushPolicy

SEED = 2005
PARTITIONS = paper.PARTITIONS
RATIOS = (4.0, 2.0, 1.0)
RANGE = 30_000
GAP_MS = 30.0
# Rows that fill a machine: see above.
FULL_ROWS, LARGE_ROWS = 120_000, 450_000

LOW, HIGH, RANDOM, LARGEST = (
    PushPolicy.LOW_OUTPUT,
    PushPolicy.HIGH_OUTPUT,
    PushPolicy.RANDOM,
    PushPolicy.LARGEST_INPUT,
)
# Groups never move.
ALONE = Pushing(balanced_share=0.0)
SHARES = (0.1, 0.3, 0.5, 1.0)
MACHINES = (1, 2, 3, 4, 5)
DIFFERENCES = (0.5, 0.7, 0.8, 0.9)
SPANS_S = (15, 30, 45)
EVEN, UNEVEN = (1 / 3, 1 / 3, 1 / 3), (0.5, 0.25, 0.25)
VERY_UNEVEN = (2 / 3, 1 / 6, 1 / 6)


@dataclass(frozen=True, slots=True)
class Size:
    """The share of the paper's rows, tuple ranges and memory that a run has, and how much longer its batches are."""

    rows: float = 1.0
    steps: int = 1

    def sized(self, case: Case) -> Case:
        stream = replace(
            case.stream,
            tuple_range=round(case.stream.tuple_range * self.rows),
            gap_ms=case.stream.gap_ms / self.rows,
        )
        memory = (
            case.memory_rows if case.memory_rows == UNLIMITED_ROWS else round(case.memory_rows * self.rows)
        )
        return replace(case, stream=stream, memory_rows=memory, step_ms=case.step_ms * self.steps)


FULL, QUICK = Size(), Size(rows=0.2, steps=2)


def _stream(ratios: tuple[float, ...], gap_ms: float = GAP_MS, tuple_range: int = RANGE) -> Stream:
    return Stream(ratios, tuple_range, gap_ms, seed=SEED)


def small_plan(tasks: int, strategy: str = "budget") -> Case:
    """Figure 6, and the join without partition groups beside it."""
    return Case(
        _stream(even(1, PARTITIONS), 20, 50_000), 40, tasks, pushing=ALONE, step_ms=20_000, strategy=strategy
    )


def large_plan(tasks: int, memory_rows: int = UNLIMITED_ROWS) -> Case:
    """Figure 7. A machine has all memory it wants: when it would have been full is read from its state."""
    return Case(
        _stream(even(2, PARTITIONS), 10, 50_000), 40, tasks, memory_rows, pushing=ALONE, step_ms=20_000
    )


def pushed_share(share: float, policy: PushPolicy = RANDOM) -> Case:
    """Figures 9 and 10; a share of 0 pushes nothing."""
    memory = FULL_ROWS if share else UNLIMITED_ROWS
    pushing = replace(ALONE, policy=policy, share=share or ALONE.share)
    return Case(_stream(even(3, PARTITIONS)), 50, 1, memory, pushing, step_ms=20_000)


def mixed_ratios(policy: PushPolicy | None) -> Case:
    """Figure 11; None pushes nothing."""
    return _by_policy(mixed(RATIOS, PARTITIONS), policy)


def one_ratio(policy: PushPolicy | None) -> Case:
    """Figure 12."""
    return _by_policy(even(3, PARTITIONS), policy)


def _by_policy(ratios: tuple[float, ...], policy: PushPolicy | None) -> Case:
    pushing = replace(ALONE, policy=policy or LOW)
    return Case(
        _stream(ratios), 50, 1, UNLIMITED_ROWS if policy is None else FULL_ROWS, pushing, step_ms=20_000
    )


def alternating(balanced_share: float, span_s: int = 45) -> Case:
    """Figures 14 to 16: two machines get ten times as many rows by turns; a share of 0 never moves groups."""
    turns = Turns(tuple(range(PARTITIONS // 2)), 10, 5 * 60_000, 10 * 60_000)
    pushing = Pushing(balanced_share=balanced_share, move_every_ms=span_s * 1000)
    stream = replace(_stream(even(1, PARTITIONS)), turns=turns)
    return Case(stream, 60, 2, pushing=pushing, step_ms=15_000)


def uneven(balanced_share: float, memory_rows: int = FULL_ROWS, minutes: float = 50) -> Case:
    """Figure 17: machine 1 begins with half of the partitions. After 60 minutes all three machines would be full."""
    pushing = Pushing(balanced_share=balanced_share, first_shares=UNEVEN)
    return Case(_stream(even(2, PARTITIONS)), minutes, 3, memory_rows, pushing, step_ms=15_000)


def very_uneven(balanced_share: float, policy: PushPolicy = LOW) -> Case:
    """Figure 20: machine 1 begins with two thirds of the partitions."""
    pushing = Pushing(balanced_share=balanced_share, first_shares=VERY_UNEVEN, policy=policy)
    return Case(_stream(even(2, PARTITIONS)), 90, 3, FULL_ROWS, pushing, step_ms=60_000)


def six_hours(balanced_share: float, first_shares: tuple[float, ...] = UNEVEN) -> Case:
    """The run of six hours after Figure 20: each machine has far more state than memory."""
    pushing = Pushing(balanced_share=balanced_share, first_shares=first_shares)
    return Case(
        _stream(even(1, PARTITIONS), tuple_range=300_000), 360, 3, FULL_ROWS, pushing, step_ms=240_000
    )


def unlike_machines(disk: Disk, ratios: tuple[float, float] = (4, 1), policy: PushPolicy = LOW) -> Case:
    """Figure 21: the first ratio is that of machine 1, the second that of the two others."""
    mine = PARTITIONS // 3
    stream = _stream((*even(ratios[0], mine), *even(ratios[1], PARTITIONS - mine)))
    return Case(stream, 120, 3, FULL_ROWS, Pushing(disk=disk, policy=policy), step_ms=60_000)


CASES: dict[str, list[Case]] = {
    "fig6": [small_plan(tasks) for tasks in MACHINES] + [small_plan(tasks, "hash") for tasks in (1, 5)],
    "fig7": [large_plan(tasks) for tasks in MACHINES] + [large_plan(1, LARGE_ROWS)],
    "fig9": [pushed_share(0)] + [pushed_share(share, one) for one in (RANDOM, LOW) for share in SHARES],
    "fig10": [pushed_share(0)] + [pushed_share(share, one) for one in (RANDOM, LOW) for share in SHARES],
    "fig11": [mixed_ratios(one) for one in (None, LOW, HIGH, RANDOM, LARGEST)],
    "fig12": [one_ratio(one) for one in (None, LOW, HIGH, RANDOM, LARGEST)],
    "fig14": [alternating(share) for share in (0.0, *DIFFERENCES, 1.0)],
    "fig15": [alternating(share, span) for share in (0.5, 0.9) for span in SPANS_S] + [alternating(0.0)],
    "fig16": [alternating(0.9, 15), alternating(0.5, 15), alternating(0.0)],
    "fig17": [uneven(0.8), uneven(0.0), uneven(0.0, UNLIMITED_ROWS), uneven(0.8, minutes=60)],
    "fig20": [
        *(very_uneven(share, one) for one in (LOW, RANDOM) for share in (0.8, 0.0)),
        *(six_hours(share) for share in (0.8, 0.0)),
        six_hours(0.0, EVEN),
    ],
    "fig21": [
        *(unlike_machines(disk, policy=one) for one in (LOW, RANDOM) for disk in Disk),
        *(unlike_machines(disk, (2, 2)) for disk in Disk),
    ],
}


def cases_of(names: Sequence[str]) -> list[Case]:
    """The runs of some figures, each once."""
    return list(dict.fromkeys(case for name in names for case in CASES[name]))
