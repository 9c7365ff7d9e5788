"""Random lives of a join on the local driver: whatever happens, the results are those of one big join in DuckDB.

Scripts, their lives and the oracle are in stream_scripts.py.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.life import LIVES
from tests.model.stream_scripts import CRASHES, KEYS, Step, equal_keys, live, scripts, steps_of, with_one_key
from watersmeet.kernel.keys import mix, order_keys
from watersmeet.schemes.grid.policy import dynamic
from watersmeet.schemes.hypercube.facts import CubePlan

# Ways to share out an equality; biclique with several units a side, and with a number that does not divide evenly.
EQUALITIES = [
    {"strategy": "hash"},
    {"strategy": "hypercube"},
    {"strategy": "biclique"},
    {"strategy": "biclique", "groups": 1},
    {"strategy": "biclique", "groups": 2},
]


@LIVES
@given(scripts(), st.sampled_from(EQUALITIES), st.booleans())
def test_any_life_of_a_join_gives_what_one_big_join_gives(script, how, residual):
    kinds, steps, tasks = script
    on = equal_keys(kinds) + (" AND l.x < r.x + 1" if residual else "")
    live(kinds, on, steps, tasks, **how)


@st.composite
def skewed_scripts(draw):
    """One key has most rows, then another one; some rows have none."""
    kind = draw(st.sampled_from([pa.int64(), pa.string()]))
    values = [1, 2, 3, 4] if kind == pa.int64() else ["", "a", "b", "ab"]
    steps = []
    for number in range(draw(st.integers(1, 6))):
        hot = values[number // 3]
        key = st.sampled_from([hot] * 6 + values + [None])
        partitions = st.lists(st.lists(st.tuples(key, st.integers(-2, 2)), max_size=12), max_size=2)
        rows = {side: draw(partitions) for side in "lr"}
        steps.append(Step(rows, draw(st.none() | st.sampled_from(CRASHES)), draw(st.booleans())))
    return kind, steps, draw(st.integers(1, 4))


@LIVES
@given(skewed_scripts(), st.sampled_from(EQUALITIES[1:]), st.booleans())
def test_any_life_of_a_join_with_hot_keys(script, how, residual):
    kind, steps, tasks = script
    on = "l.k0 = r.k0 AND l.x <= r.x" if residual else "l.k0 = r.k0"
    live([kind], on, steps, tasks, **how)


@LIVES
@given(scripts(), st.sampled_from(EQUALITIES[1:]), st.integers(1, 3))
def test_keys_that_share_a_hash(script, how, hashes):
    """Text and several keys are hashed; with so few hashes a heavy one stands for many keys."""
    kinds, steps, tasks = script
    if len(kinds) == 1:
        kinds = [pa.string()]
        steps = with_one_key(steps, lambda value: None if value is None else str(value))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "watersmeet.engine.ingest.order_keys",
            lambda columns: mix(order_keys(columns) % np.uint64(hashes)),
        )
        live(kinds, equal_keys(kinds), steps, tasks, **how)


def test_a_hot_key_is_cut_into_cells_of_several_tasks_and_so_is_the_next():
    """The scripts above are about heavy keys: here is one, and then another."""
    steps = [Step({side: [[(key, 0)] * 12] for side in "lr"}) for key in "aabbbb"]
    cube = live([pa.string()], "l.k0 = r.k0", steps, 3, strategy="hypercube").plan.scheme
    assert isinstance(cube, CubePlan)
    assert {one.label for one in cube.heavy} == {"a", "b"}
    assert all(set(one.tasks) == {0, 1, 2} for one in cube.heavy)


# Conditions without an equality, for a pair of inputs with the column k0: all but the last two are bands.
BANDS = {
    pa.int64(): [
        "abs(l.k0 - r.k0) <= 1",
        "l.k0 < r.k0",
        "l.k0 BETWEEN r.k0 - 2 AND r.k0 + 1",
        "l.k0 >= r.k0 + 2",
    ],
    pa.int32(): ["abs(r.k0 - l.k0) < 2", "l.k0 > r.k0", "l.k0 - r.k0 <= 1 AND r.x <> l.x"],
    pa.float64(): ["abs(l.k0 - r.k0) <= 1.5D", "l.k0 <= r.k0", "l.k0 > r.k0"],
    pa.string(): ["l.k0 < r.k0", "l.k0 >= r.k0"],
    pa.date32(): ["l.k0 < r.k0", "l.k0 BETWEEN r.k0 - INTERVAL 1 DAY AND r.k0"],
    pa.timestamp("us"): ["l.k0 <= r.k0", "l.k0 > r.k0 - INTERVAL 1 HOUR"],
    pa.decimal128(10, 2): ["l.k0 < r.k0", "abs(l.k0 - r.k0) <= 1.10BD"],
    pa.decimal128(38, 4): ["l.k0 < r.k0"],
}
ANY = ["l.k0 <> r.k0", "true", "l.k0 < r.k0 OR l.x = 1 OR r.x = l.x"]


@st.composite
def theta_scripts(draw):
    kind = draw(st.sampled_from(list(BANDS)))
    steps = draw(steps_of(st.tuples(st.none() | KEYS[kind], st.integers(-2, 2))))
    on = draw(st.sampled_from(BANDS[kind] + ANY))
    how: dict = {}
    if on in ANY or draw(st.booleans()):
        how = {"strategy": "grid", "cells": draw(st.integers(1, 7))}
        if draw(st.booleans()):
            how["policy"] = dynamic(epsilon=0.5, capacity_bytes=1500, max_cells=64)
    return kind, on, steps, draw(st.integers(1, 3)), how


@LIVES
@given(theta_scripts())
def test_any_life_of_a_join_without_an_equality(script):
    kind, on, steps, tasks, how = script
    live([kind], on, steps, tasks, keeps_nulls=on in ANY, **how)


@LIVES
@given(scripts(), st.integers(1, 7))
def test_an_equality_on_the_grid(script, cells):
    kinds, steps, tasks = script
    live(kinds[:1], "l.k0 = r.k0", with_one_key(steps), tasks, strategy="grid", cells=cells)
