"""The eight messages of a relocation in any order: every combination comes out once, and every group is in one place."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from papers.state.relocation.messages import (
    ProtocolViolated,
    ReactivatePartitions,
    Routed,
    Row,
    SendPartitions,
)
from papers.state.relocation.run import Command, Finished, PushGroups, Relocate, run_protocol
from tests.property.test_mutants import Mutant, cases, is_noticed

INPUTS = "abc"
GROUPS, MACHINES = 4, 3
MANY = settings(max_examples=max(60, settings().max_examples))


def stream(seed: int, count: int) -> dict[str, list[Row]]:
    """Rows of three inputs, few keys. From a seed: what the protocol must survive happens among many rows."""
    keys = np.random.default_rng(seed).integers(0, 2 * GROUPS, (len(INPUTS), count)).tolist()
    return {
        name: [Row(name, number, key) for number, key in enumerate(mine)]
        for name, mine in zip(INPUTS, keys, strict=True)
    }


def orders() -> st.SearchStrategy[Callable[[int], int]]:
    """Which of several events comes next: drawn numbers in turn, which shrink well; or a seed, with a leaning.

    A leaning of 0 takes any event. A high one lets the newest messages overtake all others, a low one the rows of the
    inputs, so that many of them are under way when a relocation begins.
    """
    drawn = st.lists(st.integers(0, 60), min_size=1, max_size=40).map(_cycle)
    return st.one_of(drawn, st.builds(_leaning, st.integers(0, 2**32), st.sampled_from([-2.0, 0.0, 2.0])))


def _cycle(numbers: list[int]) -> Callable[[int], int]:
    following = itertools.cycle(numbers).__next__
    return lambda count: following() % count


def _leaning(seed: int, leaning: float) -> Callable[[int], int]:
    generator = np.random.default_rng(seed)
    return lambda count: min(count - 1, int(count * generator.random() ** 2.0**-leaning))


machines = st.integers(0, MACHINES - 1)
commands = st.lists(
    st.one_of(
        st.builds(Relocate, machines, machines, st.integers(1, 30)).filter(lambda c: c.sender != c.receiver),
        st.builds(PushGroups, machines, st.lists(st.integers(0, GROUPS - 1), min_size=1).map(tuple)),
    ),
    min_size=1,
    max_size=8,
)


def joined(rows: dict[str, list[Row]]) -> Counter[tuple[int, ...]]:
    return Counter(
        tuple(row.number for row in found)
        for found in itertools.product(*rows.values())
        if len({row.key for row in found}) == 1
    )


def check(rows: dict[str, list[Row]], finished: Finished) -> None:
    assert Counter(finished.output) + Counter(finished.owed) == joined(rows)
    assert finished.waiting == 0
    assert sum(map(len, finished.places)) == len(frozenset().union(*finished.places))
    for owners in finished.owners:
        assert all(owners[group] == place for place, here in enumerate(finished.places) for group in here)


def run(rows: dict[str, list[Row]], script: list[Command], choose: Callable[[int], int]) -> Finished:
    try:
        return run_protocol(rows, script, machines=MACHINES, groups=GROUPS, choose=choose)
    except (ProtocolViolated, LookupError, ValueError) as error:
        raise AssertionError(f"the protocol broke down: {error!r}") from error


@MANY
@given(st.integers(0, 2**32), st.integers(0, 16), commands, orders())
def test_any_relocations_and_pushes_in_any_order_of_messages(seed, count, script, choose):
    rows = stream(seed, count)
    check(rows, run(rows, script, choose))


@MANY
@given(st.integers(0, 2**32), orders())
@example(0, _leaning(0, 2.0))
def test_groups_that_go_back_and_forth(seed, choose):
    """Many relocations one after the other: messages of one must not be taken for those of the next."""
    rows = stream(seed, 14)
    there_and_back = [Relocate(0, 1, 99), Relocate(1, 0, 99)] * 4
    check(rows, run(rows, there_and_back, choose))


@MANY
@given(st.integers(0, 2**32), orders())
def test_a_machine_that_is_asked_to_push_and_to_move_the_same_groups(seed, choose):
    rows = stream(seed, 14)
    both: list[Command] = [PushGroups(0, (0,)), Relocate(0, 1, 99), PushGroups(0, (0, 1))]
    check(rows, run(rows, both, choose))


def test_relocations_and_pushes_do_happen():
    """So that the properties are about something."""
    done = [
        run(
            stream(seed, 16),
            [Relocate(0, 1, 20), PushGroups(1, (0, 1)), Relocate(1, 2, 20), Relocate(2, 0, 20)],
            _leaning(seed, 0.0),
        )
        for seed in range(20)
    ]
    assert sum(len(finished.relocations) for finished in done) > 20
    assert sum(finished.pushes for finished in done) > 5
    assert sum(len(finished.owed) for finished in done) > 20


def in_any_order(self, channel, number, message):
    """Post without the order of channels."""
    return [message]


def sent_at_once(self, row):
    """A split that holds no row: it goes on to send them to the old machine."""
    owner = self.owners[row.group(len(self.owners))]
    self._post.send(self.name, self.machines[owner], Routed(row))


def released_without_held(self, message):
    """A split that goes on with new rows, and forgets those that it held."""
    for group in message.groups:
        self.owners[group] = message.receiver
        self.held.pop(group, None)


def moved_and_reactivated(self):
    """A manager that sends steps 5 and 8 together, without waiting for step 7."""
    self._tell(self._sender, SendPartitions(self._number, self._groups, self._receiver))
    self._tell_splits(ReactivatePartitions(self._number, self._groups, self._receiver))


def ended(self):
    self.moved.append(self._groups)
    self.busy = False


def any_group(self, rows):
    """A machine that also moves groups of which some rows are on its disk."""
    return tuple(sorted(self.stored))


MACHINE, SPLIT, MANAGER = (
    f"papers.state.relocation.{name}" for name in ("machine.Machine", "split.Split", "manager.Manager")
)
ANY = (test_any_relocations_and_pushes_in_any_order_of_messages,)
BOTH = (test_a_machine_that_is_asked_to_push_and_to_move_the_same_groups,)
MUTANTS = [
    Mutant(
        "channels that do not keep their order",
        {"papers.state.relocation.post.Post._in_order": in_any_order},
        ANY,
    ),
    Mutant(
        "a sender that does not wait for the flags",
        {f"{MACHINE}._has_all_rows": lambda self, number: True},
        ANY,
    ),
    Mutant("a split that holds no row", {f"{SPLIT}.take": sent_at_once}, ANY),
    Mutant(
        "a manager that does not wait for the receiver",
        {f"{MANAGER}._move": moved_and_reactivated, f"{MANAGER}._reactivate": ended},
        ANY,
    ),
    Mutant("a split that forgets the rows it held", {f"{SPLIT}._release": released_without_held}, ANY),
    Mutant("a group on disk that moves", {f"{MACHINE}._movable": any_group}, BOTH),
    Mutant("a machine that answers while it pushes", {f"{MACHINE}._may_answer": lambda self: True}, BOTH),
    Mutant("a machine that pushes while its groups move", {f"{MACHINE}._may_push": lambda self: True}, BOTH),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_protocol_is_noticed(mutant, killer, monkeypatch):
    assert is_noticed(mutant, killer, monkeypatch)
