"""A condition is tested as soon as all inputs that it reads are bound, and raises no error that it would not raise last."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.life import ask_duckdb, multiset
from watersmeet.kernel import multi
from watersmeet.kernel.evaluate import ArithmeticOverflow
from watersmeet.local.join import LocalJoin
from watersmeet.log.status import read_status
from watersmeet.model.tally import total_terms

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64(), "y": pa.int64()})
ROWS = 50
PATH, ONE_KEY = "a.k = b.k AND b.x = c.x", "a.k = b.k AND b.k = c.k"
TOP = 2**63 - 1
# None of them is true for any row. The first cannot raise, all others can.
FALSE = ["a.x > b.x", "a.x + b.k < 0", "abs(a.x - b.x) > 3", "a.y + b.x <> 2 AND c.y > 0", "-a.x > b.x"]


def table(rows: int = ROWS, k: int = 1, x: int = 1, y: int = 1) -> pa.Table:
    return pa.table({"k": [k] * rows, "x": [x] * rows, "y": [y] * rows}, schema=SCHEMA)


def start(state: Path, on: str, strategy: str = "auto") -> LocalJoin:
    return LocalJoin(
        dict.fromkeys("abc", SCHEMA), on=on, select=["a.x"], state=str(state), tasks=1, strategy=strategy
    )


def bound_rows(state: Path) -> int:
    (status,) = read_status(state).joins
    return sum(term.bound_rows for term in total_terms(status.tallies).values())


@pytest.mark.parametrize("condition", FALSE)
def test_a_walk_binds_no_row_behind_a_condition_that_rejects(tmp_path, condition):
    """c is not reached: 50 rows of a meet 50 of b, and none of these pairs the 50 rows of c."""
    join = start(tmp_path, f"{PATH} AND {condition}")
    join.batch(b=table(), c=table())
    assert not join.batch(a=table()).num_rows
    assert bound_rows(tmp_path) == ROWS**2


def test_a_condition_on_one_input_that_may_raise_keeps_its_rows_out_of_a_walk(tmp_path):
    join = start(tmp_path, f"{PATH} AND a.x + 1 < 0")
    join.batch(b=table(), c=table())
    assert not join.batch(a=table()).num_rows
    assert bound_rows(tmp_path) == 0


@pytest.mark.parametrize("condition", FALSE)
def test_rows_of_one_key_are_not_expanded_behind_a_condition_that_rejects(tmp_path, monkeypatch, condition):
    """c has the most rows, so it is bound last: never, here."""
    bound = []
    plain = multi.expand

    def expand(*given):
        for which, places in plain(*given):
            bound.append(len(which))
            yield which, places

    monkeypatch.setattr(multi, "expand", expand)
    join = start(tmp_path, f"{ONE_KEY} AND {condition}", "hash")
    join.batch(b=table(), c=table(2 * ROWS))
    assert not join.batch(a=table()).num_rows
    assert sum(bound) == ROWS + ROWS**2


@pytest.mark.parametrize("keys", [PATH, ONE_KEY])
class TestErrors:
    def test_an_overflow_behind_a_guard_is_no_error(self, tmp_path, keys):
        """Of an input that is bound last: c, which has the most rows."""
        join = start(tmp_path, f"{keys} AND a.y <> c.x AND a.x + b.y > 0")
        join.batch(b=table(3, y=TOP), c=table(6))
        assert not join.batch(a=table(3)).num_rows

    def test_a_guard_that_reads_the_same_inputs_guards(self, tmp_path, keys):
        join = start(tmp_path, f"{keys} AND a.y <> b.x AND a.x + b.y > 0")
        join.batch(b=table(3, y=TOP), c=table(3))
        assert not join.batch(a=table(3)).num_rows

    def test_an_overflow_behind_a_condition_that_may_overflow_too_is_not_reported(self, tmp_path, keys):
        """The first condition overflows, the second rejects the combination before all inputs are bound."""
        join = start(tmp_path, f"{keys} AND c.y + a.y > 0 AND a.x + b.x > 5")
        join.batch(b=table(3), c=table(6, y=TOP))
        assert not join.batch(a=table(3)).num_rows

    def test_an_overflow_that_no_other_condition_rejects_is_an_error(self, tmp_path, keys):
        join = start(tmp_path, f"{keys} AND c.y + a.y > 0 AND a.x + b.x > 1")
        join.batch(b=table(3), c=table(6, y=TOP))
        with pytest.raises(ArithmeticOverflow):
            join.batch(a=table(3))

    def test_an_overflow_without_a_guard_is_an_error(self, tmp_path, keys):
        join = start(tmp_path, f"{keys} AND a.x + b.y > 0")
        join.batch(b=table(3, y=TOP), c=table(3))
        with pytest.raises(ArithmeticOverflow):
            join.batch(a=table(3))

    def test_an_overflow_without_a_partner_is_none(self, tmp_path, keys):
        """Partners are looked up first, so the combination is never made."""
        join = start(tmp_path, f"{keys} AND a.x + b.y > 0")
        join.batch(b=table(3, y=TOP), c=table(3, k=2, x=2))
        assert not join.batch(a=table(3)).num_rows

    def test_results_are_those_of_one_big_join(self, tmp_path, keys):
        """Whether a condition is tested early and again at the end, or at the end alone."""
        condition = f"{keys} AND a.x + b.y > 2 AND abs(b.y - c.y) <= 3 AND a.y * c.y < 20"
        rows = {
            name: pa.table(
                {
                    "k": [n % 2 for n in range(12)],
                    "x": [n % 3 for n in range(12)],
                    "y": [*range(at, at + 12)],
                },
                schema=SCHEMA,
            )
            for at, name in enumerate("abc")
        }
        join = LocalJoin(
            dict.fromkeys("abc", SCHEMA),
            on=condition,
            select=["a.y", "b.y AS b", "c.y AS c"],
            state=str(tmp_path),
        )
        found = multiset(
            join.batch(a=rows["a"].slice(6), c=rows["c"].slice(0, 3)),
            join.batch(a=rows["a"].slice(0, 6), b=rows["b"]),
            join.batch(c=rows["c"].slice(3)),
        )
        assert found == ask_duckdb(f"SELECT a.y, b.y, c.y FROM a, b, c WHERE {condition}", **rows)
        assert found
