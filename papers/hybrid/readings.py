"""A figure from several readings: mean, and the interval that holds it with 95 % confidence (Student's t)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Of Student's distribution, two-sided, 95 %, by degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


@dataclass(frozen=True, slots=True)
class Reading:
    mean: float
    # Half the length of the interval.
    spread: float

    @property
    def text(self) -> str:
        return f"{self.mean:.2f} ({self.low:.2f} to {self.high:.2f})"

    @property
    def low(self) -> float:
        return self.mean - self.spread

    @property
    def high(self) -> float:
        return self.mean + self.spread


def summarise(values: Sequence[float]) -> Reading:
    """Two to ten readings of the same thing.

    >>> summarise([9.0, 10.0, 11.0])
    Reading(mean=10.0, spread=2.4843382174400776)
    """
    count = len(values)
    mean = math.fsum(values) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Reading(mean, _T95[count - 2] * deviation / math.sqrt(count))
