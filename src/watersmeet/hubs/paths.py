"""How templates are evaluated: from a fresh row of any input, one input after the other; all templates at once.

The delta rule, by inputs: a batch owes, for each input i, its fresh rows with all rows of the inputs before i in FROM
and the old rows of those behind i. So each combination with a fresh row is found exactly once: from its last fresh
row in the order of FROM. That also holds where a stream appears several times, as every appearance is an input.

From input i the others are reached along equalities. A *step* binds one more input: it looks a value of a bound row
up in an index of the next stream. The other equalities with bound rows are checked, and then the input's comparisons
with constants. A step does not name its template, so paths that begin with the same steps share them: a *node* is a
step behind other steps.

The loops here are over the places of a list, at most eight inputs or the constants of a comparison, never over templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.hubs.language import MOST_INPUTS
from watersmeet.hubs.lists import Lists, numbered_lists, numbered_pairs, spread
from watersmeet.hubs.steps import Attributes
from watersmeet.kernel.keys import Indices, Mask

OPS: Final = ("=", "<>", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null")


@dataclass(frozen=True)
class Shapes:
    """Templates as columns: inputs and their streams, equalities by template, comparisons by template and input.

    Comparisons of an input are in an order that does not depend on the text. `slot` has the numbers of the constants of
    each.
    """

    inputs: Indices
    stream: Indices
    equalities: Lists
    left: Indices
    left_attribute: Indices
    right: Indices
    right_attribute: Indices
    compared: Lists
    compared_attribute: Indices
    compared_op: Indices
    slots: Lists
    slot: Indices

    @classmethod
    def of(cls, templates: pa.RecordBatch, attributes: Attributes) -> Shapes:
        inputs, names = _lists(templates.column("streams"))
        stream = np.full((len(inputs), MOST_INPUTS), -1, np.int64)
        owner, number = inputs.members(np.arange(len(inputs)))
        stream[owner, number - inputs.starts[owner]] = _places(names, attributes.streams)

        equalities, pairs = _lists(templates.column("equalities"))
        left, left_column, right, right_column = pairs.flatten()
        owner, _ = equalities.members(np.arange(len(equalities)))
        left, right = _numbers(left), _numbers(right)

        filters, compared = _lists(templates.column("filters"))
        input_, column, op, slots = compared.flatten()
        compared_by, _ = filters.members(np.arange(len(filters)))
        input_, op = _numbers(input_), _places(op, OPS)
        attribute = _attributes(stream[compared_by, input_], column, attributes)
        slots, slot = _lists(slots)
        counts = slots.counts(np.arange(len(slots)))
        order = np.lexsort((counts, op, attribute, input_, compared_by))
        _, place = slots.members(order)
        return cls(
            inputs.counts(np.arange(len(inputs))),
            stream,
            equalities,
            left,
            _attributes(stream[owner, left], left_column, attributes),
            right,
            _attributes(stream[owner, right], right_column, attributes),
            Lists.of_owners(compared_by * MOST_INPUTS + input_, len(inputs) * MOST_INPUTS),
            attribute[order],
            op[order],
            Lists.of_counts(counts[order]),
            _numbers(slot)[place] if len(place) else np.zeros(0, np.int64),
        )


@dataclass(frozen=True)
class Paths:
    """`node` and `input` say by template, start and depth which node a path takes, and which input it binds there.

    Of each node: its stream, its depth, the bound row and the attribute whose value is sought, and the attribute that it
    is sought in (-1 at depth 0), whether it takes old rows only, its checks, and the template and input whose comparisons
    it has.
    """

    node: Indices
    input: Indices
    stream: Indices
    depth: Indices
    value_depth: Indices
    value: Indices
    attribute: Indices
    old: Mask
    checks: Lists
    check_depth: Indices
    check_left: Indices
    check_right: Indices
    compared: Indices


def takes_old(following: Indices, start: Indices) -> Mask:
    """Whether a step to an input takes old rows only, from a fresh row of another."""
    return following > start


def is_checked(sought: Mask, exact: Mask) -> Mask:
    """Which equalities of a step are checked: those that are not sought by, or by hashes of values only."""
    return ~(sought & exact)


def paths_of(shapes: Shapes, attributes: Attributes) -> Paths:
    """The paths of all templates.

    >>> from watersmeet.hubs.catalogue import Command, HubCatalogue, apply_commands
    >>> from watersmeet.hubs.templates import TemplateReader
    >>> from watersmeet.model.types import INT
    >>> schemas = {"R": {"a": INT}, "S": {"a": INT, "b": INT}, "P": {"b": INT}}
    >>> text = "SELECT R.a FROM R, S, P WHERE R.a = S.a AND S.b = P.b"
    >>> add = [Command("add", "q", text)]
    >>> catalogue = apply_commands(HubCatalogue(), add, 0, TemplateReader(schemas)).catalogue
    >>> attributes = Attributes.of(schemas)
    >>> paths = paths_of(Shapes.of(catalogue.templates, attributes), attributes)
    >>> paths.input[0, :3, :3].tolist()
    [[0, 1, 2], [1, 0, 2], [2, 1, 0]]
    >>> paths.old[paths.node[0, :3, :3]].tolist()
    [[False, True, True], [False, False, True], [False, False, False]]
    """
    return _Walker(shapes, attributes).paths()


class _Walker:
    """Takes all paths together, a depth at a time. A path is a template and the input that it starts from."""

    def __init__(self, shapes: Shapes, attributes: Attributes) -> None:
        self.shapes = shapes
        self.exact = np.array([attributes.is_exact(one) for one in range(len(attributes.columns))], np.bool_)
        self.template, self.start = spread(np.zeros(len(shapes.inputs), np.int64), shapes.inputs)
        shape = (len(self.template), MOST_INPUTS)
        # By path: the node and the input at each depth, and the depth at which each input is bound.
        self.node, self.input, self.bound_at = (np.full(shape, -1, np.int64) for _ in range(3))
        templates = len(shapes.inputs)
        self.near = np.zeros((templates, MOST_INPUTS, MOST_INPUTS), np.bool_)
        owner, _ = shapes.equalities.members(np.arange(templates))
        self.near[owner, shapes.left, shapes.right] = True
        self.near[owner, shapes.right, shapes.left] = True
        self.is_equal = np.zeros(templates * MOST_INPUTS, np.bool_)
        compared_by, _ = shapes.compared.members(np.arange(len(shapes.compared)))
        self.is_equal[compared_by[shapes.compared_op == OPS.index("=")]] = True
        _, kind = numbered_pairs(
            shapes.compared_attribute * len(OPS) + shapes.compared_op, _counts(shapes.slots)
        )
        self.comparisons = numbered_lists(shapes.compared, kind)
        self.parts: list[dict[str, Indices]] = []
        self.check_parts: list[tuple[Indices, ...]] = []

    def paths(self) -> Paths:
        nodes = 0
        for depth in range(MOST_INPUTS):
            here = np.flatnonzero(self.shapes.inputs[self.template] > depth)
            if not len(here):
                break
            nodes += self.step(here, depth, nodes)
        by = (len(self.shapes.inputs), MOST_INPUTS, MOST_INPUTS)
        node, input_ = np.full(by, -1, np.int64), np.full(by, -1, np.int64)
        node[self.template, self.start], input_[self.template, self.start] = self.node, self.input
        counts, at, left, right = (_joined([part[place] for part in self.check_parts]) for place in range(4))
        found = {name: _joined([part[name] for part in self.parts]) for name in _NODE_COLUMNS}
        return Paths(
            node,
            input_,
            found["stream"],
            found["depth"],
            found["value_depth"],
            found["value"],
            found["attribute"],
            found["old"].astype(np.bool_),
            Lists.of_counts(counts),
            at,
            left,
            right,
            found["compared"],
        )

    def step(self, here: Indices, depth: int, first_node: int) -> int:
        """Take the next step of some paths; the number of new nodes."""
        shapes, template, start = self.shapes, self.template[here], self.start[here]
        following = self.following(here) if depth else start
        owner, at, left, right = self.equalities(here, following)
        sought = np.diff(owner, prepend=-1) != 0
        checked = is_checked(sought, self.exact[right])
        by = {name: np.full(len(here), -1, np.int64) for name in ("value_depth", "value", "attribute")}
        for name, values in zip(by, (at, left, right), strict=True):
            by[name][owner[sought]] = values[sought]
        owner, at, left, right = owner[checked], at[checked], left[checked], right[checked]
        checks = Lists.of_owners(owner, len(here))
        compared = template * MOST_INPUTS + following
        columns = {
            "stream": shapes.stream[template, following],
            "depth": np.full(len(here), depth),
            **by,
            "old": takes_old(following, start).astype(np.int64),
            "compared": compared,
        }
        _, same = numbered_pairs(left, right)
        _, same = numbered_pairs(same, at)
        number = self.node[here, depth - 1] if depth else np.zeros(len(here), np.int64)
        told = [columns[name] for name in ("stream", "value_depth", "value", "attribute", "old")]
        for values in (*told, numbered_lists(checks, same), self.comparisons[compared]):
            first, number = numbered_pairs(number, values + 1)
        self.node[here, depth], self.input[here, depth] = first_node + number, following
        self.bound_at[here, following] = depth
        self.parts.append({name: values[first] for name, values in columns.items()})
        _, mine = checks.members(first)
        self.check_parts.append((checks.counts(first), at[mine], left[mine], right[mine]))
        return len(first)

    def following(self, here: Indices) -> Indices:
        """The input to bind next: one that a constant narrows, if there is one, then the first in FROM."""
        template, bound = self.template[here], self.bound_at[here] >= 0
        near = (self.near[template] & bound[:, :, None]).any(axis=1) & ~bound
        by = template[:, None] * MOST_INPUTS + np.arange(MOST_INPUTS)
        rank = np.arange(MOST_INPUTS) + np.where(self.is_equal[by], 0, MOST_INPUTS)
        return np.where(near, rank, 2 * MOST_INPUTS).argmin(axis=1)

    def equalities(self, here: Indices, following: Indices) -> tuple[Indices, Indices, Indices, Indices]:
        """What must be equal in the bound rows and a row of the next input: paths, bound depths, and both attributes.

        In a fixed order.
        """
        shapes = self.shapes
        owner, one = shapes.equalities.members(self.template[here])
        sides = (
            (shapes.left[one], shapes.left_attribute[one]),
            (shapes.right[one], shapes.right_attribute[one]),
        )
        found = []
        for (mine, attribute), (other, other_attribute) in (sides, sides[::-1]):
            at = self.bound_at[here[owner], mine]
            fits = np.flatnonzero((at >= 0) & (other == following[owner]))
            found.append((owner[fits], at[fits], attribute[fits], other_attribute[fits]))
        columns = [np.concatenate(both) for both in zip(*found, strict=True)]
        order = np.lexsort(columns[::-1])
        path, at, left, right = (column[order] for column in columns)
        return path, at, left, right


_NODE_COLUMNS: Final = ("stream", "depth", "value_depth", "value", "attribute", "old", "compared")


# --- Columns of templates as arrays ---------------------------------------------------------------------------------


def _lists(column: pa.Array) -> tuple[Lists, pa.Array]:
    """The lists of a column, and what is in all of them."""
    counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return Lists.of_counts(counts.astype(np.int64)), column.flatten()


def _numbers(values: pa.Array) -> Indices:
    found: Indices = values.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _places(values: pa.Array, among: Sequence[str]) -> Indices:
    return _numbers(pc.index_in(values, pa.array(among, pa.string())))


def _attributes(stream: Indices, column: pa.Array, attributes: Attributes) -> Indices:
    """The numbers of attributes, by stream and name."""
    names = list(dict.fromkeys(name for _, name in attributes.columns))
    number = np.full((len(attributes.streams), len(names)), -1, np.int64)
    place = {name: at for at, name in enumerate(names)}
    for one, (in_stream, (_, name)) in enumerate(zip(attributes.stream, attributes.columns, strict=True)):
        number[in_stream, place[name]] = one
    return number[stream, _places(column, names)]


def _counts(lists: Lists) -> Indices:
    return lists.counts(np.arange(len(lists)))


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
