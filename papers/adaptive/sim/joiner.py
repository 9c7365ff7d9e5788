"""A joiner: joins new rows without a pause while its state moves to a new mapping.

Source: Elseidy et al. 2014, Algorithm 3, with its sets: `tau` is what came before the migration, `delta` what
still comes under the old mapping, `delta_new` (the paper's Delta') what comes under the new one, `mu` what
other joiners send. A joiner cannot see the controller's decision, only the first signal of a reshuffler: what
came before that signal is its tau.

The paper leaves open how a joiner knows that its migration has ended. Here each joiner tells those that it
exchanges rows with when it has heard every reshuffler, since from then on it has nothing more to send; a
migration has ended for a joiner that has heard every reshuffler and every such partner.

Rows wait in two queues, new and migrated; while both have some, two migrated ones are taken for one new one
(4.3.2), each taking one unit of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from papers.adaptive.sim.messages import (
    LEFT,
    RIGHT,
    Ack,
    MappingChange,
    Migrated,
    MigrationEnd,
    ProtocolViolated,
    Routed,
    Row,
    is_exchanged,
    partners,
    reads,
)
from papers.adaptive.sim.network import Network, Receiver
from watersmeet.schemes.grid.facts import GridGroup

MIGRATED_PER_NEW = 2
SERVICE_TIME = 1


class RowSet:
    """Rows of both inputs. To join with a row is to pair it with all rows of the other input."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows: dict[str, list[Row]] = {LEFT: [], RIGHT: []}
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        self._rows[row.side].append(row)

    def facing(self, row: Row) -> list[Row]:
        return self._rows[RIGHT if row.side == LEFT else LEFT]

    def __iter__(self) -> Iterator[Row]:
        yield from self._rows[LEFT]
        yield from self._rows[RIGHT]


class Joiner:
    """One cell. `output` holds the pairs that it has emitted, as numbers of the left and the right row."""

    def __init__(
        self,
        cell: int,
        group: GridGroup,
        parts: int,
        reshufflers: int,
        network: Network,
        processed: Callable[[Row], None],
    ) -> None:
        self.name = f"joiner {cell}"
        self.cell = cell
        self.epoch = 0
        self.group = group
        self.tau, self.delta, self.delta_new, self.mu = RowSet(), RowSet(), RowSet(), RowSet()
        self.output: list[tuple[int, int]] = []
        self.peers: list[Joiner] = []
        self.controller: Receiver | None = None
        self._target: GridGroup | None = None
        self._signals = 0
        self._ends = 0
        self._parts = parts
        self._reshufflers = reshufflers
        self._network = network
        self._processed = processed
        self._handle_tuple = self._handle_tuple_1
        self._new: deque[Any] = deque()
        self._migrated: deque[Any] = deque()
        self._migrated_in_a_row = 0
        self._busy = False

    def receive(self, message: Any) -> None:
        queue = self._migrated if isinstance(message, (Migrated, MigrationEnd)) else self._new
        queue.append(message)
        self._serve()

    def _serve(self) -> None:
        if self._busy or not (self._new or self._migrated):
            return
        self._busy = True
        message = self._next()
        self._network.after(SERVICE_TIME, lambda: self._complete(message))

    def _next(self) -> Any:
        if self._migrated and (not self._new or self._migrated_in_a_row < MIGRATED_PER_NEW):
            self._migrated_in_a_row += 1
            return self._migrated.popleft()
        self._migrated_in_a_row = 0
        return self._new.popleft()

    def _complete(self, message: Any) -> None:
        self._busy = False
        self._main(message)
        self._serve()

    def _main(self, message: Any) -> None:
        match message:
            case MappingChange():
                self._hear_reshuffler(message)
            case MigrationEnd():
                self._ends += 1
            case _:
                self._handle_tuple(message)
        self._finish_if_ended()

    def _hear_reshuffler(self, signal: MappingChange) -> None:
        if signal.epoch != self.epoch + 1:
            raise ProtocolViolated(f"{self.name} in epoch {self.epoch} was told of epoch {signal.epoch}")
        if self._target is None:
            self._target = signal.group
            for row in self.tau:
                self._send_for_migration(row)
        self._signals += 1
        if self._signals == self._reshufflers:
            self._handle_tuple = self._handle_tuple_2
            for partner in partners(self.group, self._target, self.cell):
                self._network.send(self.name, self.peers[partner], MigrationEnd(signal.epoch))

    def _handle_tuple_1(self, message: Routed | Migrated) -> None:
        row = message.row
        if isinstance(message, Routed) and message.epoch == self.epoch:
            self._emit(row, self.tau, self.delta)
            if self._target is None:
                self.tau.add(row)
            else:
                self.delta.add(row)
                if self._keeps(row):
                    self._emit(row, self.delta_new)
                self._send_for_migration(row)
            self._processed(row)
        else:
            self._handle_tuple_2(message)

    def _handle_tuple_2(self, message: Routed | Migrated) -> None:
        row = message.row
        if message.epoch != self.epoch + 1:
            raise ProtocolViolated(f"{self.name} in epoch {self.epoch} got {message}")
        if isinstance(message, Migrated):
            self._emit(row, self.delta_new)
            self.mu.add(row)
            return
        if self._target is None:
            raise ProtocolViolated(f"{self.name} got {message} before the signal of its reshuffler")
        self._emit(row, self.mu, self.delta_new)
        self.delta_new.add(row)
        self._emit(row, self._keep(self.tau, self.delta))
        self._processed(row)

    def _finish_if_ended(self) -> None:
        if self._target is None or self._signals < self._reshufflers:
            return
        if self._ends < len(partners(self.group, self._target, self.cell)):
            return
        self.tau = RowSet((*self._keep(self.tau, self.delta), *self.mu, *self.delta_new))
        self.delta, self.delta_new, self.mu = RowSet(), RowSet(), RowSet()
        self.epoch += 1
        self.group, self._target = self._target, None
        self._signals = self._ends = 0
        self._handle_tuple = self._handle_tuple_1
        assert self.controller is not None
        self._network.send(self.name, self.controller, Ack(self.epoch))

    def _emit(self, row: Row, *stored: RowSet) -> None:
        for rows in stored:
            for other in rows.facing(row):
                left, right = (row, other) if row.side == LEFT else (other, row)
                self.output.append((left.number, right.number))

    def _keeps(self, row: Row) -> bool:
        assert self._target is not None
        return reads(self._target, self._parts, self.cell, row)

    def _keep(self, *stored: RowSet) -> RowSet:
        return RowSet(row for rows in stored for row in rows if self._keeps(row))

    def _send_for_migration(self, row: Row) -> None:
        assert self._target is not None
        if is_exchanged(self.group, self._target, row.side):
            for partner in partners(self.group, self._target, self.cell):
                self._network.send(self.name, self.peers[partner], Migrated(row, self.epoch + 1))
