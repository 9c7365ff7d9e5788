"""A machine: joins the rows of its groups, hands groups over, and pushes some to its disk.

Of section 6, for machines that do both: a machine that pushes answers step 1 when the push is done (the paper's
`indiskAdaptation`), one that has been asked begins no push (`nodiskAdaptation`), and a group of which some rows are on
disk stays where it is.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from papers.state.relocation.messages import (
    ComputePartitionsToMove,
    DeactivatePartitions,
    EndOfMovedPartitions,
    Groups,
    PartitionsToMove,
    PushDone,
    Received,
    ReceivePartitions,
    Routed,
    Row,
    SendPartitions,
    State,
)
from papers.state.relocation.post import Post, Receiver
from watersmeet.engine.payment import owed_terms

Combination = tuple[int, ...]


class Machine:
    """`stored` is the state in memory, `pushed` the generations on disk, both by group. `output` are the combinations
    that have come out, as numbers of rows by input."""

    def __init__(self, number: int, inputs: Sequence[str], groups: int, splits: int, post: Post) -> None:
        self.name = f"machine {number}"
        self.inputs = tuple(inputs)
        self.stored: dict[int, dict[str, list[Row]]] = {}
        self.pushed: defaultdict[int, list[State]] = defaultdict(list)
        self.output: list[Combination] = []
        self.manager: Receiver | None = None
        self.machines: Sequence[Receiver] = ()
        self.pushing = False
        self.moving = False
        self._asked: ComputePartitionsToMove | None = None
        self._ends: defaultdict[int, int] = defaultdict(int)
        self._order: SendPartitions | None = None
        self._groups, self._splits, self._post = groups, splits, post

    def receive(self, sender: str, message: Any) -> None:
        match message:
            case Routed():
                self._join(message.row)
            case ComputePartitionsToMove():
                self._asked = message
                self._answer()
            case DeactivatePartitions():
                pass  # The flags of the splits are counted whether they come before this or after it.
            case EndOfMovedPartitions():
                self._ends[message.number] += 1
                self._hand_over()
            case SendPartitions():
                self._order = message
                self._hand_over()
            case ReceivePartitions():
                self._take_over(message)
            case PushDone():
                self._set_aside(message.groups)

    def begin_push(self, groups: Iterable[int]) -> bool:
        """Begin to push groups; False if nothing may be pushed now, or nothing is here."""
        chosen = tuple(group for group in groups if group in self.stored)
        if self.pushing or not self._may_push() or not chosen:
            return False
        self.pushing = True
        self._post.send(self.name, self, PushDone(chosen))
        return True

    def clean_up(self) -> list[Combination]:
        """What the generations of every group owe each other, by the operator's own rule (equation 1)."""
        owed = []
        for group, generations in self.pushed.items():
            current = self._frozen(self.stored.get(group, {}))
            # The rule asks of a piece of rows only whether it is empty.
            pieces: Any = [[[state[name]] for state in (*generations, current)] for name in self.inputs]
            for term in owed_terms(pieces):
                parts: Any = term
                owed += _combined([list(itertools.chain.from_iterable(part)) for part in parts])
        return owed

    def _join(self, row: Row) -> None:
        here = self.stored.setdefault(row.group(self._groups), {name: [] for name in self.inputs})
        self.output += _combined([[row] if name == row.input else here[name] for name in self.inputs])
        here[row.input].append(row)

    def _may_push(self) -> bool:
        return not self.moving

    def _may_answer(self) -> bool:
        return not self.pushing

    def _answer(self) -> None:
        if self._asked is None or not self._may_answer():
            return
        assert self.manager is not None
        groups = self._movable(self._asked.rows)
        self.moving = bool(groups)
        self._post.send(self.name, self.manager, PartitionsToMove(self._asked.number, groups))
        self._asked = None

    def _movable(self, rows: int) -> Groups:
        """Groups of which nothing is on disk, up to `rows` rows."""
        chosen, left = [], rows
        for group in sorted(self.stored):
            size = sum(map(len, self.stored[group].values()))
            if size <= left and not self.pushed[group]:
                chosen.append(group)
                left -= size
        return tuple(chosen)

    def _hand_over(self) -> None:
        if self._order is None or not self._has_all_rows(self._order.number):
            return
        order, self._order = self._order, None
        state = {group: self._frozen(self.stored.pop(group)) for group in order.groups}
        self._post.send(self.name, self.machines[order.receiver], ReceivePartitions(order.number, state))
        self.moving = False

    def _has_all_rows(self, number: int) -> bool:
        """Whether the flags of all splits are here, and so every row that was under way."""
        return self._ends[number] == self._splits

    def _take_over(self, message: ReceivePartitions) -> None:
        assert self.manager is not None
        for group, state in message.state.items():
            here = self.stored.setdefault(group, {name: [] for name in self.inputs})
            for name in self.inputs:
                here[name] = [*state[name], *here[name]]
        self._post.send(self.name, self.manager, Received(message.number))

    def _set_aside(self, groups: Groups) -> None:
        for group in groups:
            if group in self.stored:
                self.pushed[group].append(self._frozen(self.stored.pop(group)))
        self.pushing = False
        self._answer()

    def _frozen(self, rows: State | dict[str, list[Row]]) -> State:
        return {name: tuple(rows.get(name, ())) for name in self.inputs}


def _combined(rows: Sequence[Sequence[Row]]) -> list[Combination]:
    """All combinations of one row of each input with equal keys, as numbers."""
    return [
        tuple(row.number for row in found)
        for found in itertools.product(*rows)
        if len({row.key for row in found}) == 1
    ]
