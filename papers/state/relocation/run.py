"""Run a stream through the protocol, one event at a time, in an order that the caller chooses.

An event is one of: the next row of an input reaches its split, the next command is tried, a message is taken off the
wire. So every interleaving, every delay and every order of messages comes out of some choices.

Guaranteed by the protocol, and checked by tests/papers/state/test_relocation.py: whatever the order, what came out and
what the clean-up adds is every combination exactly once, every relocation ends, and each group is in one place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from papers.state.relocation.machine import Combination, Machine
from papers.state.relocation.manager import Manager
from papers.state.relocation.messages import Groups, Row
from papers.state.relocation.post import Post
from papers.state.relocation.split import Split


@dataclass(frozen=True, slots=True)
class Relocate:
    """Move groups of about this many rows from one machine to another."""

    sender: int
    receiver: int
    rows: int


@dataclass(frozen=True, slots=True)
class PushGroups:
    """Push these groups of a machine to its disk, those that it has."""

    machine: int
    groups: Groups


Command = Relocate | PushGroups


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a run: combinations that came out and that the clean-up added, groups by machine, and what was done."""

    output: list[Combination]
    owed: list[Combination]
    places: tuple[frozenset[int], ...]
    owners: tuple[tuple[int, ...], ...]
    relocations: tuple[Groups, ...]
    pushes: int
    waiting: int


def run_protocol(
    rows: Mapping[str, Sequence[Row]],
    commands: Sequence[Command],
    *,
    machines: int,
    groups: int,
    choose: Callable[[int], int],
) -> Finished:
    """`choose` picks one of a number of events. A command that may not begin yet is tried again later, as long as anything happens."""
    post = Post()
    manager = Manager(post)
    owners = [group * machines // groups for group in range(groups)]
    splits = {name: Split(name, owners, post) for name in rows}
    nodes = [Machine(number, list(rows), groups, len(rows), post) for number in range(machines)]
    manager.splits, manager.machines = list(splits.values()), nodes
    for split in splits.values():
        split.manager, split.machines = manager, nodes
    for node in nodes:
        node.manager, node.machines = manager, nodes

    def obey(command: Command) -> bool:
        match command:
            case Relocate():
                return manager.begin(command.sender, command.receiver, command.rows)
            case PushGroups():
                return nodes[command.machine].begin_push(command.groups)

    left = {name: deque(given) for name, given in rows.items()}
    script = deque(commands)
    pushes, refused = 0, False
    while any(left.values()) or len(post):
        inputs = [name for name, rest in left.items() if rest]
        # A command that was refused is not tried again before something has happened.
        event = choose(len(inputs) + len(post) + (bool(script) and not refused))
        refused = False
        if event < len(inputs):
            splits[inputs[event]].take(left[inputs[event]].popleft())
        elif event < len(inputs) + len(post):
            post.deliver(event - len(inputs))
        else:
            command = script.popleft()
            refused = not obey(command)
            if refused:
                script.append(command)
            else:
                pushes += isinstance(command, PushGroups)
    return Finished(
        output=[found for node in nodes for found in node.output],
        owed=[found for node in nodes for found in node.clean_up()],
        places=tuple(
            frozenset({*node.stored, *(g for g, kept in node.pushed.items() if kept)}) for node in nodes
        ),
        owners=tuple(tuple(split.owners) for split in splits.values()),
        relocations=tuple(manager.moved),
        pushes=pushes,
        waiting=manager.busy
        + sum(map(len, (row for split in splits.values() for row in split.held.values()))),
    )
