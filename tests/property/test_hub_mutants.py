"""Rules of the hub's walk, broken on purpose: that every answer comes out, and comes out once, must fail then."""

from __future__ import annotations

import numpy as np
import pytest

from tests.property import test_hub_walk
from tests.property.test_mutants import Mutant, cases, is_noticed
from watersmeet.hubs import rows

KILLERS = (test_hub_walk.test_answers_are_those_of_duckdb_whatever_comes_and_goes,)


def first_branches(walk, probe):
    branch = walk.forest.branches.starts[probe]
    return np.arange(len(probe)), branch


MUTANTS = [
    Mutant(
        "every step takes fresh rows, so that two of them meet twice",
        {"watersmeet.hubs.paths.takes_old": lambda following, start: following < 0},
        KILLERS,
    ),
    Mutant(
        "no step takes fresh rows, so that two of them never meet",
        {"watersmeet.hubs.paths.takes_old": lambda following, start: following != start},
        KILLERS,
    ),
    Mutant(
        "only the equality of the index is checked",
        {"watersmeet.hubs.paths.is_checked": lambda sought, exact: np.zeros(len(sought), np.bool_)},
        KILLERS,
    ),
    Mutant(
        "a copy of an index has the rows of its last run only",
        {"watersmeet.hubs.lookups.merge_order": lambda keys: (keys[-1], np.arange(len(keys[-1])))},
        KILLERS,
    ),
    Mutant(
        "branches of one probe all take what the first of them takes",
        {"watersmeet.hubs.walk.Walk.branches_of": first_branches},
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
