"""Theorems 1 and 2: whatever the delays and the order of messages, every answer is given, once, and no other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from papers.rjoin.messages import Answer
from papers.rjoin.next_key import Rule
from papers.rjoin.node import Node, Settings
from papers.rjoin.query import Column, Triple
from tests.papers.rjoin.scripts import (
    ATTRIBUTES,
    RELATIONS,
    Script,
    drawn_script,
    expected,
    longest_wait,
    play,
)
from tests.property.test_mutants import Mutant, cases, is_noticed

SEEDS = st.integers(0, 2**32)
SIZES = st.fixed_dictionaries({"queries": st.integers(1, 4), "rows": st.integers(0, 20)})
RULES = st.sampled_from(Rule)


def check(script: Script, chosen: Settings) -> None:
    overlay, had = play(script, chosen)
    for query in script.queries:
        found = Counter(answer.values for answer in overlay.answers(query.id))
        wanted = expected(query, script.rows)
        if query.id in had:
            assert found <= wanted
            assert found.total() == had[query.id]
        else:
            assert found == wanted


def with_delta(script: Script, chosen: Settings) -> Settings:
    """As published: rows in the ALTT as long as a message may take; without end where rewritten queries look for them there."""
    return replace(chosen, delta=None if chosen.pairs else longest_wait(script))


@given(SEEDS, SIZES, RULES, st.booleans(), st.booleans(), st.sampled_from([0, 5, 1000]))
@example(3, {"queries": 4, "rows": 20}, Rule.RATE, False, True, 5)
def test_every_answer_exactly_once(seed, sizes, rule, pairs, implied, valid):
    script = drawn_script(seed, **sizes)
    chosen = Settings(rule=rule, pairs=pairs, implied=implied, valid=valid, rate_window=20)
    check(script, with_delta(script, chosen))


@given(SEEDS, SIZES, RULES, st.integers(1, 6))
@example(51918, {"queries": 2, "rows": 20}, Rule.WORST, 6)
def test_every_answer_exactly_once_while_nodes_come_and_go(seed, sizes, rule, changes):
    script = drawn_script(seed, **sizes, changes=changes)
    check(script, with_delta(script, Settings(rule=rule, pairs=False, valid=5, rate_window=20)))


@given(SEEDS, SIZES, RULES)
def test_distinct_without_a_window_loses_no_answer_and_makes_none_up(seed, sizes, rule):
    script = drawn_script(seed, **sizes, distinct=True)
    overlay, _ = play(replace(script, removals={}), with_delta(script, Settings(rule=rule, pairs=False)))
    for query in script.queries:
        found = Counter(answer.values for answer in overlay.answers(query.id))
        wanted = expected(query, script.rows)
        assert set(found) == set(wanted)
        assert found <= wanted


@settings(max_examples=20)
@given(SEEDS)
def test_the_oracle_is_sql(seed):
    """What the others are held to is what DuckDB answers."""
    script = drawn_script(seed, queries=2, rows=20)
    connection = duckdb.connect()
    for name in RELATIONS:
        connection.execute(
            f"CREATE TABLE {name} ({', '.join(f'{a} INT' for a in ATTRIBUTES)}, published INT)"
        )
    for row in script.rows:
        values = [*(row.values[a] for a in ATTRIBUTES), row.published]
        connection.execute(f"INSERT INTO {row.relation} VALUES (?, ?, ?, ?)", values)
    for query in script.queries:
        says = [
            " = ".join(side.text if isinstance(side, Column) else str(side) for side in condition)
            for condition in query.where
        ]
        says += [f"{name}.published >= {query.inserted}" for name in query.relations]
        select = ", ".join(side.text for side in query.select if isinstance(side, Column))
        text = f"SELECT {select} FROM {', '.join(query.relations)} WHERE {' AND '.join(says)}"
        assert Counter(connection.execute(text).fetchall()) == expected(query, script.rows)


def test_answers_happen():
    """So that the properties are about something: joins of all sizes, duplicates, and rows that are too old."""
    answers, ways, doubles, old = 0, set(), 0, 0
    for seed in range(40):
        script = drawn_script(seed, queries=3, rows=20)
        for query in script.queries:
            found = expected(query, script.rows)
            answers += found.total()
            ways |= {len(query.relations)} if found else set()
            doubles += any(count > 1 for count in found.values())
            old += expected(replace(query, inserted=0), script.rows) != found
    assert answers > 300
    assert ways == {1, 2, 3, 4}
    assert doubles > 10
    assert old > 10


def meet_under_any_key(self, now, row, key):
    """A node that looks for queries by row alone, not by the key of the message."""
    self.query_load += 1
    out = []
    for own, shelf in list(self.shelves.items()):
        if row.matches(own):
            for stored in shelf.inputs:
                out += self._trigger(now, stored, row, starts_window=True)
            for stored in shelf.rewritten:
                out += self._trigger(now, stored, row)
    here = self.shelves[key]
    (here.rows if isinstance(key, Triple) else here.late).append(
        row if isinstance(key, Triple) else (row, now)
    )
    return out


def forgets_the_late(self, now, shelf):
    """A Delta of nothing."""
    shelf.late = []


def stored_without_a_look(self, now, query, key):
    """Procedure 3 that only waits for rows to come."""
    from papers.rjoin.node import Stored

    self.query_load += 1
    self._keep(self.shelves[key], Stored(query))
    return []


def joins_with_nothing(self, address):
    self.chord.join(address)
    self.chord.settle()
    self.nodes[address] = self._node(address)


def told_twice(self, now, message):
    """An owner that takes an answer for each way it could have come."""
    out = RECEIVE(self, now, message)
    if isinstance(message, Answer) and message.query not in self.removed:
        self.answers.append(message)
    return out


RECEIVE = Node.receive
NODE = "papers.rjoin.node.Node"
ANY = (test_every_answer_exactly_once,)
CHURN = (test_every_answer_exactly_once_while_nodes_come_and_go,)
MUTANTS = [
    Mutant("completeness: a Delta that is too small", {f"{NODE}._collect_garbage": forgets_the_late}, ANY),
    Mutant(
        "completeness: rewriting without storing", {f"{NODE}._keep": lambda self, shelf, stored: None}, ANY
    ),
    Mutant("completeness: no look at stored rows", {f"{NODE}._store_rewritten": stored_without_a_look}, ANY),
    Mutant(
        "completeness: a node that takes nothing over",
        {"papers.rjoin.overlay.Overlay.join": joins_with_nothing},
        CHURN,
    ),
    Mutant(
        "soundness: no check of the publication time",
        {f"{NODE}._is_in_time": lambda self, query, row: True},
        ANY,
    ),
    Mutant(
        "no duplicates: queries met by row, not by key", {f"{NODE}._meet_queries": meet_under_any_key}, ANY
    ),
    Mutant("no duplicates: an answer taken twice", {f"{NODE}.receive": told_twice}, ANY),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_rule_is_noticed(mutant, killer, monkeypatch):
    assert is_noticed(mutant, killer, monkeypatch)
