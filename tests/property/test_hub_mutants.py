"""Rules of the hub's walk, broken on purpose: that every answer comes out, and comes out once, must fail then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.property import test_hub_walk
from tests.property.test_mutants import Mutant, cases, is_noticed
from watersmeet.hubs import rows, steps

KILLERS = (test_hub_walk.test_answers_are_those_of_duckdb_whatever_comes_and_goes,)


def with_steps(**changes: Any):
    """The ways of a template, with every step after the first changed."""

    def ways(template: Any, attributes: Any) -> tuple[steps.Way, ...]:
        return tuple(
            replace(way, steps=(way.steps[0], *(replace(step, **changes) for step in way.steps[1:])))
            for way in steps.ways_of(template, attributes)
        )

    return ways


MUTANTS = [
    Mutant(
        "every step takes fresh rows, so that two of them meet twice",
        {"watersmeet.hubs.forest.ways_of": with_steps(old=False)},
        KILLERS,
    ),
    Mutant(
        "no step takes fresh rows, so that two of them never meet",
        {"watersmeet.hubs.forest.ways_of": with_steps(old=True)},
        KILLERS,
    ),
    Mutant(
        "only the equality of the index is checked",
        {"watersmeet.hubs.forest.ways_of": with_steps(checks=())},
        KILLERS,
    ),
    Mutant(
        "comparisons with constants always hold",
        {"watersmeet.hubs.walk.Walk.passing": lambda self, group, row: np.arange(len(group))},
        KILLERS,
    ),
    Mutant(
        "windows have no end",
        {"watersmeet.hubs.walk.within": lambda window, *_: np.ones(len(window), np.bool_)},
        KILLERS,
    ),
    Mutant(
        "a query counts the rows of its command's batch",
        {"watersmeet.hubs.forest.first_row": lambda batch: rows.first_row(batch - 1)},
        KILLERS,
    ),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_rule_of_the_hub_is_noticed(mutant, killer, monkeypatch):
    assert is_noticed(mutant, killer, monkeypatch)
