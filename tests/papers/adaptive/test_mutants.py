"""Rules of the epoch protocol and of its simulation, broken on purpose: their properties must notice."""

from __future__ import annotations

from typing import Any

import pytest

from papers.adaptive.sim.messages import LEFT, Ack
from papers.adaptive.sim.optimum import mappings
from tests.papers.adaptive import test_epochs, test_progress
from tests.property.test_mutants import DECIDED, Mutant, cases, is_noticed, only_larger, squarest

# The grid decides by DECIDED; the simulation compares loads with the best of these.
COMPARED = "papers.adaptive.sim.optimum.mappings"


def unscaled(self: Any, message: Any) -> None:
    """Controller.receive that counts only its own rows."""
    if isinstance(message, Ack):
        self._acknowledge(message)
        return
    self._seen[message.side != LEFT] += 1
    if not self._acks_missing:
        self._decide()
    self.route(message)


def square_alone(cells: int) -> list[tuple[int, int]]:
    rows = 1 << (cells.bit_length() - 1) // 2
    return [(rows, cells // rows)]


def wide_ones(cells: int) -> list[tuple[int, int]]:
    return [(rows, cols) for rows, cols in mappings(cells) if rows <= cols]


MUTANTS = [
    Mutant(
        "Algorithm 1 without scaling",
        {"papers.adaptive.sim.reshuffler.Controller.receive": unscaled},
        (test_epochs.test_algorithm_1_the_controller_scales_what_it_sees_to_all_that_arrives,),
    ),
    Mutant(
        "one migrated row for a new one in the protocol",
        {"papers.adaptive.sim.joiner.MIGRATED_PER_NEW": 1},
        (test_epochs.test_theorem_4_4_a_migration_is_over_before_an_input_has_grown_by_half,),
    ),
    Mutant(
        "one migrated row for a new one in the cost model",
        {"papers.adaptive.sim.grid.MIGRATED_PER_NEW": 1},
        (test_progress.test_theorem_4_4_a_joiner_takes_one_new_row_for_two_migrated_ones,),
    ),
    Mutant(
        "a grid that ignores the load: the squarest",
        {DECIDED: squarest},
        (
            test_progress.test_theorem_4_4_the_load_stays_within_a_quarter_of_the_optimum,
            test_progress.test_static_grids_hold_what_their_mapping_says,
        ),
    ),
    Mutant(
        "a grid that ignores by how much an input is larger",
        {DECIDED: only_larger},
        (test_progress.test_theorem_4_4_the_load_stays_within_a_quarter_of_the_optimum,),
    ),
    Mutant(
        "a simulated optimum of the squarest mapping alone",
        {COMPARED: square_alone},
        (
            test_progress.test_the_simulation_takes_the_least_load_of_any_mapping_for_the_optimum,
            test_progress.test_static_grids_hold_what_their_mapping_says,
        ),
    ),
    Mutant(
        "a simulated optimum that tries wide mappings only",
        {COMPARED: wide_ones},
        (test_progress.test_the_simulation_takes_the_least_load_of_any_mapping_for_the_optimum,),
    ),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_rule_is_noticed(mutant, killer, monkeypatch):
    assert is_noticed(mutant, killer, monkeypatch)
