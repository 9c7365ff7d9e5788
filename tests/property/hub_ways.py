"""How one template is evaluated, step by step: what hubs/paths.py finds for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.hubs.language import Comparison, Template
from watersmeet.hubs.paths import OPS
from watersmeet.hubs.steps import Attributes


@dataclass(frozen=True, slots=True)
class Check:
    """A bound row's value that must equal one of the next row: `depth` says which bound row."""

    depth: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class HubStep:
    """Bind a row of `stream`. A first step takes a fresh row: it looks nothing up, and `attribute` is -1.

    `value` is the attribute of the row bound at `depth` that is sought as `attribute`. `old` says that only rows from
    before the batch count. `tests` are the attributes that are compared with constants, how, and with how many.
    """

    stream: int
    depth: int = -1
    value: int = -1
    attribute: int = -1
    old: bool = False
    checks: tuple[Check, ...] = ()
    tests: tuple[tuple[int, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Way:
    """The steps from one input: which input each of them binds."""

    inputs: tuple[int, ...]
    steps: tuple[HubStep, ...]


def filters_in_order(template: Template, input_: int, attributes: Attributes) -> list[Comparison]:
    """The comparisons of an input with constants, in an order that does not depend on the text."""
    stream = template.streams[input_]
    mine = (one for one in template.filters if one.input == input_)
    return sorted(
        mine, key=lambda one: (attributes.number[stream, one.column], OPS.index(one.op), len(one.slots))
    )


def ways_of(template: Template, attributes: Attributes) -> tuple[Way, ...]:
    """The steps of a template from each of its inputs."""
    return tuple(_way(template, start, attributes) for start in range(len(template.streams)))


def _way(template: Template, start: int, attributes: Attributes) -> Way:
    bound = [start]
    steps = [_step(template, start, start, (), attributes)]
    while len(bound) < len(template.streams):
        following = _next_input(template, bound)
        found = _equalities(template, bound, following, attributes)
        steps.append(_step(template, start, following, found, attributes))
        bound.append(following)
    return Way(tuple(bound), tuple(steps))


def _next_input(template: Template, bound: Sequence[int]) -> int:
    """The input to bind next: one that a constant narrows, if there is one, then the first in FROM."""
    near = {
        other
        for one in template.equalities
        for mine, other in ((one.left, one.right), (one.right, one.left))
        if mine in bound and other not in bound
    }
    equal = {one.input for one in template.filters if one.op == "="}
    return min(near, key=lambda input_: (input_ not in equal, input_))


def _equalities(
    template: Template, bound: Sequence[int], input_: int, attributes: Attributes
) -> tuple[Check, ...]:
    """What must be equal in the bound rows and a row of an input, in a fixed order."""
    found = []
    for one in template.equalities:
        sides = [(one.left, one.left_column), (one.right, one.right_column)]
        for (mine, column), (other, other_column) in (sides, sides[::-1]):
            if mine in bound and other == input_:
                left = attributes.number[template.streams[mine], column]
                right = attributes.number[template.streams[other], other_column]
                found.append(Check(bound.index(mine), left, right))
    return tuple(sorted(found, key=lambda check: (check.depth, check.left, check.right)))


def _step(
    template: Template, start: int, input_: int, equal: tuple[Check, ...], attributes: Attributes
) -> HubStep:
    stream = template.streams[input_]
    tests = tuple(
        (attributes.number[stream, one.column], one.op, len(one.slots))
        for one in filters_in_order(template, input_, attributes)
    )
    number = attributes.streams.index(stream)
    if not equal:
        return HubStep(number, tests=tests)
    by, *checks = equal
    if not attributes.is_exact(by.right):
        checks = [by, *checks]
    return HubStep(number, by.depth, by.left, by.right, input_ > start, tuple(checks), tests)
