"""Builds the forest of a catalogue in one go, by arrays: loops are over numbers of inputs and of constants, and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.hubs.catalogue import HubCatalogue, text_numbers
from watersmeet.hubs.constants import read_column
from watersmeet.hubs.forest import (
    WINDOWS,
    Forest,
    Nodes,
    Queries,
    Tests,
    branch_keys,
    tag_keys,
    value_hashes,
)
from watersmeet.hubs.kept import MOST_KEPT, Keeping, tags_of
from watersmeet.hubs.language import MOST_INPUTS
from watersmeet.hubs.lists import Lists, numbered_lists, numbered_pairs, spread
from watersmeet.hubs.outputs import Outputs
from watersmeet.hubs.past import first_batches, first_input
from watersmeet.hubs.paths import OPS, Paths, Shapes, paths_of
from watersmeet.hubs.rows import first_row
from watersmeet.hubs.steps import Attributes
from watersmeet.kernel.key_table import key_table
from watersmeet.kernel.keys import Indices, Keys, Mask
from watersmeet.kernel.rows import take_values
from watersmeet.model.window import FARTHEST


def build_forest(
    catalogue: HubCatalogue,
    attributes: Attributes,
    past_of: Mask | None = None,
    *,
    before: int | None = None,
    keeps_of: Mask | None = None,
) -> Forest:
    """The forest of a catalogue. `before` is the batch before: what was chosen in it to be kept is not there yet.

    With `past_of` it is that of the combinations of old rows only, for these queries (hubs/past.py). With `keeps_of` it
    only leads to what these queries keep, which also may be of old rows.
    """
    return _Builder(catalogue, attributes, past_of, before, keeps_of).forest()


class _Builder:
    """Builds one forest. A *pair* is a query and the input that it starts from."""

    def __init__(
        self,
        catalogue: HubCatalogue,
        attributes: Attributes,
        past_of: Mask | None,
        before: int | None,
        keeps_of: Mask | None,
    ):
        self.catalogue, self.attributes, self.past_of = catalogue, attributes, past_of
        self.keeps_of = keeps_of
        self.templates = catalogue.parsed
        self.template = catalogue.queries.column("template").to_numpy().astype(np.int64)
        self.first = first_row(first_batches(catalogue.queries))
        self.kept = catalogue.queries.column("kept").fill_null(-1).to_numpy()
        self.texts, self.text_of = _flat(catalogue.queries.column("constants"))
        self.shapes = Shapes.of(catalogue.templates, attributes, before)
        self.paths = paths_of(self.shapes, attributes)
        self.kept_inputs = self.shapes.keeps.sum(axis=1)
        # Also where nothing is looked up in kept rows yet, they are stored by the edges of later batches.
        every: Mask = self.kept_inputs > 0
        self.edges = (
            self.paths.edges
            if (every == self.shapes.looks_in).all()
            else paths_of(replace(self.shapes, looks_in=every), attributes).edges
        )

    # --- the same constants -------------------------------------------------------------------------------------------

    def same_constants(self) -> Indices:
        """For each query and input a number, the same where two queries have the same constants there."""
        lists = self.template[:, None] * MOST_INPUTS + np.arange(MOST_INPUTS)
        flat = lists.ravel()
        owner, compared = self.shapes.compared.members(flat)
        at, slot = self.shapes.slots.members(compared)
        owner, text = owner[at], self.text_of[owner[at] // MOST_INPUTS] + self.shapes.slot[slot]
        code = self.texts.dictionary_encode().indices.to_numpy().astype(np.int64) if len(self.texts) else text
        number = numbered_lists(Lists.of_owners(owner, len(flat)), code[text])
        return number.reshape(lists.shape)

    # --- the forest ---------------------------------------------------------------------------------------------------

    def pairs(self, inputs: Indices) -> tuple[Indices, Indices]:
        """The queries and the inputs that they start from: all, but of the past only one, as no row is fresh."""
        if self.keeps_of is not None:
            keeps = self.shapes.keeps[self.template] & self.keeps_of[:, None]
            if self.past_of is not None:
                keeps &= (np.cumsum(keeps, axis=1) == 1) & self.past_of[:, None]
            query, start = np.nonzero(keeps)
            return query, start
        if self.past_of is None:
            return spread(np.zeros(len(inputs), np.int64), inputs)
        query = np.flatnonzero(self.past_of)
        return query, _numbers([first_input(one) for one in self.templates])[self.template[query]]

    def forest(self) -> Forest:
        inputs = self.shapes.inputs[self.template] if len(self.template) else np.zeros(0, np.int64)
        query, start = self.pairs(inputs)
        template = self.template[query]
        same = self.same_constants() if len(query) else np.zeros((0, MOST_INPUTS), np.int64)
        group = np.full(len(query), -1, np.int64)
        parents, nodes, chosen = [], [], []
        groups = 0
        ends: list[tuple[Indices, Indices]] = []
        low, tags = [], []
        kept_first = self.shapes.keeps[template, start]
        keeping: list[tuple[Indices, Indices]] = []
        for depth in range(MOST_INPUTS):
            wanted = self.paths.node[template, start, depth] >= 0
            if self.keeps_of is not None:
                wanted &= depth < self.kept_inputs[template]
            here = np.flatnonzero(wanted)
            node = self.paths.node[template[here], start[here], depth]
            constants = same[query[here], self.paths.input[template[here], start[here], depth]]
            many = self.paths.others[node, 0] >= 0
            tag = np.where(
                many, tags_of(self.kept[query[here]], self.edges.of_start[template[here], start[here]]), -1
            )
            constants[many] = np.unique(tag[many], return_inverse=True)[1]
            _, below = numbered_pairs(group[here] + 1, node)
            first, number = numbered_pairs(below, constants)
            parents.append(group[here[first]])
            nodes.append(node[first])
            chosen.append(here[first])
            tags.append(tag[first])
            group[here] = groups + number
            lowest = np.full(len(first), np.iinfo(np.uint64).max, np.uint64)
            np.minimum.at(lowest, number, self.first[query[here]])
            low.append(lowest)
            groups += len(first)
            bound = depth + 1 + (self.paths.others[node] >= 0).sum(axis=1)
            done = here[inputs[query[here]] == bound]
            ends.append((group[done], done))
            kept = here[kept_first[here] & (self.kept_inputs[template[here]] == depth + 1)]
            keeping.append((group[kept], kept))
        return self.put_together(
            query,
            start,
            _joined(parents),
            _joined(nodes),
            _joined(chosen),
            _joined(low, np.uint64),
            _joined(tags),
            ends,
            keeping,
        )

    def keeping(
        self, query: Indices, start: Indices, groups: int, parts: list[tuple[Indices, Indices]]
    ) -> Keeping:
        """The groups whose bindings are kept, each once for a kept number."""
        group, pair = _joined([group for group, _ in parts]), _joined([pair for _, pair in parts])
        _, numbers = np.unique(self.kept[query[pair]], return_inverse=True)
        first, same = numbered_pairs(group, numbers)
        low = np.full(len(first), np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(low, same, self.first[query[pair]])
        group, pair = group[first], pair[first]
        template = self.template[query[pair]]
        depth = np.full((len(pair), MOST_KEPT), -1, np.int64)
        stream = depth.copy()
        which, input_ = np.nonzero(self.shapes.keeps[template])
        place = (np.cumsum(self.shapes.keeps[template], axis=1) - 1)[which, input_]
        bound = self.paths.input[template, start[pair]][which] == input_[:, None]
        depth[which, place] = bound.argmax(axis=1)
        stream[which, place] = self.shapes.stream[template[which], input_]
        number = self.kept[query[pair]]
        return Keeping(Lists.of_owners(group, groups), number, template, low, depth, stream, self.edges)

    def put_together(
        self,
        query: Indices,
        start: Indices,
        parent: Indices,
        node: Indices,
        pair: Indices,
        low: Keys,
        tags: Indices,
        ends: list[tuple[Indices, Indices]],
        keeping: list[tuple[Indices, Indices]],
    ) -> Forest:
        groups = len(parent)
        nodes = self.nodes()
        # Branches in the order of their group and probe; those of fresh rows have no group, and come first.
        first_node, probe_of = _numbered_probes(self.paths)
        rank = np.empty(len(probe_of), np.int64)
        rank[np.argsort(probe_of, kind="stable")] = np.arange(len(probe_of))
        first, branch = numbered_pairs(parent + 1, rank[node])
        branch_parent, branch_node = parent[first], node[first]
        branch_low = np.full(len(first), np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(branch_low, branch, low)
        roots = np.flatnonzero(branch_parent < 0)
        branch_probe = probe_of[branch_node]
        begins = np.flatnonzero(
            (np.diff(branch_parent, prepend=-2) != 0) | (np.diff(branch_probe, prepend=-2) != 0)
        )
        probes = Lists.of_owners(branch_parent[begins] + 1, groups + 1)
        probe = first_node[branch_probe[begins]]
        tests = self.tests(query[pair], start[pair], node)
        key = branch_keys(branch) + self.constant_hashes(tests, groups)
        kept = np.flatnonzero(tags >= 0)
        key[kept] = tag_keys(np.searchsorted(begins, branch[kept], side="right") - 1, tags[kept])
        order = np.argsort(key, kind="stable")
        group_key, own = key[order], branch_keys(np.arange(len(first)))
        branch_first = np.searchsorted(group_key, own)
        branch_groups = np.searchsorted(group_key, own, side="right") - branch_first
        hashed = (nodes.equal.counts(branch_node) > 0) | (nodes.others[branch_node, 0] >= 0)
        branch_first[hashed] = -1
        end_group = _joined([group for group, _ in ends])
        end_pair = _joined([one for _, one in ends])
        by_group = np.argsort(end_group, kind="stable")
        done = end_pair[by_group]
        return Forest(
            attributes=self.attributes,
            nodes=nodes,
            probes=Lists(_small(probes.starts[1:])),
            probe_depth=_small(self.paths.value_depth[probe]),
            probe_value=_small(self.paths.value[probe]),
            probe_attribute=_small(self.paths.attribute[probe]),
            branches=Lists(_small(np.append(begins, len(branch_node)))),
            branch_node=_small(branch_node),
            branch_low=branch_low,
            branch_first=_small(branch_first),
            branch_groups=_small(branch_groups),
            roots={
                stream: roots[nodes.stream[branch_node[roots]] == stream]
                for stream in range(len(self.attributes.streams))
            },
            group_key=group_key,
            group_of=_small(order),
            group_table=key_table([key[hashed[branch]]]),
            tests=tests,
            entries=Lists(_small(Lists.of_owners(end_group[by_group], groups).starts)),
            query=_small(query[done]),
            placed=self.paths.input[self.template[query[done]], start[done]].astype(np.int8),
            queries=self.queries(),
            group_parent=_small(parent),
            group_branch=_small(branch),
            group_tag=tags,
            keeping=self.keeping(query, start, groups, keeping),
        )

    def tests(self, query: Indices, start: Indices, node: Indices) -> Tests:
        """The comparisons of each group, by the constants of one of its queries."""
        template = self.template[query]
        input_ = self.paths.input[template, start, self.paths.depth[node]]
        compared_by = template * MOST_INPUTS + input_
        compared_by[self.paths.others[node, 0] >= 0] = len(self.shapes.inputs) * MOST_INPUTS
        owner, compared = self.shapes.compared.members(compared_by)
        at, slot = self.shapes.slots.members(compared)
        text = self.text_of[query[owner[at]]] + self.shapes.slot[slot]
        attribute = self.shapes.compared_attribute[compared]
        count = self.shapes.slots.counts(compared)
        first, constants = np.zeros(len(compared), np.int64), {}
        # Constants of one attribute are one column. Those of a comparison lie behind each other in it.
        for one in np.unique(attribute[at]).tolist():
            mine = np.flatnonzero(attribute[at] == one)
            constants[one] = read_column(take_values(self.texts, text[mine]), self.attributes.types[one])
            of_test = at[mine]
            begins = np.flatnonzero(np.diff(of_test, prepend=-1))
            first[of_test[begins]] = begins
        return Tests(
            Lists(_small(Lists.of_owners(owner, len(query)).starts)),
            _small(attribute),
            _small(self.shapes.compared_op[compared]),
            _small(first),
            _small(count),
            constants,
        )

    def constant_hashes(self, tests: Tests, groups: int) -> Keys:
        """The sum of the hashes of the constants that attributes must equal, for each group."""
        total = np.zeros(groups, np.uint64)
        owner = np.repeat(np.arange(groups), tests.of.counts(np.arange(groups)))
        for attribute, constants in tests.constants.items():
            mine = np.flatnonzero((tests.attribute == attribute) & (tests.op == OPS.index("=")))
            # Of two constants that one attribute must equal, the first is enough to find the group by.
            mine = mine[np.unique(owner[mine], return_index=True)[1]]
            hashed = value_hashes(constants, attribute, self.attributes.types[attribute])
            total[owner[mine]] += hashed[tests.first[mine]]
        return total

    def nodes(self) -> Nodes:
        paths, shapes = self.paths, self.shapes
        owner, compared = shapes.compared.members(paths.compared)
        equal = shapes.compared_op[compared] == OPS.index("=")
        # An attribute that must equal several constants counts once.
        width = len(self.attributes.columns)
        pairs = np.unique(owner[equal] * width + shapes.compared_attribute[compared[equal]])
        return Nodes(
            stream=_small(paths.stream),
            others=paths.others,
            old=paths.old if self.past_of is None else np.ones_like(paths.old),
            checks=Lists(_small(paths.checks.starts)),
            check_depth=_small(paths.check_depth),
            check_left=_small(paths.check_left),
            check_right=_small(paths.check_right),
            check_place=_small(paths.check_place),
            equal=Lists(_small(Lists.of_owners(pairs // width, len(paths.stream)).starts)),
            equal_attribute=_small(pairs % width),
        )

    def queries(self) -> Queries:
        rows = self.catalogue.queries
        return Queries(
            ids=rows.column("id"),
            texts=text_numbers(rows.column("sql")),
            first=self.first,
            since=rows.column("since").fill_null(-FARTHEST).to_numpy(),
            template=_small(self.template),
            window=pc.index_in(rows.column("window"), pa.array(WINDOWS))
            .fill_null(0)
            .to_numpy()
            .astype(np.int64),
            width=rows.column("width").fill_null(0).to_numpy(),
            inputs=_small(self.shapes.inputs),
            stream=_small(self.shapes.stream),
            outputs=Outputs.of_templates(self.templates, self.attributes),
            constants=(self.texts, self.text_of),
        )


def _numbered_probes(paths: Paths) -> tuple[Indices, Indices]:
    """The distinct lookups of nodes: a node of each, and the number of each node's."""
    _, one = numbered_pairs(paths.value_depth + 1, paths.value + 1)
    return numbered_pairs(one, paths.attribute + 1)


# --- Arrays ---------------------------------------------------------------------------------------------------------


def _flat(lists: pa.Array) -> tuple[pa.Array, Indices]:
    """The values of all lists behind each other, and where each list begins."""
    counts = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    return lists.flatten(), np.cumsum(counts) - counts


def _small(numbers: Indices) -> Indices:
    """Numbers in half of the memory: a forest is kept as long as its catalogue, and has no two thousand million parts."""
    return numbers.astype(np.int32) if numbers.max(initial=0) < 1 << 31 else numbers


def _numbers(values: Sequence[int]) -> Indices:
    return np.array(values, np.int64)


def _joined(parts: Sequence[npt.NDArray[Any]], kind: type = np.int64) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, kind)
