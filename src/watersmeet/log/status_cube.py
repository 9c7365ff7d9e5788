"""What the status says of strategies for skewed equality joins: heavy keys and their grids, units and groups.

Labels are values of users' data, as they came: whoever shows them must make them harmless first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.model.cube import BicliquePlan, CubeChange, CubePlan, HeavyKey


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The rows that a key has in one input: at least `lower`, at most `upper`, by the sketch."""

    input: str
    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class HeavyStatus:
    """A key that is shared out: `grid` says into how many parts its rows of each input are cut.

    Where the value is not known, the label is "hash" and the order key, in hexadecimal digits.
    """

    label: str
    rows: tuple[KeyRows, ...]
    grid: tuple[int, int]
    tasks: int


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key's grid before and from `batch` on (0 x 0: light), and the rows that tasks read anew because of it."""

    batch: int
    label: str
    before: tuple[int, int]
    after: tuple[int, int]
    moved_rows: int


@dataclass(frozen=True, slots=True)
class CubeStatus:
    """The hypercube of a join: how often it changed, its heavy keys, those with the most rows first.

    Work is rows to look up and results to give out in the last batch, as planned. `balance` is that of the busiest
    task divided by the mean one's; None in a batch without work. `changes` are the latest ones, oldest first.
    """

    epoch: int
    busiest_work: int
    mean_work: int
    balance: float | None
    heavy: tuple[HeavyStatus, ...]
    changes: tuple[KeyChange, ...]


@dataclass(frozen=True, slots=True)
class BicliqueStatus:
    """Units in groups, half of each for the left input."""

    units: int
    groups: int


def cube_status(plan: CubePlan, inputs: Sequence[str]) -> CubeStatus:
    return CubeStatus(
        epoch=plan.epoch,
        busiest_work=plan.load,
        mean_work=plan.mean,
        balance=round(plan.load / plan.mean, 3) if plan.mean else None,
        heavy=tuple(_heavy(one, inputs) for one in sorted(plan.heavy, key=_by_rows)),
        changes=tuple(map(_change, plan.changes)),
    )


def biclique_status(plan: BicliquePlan) -> BicliqueStatus:
    return BicliqueStatus(plan.units, plan.groups)


def _by_rows(one: HeavyKey) -> tuple[int, int]:
    return -(one.left.lower + one.right.lower), one.key


def _heavy(one: HeavyKey, inputs: Sequence[str]) -> HeavyStatus:
    return HeavyStatus(
        label=one.label,
        rows=tuple(
            KeyRows(name, bounds.lower, bounds.upper)
            for name, bounds in zip(inputs, (one.left, one.right), strict=True)
        ),
        grid=(one.shape.rows, one.shape.cols),
        tasks=len(set(one.tasks)),
    )


def _change(one: CubeChange) -> KeyChange:
    return KeyChange(
        batch=one.batch,
        label=one.label,
        before=(one.before.rows, one.before.cols),
        after=(one.after.rows, one.after.cols),
        moved_rows=one.moved_rows,
    )
