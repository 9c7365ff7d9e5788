"""What the distribution manager, the split operators and the machines send each other.

`number` counts relocations. The numbers of steps are those of figure 13. The paper also sends a flag among the rows, so
that a machine knows when the last row of a group has reached it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Groups = tuple[int, ...]


class ProtocolViolated(Exception):
    """A message came that the protocol rules out."""


@dataclass(frozen=True, slots=True)
class Row:
    input: str
    number: int
    key: int

    def group(self, groups: int) -> int:
        return self.key % groups


# The rows of one partition group, by input.
State = Mapping[str, tuple[Row, ...]]


@dataclass(frozen=True, slots=True)
class Routed:
    """A row on its way from a split operator to a machine."""

    row: Row


@dataclass(frozen=True, slots=True)
class ComputePartitionsToMove:
    """Step 1, manager to sender: find groups of about this many rows."""

    number: int
    rows: int


@dataclass(frozen=True, slots=True)
class PartitionsToMove:
    """Step 2, sender to manager: these groups."""

    number: int
    groups: Groups


@dataclass(frozen=True, slots=True)
class DeactivatePartitions:
    """Step 3, manager to sender and splits: no more rows of these groups."""

    number: int
    groups: Groups


@dataclass(frozen=True, slots=True)
class EndOfMovedPartitions:
    """The flag of a split to the sender: no row of the moved groups comes after it."""

    number: int


@dataclass(frozen=True, slots=True)
class Deactivated:
    """Step 4, split to manager: rows of the groups are held from now on."""

    number: int


@dataclass(frozen=True, slots=True)
class SendPartitions:
    """Step 5, manager to sender: move the groups to this machine."""

    number: int
    groups: Groups
    receiver: int


@dataclass(frozen=True, slots=True)
class ReceivePartitions:
    """Step 6, sender to receiver: the state of the groups."""

    number: int
    state: Mapping[int, State]


@dataclass(frozen=True, slots=True)
class Received:
    """Step 7, receiver to manager: the groups are here."""

    number: int


@dataclass(frozen=True, slots=True)
class ReactivatePartitions:
    """Step 8, manager to splits: send held and later rows of the groups to this machine."""

    number: int
    groups: Groups
    receiver: int


@dataclass(frozen=True, slots=True)
class PushDone:
    """A machine to itself: the groups that it began to push are on its disk."""

    groups: Groups
