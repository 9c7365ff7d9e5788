"""A simulated operator: a source, reshufflers with the controller, joiners; run to the end of the stream.

Source: Elseidy et al. 2014, figure 1c and 4.3. What is guaranteed of Algorithm 3, whatever the delays, and
checked by tests/papers/adaptive/test_epochs.py: every pair of rows is emitted exactly once, every joiner ends with
the state of the last mapping, and nobody is ever more than one epoch behind.

One group of cells only: with several, a row's copies would have to reach all groups in the same order. Growth is
not simulated either; it is a change of mapping in which some joiners begin empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from papers.adaptive.sim.joiner import Joiner
from papers.adaptive.sim.messages import LEFT, Row
from papers.adaptive.sim.network import Network
from papers.adaptive.sim.reshuffler import Controller, Decider, Migration, Reshuffler
from watersmeet.schemes.grid.facts import GridPlan


@dataclass(frozen=True, slots=True)
class Finished:
    """The state at the end: pairs emitted by all joiners, rows stored by each, migrations, mapping, time."""

    pairs: list[tuple[int, int]]
    stored: tuple[tuple[Row, ...], ...]
    epochs: tuple[int, ...]
    migrations: tuple[Migration, ...]
    plan: GridPlan
    time: int


class _Source:
    """Sends each row to the reshuffler it is meant for, at most `window` of them on their way at a time.

    This is how joiners that are busy slow the stream down. A row is on its way until every joiner that it
    was routed to has joined it.
    """

    def __init__(
        self, rows: Sequence[tuple[Row, int]], window: int, gap: Callable[[], int], network: Network
    ) -> None:
        self.reshufflers: Sequence[Reshuffler] = ()
        self.routed = [0, 0]
        self._rows = iter(rows)
        self._room = window
        self._waiting = False
        self._gap = gap
        self._network = network
        self._copies: dict[tuple[str, int], int] = {}

    def send_next(self) -> None:
        if self._room == 0:
            self._waiting = True
            return
        following = next(self._rows, None)
        if following is not None:
            row, reshuffler = following
            self._room -= 1
            self._network.send("source", self.reshufflers[reshuffler], row)
            self._network.after(self._gap(), self.send_next)

    def count_routed(self, row: Row, copies: int) -> None:
        self.routed[row.side != LEFT] += 1
        self._copies[row.side, row.number] = copies

    def count_processed(self, row: Row) -> None:
        self._copies[row.side, row.number] -= 1
        if self._copies[row.side, row.number] == 0:
            self._room += 1
            if self._waiting:
                self._waiting = False
                self.send_next()


def run_epochs(
    rows: Sequence[tuple[Row, int]],
    plan: GridPlan,
    decider: Decider,
    *,
    reshufflers: int,
    delay: Callable[[], int],
    gap: Callable[[], int],
    window: int = 1 << 30,
) -> Finished:
    """Run the stream of (row, number of its reshuffler) through the cells of a plan with one group.

    `delay` gives the time of each message, `gap` the time between two rows of the source. `window` bounds
    the rows under way; the default lets the source run ahead of the joiners as far as it likes.
    """
    [group] = plan.groups
    network = Network(delay)
    source = _Source(rows, window, gap, network)
    joiners = [
        Joiner(cell, group, plan.parts, reshufflers, network, source.count_processed)
        for cell in range(group.cells)
    ]
    controller = Controller(
        group,
        plan.parts,
        joiners,
        network,
        source.count_routed,
        lambda: (source.routed[0], source.routed[1]),
        decider,
    )
    others = [
        Reshuffler(number, group, plan.parts, joiners, network, source.count_routed)
        for number in range(1, reshufflers)
    ]
    controller.others = others
    source.reshufflers = [controller, *others]
    for joiner in joiners:
        joiner.peers, joiner.controller = joiners, controller
    source.send_next()
    network.run()
    return Finished(
        pairs=[pair for joiner in joiners for pair in joiner.output],
        stored=tuple(tuple(joiner.tau) for joiner in joiners),
        epochs=tuple(joiner.epoch for joiner in joiners),
        migrations=tuple(controller.migrations),
        plan=GridPlan(controller.epoch, plan.parts, (controller.group,)),
        time=network.now,
    )
