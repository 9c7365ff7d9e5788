"""Rules of a budget of memory, broken on purpose: the scripted lives must notice.

As in tests/property/test_mutants.py, but with lives that keep their state in a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.life import forget
from tests.model import test_debts, test_memory
from watersmeet.model.facts import Merge, Push, Run
from watersmeet.model.ranges import Ranges
from watersmeet.plan import window
from watersmeet.plan.window import Floors

Killer = Callable[[Path], None]


def test_a_rule_that_is_whole_is_not_noticed(tmp_path):
    """So it is the mutant that fails, not the way in which it is run."""
    windowed(tmp_path)


def cells(folder: Path) -> None:
    test_memory.test_a_key_that_owes_more_than_the_budget_is_paid_in_cells_over_several_batches(folder, 2, 10)


def windowed(folder: Path) -> None:
    test_memory.test_a_long_life_pushes_merges_evicts_and_pays(folder, 2, window=True)


def nothing_left(*_: Any) -> Iterator[Any]:
    return iter(())


def still_apart(pushes: Sequence[Push], *_: Any) -> Iterator[Push]:
    """The generations of a key stay what they were when all of its cells are paid."""
    return iter(pushes)


def outputs_unnamed(pushes: Sequence[Push], finished: Sequence[Merge]) -> tuple[Push, ...]:
    return tuple(pushes)


def decided_anew(*_: Any) -> None:
    return None


def whatever_is_owed(
    history: Sequence[Run], pending: Sequence[Merge], floors: Floors, owe: Ranges = ()
) -> Any:
    return EVICT(history, pending, floors)


def nobody_owes(pushes: Sequence[Push]) -> Ranges:
    return ()


def never(*_: Any) -> bool:
    return False


def uncounted(*_: Any) -> None:
    return None


EVICT = window.evict

MUTANTS: list[tuple[str, Any, Killer]] = [
    (
        "watersmeet.plan.debts._rest_of_payments",
        nothing_left,
        test_memory.test_what_is_left_of_a_key_that_is_being_paid_in_cells_is_settled,
    ),
    ("watersmeet.plan.pushes._as_one", still_apart, cells),
    (
        "watersmeet.plan.merges.rename",
        outputs_unnamed,
        test_memory.test_a_key_is_cut_into_cells_only_when_no_pending_merge_moves_its_rows,
    ),
    (
        "watersmeet.schemes.budget.slices._moves",
        never,
        test_memory.test_a_key_is_cut_into_cells_only_when_no_pending_merge_moves_its_rows,
    ),
    (
        "watersmeet.engine.desk.StreamDesk.repeated",
        decided_anew,
        test_memory.test_a_start_with_another_budget_repeats_what_a_replayed_batch_decided,
    ),
    ("watersmeet.plan.batch.evict", whatever_is_owed, windowed),
    ("watersmeet.plan.merges.owing", nobody_owes, windowed),
    (
        "watersmeet.engine.payment.Debts._touch",
        uncounted,
        test_debts.test_a_key_that_owes_more_than_the_budget_is_paid_on_an_idle_stream,
    ),
]


@pytest.mark.parametrize(
    ("name", "broken", "killer"), MUTANTS, ids=[name.rpartition(".")[2] for name, _, _ in MUTANTS]
)
def test_a_broken_rule_is_noticed(tmp_path, monkeypatch, name, broken, killer):
    forget()
    monkeypatch.setattr(name, broken)
    with pytest.raises(AssertionError):
        killer(tmp_path)
