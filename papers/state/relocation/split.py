"""The split operator of one input: it sends each row to the machine of its group, and holds those of moving groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from papers.state.relocation.messages import (
    Deactivated,
    DeactivatePartitions,
    EndOfMovedPartitions,
    Groups,
    ProtocolViolated,
    ReactivatePartitions,
    Routed,
    Row,
)
from papers.state.relocation.post import Post, Receiver


class Split:
    """`owners` has the machine of each group. `held` is the paper's temporary space."""

    def __init__(self, input_name: str, owners: Sequence[int], post: Post) -> None:
        self.name = f"split {input_name}"
        self.owners = list(owners)
        self.held: dict[int, list[Row]] = {}
        self.manager: Receiver | None = None
        self.machines: Sequence[Receiver] = ()
        self._post = post

    def take(self, row: Row) -> None:
        """A row of the input."""
        group = row.group(len(self.owners))
        if group in self.held:
            self.held[group].append(row)
        else:
            self._post.send(self.name, self.machines[self.owners[group]], Routed(row))

    def receive(self, sender: str, message: Any) -> None:
        match message:
            case DeactivatePartitions():
                self._hold(message)
            case ReactivatePartitions():
                self._release(message)
            case _:
                raise ProtocolViolated(f"{self.name} got {message}")

    def _hold(self, message: DeactivatePartitions) -> None:
        assert self.manager is not None
        [owner] = self._owners_of(message.groups)
        self.held.update({group: [] for group in message.groups})
        self._post.send(self.name, self.machines[owner], EndOfMovedPartitions(message.number))
        self._post.send(self.name, self.manager, Deactivated(message.number))

    def _release(self, message: ReactivatePartitions) -> None:
        for group in message.groups:
            self.owners[group] = message.receiver
            for row in self.held.pop(group):
                self._post.send(self.name, self.machines[message.receiver], Routed(row))

    def _owners_of(self, groups: Groups) -> set[int]:
        return {self.owners[group] for group in groups}
