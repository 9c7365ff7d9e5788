"""What work costs a joiner, in units of simulated time.

Joiners are kept fully busy, as in Elseidy et al. 2014, section 5: time passes as they work. State beyond a joiner's
memory is on disk; work slows down with the share of its state that is there. Set `input_time` and `output_time`
from a measured run to get seconds.

Not modelled: congestion of the network, and chance. A grid spreads rows by hash, so joiners of a group differ by
the square root of what they hold only; here they hold the expected amount.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from papers.adaptive.sim.arrivals import Floats
from watersmeet.errors import UsageError


@dataclass(frozen=True, slots=True)
class CostModel:
    """Time for a row received (stored and probed with), a result emitted, a row received from another joiner.

    The last is half of the first by default: migrated rows go at twice the rate. `disk_factor` is how many
    times longer everything takes with all state on disk.
    """

    input_time: float = 1.0
    output_time: float = 0.0
    migrated_time: float = 0.5
    memory_bytes: float = math.inf
    disk_factor: float = 10.0

    def __post_init__(self) -> None:
        if min(self.input_time, self.output_time, self.migrated_time) < 0:
            raise UsageError(f"a cost is negative: {self}")
        if self.memory_bytes <= 0 or self.disk_factor < 1:
            raise UsageError(f"memory must be positive and disk no faster than memory: {self}")

    def slowdown(self, stored_bytes: Floats) -> Floats:
        """How many times longer work takes at joiners that hold this much."""
        in_memory = np.minimum(1.0, self.memory_bytes / np.maximum(stored_bytes, 1e-300))
        return in_memory + self.disk_factor * (1 - in_memory)

    def work(self, input_rows: Floats, result_rows: Floats, migrated_rows: Floats, stored: Floats) -> Floats:
        """Time that each joiner takes, given what it does and what it holds meanwhile."""
        plain = (
            input_rows * self.input_time + result_rows * self.output_time + migrated_rows * self.migrated_time
        )
        return plain * self.slowdown(stored)
