"""Simulated runs by small numbers that can be checked by hand."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
import pytest

from papers.adaptive.operators import static_mid, static_opt
from papers.adaptive.sim.arrivals import Arrivals, KeyedArrivals, count_keys, with_equality_results
from papers.adaptive.sim.costs import CostModel
from papers.adaptive.sim.grid import run_grid
from papers.adaptive.sim.hash import run_hash
from papers.adaptive.sim.joiner import Joiner
from papers.adaptive.sim.messages import (
    LEFT,
    RIGHT,
    MappingChange,
    Migrated,
    ProtocolViolated,
    Routed,
    Row,
    partners,
    readers,
)
from papers.adaptive.sim.network import Network
from watersmeet.errors import UsageError
from watersmeet.schemes.grid.facts import GridGroup, GridShape
from watersmeet.schemes.grid.policy import dynamic, start_grid


def steady(left: int, right: int, chunks: int = 10, **sizes) -> Arrivals:
    def spread(rows: int) -> np.ndarray:
        return np.diff(np.arange(chunks + 1) * rows // chunks)

    return Arrivals(spread(left), spread(right), **sizes)


def test_the_load_of_the_paper_s_figure_2():
    """1 against 64 on 64 joiners: 8 1/8 under (8, 8) and 520 in all; 2 and 128 under (1, 64)."""
    arrivals = steady(1000, 64_000)
    mid, opt = (run_grid(arrivals, 64, p, CostModel()) for p in (static_mid(), static_opt(1, 64)))
    assert mid.max_bytes[-1] == mid.mean_bytes[-1] == 8125 and mid.total_bytes[-1] == 520_000
    assert opt.max_bytes[-1] == 2000 and opt.total_bytes[-1] == 128_000
    assert mid.ratio[-1] == 8125 / 2000 and opt.ratio[-1] == 1
    # Everybody is busy all the time, so time is what each receives.
    assert mid.execution_time == 8125 and opt.execution_time == 2000
    assert opt.throughput == 65_000 / 2000


def test_dynamic_goes_to_the_optimum_and_pays_for_the_way():
    progress = run_grid(steady(1000, 64_000), 64, dynamic(min_rows=1300), CostModel())
    [span] = progress.migrations
    assert [(s.rows, s.cols) for s in (*span.before, *span.after)] == [(8, 8), (1, 64)]
    assert progress.max_bytes[-1] == 2000
    # 20 left rows had come: each joiner had an eighth of them and receives the rest.
    assert span.begin_rows == 1300 and span.moved_rows == pytest.approx(64 * 20 * 7 / 8)
    # It ends when half as many new rows have come: 17.5 / 2, at 2 rows to each joiner of the next 65.
    assert span.end_rows - span.begin_rows == pytest.approx(17.5 / 2 / 2 * 65, abs=65)
    before_decision = 1300 / 8
    migrated = 17.5 * 0.5
    assert progress.execution_time == pytest.approx(before_decision + migrated + 2 * 980, rel=0.01)


def test_a_migration_that_the_stream_does_not_outlast_ends_after_it():
    progress = run_grid(steady(100, 6400, chunks=1), 64, dynamic(min_rows=6500), CostModel())
    [span] = progress.migrations
    assert span.begin_rows == span.end_rows == 6500
    assert span.end_time - span.begin_time == pytest.approx(100 * 7 / 8 * 0.5)
    assert progress.execution_time == span.end_time


def test_rows_of_different_sizes():
    arrivals = steady(1000, 1000, left_row_bytes=10, right_row_bytes=160)
    progress = run_grid(arrivals, 16, dynamic(), CostModel())
    assert progress.max_bytes[-1] == 10_000 + 160_000 / 16


def test_results_are_shared_by_all_joiners():
    arrivals = Arrivals(np.array([80]), np.array([80]), result_rows=np.array([6400.0]))
    progress = run_grid(arrivals, 16, static_mid(), CostModel(output_time=0.5))
    assert progress.execution_time == 20 + 20 + 6400 / 16 * 0.5


def test_state_beyond_memory_is_slow():
    costs = CostModel(memory_bytes=100, disk_factor=10)
    assert costs.slowdown(np.array([0.0, 100, 200, 1e9])).tolist() == pytest.approx([1, 1, 5.5, 10], rel=1e-6)
    arrivals = steady(1000, 1000, chunks=100)
    slow, fast = (run_grid(arrivals, 4, static_mid(), c).execution_time for c in (costs, CostModel()))
    assert 5 * fast < slow < 10 * fast


def test_growth_keeps_joiners_below_their_capacity():
    policy = dynamic(capacity_bytes=1000, max_cells=1024)
    progress = run_grid(steady(10_000, 10_000, chunks=50), 4, policy, CostModel())
    assert {span.reason for span in progress.migrations} >= {"grow"}
    assert progress.max_bytes.max() <= 1000
    assert progress.total_bytes[-1] / progress.mean_bytes[-1] == pytest.approx(1024)


def test_groups_of_joiners_hold_their_share():
    """20 joiners: 16 that keep four fifths under (4, 4), 4 that keep a fifth under (2, 2)."""
    progress = run_grid(steady(1000, 1000), 20, static_mid(), CostModel())
    assert progress.max_bytes[-1] == pytest.approx(800 / 4 + 800 / 4)
    assert progress.mean_bytes[-1] == pytest.approx((16 * 400 + 4 * 200) / 20)
    # But all rows of a column are probed with in both groups.
    assert progress.execution_time == pytest.approx(1000 / 2 + 1000 / 2)


def keyed(left: list[list[int]], right: list[list[int]]) -> KeyedArrivals:
    arrivals = Arrivals(np.array([len(c) for c in left]), np.array([len(c) for c in right]))
    return KeyedArrivals(arrivals, *(np.array([*chain(*side)], dtype=np.int64) for side in (left, right)))


def test_results_of_equal_keys():
    script = keyed([[1, 1, 2], [2]], [[1], [2, 2, 3]])
    assert [int(chunk.result_rows.sum()) for chunk in count_keys(script)] == [2, 4]
    assert with_equality_results(script).arrivals.results.tolist() == [2, 4]


def test_a_hash_join_replicates_nothing():
    keys = np.arange(10_000)
    progress = run_hash(KeyedArrivals(steady(10_000, 10_000), keys, keys), 16, CostModel())
    assert progress.total_bytes[-1] == 20_000 and progress.mean_bytes[-1] == 1250
    assert 1250 <= progress.max_bytes[-1] < 1500
    assert progress.execution_time == progress.max_bytes[-1]


def test_a_hash_join_of_one_key_is_one_joiner_s_work():
    keys = np.zeros(1000, dtype=np.int64)
    progress = run_hash(KeyedArrivals(steady(1000, 1000), keys, keys), 16, CostModel(output_time=0.001))
    assert progress.max_bytes[-1] == 2000
    assert progress.execution_time == pytest.approx(2000 + 0.001 * 1000 * 1000)


def test_thousands_of_joiners():
    """A billion rows on 4096 joiners, in a moment, because work is by chunk and not by row."""
    progress = run_grid(steady(10**6, 10**9, chunks=200), 4096, dynamic(min_rows=10**6), CostModel())
    assert progress.ratio[-1] == 1
    assert progress.rows[-1] == 10**9 + 10**6


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Arrivals(np.array([1]), np.array([1, 2])), "different numbers of chunks"),
        (lambda: KeyedArrivals(steady(3, 3, 1), np.arange(3), np.arange(4)), "4 right keys for 3 right rows"),
        (lambda: CostModel(input_time=-1), "negative"),
        (lambda: CostModel(memory_bytes=0), "memory must be positive"),
        (lambda: CostModel(disk_factor=0.5), "no faster than memory"),
        (lambda: run_grid(steady(0, 0), 4, static_mid(), CostModel()), "nothing to show"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_unlimited_memory_is_the_default():
    assert CostModel().memory_bytes == math.inf


class Mailbox:
    def __init__(self, name: str, log: list) -> None:
        self.name, self._log = name, log

    def receive(self, message) -> None:
        self._log.append((self.name, message))


def test_a_channel_keeps_its_order_and_overtakes_others():
    delays = iter([9, 1, 0])
    log: list = []
    network = Network(lambda: next(delays))
    a, b = Mailbox("a", log), Mailbox("b", log)
    for receiver, message in ((a, 1), (a, 2), (b, 3)):
        network.send("s", receiver, message)
    network.run()
    assert log == [("b", 3), ("a", 1), ("a", 2)]


def test_who_reads_a_row_and_who_exchanges():
    [group] = start_grid(16, dynamic()).groups
    # Rows are bits 3 and 2: part 5 of 16 lies in row 1.
    assert sorted(readers(group, 16, Row(LEFT, 0, 5))) == [4, 5, 6, 7]
    assert sorted(readers(group, 16, Row(RIGHT, 0, 5))) == [1, 5, 9, 13]
    wider = group.reshaped(GridShape(2, 8))
    assert partners(group, wider, 5) == [1]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(MappingChange(2, GridGroup((1,), (0,))), id="told of an epoch after the next"),
        pytest.param(Routed(Row(LEFT, 0, 0), 1), id="a new epoch's row before its signal"),
        pytest.param(Routed(Row(LEFT, 0, 0), 2), id="a row two epochs ahead"),
        pytest.param(Migrated(Row(LEFT, 0, 0), 0), id="a migrated row of the past"),
    ],
)
def test_a_joiner_notices_what_the_protocol_rules_out(message):
    network = Network(lambda: 0)
    joiner = Joiner(0, GridGroup((1,), (0,)), 4, 1, network, lambda row: None)
    joiner.receive(message)
    with pytest.raises(ProtocolViolated, match="joiner 0"):
        network.run()


def test_migrated_rows_go_two_for_one():
    network = Network(lambda: 0)
    group = GridGroup((1,), (0,))
    order: list = []
    joiner = Joiner(0, group, 4, 2, network, order.append)
    joiner.receive(MappingChange(1, group.reshaped(GridShape(1, 4))))
    for number in range(2):
        joiner.receive(Routed(Row(LEFT, number, 0), 1))
    for number in range(5):
        joiner.receive(Migrated(Row(RIGHT, number, 0), 1))
    network.run()
    # After the signal two migrated rows, then the first new one; two more, then the second; then the last.
    assert joiner.output == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (0, 4), (1, 4)]
    assert [row.number for row in order] == [0, 1]
