"""Orders of terms on the local driver: near the best fixed order, also soon after the rates have changed.

What is counted is work: rows looked up and rows bound. So the tests do not depend on the machine.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests import life
from watersmeet.local.join import LocalJoin
from watersmeet.log.status import read_status
from watersmeet.model.limits import Limits
from watersmeet.model.tally import TermTally, total_terms
from watersmeet.schemes.delta import scheme as delta
from watersmeet.schemes.delta.orders import TermOrder
from watersmeet.schemes.delta.scheme import DeltaPlan

SCHEMAS = {
    "a": pa.schema({"id": pa.int64(), "x": pa.int64()}),
    "b": pa.schema({"id": pa.int64(), "x": pa.int64(), "y": pa.int64()}),
    "c": pa.schema({"id": pa.int64(), "y": pa.int64(), "z": pa.int64()}),
    "d": pa.schema({"id": pa.int64(), "z": pa.int64()}),
}
ON = "a.x = b.x AND b.y = c.y AND c.z = d.z"
LIMITS = Limits(least_sampled_rows=1, sampled_rows=64)
ROWS, BATCHES, CHANGE = 120, 10, 5
KEYS = 60
# Rows of a batch that are given far more partners, and those that find hardly any.
MANY, FEW = 12, KEYS * 40

# All orders of the terms that have a choice between inputs while another cannot be looked up.
FIXED = {"b": ["acd", "cad", "cda"], "c": ["dba", "bda", "bad"]}


def arriving(batch: int) -> dict[str, pa.Table]:
    """At first hardly a row of c meets one of d, and a row of b many of a. Then it is the other way round."""
    rng = np.random.default_rng(batch)
    at_a, at_d = (MANY, FEW) if batch < CHANGE else (FEW, MANY)
    # Rows of the other keys are as spread out, so that only their meeting changes.
    ranges = {"x": at_a, "y": KEYS, "z": at_d}
    return {
        name: pa.table(
            [
                1000 * batch + np.arange(ROWS),
                *(
                    rng.integers(0, ranges[column], ROWS) + FEW * (batch >= CHANGE)
                    for column in schema.names[1:]
                ),
            ],
            schema=schema,
        )
        for name, schema in SCHEMAS.items()
    }


def start(state: Path, **how) -> LocalJoin:
    select = [f"{name}.id AS {name}" for name in SCHEMAS]
    return life.start(SCHEMAS, state, ON, select=select, settings={"limits": LIMITS}, **how)


def run(state: Path) -> tuple[list[dict[str, TermTally]], Counter]:
    """The work of each term in each batch, and all results."""
    join, found, work = start(state), life.multiset(), []
    for batch in range(BATCHES):
        found += life.multiset(join.batch(**arriving(batch)))
        life.check_plan(join)
        (status,) = read_status(state).joins
        assert all(one.batch == batch for one in status.tallies)
        work.append(total_terms(status.tallies))
    return work, found


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    """The work and the results with chosen orders, and with every fixed one."""
    home = tmp_path_factory.mktemp("orders")
    chosen = run(home / "chosen")
    fixed = {}
    for number in range(3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                delta,
                "decide_order",
                lambda graph, was, *_: (TermOrder(was.start, tuple(FIXED[was.start][number])), None),  # noqa: B023
            )
            fixed[number] = run(home / str(number))
    return home, chosen, fixed


def test_results_do_not_depend_on_the_order(lives):
    _, (_, found), fixed = lives
    everything = [arriving(batch) for batch in range(BATCHES)]
    inputs = {name: pa.concat_tables(one[name] for one in everything) for name in SCHEMAS}
    expected = life.ask_duckdb(f"SELECT a.id, b.id, c.id, d.id FROM a, b, c, d WHERE {ON}", **inputs)
    assert expected.total() > 1000
    for results in (found, *(results for _, results in fixed.values())):
        assert not life.difference(results, expected)


@pytest.mark.parametrize(
    "batches", [range(1, CHANGE), range(CHANGE + 3, BATCHES)], ids=["before a change", "three batches after"]
)
def test_work_is_within_a_fifth_of_the_best_fixed_order(lives, batches):
    _, (chosen, _), fixed = lives

    def total(work: list[dict[str, TermTally]], term: str) -> int:
        return sum(work[batch][term].work for batch in batches)

    for term in FIXED:
        by_order = [total(work, term) for work, _ in fixed.values()]
        assert max(by_order) > 1.3 * min(by_order), "the order hardly matters: this tests nothing"
        assert total(chosen, term) <= 1.2 * min(by_order)


def test_decisions_are_recorded_with_predicted_and_measured_work(lives):
    home, (work, _), _ = lives
    plan = life.newest(home / "chosen").plan.scheme
    assert isinstance(plan, DeltaPlan) and [term.start for term in plan.terms] == ["b", "c"]
    for term in plan.terms:
        measured = work[BATCHES - 2][term.start]
        assert term.measured == pytest.approx(measured.work / measured.fresh_rows)
        there = work[term.sampled][term.start]
        assert term.predicted == pytest.approx(there.work / there.fresh_rows, rel=0.5)
    changed = [one for one in plan.changes if one.start == "b" and one.before]
    assert changed and all(CHANGE <= one.batch <= CHANGE + 3 for one in changed)
    for one in changed:
        assert one.predicted_before > 1.1 * one.predicted_after
        after = work[one.batch][one.start]
        assert one.then_measured == pytest.approx(after.work / after.fresh_rows)
    (status,) = read_status(home / "chosen").joins
    shown = status.shown
    assert shown is not None
    assert [row[:2] for row in shown.rows] == [(term.start, " ".join(term.then)) for term in plan.terms]
    assert any("predicted" in event[2] and "measured" in event[2] for event in shown.events)


def test_orders_are_chosen_without_tallies_too(tmp_path, lives):
    """A lost tally costs knowledge: nothing is measured, and every batch is sampled."""
    home, _, _ = lives
    join = start(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta.Delta, "weighs_tallies", False)
        for batch in range(BATCHES):
            join.count(**arriving(batch))
    for last in (CHANGE, BATCHES):
        one, other = (life.manifests(place)[last - 1].plan.scheme for place in (home / "chosen", tmp_path))
        assert isinstance(one, DeltaPlan) and isinstance(other, DeltaPlan)
        assert [term.then for term in one.terms] == [term.then for term in other.terms]
        assert all(term.measured is None and term.sampled == last - 1 for term in other.terms)


def test_small_terms_are_not_sampled(tmp_path):
    join = life.start(SCHEMAS, tmp_path, ON, settings={"limits": Limits(least_sampled_rows=ROWS + 1)})
    for batch in range(2):
        join.count(**arriving(batch))
    plan = life.newest(tmp_path).plan.scheme
    assert isinstance(plan, DeltaPlan)
    assert [term.then for term in plan.terms] == [(), ()] and not plan.changes


def test_all_tasks_and_attempts_follow_the_published_order(tmp_path):
    """Another attempt that would decide otherwise joins by the plan that is there."""
    join = start(tmp_path, tasks=3)
    for batch in range(2):
        join.count(**arriving(batch))
    batch_id = life.batch_of(join)
    told = life.ingest_all(join, batch_id, {name: [rows] for name, rows in arriving(2).items()})
    first = [life.task_rows(join, batch_id, task, told) for task in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "decide_order", lambda graph, was, *_: (TermOrder(was.start), None))
        life.forget()
        again = [life.task_rows(join, batch_id, task, told) for task in (2, 0, 1)]
    assert [Counter(rows) for rows in first] == [Counter(again[at]) for at in (1, 2, 0)]
    assert len(set(itertools.chain(*first))) == sum(map(len, first))
