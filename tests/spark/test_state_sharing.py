"""Several queries, or several joins of one query, that are pointed at one state."""

from __future__ import annotations

import pytest

import watersmeet as wm
from tests.spark.state_helpers import failure
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, x int"


def test_two_queries_with_one_state_and_one_name_do_not_meet(spark, tmp_path):
    def build(l, r):
        return wm.join(
            {"l": l, "r": r},
            on="l.k = r.k",
            select=["l.x", "r.x AS y"],
            state=str(tmp_path / "state"),
            name="same",
        )

    with (
        StreamScript(spark, tmp_path / "one", l=SCHEMA, r=SCHEMA) as one,
        StreamScript(spark, tmp_path / "two", l=SCHEMA, r=SCHEMA) as two,
    ):
        one.start(build)
        two.start(build)
        one.batch(l=[(1, 10)])
        two.batch(l=[(1, 20)])
        one.batch(r=[(1, 11)])
        two.restart().batch(r=[(1, 21)])
        assert_same_rows(one.results(), [(10, 11)])
        assert_same_rows(two.results(), [(20, 21)])
    assert len(list((tmp_path / "state" / "same").iterdir())) == 2


STEPS = [
    pytest.param([{"a": [(1, 1)], "b": [(1, 2)], "c": [(1, 3)], "d": [(1, 4)]}], id="in one batch"),
    pytest.param([{"a": [(1, 1)]}, {"d": [(1, 4)]}], id="by turns"),
]


@pytest.mark.parametrize("steps", STEPS)
def test_two_joins_of_one_query_with_one_name_are_refused(spark, tmp_path, steps):
    """Both joins look the same, so that only the name could keep their rows apart."""

    def build(a, b, c, d):
        first, second = (
            wm.join(
                {"l": l, "r": r}, on="l.k = r.k", select=["l.x", "r.x AS y"], state=str(tmp_path / "state")
            )
            for l, r in ((a, b), (c, d))
        )
        return first.union(second)

    with StreamScript(spark, tmp_path, a=SCHEMA, b=SCHEMA, c=SCHEMA, d=SCHEMA) as script:
        script.add(**steps[0]).start(build)
        message = failure(lambda: [script.process(), *(script.batch(**step) for step in steps[1:])])
        assert "StateInUse: two joins of one query keep their state in" in message
        assert "give each its own name=" in message
        assert script.results() == []
