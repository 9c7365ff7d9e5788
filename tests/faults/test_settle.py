"""Processes that settle a state are really killed, at every place; the next one pays what is owed, once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.chaos.kills import arm
from tests.chaos.processes import in_child
from tests.life import forget, newest, restarted, run_batch
from tests.model.memory_scripts import SETTLING_PLACES
from tests.model.test_settling import everything, owing, parts, read
from watersmeet.local.join import LocalJoin

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


def settle(join: LocalJoin, folder: Path, place: str | None = None) -> None:
    forget()
    if place is not None:
        arm(place, 0)
    join.settle(str(folder))


@pytest.mark.parametrize("goes_on", [False, True], ids=["and settles again", "and starts again"])
@pytest.mark.parametrize("place", SETTLING_PLACES)
def test_a_settling_that_is_killed_pays_once(tmp_path, place, goes_on):
    join, results = owing(tmp_path)
    assert in_child(partial(settle, join, tmp_path / "late", place)).killed
    marked = newest(tmp_path / "state").settlements
    assert bool(marked) == place.startswith(("manifest-linked", "mark-written", "settled-"))
    if goes_on:
        later = restarted(join, memory=None)
        results += run_batch(later, parts(4))
        join, batches = later, 5
    else:
        batches = 4
    forget()
    # The first folder is taken if its results are complete.
    folder = tmp_path / ("later" if goes_on and marked else "late")
    outcome = in_child(partial(settle, join, folder))
    assert outcome.done, outcome
    for folder in ("late", "later"):
        if (tmp_path / folder).exists():
            results += read(tmp_path / folder)
    assert results == everything(batches)
    assert [path.name for path in tmp_path.glob("late*.settling-*")] == []
