"""How one template is evaluated: from a fresh row of any of its inputs, one input after the other.

The delta rule, by inputs: a batch owes, for each input i, its fresh rows with all rows of the inputs before i in FROM
and the old rows of those behind i. So each combination with a fresh row is found exactly once: from its last fresh
row in the order of FROM. That also holds where a stream appears several times, as every appearance is an input.

From input i the others are reached along equalities. A *step* binds one more input: it looks a value of a bound row
up in an index of the next stream. The other equalities with bound rows are checked, and then the input's comparisons
with constants. A step does not name its template, so templates with the same steps share them (hubs/forest.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watersmeet.hubs.constants import comparable
from watersmeet.hubs.language import Comparison, Template
from watersmeet.model.types import Schema, SqlType

# A column of a stream.
Attribute = tuple[str, str]


@dataclass(frozen=True)
class Attributes:
    """The streams of a hub and all of their columns, numbered."""

    streams: tuple[str, ...]
    columns: tuple[Attribute, ...]
    types: tuple[SqlType, ...]
    number: Mapping[Attribute, int]
    # The number of each column's stream.
    stream: tuple[int, ...]

    @classmethod
    def of(cls, schemas: Mapping[str, Schema]) -> Attributes:
        columns = tuple((stream, column) for stream, schema in schemas.items() for column in schema)
        types = tuple(kind for schema in schemas.values() for kind in schema.values())
        stream = tuple(number for number, schema in enumerate(schemas.values()) for _ in schema)
        numbers = {one: number for number, one in enumerate(columns)}
        return cls(tuple(schemas), columns, types, numbers, stream)

    def index_of(self, attribute: int) -> str:
        """The name of the runs of a column's index: by its place, as a name may have any characters."""
        stream, _ = self.columns[attribute]
        return index_name(stream, sum(1 for other, _ in self.columns[:attribute] if other == stream))

    def is_exact(self, attribute: int) -> bool:
        """Whether equal order keys are equal values (kernel/keys.py)."""
        kind = self.types[attribute]
        wide = kind.name == "decimal" and (kind.precision or 0) > 18
        return comparable(kind) and not wide and kind.name not in ("string", "binary")


def index_name(stream: str, place: int) -> str:
    """The name of the index of a column, by its place in the stream."""
    return f"{stream}.{place}"


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


def filters_in_order(template: Template, input_: int) -> list[Comparison]:
    """The comparisons of an input with constants, in an order that does not depend on the text."""
    mine = (one for one in template.filters if one.input == input_)
    return sorted(mine, key=lambda one: (one.column, one.op, len(one.slots)))


def ways_of(template: Template, attributes: Attributes) -> tuple[Way, ...]:
    """The steps of a template from each of its inputs.

    >>> from watersmeet.hubs.templates import TemplateReader
    >>> from watersmeet.model.types import INT
    >>> schemas = {"R": {"a": INT}, "S": {"a": INT, "b": INT}, "P": {"b": INT}}
    >>> text = "SELECT R.a FROM R, S, P WHERE R.a = S.a AND S.b = P.b"
    >>> ways = ways_of(TemplateReader(schemas).read(text).template, Attributes.of(schemas))
    >>> [(way.inputs, [step.old for step in way.steps]) for way in ways]
    [((0, 1, 2), [False, True, True]), ((1, 0, 2), [False, False, True]), ((2, 1, 0), [False, False, False])]
    """
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
        for one in filters_in_order(template, input_)
    )
    number = attributes.streams.index(stream)
    if not equal:
        return HubStep(number, tests=tests)
    by, *checks = equal
    if not attributes.is_exact(by.right):
        checks = [by, *checks]
    return HubStep(number, by.depth, by.left, by.right, input_ > start, tuple(checks), tests)


def indexed_columns(template: Template) -> list[set[str]]:
    """The columns by which rows of each input may be looked up for a template, whatever its steps."""
    found: list[set[str]] = [set() for _ in template.streams]
    for one in template.equalities:
        found[one.left].add(one.left_column)
        found[one.right].add(one.right_column)
    return found
