"""The distribution manager: one relocation at a time, from its decision to its eighth message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from papers.state.relocation.messages import (
    ComputePartitionsToMove,
    Deactivated,
    DeactivatePartitions,
    Groups,
    PartitionsToMove,
    ProtocolViolated,
    ReactivatePartitions,
    Received,
    SendPartitions,
)
from papers.state.relocation.post import Post, Receiver


class Manager:
    """`moved` are the groups of the relocations that ended."""

    name = "manager"

    def __init__(self, post: Post) -> None:
        self.splits: Sequence[Receiver] = ()
        self.machines: Sequence[Receiver] = ()
        self.moved: list[Groups] = []
        self.busy = False
        self._number = 0
        self._sender = self._receiver = 0
        self._groups: Groups = ()
        self._deactivated = 0
        self._post = post

    def begin(self, sender: int, receiver: int, rows: int) -> bool:
        """Ask for a relocation; False if another one is under way."""
        if self.busy or sender == receiver:
            return False
        self.busy, self._number, self._deactivated = True, self._number + 1, 0
        self._sender, self._receiver = sender, receiver
        self._tell(sender, ComputePartitionsToMove(self._number, rows))
        return True

    def receive(self, sender: str, message: Any) -> None:
        if not self.busy or message.number != self._number:
            raise ProtocolViolated(f"the manager in relocation {self._number} got {message}")
        match message:
            case PartitionsToMove(groups=()):
                self.busy = False
            case PartitionsToMove():
                self._groups = message.groups
                self._deactivate()
            case Deactivated():
                self._deactivated += 1
                if self._deactivated == len(self.splits):
                    self._move()
            case Received():
                self._reactivate()

    def _deactivate(self) -> None:
        message = DeactivatePartitions(self._number, self._groups)
        self._tell(self._sender, message)
        self._tell_splits(message)

    def _move(self) -> None:
        self._tell(self._sender, SendPartitions(self._number, self._groups, self._receiver))

    def _reactivate(self) -> None:
        self._tell_splits(ReactivatePartitions(self._number, self._groups, self._receiver))
        self.moved.append(self._groups)
        self.busy = False

    def _tell(self, machine: int, message: Any) -> None:
        self._post.send(self.name, self.machines[machine], message)

    def _tell_splits(self, message: Any) -> None:
        for split in self.splits:
            self._post.send(self.name, split, message)
