"""Predicates over more than two inputs: every name, key and band says which input it is of.

The engine still joins two inputs; the predicate layer does not count them.
"""

from __future__ import annotations

import pytest

from watersmeet.errors import PredicateError, UsageError
from watersmeet.model.expression import Predicate
from watersmeet.model.types import INT, Schema, parse_type
from watersmeet.predicate import check_reads_every_input, parse_predicate, parse_select, parse_window
from watersmeet.predicate.write import sql_of

STREAM: Schema = {"k": INT, "v": INT, "ts": parse_type("timestamp")}
SCHEMAS: dict[str, Schema] = {"a": STREAM, "b": STREAM, "c": STREAM}


def edges(predicate: Predicate) -> list[str]:
    return [" = ".join(side.sql for side in key.sides).replace("`", "") for key in predicate.keys]


def test_keys_name_their_inputs_in_the_order_of_the_join():
    predicate = parse_predicate("c.k = b.k AND b.v = a.v AND c.v > 3", SCHEMAS)
    assert predicate.inputs == ("a", "b", "c")
    assert edges(predicate) == ["a.v = b.v", "b.k = c.k"]
    assert [key.inputs for key in predicate.keys] == [("a", "b"), ("b", "c")]
    assert [(guard.input, guard.sql) for guard in predicate.guards] == [("c", "`c`.`v` > 3")]
    assert predicate.canonical == "`a`.`v` = `b`.`v` AND `b`.`k` = `c`.`k` AND `c`.`v` > 3"


def test_inputs_without_a_key_between_them_have_a_band_of_their_own():
    text = "a.k = b.k AND a.v < b.v AND abs(c.v - b.v) <= 2 AND c.ts >= a.ts"
    predicate = parse_predicate(text, SCHEMAS, fixed_zone=True)
    assert edges(predicate) == ["a.k = b.k"]
    assert [band.inputs for band in predicate.bands] == [("a", "c"), ("b", "c")]
    earlier, near = predicate.bands
    assert (earlier.low, earlier.high) == (None, 0)
    assert (near.low, near.high) == (-2, 2)
    assert sql_of(near.residual) == "`a`.`v` < `b`.`v` AND `c`.`ts` >= `a`.`ts`"


def test_keys_that_every_branch_of_an_or_needs_join_inputs_that_no_other_key_joins():
    text = "a.k = b.k AND (a.v = b.v OR a.v = b.v AND a.k > 1) AND (b.v = c.v AND b.k > 1 OR b.v = c.v AND c.k > 2)"
    assert edges(parse_predicate(text, SCHEMAS)) == ["a.k = b.k", "b.v = c.v"]


def test_a_comparison_of_three_inputs_is_left_to_check():
    predicate = parse_predicate("a.k + b.k = c.k AND a.v - b.v < c.v", SCHEMAS)
    assert (predicate.keys, predicate.bands) == ((), ())
    assert sql_of(predicate.residual) == "`a`.`k` + `b`.`k` = `c`.`k` AND `a`.`v` - `b`.`v` < `c`.`v`"


def test_a_condition_that_leaves_an_input_out_is_refused():
    with pytest.raises(PredicateError, match="reads only a and c"):
        check_reads_every_input(parse_predicate("c.k = a.k", SCHEMAS))
    check_reads_every_input(parse_predicate("c.k = a.k AND b.k > a.k", SCHEMAS))


def test_select_and_names_know_every_input():
    assert [item.name for item in parse_select(["c.k", "a.v - b.v AS gap"], SCHEMAS)] == ["k", "gap"]
    with pytest.raises(PredicateError, match=r"write a\.k or b\.k or c\.k"):
        parse_select(["k"], SCHEMAS)
    with pytest.raises(PredicateError, match="the inputs are a, b, c"):
        parse_predicate("d.k = a.k", SCHEMAS)
    with pytest.raises(PredicateError, match="the inputs b and B differ in letter case only"):
        parse_predicate("a.k = b.k", {"a": STREAM, "b": STREAM, "B": STREAM})


def test_a_window_needs_one_kind_of_time_for_all_inputs():
    time = dict.fromkeys(SCHEMAS, "ts")
    found = parse_window("10 minutes", time, None, SCHEMAS)
    assert found is not None and found[1] == time
    with pytest.raises(UsageError, match=r"a\.ts is of type timestamp, c\.k of type int"):
        parse_window("10 minutes", time | {"c": "k"}, None, SCHEMAS)


def test_one_input_is_no_join():
    with pytest.raises(PredicateError, match="two or more inputs, got a"):
        parse_predicate("a.k = 1", {"a": STREAM})
