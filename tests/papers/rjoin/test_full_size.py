"""The experiments at full size against the state machine, node by node, on small data; and the parts they are made of."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.rjoin.messages import AskRates, Outgoing
from papers.rjoin.next_key import Rule
from papers.rjoin.node import Node, Settings
from papers.rjoin.overlay import Overlay
from papers.rjoin.query import Column, Key, Query, Row
from papers.rjoin.sim.balance import moved
from papers.rjoin.sim.cases import FIRST, RATE, WORST, Case
from papers.rjoin.sim.cases import RULES as ALL_RULES
from papers.rjoin.sim.ring import Ring, hashed
from papers.rjoin.sim.run import Simulation, run_case
from papers.rjoin.sim.steps import Steps
from papers.rjoin.sim.store import Entries, Store, merged
from papers.rjoin.sim.workload import Chains, Rows, Schema, count_answers, draw_chains, draw_rows
from tests.property.test_mutants import Mutant, cases, is_noticed

SMALL = Schema(relations=4, attributes=2, values=3)
NODES = [f"node {n}" for n in range(6)]
RULES = {RATE: Rule.RATE, FIRST: Rule.FIRST, WORST: Rule.WORST}


def small_ring() -> Ring:
    return Ring(hashed(NODES), hashed([SMALL.name(key) for key in range(SMALL.keys)]))


def as_query(chains: Chains, number: int, window: int) -> Query:
    own = chains.relations[number].tolist()
    where = tuple(
        (
            Column(f"R{own[e]}", f"A{chains.left[number, e]}"),
            Column(f"R{own[e + 1]}", f"A{chains.right[number, e]}"),
        )
        for e in range(chains.ways - 1)
    )
    return Query(f"q{number}", NODES[0], 0, (where[0][0],), where, window=window or None)


class ToldAtOnce(Node):
    """A row counts in all rates as soon as it is published, as it does at full size, not when it has arrived."""

    published: defaultdict[Key, list[int]]

    def _tell_rates(self, now: int, message: AskRates) -> list[Outgoing]:
        key = message.keys[0]
        self.shelves[key].came = list(self.published[key])
        return super()._tell_rates(now, message)


class Machine(Overlay):
    """RJoin's nodes without delays, asking for rates each time."""

    def __init__(self, rule: str) -> None:
        self.published: defaultdict[Key, list[int]] = defaultdict(list)
        chosen = Settings(delta=None, rule=RULES[rule], valid=-1)
        super().__init__(NODES, chosen, delay=lambda: 0, draw=lambda count: 0)

    def _node(self, address: str) -> Node:
        node = ToldAtOnce(address, self.settings, lambda count: 0)
        node.published = self.published
        return node

    def publish(self, address: str, row: Row) -> None:
        for key in row.index_keys():
            self.published[key].append(row.published)
        super().publish(address, row)


def machine(rows: Rows, chains: Chains, rule: str, window: int) -> Overlay:
    overlay = Machine(rule)
    for number in range(len(chains)):
        overlay.at(0, partial(overlay.submit, NODES[0], as_query(chains, number, window)))
    for number, (relation, values) in enumerate(
        zip(rows.relation.tolist(), rows.values.tolist(), strict=True)
    ):
        named = {f"A{place}": value for place, value in enumerate(values)}
        row = Row(f"R{relation}", named, number + 1)
        overlay.at(number + 1, partial(overlay.publish, NODES[0], row))
    overlay.run()
    return overlay


@settings(max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from([4, 3, 2]),
    st.sampled_from([24, 12, 3]),
    st.sampled_from(list(RULES)),
    st.sampled_from([0, 4]),
)
def test_loads_and_answers_are_those_of_the_machine(seed, ways, count, rule, window):
    rng = np.random.default_rng(seed)
    rows, chains = draw_rows(SMALL, count, 0.5, rng), draw_chains(SMALL, 3, ways, rng)
    overlay = machine(rows, chains, rule, window)
    simulation = Simulation(SMALL, rows, chains, small_ring(), rule=rule, window=window, valid=-1)
    for _ in range(count):
        simulation.publish()
    nodes = [overlay.nodes[address] for address in NODES]
    assert simulation.answers == sum(len(node.answers) for node in nodes)
    assert simulation.hits.by_node().tolist() == [node.query_load for node in nodes]
    if not window:
        # A node of the machine forgets a query when a row comes that is out of its window; here all that were made count.
        assert simulation.storage.by_node().tolist() == [node.storage_load for node in nodes]
        assert simulation.answers == count_answers(rows, chains, SMALL.values)


@given(st.integers(0, 2**32), st.sampled_from(ALL_RULES), st.integers(2, 4))
@settings(max_examples=30)
def test_every_strategy_gives_all_answers(seed, rule, ways):
    """With rates that are reused, where the machine would ask in another order."""
    rng = np.random.default_rng(seed)
    rows, chains = draw_rows(SMALL, 40, 0.9, rng), draw_chains(SMALL, 5, ways, rng)
    simulation = Simulation(SMALL, rows, chains, small_ring(), rule=rule, history=10, valid=5)
    for _ in range(30):
        simulation.publish()
    live = Rows(rows.relation[10:], rows.values[10:])
    assert simulation.answers == count_answers(live, chains, SMALL.values)
    assert simulation.traffic.by_node().sum() == simulation.traffic.total


def test_answers_are_counted_as_a_nested_loop_does():
    rng = np.random.default_rng(3)
    rows, chains = draw_rows(SMALL, 20, 0.5, rng), draw_chains(SMALL, 4, 3, rng)
    by_relation = [rows.values[rows.relation == r].tolist() for r in range(SMALL.relations)]
    found = 0
    for query in range(4):
        own, left, right = chains.relations[query], chains.left[query], chains.right[query]
        for a, b, c in itertools.product(*(by_relation[r] for r in own)):
            found += a[left[0]] == b[right[0]] and b[left[1]] == c[right[1]]
    assert found > 0
    assert count_answers(rows, chains, SMALL.values) == found


def test_ids_move_the_load_apart_and_no_key_is_lost():
    rng = np.random.default_rng(5)
    ring = Ring(hashed([f"node {n}" for n in range(60)]), hashed([str(key) for key in range(2000)]))
    load = rng.pareto(2.0, 2000)
    before = np.bincount(ring.node_of, load, 60)
    for _ in range(3):
        ring = moved(ring, load, rng)
    after = np.bincount(ring.node_of, load, 60)
    assert after.sum() == pytest.approx(before.sum())
    assert after.max() < 0.7 * before.max()
    assert (after > 0).all()
    assert len(set(ring.ids.tolist())) == 60


def test_equal_entries_are_one_with_a_count():
    column = np.array
    found = merged(
        Entries(*map(column, ([2, 1, 2, 2], [0, 0, 0, 0], [7, 7, 7, 8], [0, 0, 0, 0], [1, 2, 3, 4])))
    )
    assert [found.key.tolist(), found.word.tolist(), found.count.tolist()] == [
        [1, 2, 2],
        [7, 7, 8],
        [2, 4, 4],
    ]


def test_a_store_gives_back_what_is_under_keys_and_refuses_what_it_cannot_hold():
    store, rng = Store(), np.random.default_rng(1)
    wanted = 0
    for _ in range(40):
        keys = rng.integers(0, 50, 30)
        ones = np.ones(30, np.int64)
        store.add(Entries(keys, ones, ones, ones, ones))
        wanted += int(np.isin(keys, [3, 7]).sum())
    assert len(store.under(np.array([3, 7]))) == wanted
    one = np.array([1])
    with pytest.raises(OverflowError, match="count 4294967296 does not fit"):
        store.add(Entries(one, one, one, one, one << 32))


def test_a_case_is_repeatable_and_told_to_stop():
    case = Case(snapshots=(5, 20), queries=200, history=20, nodes=50)
    one, other = run_case(case), run_case(case)
    assert one is not None
    assert other is not None
    assert one.last.messages == other.last.messages
    assert one.at(5).messages < one.last.messages
    assert run_case(case, lambda: False) is None


def test_candidate_tables_save_requests():
    case = Case(snapshots=(60,), queries=600, history=20, nodes=50)
    with_tables, without = run_case(case), run_case(replace(case, valid=-1))
    assert with_tables is not None
    assert without is not None
    assert without.last.answers == with_tables.last.answers
    asked = [found.last.ric_messages - found.last.inserting for found in (with_tables, without)]
    assert asked[1] > 1.5 * asked[0]


def alone(self, sender, receiver):
    """Traffic that forgets what the ring does on the way."""
    self.total += len(sender)


def unchecked(self, query, word, place, row):
    _, found = REPLACE(self, query, word, place, row)
    return np.ones(len(query), bool), found


REPLACE = Steps.replace
SIM = "papers.rjoin.sim"
MACHINE = (test_loads_and_answers_are_those_of_the_machine,)
MUTANTS = [
    Mutant("the value of an edge is not checked", {f"{SIM}.steps.Steps.replace": unchecked}, MACHINE),
    Mutant(
        "stored rows are not met",
        {f"{SIM}.run.Simulation._meet_stored": lambda self, sent: sent.take(np.zeros(len(sent), bool))},
        MACHINE,
    ),
    Mutant(
        "the start of a window does not move",
        {f"{SIM}.run.Simulation._started": lambda self, met, rows: met},
        MACHINE,
    ),
    Mutant(
        "hops that nobody counts",
        {f"{SIM}.traffic.Flows.send": alone},
        (test_every_strategy_gives_all_answers,),
    ),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_count_is_noticed(mutant, killer, monkeypatch):
    assert is_noticed(mutant, killer, monkeypatch)
