"""Figures 20 and 21: machines that push and whose groups move."""

from __future__ import annotations

from papers.shared.exhibit import Control, Exhibit, Table, Verdict
from papers.state import paper
from papers.state.cases import EVEN, FULL_ROWS, RANDOM, six_hours, unlike_machines, very_uneven
from papers.state.curves import Runs, ratio, runs_table, throughput
from papers.state.run import CaseRun
from watersmeet.schemes.budget.policy import Disk

# "Much higher", "similar", and "dramatically different".
MUCH, SIMILAR, FAR = 1.2, 0.1, 2.0
# "Outperforms", in the long run.
AHEAD = 1.01


def _numbers(tasks: tuple[int, ...]) -> str:
    return ", ".join(f"M{task + 1}" for task in tasks) or "no machine"


def fig20(runs: Runs) -> Exhibit:
    lazy, alone = runs[very_uneven(0.8)], runs[very_uneven(0.0)]
    blind, blind_alone = runs[very_uneven(0.8, RANDOM)], runs[very_uneven(0.0, RANDOM)]
    long, long_alone, long_even = runs[six_hours(0.8)], runs[six_hours(0.0)], runs[six_hours(0.0, EVEN)]
    slowest, even_slowest = (ratio(max(long_alone.owed_s), max(one.owed_s)) for one in (long, long_even))
    apart, even_apart = (abs(ratio(one.total, long_alone.total) - 1) for one in (long, long_even))
    gain, blind_gain = ratio(lazy.total, alone.total), ratio(blind.total, blind_alone.total)
    said = paper.CLEAN_UP_ALONE_S / paper.CLEAN_UP_LAZY_S
    return Exhibit(
        "fig20",
        "Figure 20: lazy-disk against pushing alone",
        f"Three machines, of which one begins with two thirds of the partitions; a row every 30 ms for each input, tuple range 30K, join "
        f"ratio 2, 90 minutes; memory for {runs.rows(FULL_ROWS):,} rows on each. The run of six hours has a tuple range of 300K, join ratio "
        "1, and half of the partitions on one machine at first.",
        [
            runs_table("90 minutes", "", {"lazy-disk": lazy, "no moves": alone, "lazy-disk, random": blind, "no moves, random": blind_alone}),
            runs_table("six hours", "", {"lazy-disk": long, "no moves": long_alone, "no moves, even start": long_even}),
            _owed_table(long, long_alone),
        ],
        [
            Verdict(
                "without moves only one machine is overloaded; with lazy-disk all three are",
                f"without moves {_numbers(alone.pushing_tasks)} pushes; with lazy-disk {_numbers(lazy.pushing_tasks)}",
                len(alone.pushing_tasks) == 1 and len(lazy.pushing_tasks) == 3,
                ""
                if len(lazy.pushing_tasks) == 3
                else "moves go to the emptiest machine; one that has just pushed is that, so groups come to it, and the third never fills",
                controls=[
                    Control(
                        "random groups in place of low-output ones",
                        len(blind_alone.pushing_tasks) == 1 and len(blind.pushing_tasks) == 3,
                        f"{_numbers(blind_alone.pushing_tasks)}; {_numbers(blind.pushing_tasks)}",
                    )
                ],
            ),
            Verdict(
                "lazy-disk has a much higher throughput",
                f"{lazy.total:,} results against {alone.total:,}: {gain:.2f} times as many",
                gain >= MUCH,
                controls=[Control("lazy-disk with random groups", blind_gain >= MUCH, f"{blind_gain:.2f} times")],
            ),
            Verdict(
                "in six hours with little memory both have similar results",
                f"{long.total:,} against {long_alone.total:,}: {apart:.0%} apart",
                apart <= SIMILAR,
                "" if apart <= SIMILAR else "state that is spread evenly is pushed later, also in a run of six hours",
                controls=[Control("no moves, but an even start", even_apart <= SIMILAR, f"{even_apart:.0%} apart")],
            ),
            Verdict(
                f"but the clean-up takes more than {paper.CLEAN_UP_ALONE_S:,} s against less than {paper.CLEAN_UP_LAZY_S}, {said:.0f} times as long",
                f"the slowest machine {max(long_alone.owed_s):.2f} s against {max(long.owed_s):.2f}: {slowest:.1f} times as long; "
                f"{sum(long_alone.owed):,} and {sum(long.owed):,} results",
                slowest >= FAR,
                ""
                if slowest >= FAR
                else "the paper does not say how many partitions that machine has. With half of them, as here, it has 1.5 times an even share, so "
                "about that much is to be gained",
                controls=[Control("no moves, but an even start", even_slowest >= FAR, f"{even_slowest:.1f} times")],
            ),
        ],
        [
            throughput(
                "Figure 20: results of lazy-disk and of pushing alone",
                {("lazy-disk", "lazy-disk"): lazy, ("no moves", "alone"): alone, ("lazy-disk, random", "random groups"): blind},
            )
        ],
    )  # fmt: skip


def _owed_table(lazy: CaseRun, alone: CaseRun) -> Table:
    return Table(
        f"the clean-up after six hours, by machine; the paper has {paper.CLEAN_UP_RESULTS:,} results without moves",
        ("", "M1", "M2", "M3"),
        [
            (
                name,
                *(f"{owed:,} in {seconds:.2f} s" for owed, seconds in zip(run.owed, run.owed_s, strict=True)),
            )
            for name, run in (("lazy-disk", lazy), ("no moves", alone))
        ],
    )


def fig21(runs: Runs) -> Exhibit:
    lazy, active_disk = runs[unlike_machines(Disk.LAZY)], runs[unlike_machines(Disk.ACTIVE)]
    blind, blind_lazy = (runs[unlike_machines(disk, policy=RANDOM)] for disk in (Disk.ACTIVE, Disk.LAZY))
    alike, alike_lazy = (runs[unlike_machines(disk, (2, 2))] for disk in (Disk.ACTIVE, Disk.LAZY))
    gain, blind_gain = ratio(active_disk.total, lazy.total), ratio(blind.total, blind_lazy.total)
    alike_gain = ratio(alike.total, alike_lazy.total)
    forced = [event for event in active_disk.events if str(Disk.ACTIVE) in event.why]
    drop = _drop(active_disk, lazy)
    return Exhibit(
        "fig21",
        "Figure 21: active-disk against lazy-disk",
        f"Three machines with a third of the partitions each, of join ratio 4 on machine 1 and 1 on the others; a row every 30 ms for each "
        f"input, tuple range 30K, 120 minutes; memory for {runs.rows(FULL_ROWS):,} rows on each.",
        [
            runs_table(
                "all machines together",
                "",
                {
                    str(Disk.LAZY): lazy,
                    str(Disk.ACTIVE): active_disk,
                    "lazy-disk, random": blind_lazy,
                    "active-disk, random": blind,
                    "lazy-disk, one ratio": alike_lazy,
                    "active-disk, one ratio": alike,
                },
            )
        ],
        [
            Verdict(
                "active-disk pushes groups of the machines with low output though they have room",
                f"{len(forced)} pushes of {_numbers(tuple(sorted({event.task for event in forced})))}, "
                f"{sum(event.groups for event in forced)} groups",
                bool(forced) and 0 not in {event.task for event in forced},
                controls=[
                    Control("lazy-disk", False, "it pushes over the budget only"),
                    Control("active-disk, one ratio", any(str(Disk.ACTIVE) in event.why for event in alike.events), f"{sum(str(Disk.ACTIVE) in event.why for event in alike.events)} such pushes"),
                ],
            ),
            Verdict(
                "its throughput drops after it starts to push",
                f"at most {drop:.2%} behind lazy-disk" if drop > 0 else "it is never behind lazy-disk",
                drop > 0,
                "" if drop > 0 else "what it pushes has a sixteenth of the output of a group of machine 1",
                controls=[Control("active-disk, one ratio", _drop(alike, alike_lazy) > 0, f"at most {max(0.0, _drop(alike, alike_lazy)):.2%} behind")],
            ),
            Verdict(
                "in the long run active-disk outperforms lazy-disk",
                f"{active_disk.total:,} results against {lazy.total:,}: {gain:.3f} times as many",
                gain >= AHEAD,
                "" if gain >= AHEAD else "lazy-disk moves groups of machine 1 to the others too, as soon as those have pushed",
                controls=[
                    Control("active-disk with random groups", blind_gain >= AHEAD, f"{blind_gain:.3f} times"),
                    Control("active-disk, one ratio", alike_gain >= AHEAD, f"{alike_gain:.3f} times"),
                ],
            ),
        ],
        [
            throughput(
                "Figure 21: results of lazy-disk and active-disk",
                {(str(Disk.LAZY), "lazy-disk"): lazy, (str(Disk.ACTIVE), "active-disk"): active_disk},
            )
        ],
    )  # fmt: skip


def _drop(run: CaseRun, other: CaseRun) -> float:
    """How far a run was behind another one at most, as a share of the other's results; negative if it never was."""
    return max(
        1 - ratio(int(one), int(two)) for one, two in zip(run.results, other.results, strict=True) if two
    )
