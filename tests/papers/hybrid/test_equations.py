"""The cost model against the paper's equations by hand."""

from __future__ import annotations

import pytest

from papers.hybrid.equations import (
    CostConstants,
    Sizes,
    average_input,
    loop_cost,
    memory_cost,
    service_rate,
)
from watersmeet.errors import UsageError

CONSTANTS = CostConstants(
    seek_ns=1_000_000, byte_ns=5, probe_ns=100, output_ns=400, remove_ns=30, stream_ns=20, append_ns=50
)
SIZES = Sizes(stream_bytes=20, table_bytes=120, table_rows=2_000_000)


def test_equation_1_gives_out_the_whole_budget():
    memory = memory_cost(50_000_000, 120_000, SIZES)
    assert memory.bytes == pytest.approx(50_000_000)
    assert memory.hash_bytes / memory.queue_bytes == pytest.approx(20 / 12)
    assert memory.hash_rows == (50_000_000 - 120_000) * 20 // 32 // 20
    with pytest.raises(UsageError, match="leaves nothing"):
        memory_cost(100_000, 120_000, SIZES)


def test_equations_2_to_4_by_hand():
    w = average_input(1_000_000, 1_000, 2_000_000)
    assert w == pytest.approx(680)
    # 1 ms, 120,000 bytes at 5 ns, 1,000 probes at 100 ns, 680 rows at 500 ns
    seconds = 1e-3 + 6e-4 + 1e-4 + 3.4e-4
    assert loop_cost(CONSTANTS, 1_000, SIZES, w) == pytest.approx(seconds)
    assert service_rate(CONSTANTS, 1_000, SIZES, w) == pytest.approx(680 / seconds)
