"""Figure 3: the running example, number for number, by the planner that runs on Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from papers.hypercube import paper
from papers.hypercube.cases import Size
from papers.hypercube.measure import Measured
from papers.shared.exhibit import Board, Boards, Control, Exhibit, Table, Verdict
from watersmeet.schemes.hypercube.facts import Shape
from watersmeet.schemes.hypercube.shape import (
    Sides,
    attainable,
    desired_sides,
    first_shape,
    is_heavy,
    next_shape,
)

Rows = Mapping[str, tuple[int, int]]

_ARITHMETIC = Control("no planner at all", True, "it is arithmetic on the sizes")


@dataclass(frozen=True, slots=True)
class Step:
    """All heavy keys at one moment: their output, what is desired for each, and the grid that each gets."""

    output: int
    desired: dict[str, Sides]
    shapes: dict[str, Shape]


def plan_step(rows: Rows, before: Mapping[str, Shape] | None = None) -> Step:
    output = sum(left * right for left, right in rows.values())
    desired = {key: desired_sides(own, output, paper.EXAMPLE_TASKS) for key, own in rows.items()}
    shapes = {
        key: first_shape(attainable(sides)) if before is None else next_shape(before[key], attainable(sides))
        for key, sides in desired.items()
    }
    return Step(output, desired, shapes)


def fig3(measured: Measured, size: Size) -> Exhibit:
    before = plan_step(paper.BEFORE)
    after = plan_step(paper.AFTER, before.shapes)
    as_said = plan_step(paper.AFTER_AS_SAID, before.shapes)
    moments = (
        ("500 tuples", paper.BEFORE, before),
        ("|S(b1)| = 300", paper.AFTER, after),
        ("|S(b1)| = 400", paper.AFTER_AS_SAID, as_said),
    )
    return Exhibit(
        "fig3",
        "Figure 3: the running example",
        f"Computed by the planner that runs on Spark, with p = {paper.EXAMPLE_TASKS} workers; no data is joined.",
        [
            Table(
                "desired and taken sides",
                ["moment", "key", "|R|", "|S|", "OUT^H", "desired R", "desired S", "grid"],
                [
                    [name, key, *(f"{n:,}" for n in rows[key]), f"{step.output:,}", *_sides(step.desired[key]), _text(step.shapes[key])]
                    for name, rows, step in moments
                    for key in rows
                ],
            )
        ],
        [_heavy_verdict(), *_before_verdicts(before), *_after_verdicts(before, after), _said_verdict(as_said)],
        [
            Boards(
                "3: tasks of the heavy keys (part of R, part of S), p = 8",
                [_board(key, before.shapes[key], after.shapes[key]) for key in paper.BEFORE],
                "task since the first plan",
                "new task",
            )
        ],
    )  # fmt: skip


def _heavy_verdict() -> Verdict:
    rows = {key: sum(own) for key, own in paper.BEFORE.items()}
    heavy = [key for key, own in rows.items() if _is_heavy(own)]
    return Verdict(
        "b1 with 200 and b2 with 250 of 500 tuples are heavy, the values of the other 50 are light",
        f"heavy: {', '.join(heavy)}; a value with all the other {paper.EXAMPLE_LIGHT} would be light",
        heavy == list(rows) and not _is_heavy(paper.EXAMPLE_LIGHT),
        controls=[Control("a plan without a threshold", False, "the other 50 would be heavy too")],
    )


def _is_heavy(rows: int) -> bool:
    return is_heavy(rows / paper.EXAMPLE_ROWS, paper.EXAMPLE_TASKS, was_heavy=False)


def _before_verdicts(before: Step) -> list[Verdict]:
    return [
        Verdict(
            f"OUT^H = {paper.OUT_BEFORE:,} after 500 tuples",
            f"{before.output:,}",
            before.output == paper.OUT_BEFORE,
            controls=[_ARITHMETIC],
        ),
        Verdict(
            "optimal grids: b1 2 x 2, b2 1 x 4",
            _all_shapes(before),
            before.shapes == paper.SHAPES_BEFORE,
            controls=[_same_for_all(paper.SHAPES_BEFORE)],
        ),
    ]


def _after_verdicts(before: Step, after: Step) -> list[Verdict]:
    created = math.prod(after.shapes["b1"]) - math.prod(before.shapes["b1"])
    return [
        Verdict(
            f"OUT^H = {paper.OUT_AFTER:,} after the new tuples",
            f"{after.output:,}",
            after.output == paper.OUT_AFTER,
            controls=[_ARITHMETIC],
        ),
        *(
            Verdict(
                f"desired for {key}: {left:.3f} and {right:.3f}",
                " and ".join(_sides(after.desired[key])),
                tuple(round(side, 3) for side in after.desired[key]) == (left, right),
                controls=[_ARITHMETIC],
            )
            for key, (left, right) in paper.DESIRED_AFTER.items()
        ),
        Verdict(
            f"b1 becomes 2 x 4, with {paper.NEW_TASKS} new tasks; b2 stays 1 x 4",
            f"{_all_shapes(after)}; {created} new tasks",
            after.shapes == paper.SHAPES_AFTER and created == paper.NEW_TASKS,
            controls=[
                Control(
                    "a plan that is never changed", before.shapes == paper.SHAPES_AFTER, _all_shapes(before)
                )
            ],
        ),
    ]


def _said_verdict(as_said: Step) -> Verdict:
    sides = " and ".join(_sides(as_said.desired["b1"]))
    return Verdict(
        "300 more tuples of S(b1) arrive",
        f"the numbers above have |S(b1)| = 300, which is 200 more than 100; with 400 OUT^H is {as_said.output:,}, "
        f"{sides} are desired for b1, and the grids become {_all_shapes(as_said)}",
        agrees=False,
        why="the text does not agree with itself: |S(b1)| is 100 before, or OUT^H would not be 20,000. With 400, b1 is doubled "
        "all the same; b2 is halved by our planner alone, which takes a side below one for one, at the other side's cost",
        controls=[Control("any planner", False, "the text does not agree with itself")],
    )


def _same_for_all(shapes: Mapping[str, Shape]) -> Control:
    """One grid for every key, 2 x 2: no plan."""
    return Control("one grid for every key", set(shapes.values()) == {(2, 2)}, "b1 2 x 2, b2 2 x 2")


def _sides(sides: Sides) -> list[str]:
    return [f"{side:.3f}" for side in sides]


def _text(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def _all_shapes(step: Step) -> str:
    return ", ".join(f"{key} {_text(shape)}" for key, shape in step.shapes.items())


def _board(key: str, before: Shape, after: Shape) -> Board:
    return Board(
        f"{key}: {_text(before)}" + (f", then {_text(after)}" if after != before else ", stays"),
        rows=after[0],
        cols=after[1],
        old_rows=before[0],
        old_cols=before[1],
    )
