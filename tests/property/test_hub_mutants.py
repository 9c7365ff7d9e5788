"""Rules of the hub's walk, broken on purpose: that every answer comes out, and comes out once, must fail then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.property import test_hub_counted, test_hub_walk
from tests.property.test_mutants import Mutant, cases, is_noticed
from watersmeet.hubs import counted, forest_builder, rows
from watersmeet.hubs.language import MOST_INPUTS
from watersmeet.hubs.outputs import Outputs
from watersmeet.hubs.walk import Walk

KILLERS = (test_hub_walk.test_answers_are_those_of_duckdb_whatever_comes_and_goes,)


def first_branches(walk, probe):
    branch = walk.forest.branches.starts[probe]
    return np.arange(len(probe)), branch


KEPT = (test_hub_walk.test_answers_are_those_of_duckdb_whatever_steps_are_kept,)


def without_edges(numbers, edges):
    return numbers * MOST_INPUTS


def looked_in_at_once(catalogue, attributes, *more, before=None, **others):
    return forest_builder.build_forest(catalogue, attributes, *more, **others)


first_of_last, output_values = Walk.first_of_last, Outputs.values


def marked_too_late(before: Any, widest: Any, arrived: Any, watermarks: Any, later: Any) -> Any:
    above = {stream: mark + 1 for stream, mark in later.items()}
    return counted.count_rows(before, widest, arrived, watermarks, above)


def with_first_constants(self: Outputs, item, owner, rows, take, types, constants):
    return output_values(self, item, owner, rows, take, types, (constants[0], constants[1] * 0))


def with_first_input(self: Outputs, *arguments):
    first = np.where(self.arg_input < 0, -1, 0)
    return output_values(replace(self, arg_input=first), *arguments)


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
        "a window over rows has one row more",
        {"watersmeet.hubs.walk.Walk.first_of_last": lambda self, s, n: first_of_last(self, s, n + 1)},
        KILLERS,
    ),
    Mutant(
        "rows below a floor may be in a window over rows",
        {"tests.property.test_hub_counted.floor_of": lambda one, width: counted.floor_of(one, width - 1)},
        (test_hub_counted.test_no_row_of_a_window_is_below_its_floor,),
    ),
    Mutant(
        "the mark of a batch has the watermark of the next one",
        {"tests.property.test_hub_counted.count_rows": marked_too_late},
        (test_hub_counted.test_no_row_of_a_window_is_below_its_floor,),
    ),
    Mutant(
        "all queries of a template have the constants of the first",
        {"watersmeet.hubs.outputs.Outputs.values": with_first_constants},
        KILLERS,
    ),
    Mutant(
        "all columns of a shape are those of the first input",
        {"watersmeet.hubs.outputs.Outputs.values": with_first_input},
        KILLERS,
    ),
    Mutant(
        "a query counts the rows of its command's batch",
        {"watersmeet.hubs.forest_builder.first_row": lambda batch: rows.first_row(batch - 1)},
        KILLERS,
    ),
    Mutant(
        "kept inputs keep their place in the delta rule, so that fresh rows of them meet nothing",
        {"watersmeet.hubs.paths._Walker.rank": lambda self, here, input_: input_},
        KEPT,
    ),
    Mutant(
        "combinations that wait at several edges are found by all of them",
        {
            "watersmeet.hubs.kept.tags_of": without_edges,
            "watersmeet.hubs.forest_builder.tags_of": without_edges,
        },
        (test_hub_walk.test_combinations_that_wait_for_one_column_at_two_edges_are_told_apart,),
    ),
    Mutant(
        "combinations of rows from before the choice are not kept",
        {
            "tests.property.hub_helpers.begins_to_keep": lambda catalogue, _: np.zeros(
                len(catalogue), np.bool_
            )
        },
        KEPT,
    ),
    Mutant(
        "what begins to be kept is looked in at once",
        {"tests.property.hub_helpers.build_forest": looked_in_at_once},
        KEPT,
    ),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_rule_of_the_hub_is_noticed(mutant, killer, monkeypatch):
    assert is_noticed(mutant, killer, monkeypatch)
