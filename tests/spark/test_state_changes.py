"""A query that is started again with another definition: what is safe goes on, the rest is refused.

Refused means before the first batch: not a single file is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc
import pytest

import watersmeet as wm
from tests.spark.state_helpers import all_files, failure
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMAS = {"l": "k int, x int, s string", "r": "k int, y int"}


@dataclass(frozen=True)
class Definition:
    """A join as it is first written; the tests change one thing at a time."""

    on: str = "l.k = r.k AND l.x < r.y + 3"
    select: list[str] | None = field(default_factory=lambda: ["l.x", "r.y", "l.k"])
    schemas: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=lambda: {"l": "l", "r": "r"})
    name: str = "join"
    tasks: int = 2

    def build(self, state: str) -> Callable[..., Any]:
        def joined(**streams):
            inputs = {self.names[stream]: frame for stream, frame in streams.items()}
            return wm.join(
                inputs, on=self.on, select=self.select, state=state, name=self.name, tasks=self.tasks
            )

        return joined

    def start(self, script: StreamScript) -> StreamScript:
        script.schemas = {**SCHEMAS, **self.schemas}
        return script.start(self.build(str(script.folder / "state")))


SAFE = [
    Definition(tasks=3),
    Definition(on="`L`.`K` = R.k  and (l.x) < (r.y + 3)"),
    Definition(schemas={"l": "s string, x int, k int", "r": "y int, k int"}),
    Definition(schemas={"l": "k int, x int, s string, more double"}),
    Definition(select=["r.y", "l.x"]),
    Definition(select=["l.x + r.y AS sum"]),
]

REFUSED = [
    pytest.param(
        Definition(on="l.k = r.k AND l.x < r.y + 4"),
        ["its predicate was", "`r`.`y` + 3", "`r`.`y` + 4"],
        id="predicate",
    ),
    pytest.param(
        Definition(on="l.x = r.k AND l.x < r.y + 3"), ["its predicate was", "`l`.`x` = `r`.`k`"], id="key"
    ),
    pytest.param(Definition(schemas={"r": "k bigint, y int"}), ["compared as", "bigint"], id="type of a key"),
    pytest.param(
        Definition(schemas={"l": "k int, x bigint, s string"}),
        ["input l: column x is bigint now, but the state holds it as int"],
        id="type of a column",
    ),
    pytest.param(
        Definition(select=["l.x", "r.y", "l.s"]),
        ["input l: column s is needed now, but the state does not hold it for earlier rows"],
        id="one column more",
    ),
    pytest.param(
        Definition(select=None),
        ["input l: column s is needed now, but the state does not hold it"],
        id="all columns",
    ),
    pytest.param(
        Definition(
            on="a.k = r.k AND a.x < r.y + 3", select=["a.x", "r.y", "a.k"], names={"l": "a", "r": "r"}
        ),
        ["its inputs were ['l', 'r'], now ['a', 'r']"],
        id="name of an input",
    ),
]


@pytest.fixture(scope="module")
def script(spark, tmp_path_factory):
    """Two batches by the first definition, and a third one waiting."""
    folder = tmp_path_factory.mktemp("changes")
    with StreamScript(spark, folder, **SCHEMAS) as started:
        Definition().start(started)
        started.batch(l=[(1, 1, "a"), (2, 9, "b")]).batch(r=[(1, 1)])
        started.stop()
        started.add(l=[(1, 2, "c")], r=[(2, 7)])
        yield started


@pytest.mark.parametrize(("changed", "says"), REFUSED)
def test_an_unsafe_change_is_refused_before_anything_is_written(script, changed, says):
    state = script.folder / "state"
    before = all_files(state)
    changed.start(script)
    message = failure(script.process)
    assert "StateMismatch: " in message
    for text in says:
        assert text in message
    assert "Change it back, or start with a new checkpoint" in message
    assert all_files(state) == before


def test_another_name_finds_no_state(script):
    Definition(name="other").start(script)
    assert "StateMissing: the checkpoint is at batch 2" in failure(script.process)


def test_changed_back_the_query_goes_on(script):
    """The module's last word on this script: nothing of all that was refused has left a trace."""
    Definition().start(script).process()
    script.stop()
    assert_same_rows(script.results(), [(1, 1, 1), (2, 1, 1), (9, 7, 2)])


def test_safe_changes_go_on_one_after_the_other(spark, tmp_path):
    """Each start brings one row for l and one for r, with the same key: it meets all that came before."""
    with StreamScript(spark, tmp_path, **SCHEMAS) as script:
        for number, definition in enumerate([Definition(), *SAFE]):
            script.schemas = SCHEMAS
            script.add(l=[(1, number, "a")], r=[(1, number)])
            definition.start(script).process()
            script.stop()
        pairs = {
            number: [
                (x, y) for x in range(number + 1) for y in range(number + 1) if number in (x, y) and x < y + 3
            ]
            for number in range(len(SAFE) + 1)
        }
        for number in (0, 1, 2, 3, 4):
            assert_same_rows(script.collected[number], [(x, y, 1) for x, y in pairs[number]])
        assert_same_rows(script.collected[5], [(y, x) for x, y in pairs[5]])
        assert_same_rows(script.collected[6], [(x + y,) for x, y in pairs[6]])


def test_a_column_that_was_dropped_does_not_come_back(spark, tmp_path):
    """The rows that came in between do not have it."""
    with StreamScript(spark, tmp_path, **SCHEMAS) as script:
        Definition().start(script).batch(l=[(1, 1, "a")])
        script.stop()
        Definition(on="l.k = r.k AND l.x < r.y + 3", select=["l.x", "r.y"]).start(script).batch(
            l=[(1, 2, "a")]
        )
        script.stop()
        Definition().start(script).add(r=[(1, 3)])
        assert "input l: column k is needed now" in failure(script.process)


def test_the_changed_code_of_a_condition_is_a_warning_on_the_driver(spark, tmp_path, caplog):
    """Its name is the same, so the query goes on: under the new rule for new pairs."""
    caplog.set_level(logging.WARNING, "watersmeet")

    def build(rule: Callable[..., Any]) -> Callable[..., Any]:
        def condition(left, right):
            return rule(left["k"], right["k"])

        def joined(**streams):
            return wm.join(
                streams, on=condition, select=["l.x", "r.y"], state=str(tmp_path / "state"), name="join"
            )

        return joined

    with StreamScript(spark, tmp_path, **SCHEMAS) as script:
        script.start(build(pc.less)).batch(l=[(1, 10, "a"), (2, 20, "b")])
        script.restart(build(pc.less)).batch(r=[(2, 5)])
        assert caplog.messages == []
        script.restart(build(pc.less_equal)).batch(r=[(2, 6)])
        [message] = caplog.messages
        assert "condition" in message
        assert "has changed since batch 1 of query" in message
        assert_same_rows(script.results(), [(10, 5), (10, 6), (20, 6)])
