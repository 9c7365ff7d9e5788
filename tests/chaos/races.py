"""Three processes of one start commit the same batches: one manifest wins, and all three use it.

Spark runs an attempt of a task twice, and every join task offers a manifest. Here three processes do the whole batch
each. None publishes before all three have decided, so that each batch is a real race. Their merges race as well.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
from collections import Counter
from typing import Any

from tests.chaos.cases import Row, to_tables
from tests.chaos.lives import Life, hook
from tests.chaos.processes import PATIENCE_S, Child, in_child
from tests.chaos.scenario import Scenario, Unit, Wrong, describe
from tests.life import batch_of, check_plan, difference, forget_merges, ingest_all, task_rows
from watersmeet.log.manifests import list_manifests

RACERS = 3
BATCHES = 12
REMOTE_SHARE = 0.05


def run(unit: Unit) -> Counter[str]:
    # A racer may be a batch ahead of what another still reads: nothing within the grace is removed.
    # The tasks of a chain depend on those of its earlier stages, so they are not driven one by one.
    life = unit.life(
        remote=unit.rng.random() < REMOTE_SHARE, of=lambda case: not case.is_chain, batches=BATCHES, retain=4
    )
    gates = [multiprocessing.get_context("fork").Barrier(RACERS) for _ in range(2)]
    racers = [Child(lambda: race(life, gates)) for _ in range(RACERS)]
    outcomes = [racer.wait() for racer in racers]
    for outcome in outcomes:
        if not outcome.done:
            raise Wrong(f"{describe(life)}: a racer fails: {outcome}")
    wanted = in_child(life.expected).value
    for found, _ in (outcome.value for outcome in outcomes):
        if problem := difference(life.counted([row for rows in found for row in rows]), wanted):
            raise Wrong(f"{describe(life)}: {problem}")
    if any(
        Counter(a) != Counter(b)
        for o in outcomes[1:]
        for a, b in zip(outcomes[0].value[0], o.value[0], strict=True)
    ):
        raise Wrong(f"{describe(life)}: two racers have other results for the same batch")
    _check_manifests(life, in_child(lambda: _manifests(life)).value)
    lost = sum(outcome.value[1] for outcome in outcomes)
    if lost != (RACERS - 1) * BATCHES:
        raise Wrong(
            f"{describe(life)}: {lost} racers lost, instead of {RACERS - 1} in each of {BATCHES} batches"
        )
    life.remove()
    return Counter({"races": BATCHES})


def race(life: Life, gates: list[Any]) -> tuple[list[list[Row]], int]:
    """The rows of each batch, and how often another one's manifest was first."""
    join = life.join(run="one-start")
    lost = 0

    def reach(name: str) -> bool:
        nonlocal lost
        if name == "manifest-before-write":
            gates[1].wait(PATIENCE_S)
        lost += name == "manifest-lost"
        return False

    hook(reach)
    found = []
    for number in range(BATCHES):
        join = life.at(join, number)
        batch = batch_of(join)
        descriptors = ingest_all(join, batch, to_tables(life.rows[number]))
        gates[0].wait(PATIENCE_S)
        found.append([row for task in range(join.tasks) for row in task_rows(join, batch, task, descriptors)])
        gates[0].wait(PATIENCE_S)
        join.number += 1
        forget_merges()
        check_plan(join)
    return found, lost


def _manifests(life: Life) -> list[tuple[int, int]]:
    return [(name.run_seq, name.batch) for name in list_manifests(life.files())]


def _check_manifests(life: Life, names: list[tuple[int, int]]) -> None:
    if len(names) != len(set(names)) or {seq for seq, _ in names} != {0}:
        raise Wrong(f"{describe(life)}: more than one manifest of a batch: {names}")


RACES = Scenario("races", "three processes commit the same batch", "races", 1000, run, share=2.0)
