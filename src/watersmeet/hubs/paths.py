"""How templates are evaluated: from a fresh row of any input, one input after the other; all templates at once.

The delta rule, by inputs: a batch owes, for each input i, its fresh rows with all rows of the inputs before i in FROM
and the old rows of those behind i. So each combination with a fresh row is found exactly once: from its last fresh
row in the order of FROM. That also holds where a stream appears several times, as every appearance is an input.

From input i the others are reached along equalities. A *step* binds one more input: it looks a value of a bound row
up in an index of the next stream. The other equalities with bound rows are checked, and then the input's comparisons
with constants. A step does not name its template, so paths that begin with the same steps share them: a *node* is a
step behind other steps.

A template may keep what some of its inputs are bound to (hubs/kept.py). These come last in the order of the delta rule, so
that from a fresh row of any other input all of them are old. Then one *kept step* binds them together, to combinations
that earlier batches left. From a fresh row of a kept input they are bound before all others.

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

from watersmeet.hubs.kept import MOST_KEPT, Edges
from watersmeet.hubs.language import MOST_INPUTS
from watersmeet.hubs.lists import Lists, numbered_lists, numbered_pairs, spread
from watersmeet.hubs.steps import Attributes
from watersmeet.kernel.keys import Indices, Mask

OPS: Final = ("=", "<>", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null")


@dataclass(frozen=True)
class Shapes:
    """Templates as columns: inputs and their streams, equalities by template, comparisons by template and input.

    Comparisons of an input are in an order that does not depend on the text. `slot` has the numbers of the constants of
    each. `keeps` marks the inputs that a template keeps, and `looks_in` the templates that look in what was kept.
    The list of comparisons behind those of all templates is empty: a kept step has none.
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
    keeps: Mask
    looks_in: Mask

    @classmethod
    def of(cls, templates: pa.RecordBatch, attributes: Attributes, before: int | None = None) -> Shapes:
        """`before` is the batch before: what was chosen in it is looked in from the next batch on (hubs/keep.py)."""
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
        keeps = np.zeros((len(inputs), MOST_INPUTS), np.bool_)
        kept, input_of = _lists(templates.column("keeps"))
        owner_of_kept, _ = kept.members(np.arange(len(kept)))
        keeps[owner_of_kept, _numbers(input_of)] = True
        chosen = templates.column("chosen").fill_null(-1).to_numpy()
        return cls(
            inputs.counts(np.arange(len(inputs))),
            stream,
            equalities,
            left,
            _attributes(stream[owner, left], left_column, attributes),
            right,
            _attributes(stream[owner, right], right_column, attributes),
            Lists.of_owners(compared_by * MOST_INPUTS + input_, len(inputs) * MOST_INPUTS + 1),
            attribute[order],
            op[order],
            Lists.of_counts(counts[order]),
            _numbers(slot)[place] if len(place) else np.zeros(0, np.int64),
            keeps,
            keeps.any(axis=1) & ((before is None) | (chosen != before)),
        )


@dataclass(frozen=True)
class Paths:
    """`node` and `input` say by template, start and depth which node a path takes, and which input it binds there.

    Of each node: its stream, its depth, the bound row and the attribute whose value is sought, and the attribute that it
    is sought in (-1 at depth 0), whether it takes old rows only, its checks, and the template and input whose comparisons
    it has. A kept step binds several inputs: its number of `others` are the streams of those behind the first, and
    `check_place` says which of its rows a check is of. It has nodes at its first depth only, and seeks in the kept rows
    of an attribute, whose number is above those of all indexes. `edges` are what kept steps seek by.
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
    check_place: Indices
    compared: Indices
    others: Indices
    edges: Edges


def takes_old(following: Indices, start: Indices) -> Mask:
    """Whether a step to an input takes old rows only, from a fresh row of another: by their ranks in the delta rule."""
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
        self.attribute_rank = attributes.ranks
        self.template, self.start = spread(np.zeros(len(shapes.inputs), np.int64), shapes.inputs)
        shape = (len(self.template), MOST_INPUTS)
        # By path: the node and the input at each depth, and the depth at which each input is bound.
        self.node, self.input, self.bound_at = (np.full(shape, -1, np.int64) for _ in range(3))
        self.bound = np.zeros(len(self.template), np.int64)
        # What the kept step of each path seeks by: an attribute, and its place and attribute among what is kept.
        self.edge = np.full((len(self.template), 3), -1, np.int64)
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
        self.other_parts: list[Indices] = []

    def paths(self) -> Paths:
        nodes = 0
        for depth in range(MOST_INPUTS):
            here = np.flatnonzero((self.shapes.inputs[self.template] > depth) & (self.bound == depth))
            if len(here):
                nodes += self.step(here, depth, nodes)
        by = (len(self.shapes.inputs), MOST_INPUTS, MOST_INPUTS)
        node, input_ = np.full(by, -1, np.int64), np.full(by, -1, np.int64)
        node[self.template, self.start], input_[self.template, self.start] = self.node, self.input
        counts, at, left, right, to = (
            _joined([part[place] for part in self.check_parts]) for place in range(5)
        )
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
            to,
            found["compared"],
            np.concatenate([np.zeros((0, MOST_KEPT - 1), np.int64), *self.other_parts]),
            Edges.of_paths(self.template, self.start, self.edge, len(self.shapes.inputs)),
        )

    def step(self, here: Indices, depth: int, first_node: int) -> int:
        """Take the next step of some paths; the number of new nodes."""
        shapes, template, start = self.shapes, self.template[here], self.start[here]
        following = self.following(here) if depth else start
        kept, place = self.places(here, following)
        owner, at, left, right, to = self.equalities(here, place)
        sought = np.diff(owner, prepend=-1) != 0
        checked = is_checked(sought, self.exact[right])
        by = {name: np.full(len(here), -1, np.int64) for name in ("value_depth", "value", "attribute")}
        for name, values in zip(by, (at, left, right), strict=True):
            by[name][owner[sought]] = values[sought]
        mine = sought & kept[owner]
        self.edge[here[owner[mine]]] = np.stack([left[mine], to[mine], right[mine]], axis=1)
        by["attribute"][kept] = len(self.exact) + by["value"][kept]
        owner, at, left, right, to = (one[checked] for one in (owner, at, left, right, to))
        checks = Lists.of_owners(owner, len(here))
        columns = {
            "stream": shapes.stream[template, self.first(place)],
            "depth": np.full(len(here), depth),
            **by,
            "old": (takes_old(self.rank(here, following), self.rank(here, start)) & ~kept).astype(np.int64),
            "compared": np.where(kept, len(shapes.inputs) * MOST_INPUTS, template * MOST_INPUTS + following),
        }
        others = self.others(here, kept, place)
        _, same = numbered_pairs(left, right)
        _, same = numbered_pairs(same, at)
        _, same = numbered_pairs(same, to)
        number = self.node[here, depth - 1] if depth else np.zeros(len(here), np.int64)
        told = [columns[name] for name in ("stream", "value_depth", "value", "attribute", "old")]
        same_comparisons = self.comparisons[columns["compared"]]
        for values in (*told, *others.T, numbered_lists(checks, same), same_comparisons):
            first, number = numbered_pairs(number, values + 1)
        self.node[here, depth] = first_node + number
        for input_ in range(MOST_INPUTS):
            mine = np.flatnonzero(place[:, input_] >= 0)
            bound = depth + place[mine, input_]
            self.input[here[mine], bound] = input_
            self.bound_at[here[mine], input_] = bound
            self.bound[here[mine]] += 1
        self.parts.append({name: values[first] for name, values in columns.items()})
        self.other_parts.append(others[first])
        _, mine = checks.members(first)
        self.check_parts.append((checks.counts(first), at[mine], left[mine], right[mine], to[mine]))
        return len(first)

    def places(self, here: Indices, following: Indices) -> tuple[Mask, Indices]:
        """Which of the next steps are kept ones, and the place that each input has among those that a step binds; -1 if
        it does not bind it."""
        template, keeps = self.template[here], self.shapes.keeps[self.template[here]]
        mine = np.arange(len(here))
        kept = self.shapes.looks_in[template] & keeps[mine, following] & ~keeps[mine, self.start[here]]
        place = np.full((len(here), MOST_INPUTS), -1, np.int64)
        place[mine, following] = 0
        place[kept] = np.where(keeps, np.cumsum(keeps, axis=1) - 1, -1)[kept]
        return kept, place

    def first(self, place: Indices) -> Indices:
        """The first input that a step binds."""
        found: Indices = (place == 0).argmax(axis=1)
        return found

    def others(self, here: Indices, kept: Mask, place: Indices) -> Indices:
        """The streams of the inputs behind the first that kept steps bind; -1 is none."""
        found = np.full((len(here), MOST_KEPT - 1), -1, np.int64)
        for number in range(1, MOST_KEPT):
            mine, input_ = np.nonzero((place == number) & kept[:, None])
            found[mine, number - 1] = self.shapes.stream[self.template[here[mine]], input_]
        return found

    def rank(self, here: Indices, input_: Indices) -> Indices:
        """The rank of an input in the delta rule: as in FROM, but those that are kept come last."""
        return input_ + MOST_INPUTS * self.shapes.keeps[self.template[here], input_]

    def following(self, here: Indices) -> Indices:
        """The input to bind next: one that is kept, then one that a constant narrows, then the first in FROM."""
        template, bound = self.template[here], self.bound_at[here] >= 0
        near = (self.near[template] & bound[:, :, None]).any(axis=1) & ~bound
        by = template[:, None] * MOST_INPUTS + np.arange(MOST_INPUTS)
        rank = np.arange(MOST_INPUTS) + np.where(self.is_equal[by], 0, MOST_INPUTS)
        rank = np.where(self.shapes.keeps[template], rank - 2 * MOST_INPUTS, rank)
        return np.where(near, rank, 2 * MOST_INPUTS).argmin(axis=1)

    def equalities(self, here: Indices, place: Indices) -> tuple[Indices, Indices, Indices, Indices, Indices]:
        """What must be equal in the bound rows and those of a step: paths, bound depths, both attributes, and the places
        of the inputs in the step.

        In an order that outlives a restart: what is kept is found by the first (`Edges`).
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
            to = place[owner, other]
            fits = np.flatnonzero((at >= 0) & (to >= 0))
            found.append((owner[fits], at[fits], attribute[fits], other_attribute[fits], to[fits]))
        columns = [np.concatenate(both) for both in zip(*found, strict=True)]
        path, at, left, right, to = columns
        order = np.lexsort((to, self.attribute_rank[right], self.attribute_rank[left], at, path))
        path, at, left, right, to = (column[order] for column in columns)
        return path, at, left, right, to


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
