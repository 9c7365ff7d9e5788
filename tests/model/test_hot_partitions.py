"""A key that is hot over many small partitions is shared out in the batch that brings it, as work is really done."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.local.join import LocalJoin

SCHEMA = pa.schema({"k": pa.int64()})
ROWS = 32_000
MOST_UNEVEN = 1.25


def rows(keys: np.ndarray) -> pa.Table:
    return pa.table({"k": keys}, schema=SCHEMA)


def even(rng: np.random.Generator, count: int = ROWS) -> np.ndarray:
    return rng.integers(10, 10**6, count)


def with_hot_keys(rng: np.random.Generator, share: float, keys: int = 1) -> np.ndarray:
    light = even(rng)
    return np.where(rng.random(len(light)) < share, rng.integers(0, keys, len(light)), light)


def unevenness(join: LocalJoin) -> float:
    """Busiest task against the mean one, in rows looked up and results given out in the last batch."""
    work = np.array([task.probed + task.emitted for task in join.work])
    return float(work.max() / work.mean())


def make(state, tasks: int, partitions: int) -> LocalJoin:
    return LocalJoin(
        {"l": SCHEMA, "r": SCHEMA},
        on="l.k = r.k",
        select=["l.k"],
        state=str(state),
        tasks=tasks,
        partitions=partitions,
        strategy="hypercube",
    )


@pytest.mark.parametrize(
    ("tasks", "partitions"), [(2, 4), (2, 200), (8, 32), (16, 4), (16, 200), (48, 4), (48, 32)]
)
def test_a_newly_hot_key_is_shared_out_in_its_first_batch(tmp_path, tasks, partitions):
    """2 % of the rows of each partition: too few rows for the list of a small one."""
    rng = np.random.default_rng(tasks)
    join = make(tmp_path, tasks, partitions)
    join.count(l=rows(even(rng)), r=rows(even(rng)))
    for _ in range(2):
        join.count(l=rows(with_hot_keys(rng, 0.02)), r=rows(with_hot_keys(rng, 0.02)))
        assert unevenness(join) <= MOST_UNEVEN


@pytest.mark.parametrize("tasks", [2, 16, 48])
def test_so_are_several_keys_that_one_input_already_has_many_rows_of(tmp_path, tasks):
    """Few fresh rows of each meet rows that lie in many small runs, none of which lists the key."""
    rng = np.random.default_rng(tasks)
    join = make(tmp_path, tasks, 32)
    join.count(l=rows(with_hot_keys(rng, 0.06, keys=3)))
    join.count(r=rows(with_hot_keys(rng, 0.01, keys=3)))
    assert unevenness(join) <= MOST_UNEVEN


@pytest.mark.parametrize("tasks", [2, 16, 48])
def test_three_inputs_with_hot_keys_are_shared_out(tmp_path, tasks):
    """Keys by Zipf's law with exponent 1, as `hash` would give 1.9, 13 and 40."""
    rng = np.random.default_rng(1)
    shares = 1 / np.arange(1, 100_001)
    join = LocalJoin(
        dict.fromkeys("abc", SCHEMA),
        on="a.k = b.k AND b.k = c.k",
        select=["a.k"],
        state=str(tmp_path),
        tasks=tasks,
        strategy="hypercube",
    )
    for _ in range(4):
        join.count(**{name: rows(rng.choice(100_000, 700, p=shares / shares.sum())) for name in "abc"})
        assert unevenness(join) <= MOST_UNEVEN
