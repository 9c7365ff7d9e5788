"""Reshufflers, and the controller among them.

Source: Elseidy et al. 2014, Algorithm 1 and 4.3.1. A reshuffler sends each row to the joiners that the latest
mapping it knows of names, tagged with that mapping's epoch. Told of a change, it tells all joiners on the same
channels before it uses it. The controller is one of them: it scales what it sees to estimate what arrived, and
begins a new migration only when all joiners have acknowledged the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from papers.adaptive.sim.joiner import Joiner
from papers.adaptive.sim.messages import LEFT, Ack, MappingChange, ProtocolViolated, Routed, Row, readers
from papers.adaptive.sim.network import Network
from watersmeet.schemes.grid.facts import Amount, GridGroup, GridPlan, GridShape
from watersmeet.schemes.grid.policy import GridPolicy, advance


class Decider(Protocol):
    def decide(self, left_rows: int, right_rows: int) -> GridGroup | None:
        """The mapping to change to, if any, given the estimated rows of each input so far."""
        ...


class Adaptive:
    """Algorithm 2, as schemes/grid/policy.py has it."""

    def __init__(self, plan: GridPlan, policy: GridPolicy) -> None:
        self._plan = plan
        self._policy = policy

    def decide(self, left_rows: int, right_rows: int) -> GridGroup | None:
        left, right = left_rows - self._plan.left.rows, right_rows - self._plan.right.rows
        self._plan, event = advance(self._plan, Amount(left, left), Amount(right, right), self._policy)
        return self._plan.groups[0] if event else None


@dataclass(frozen=True, slots=True)
class Migration:
    """One change of mapping: its decision and the last acknowledgement, in time and in rows routed by then."""

    before: GridShape
    after: GridShape
    begin: int
    end: int
    left_rows: int
    right_rows: int
    left_during: int
    right_during: int


class Reshuffler:
    def __init__(
        self,
        number: int,
        group: GridGroup,
        parts: int,
        joiners: Sequence[Joiner],
        network: Network,
        routed: Callable[[Row, int], None],
    ) -> None:
        self.name = f"reshuffler {number}"
        self.epoch = 0
        self.group = group
        self._parts = parts
        self._joiners = joiners
        self._network = network
        self._routed = routed

    def receive(self, message: Any) -> None:
        if isinstance(message, MappingChange):
            self.change(message)
        else:
            self.route(message)

    def route(self, row: Row) -> None:
        cells = readers(self.group, self._parts, row)
        self._routed(row, len(cells))
        for cell in cells:
            self._network.send(self.name, self._joiners[cell], Routed(row, self.epoch))

    def change(self, change: MappingChange) -> None:
        if change.epoch != self.epoch + 1:
            raise ProtocolViolated(f"{self.name} in epoch {self.epoch} was told of epoch {change.epoch}")
        for joiner in self._joiners:
            self._network.send(self.name, joiner, change)
        self.epoch, self.group = change.epoch, change.group


class Controller(Reshuffler):
    """The reshuffler that also decides. `others` are all reshufflers but itself."""

    def __init__(
        self,
        group: GridGroup,
        parts: int,
        joiners: Sequence[Joiner],
        network: Network,
        routed: Callable[[Row, int], None],
        count: Callable[[], tuple[int, int]],
        decider: Decider,
    ) -> None:
        super().__init__(0, group, parts, joiners, network, routed)
        self.others: list[Reshuffler] = []
        self.migrations: list[Migration] = []
        self._count = count
        self._decider = decider
        self._seen = [0, 0]
        self._acks_missing = 0
        self._begun: tuple[int, GridShape, tuple[int, int]] = (0, group.shape, (0, 0))

    def receive(self, message: Any) -> None:
        if isinstance(message, Ack):
            self._acknowledge(message)
            return
        self._seen[message.side != LEFT] += 1 + len(self.others)
        if not self._acks_missing:
            self._decide()
        self.route(message)

    def _decide(self) -> None:
        group = self._decider.decide(*self._seen)
        if group is None or group == self.group:
            return
        self._begun = (self._network.now, self.group.shape, self._count())
        self._acks_missing = len(self._joiners)
        change = MappingChange(self.epoch + 1, group)
        for other in self.others:
            self._network.send(self.name, other, change)
        self.change(change)

    def _acknowledge(self, ack: Ack) -> None:
        if ack.epoch != self.epoch:
            raise ProtocolViolated(f"the controller in epoch {self.epoch} got {ack}")
        self._acks_missing -= 1
        if not self._acks_missing:
            begin, before, (left, right) = self._begun
            left_now, right_now = self._count()
            self.migrations.append(
                Migration(
                    before=before,
                    after=self.group.shape,
                    begin=begin,
                    end=self._network.now,
                    left_rows=left,
                    right_rows=right,
                    left_during=left_now - left,
                    right_during=right_now - right,
                )
            )
