"""A replayed batch of a join with a table emits what its first attempt did, whatever the clock says by then.

A sink that is idempotent by batch keeps the first attempt. If the replay answered rows that had waited in the first
one, these would be lost; if it made rows wait that had been answered, they would come out twice.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import life
from tests.life import Clock
from watersmeet import TableError, table
from watersmeet.local.join import LocalJoin

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])
KEYS = 20
DELAY_S = 5.0


def write_table(folder: Path, factor: int) -> None:
    keys = np.arange(KEYS)
    pq.write_table(pa.table([keys, keys * factor], schema=SCHEMA), folder / "table.parquet")


def start(folder: Path, clock: Clock, refresh: str | None = None, **how) -> LocalJoin:
    products = table(folder / "table.parquet", key="k", page_rows=4, in_place=False, refresh=refresh)
    how = {"select": ["s.x", "t.x AS y"], "max_delay": DELAY_S, "clock": clock, **how}
    return life.start({"s": SCHEMA, "t": products}, folder / "state", "s.k = t.k", **how)


def emitted(join: LocalJoin, rows: pa.Table) -> Counter:
    found = life.multiset(join.batch(s=rows))
    life.check_plan(join)
    return found


def stream(keys: list[int], first: int) -> pa.Table:
    return pa.table([pa.array(keys, pa.int64()), pa.array(range(first, first + len(keys)))], schema=SCHEMA)


# Keys, seconds since the batch before, and for each crash after the manifest how long the restart takes.
STEP = st.tuples(
    st.lists(st.integers(-2, KEYS + 1), max_size=12),
    st.sampled_from([0.5, 2.0, 6.0]),
    st.lists(st.sampled_from([1.0, 4.0, 30.0]), max_size=2),
)


@settings(life.LIVES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(STEP, min_size=1, max_size=6), st.sampled_from(["inner", "left"]), st.booleans())
def test_a_replay_emits_what_its_first_attempt_emitted(tmp_path_factory, steps, how, ends_delay):
    folder = tmp_path_factory.mktemp("replay")
    write_table(folder, 1)
    clock = Clock()
    join = start(folder, clock, how=how)
    results: Counter = Counter()
    every = []
    for keys, wait_s, crashes in steps:
        clock.now += wait_s
        rows = stream(keys, len(every))
        every += keys
        first = emitted(join, rows)
        results += first
        for down_s in crashes:
            clock.now += down_s
            # A start may also give up the delay; the replay must not answer what waited in the first attempt.
            delay_s = 0.0 if ends_delay else DELAY_S
            join = life.restarted(join, at=join.number - 1, max_delay=delay_s)
            assert emitted(join, rows) == first
    for _ in range(3):
        clock.now += DELAY_S + 1
        results += emitted(join, stream([], 0))
    inside = [(x, key) for x, key in enumerate(every) if 0 <= key < KEYS]
    outside = [(x, None) for x, key in enumerate(every) if not 0 <= key < KEYS and how == "left"]
    assert results == Counter([*inside, *outside])


def test_rows_that_waited_in_the_first_attempt_wait_in_the_replay(tmp_path):
    """What the property above is about, in one picture: by the time of the replay the rows are due."""
    write_table(tmp_path, 1)
    clock = Clock()
    join = start(tmp_path, clock)
    rows = stream([1, 2, 19], 0)
    assert not emitted(join, rows)
    clock.now += 60
    join = life.restarted(join, at=0)
    assert not emitted(join, rows)
    assert emitted(join, stream([], 0)) == Counter([(0, 1), (1, 2), (2, 19)])


@pytest.mark.parametrize("waited", [True, False], ids=["rows waited", "all was answered"])
def test_a_table_that_changed_before_the_replay_is_used_from_the_next_batch_on(tmp_path, waited):
    write_table(tmp_path, 1)
    clock = Clock()
    join = start(tmp_path, clock)
    rows = stream([1, 2, 19], 0) if waited else stream([3] * 60, 0)
    first = emitted(join, rows)
    assert bool(first) != waited
    write_table(tmp_path, 100)
    clock.now += 60
    join = life.restarted(join, at=0)
    assert emitted(join, rows) == first
    # What waits is answered from the version that it was located in; then the new one counts.
    clock.now += 60
    assert emitted(join, stream([], 0)) == (Counter([(0, 1), (1, 2), (2, 19)]) if waited else Counter())
    clock.now += 1
    assert not emitted(join, stream([7], 100))
    clock.now += 60
    assert emitted(join, stream([], 0)) == Counter([(100, 700)])


def test_another_batch_of_the_same_number_after_a_roll_back_loses_nothing(tmp_path):
    """Rolled back by hand, batch 1 has other rows: the decisions of the old one are repeated for rows it never saw."""
    write_table(tmp_path, 1)
    clock = Clock()
    join = start(tmp_path, clock)
    emitted(join, stream([1], 0))
    clock.now += 6
    emitted(join, stream([2], 1))
    join = life.restarted(join, at=1)
    results = emitted(join, stream([9, 17, 17], 10))
    for _ in range(3):
        clock.now += DELAY_S + 1
        results += emitted(join, stream([], 0))
    assert results == Counter([(0, 1), (10, 9), (11, 17), (12, 17)])


def test_nothing_waits_beyond_a_change_of_the_table_in_a_replay_with_other_rows(tmp_path):
    """Batch 1 found a new version, so all was due. Rolled back by hand it brings rows of pages that were not read."""
    write_table(tmp_path, 1)
    clock = Clock()
    join = start(tmp_path, clock, refresh="1 second")
    emitted(join, stream([1], 0))
    write_table(tmp_path, 100)
    clock.now += 3
    emitted(join, stream([2], 1))
    join = life.restarted(join, at=1)
    results = emitted(join, stream([2, 9, 17, 17], 10))
    for _ in range(3):
        clock.now += DELAY_S + 5
        results += emitted(join, stream([], 0))
    assert sorted(x for x, _ in results.elements()) == [0, 10, 11, 12, 13]


def test_a_replay_does_not_decide_anew_because_the_table_cannot_be_reached(tmp_path, monkeypatch):
    write_table(tmp_path, 1)
    clock = Clock()
    join = start(tmp_path, clock)
    assert not emitted(join, stream([1, 2, 19], 0))
    clock.now += 60
    write_table(tmp_path, 2)
    join = life.restarted(join, at=0)

    def away(*_):
        raise TableError("the table is unreachable")

    with monkeypatch.context() as patch:
        patch.setattr("watersmeet.tables.source.PreparedTable.at", away)
        with pytest.raises(TableError, match="unreachable"):
            emitted(join, stream([1, 2, 19], 0))
    assert not emitted(life.restarted(join, at=0), stream([1, 2, 19], 0))
