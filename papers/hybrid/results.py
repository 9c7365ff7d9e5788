"""What a run of one algorithm gave, and what the cost model says it should have given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from papers.hybrid import paper
from papers.hybrid.readings import Reading, summarise

HYBRIDJOIN, MESHJOIN, INLJ = "HYBRIDJOIN", "MESHJOIN", "INLJ"
ALGORITHMS = (HYBRIDJOIN, MESHJOIN, INLJ)
# Equation 2 holds if its k is within this share of the paper's: one criterion for every figure.
NEAR_K = 0.1


def is_near_k(k: float) -> bool:
    """Whether a k of equation 2 is the paper's, more or less."""
    return abs(k / paper.K - 1) <= NEAR_K


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A relation, a memory budget, and where the pages of the relation come from."""

    rows: int
    budget_bytes: int
    cold: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """An algorithm that always has rows to take.

    `rates` are its readings, in rows answered a second; `answered` in rows for each page read (the paper's w), `step_s` the time of one
    turn of its loop (c_loop), `read_s` that of the read in it, `stay_s` from loading a row to its match on average (processing time), `held_rows` the rows
    that it had in memory (H_t). `unused` is the share of page reads that answered no row. `equation_gain` is how
    many times MESHJOIN's rate the paper's equations give HYBRIDJOIN at this page size.
    """

    page_rows: int
    held_rows: int
    rates: Sequence[float]
    answered: float
    step_s: float
    read_s: float
    stay_s: float
    unused: float
    predicted: Prediction
    equation_gain: float

    @property
    def rate(self) -> Reading:
        return summarise(self.rates)

    def k(self, relation_rows: int) -> float:
        """Of equation 2."""
        return self.answered * relation_rows / (self.held_rows * self.page_rows)


# By algorithm.
Services = Mapping[str, Service]


def ratio(by: Services, one: str, other: str) -> Reading:
    """How many times the rate of another algorithm one has: of readings that were taken at the same time, pair by pair.

    What slows the machine down for a while slows both, and is not in their ratio.
    """
    return summarise([a / b for a, b in zip(by[one].rates, by[other].rates, strict=True)])


@dataclass(frozen=True, slots=True)
class Prediction:
    """By the cost model, with constants calibrated on this machine."""

    answered: float
    step_s: float

    @property
    def rate(self) -> float:
        return self.answered / self.step_s


@dataclass(frozen=True, slots=True)
class Slow:
    """An algorithm whose rows come slowly: `delay_s` is the mean time from a row's arrival to its answer.

    `collect_s` is the mean time until a step's rows have come, without which MESHJOIN does not read a page.
    """

    delay_s: float
    collect_s: float


@dataclass(frozen=True, slots=True)
class Use:
    """By place in the relation (a segment of pages each): rows of the stream that meet it, and reads of its pages.

    `rows` are the stream's rows for each page and million rows of the stream, `exact` the same by the law, `reads` the
    reads of a page in the same time, by algorithm.
    """

    first_page: tuple[int, ...]
    rows: tuple[float, ...]
    exact: tuple[float, ...]
    reads: Mapping[str, tuple[float, ...]]
    unused: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """All that was run: by relation and budget, by page size, by seek time and arrival rate, and by place.

    `slow_input` is how many rows MESHJOIN takes for each page.
    """

    services: Mapping[Case, Services]
    pages: Mapping[int, Services]
    read_s: Mapping[int, float]
    cold_read_s: Mapping[int, float]
    slow: Mapping[tuple[float, int], Mapping[str, Slow]]
    slow_input: int
    use: Use | None
