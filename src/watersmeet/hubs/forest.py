"""All live queries together, as a forest of shared steps.

    node      a step after other steps. Templates that begin with the same steps share the nodes of these
    group     a node with the constants of all its steps. Queries with the same constants so far share a group
    branch    a group and a node below it: bound rows of the group take this step once, for all queries below
    probe     what branches of a group have in common: a value of its bound rows, and the index that it is sought in

A binding is a group and a row for each of its steps. Taking the next steps is a join of bindings with branches, and of
the rows that are found with the groups below each branch: groups with an equality are found by the hash of its
constants, and all others of the branch one by one. So 10,000 queries that differ in a constant cost a row one search.
A group whose queries have all their inputs bound is where these queries get their answers.

It holds nothing that a process could not build again (hubs/forest_builder.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from watersmeet.hubs.kept import Keeping
from watersmeet.hubs.lists import Lists
from watersmeet.hubs.outputs import Outputs
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.window import WindowOf
from watersmeet.kernel.key_table import KeyTable
from watersmeet.kernel.keys import Indices, Keys, Mask, mix, order_keys
from watersmeet.model.types import MAX_DECIMAL_DIGITS, SqlType


@dataclass(frozen=True, slots=True)
class Nodes:
    """The steps by number. `checks` and `equal` are lists: of checks, and of attributes that equal a constant.

    `others` are the streams of the rows behind the first of a kept step (hubs/paths.py).
    """

    stream: Indices
    others: Indices
    old: Mask
    checks: Lists
    check_depth: Indices
    check_left: Indices
    check_right: Indices
    check_place: Indices
    equal: Lists
    equal_attribute: Indices


@dataclass(frozen=True, slots=True)
class Tests:
    """The comparisons with constants of each group, as lists: the attribute, the place of the comparison in `OPS`, and
    where its constants are among those of the attribute."""

    of: Lists
    attribute: Indices
    op: Indices
    first: Indices
    count: Indices
    constants: Mapping[int, pa.Array]


@dataclass(frozen=True, slots=True)
class Forest:
    """`probes` lists those of each group, with the bound row that their value is read of and its attribute, and the
    attribute that it is sought in. `branches` lists the branches of each probe, and `branch_node` their nodes. `roots`
    are the branches of fresh rows, by stream. `group_key` ascends: it has the hash of a group's branch and constants,
    and `group_of` the group. Where the groups of a branch have no equality, `branch_first` and `branch_groups` say where
    they are in these; otherwise `branch_first` is -1, and they must be searched for. Most rows satisfy no constant:
    `group_table` tells them apart first.

    `branch_low` is the first row that any query below a branch counts. `entries` lists for each group the queries
    that are complete there: `query` is the place in the catalogue, and `placed` which input each row belongs to.
    `group_parent` and `group_branch` say where a group hangs; -1 is no group above. Below a kept step groups differ in
    their tag, elsewhere it is -1. `keeping` are the groups whose bindings are kept.
    """

    attributes: Attributes
    nodes: Nodes
    probes: Lists
    probe_depth: Indices
    probe_value: Indices
    probe_attribute: Indices
    branches: Lists
    branch_node: Indices
    branch_low: Keys
    branch_first: Indices
    branch_groups: Indices
    roots: Mapping[int, Indices]
    group_key: Keys
    group_of: Indices
    group_table: KeyTable
    tests: Tests
    entries: Lists
    query: Indices
    placed: Indices
    queries: Queries
    group_parent: Indices
    group_branch: Indices
    group_tag: Indices
    keeping: Keeping

    @property
    def first_kept(self) -> int:
        """The number from which on attributes of probes are those that kept rows wait for."""
        return len(self.attributes.columns)

    def costs(self, looked: Indices) -> Indices:
        """The rows that were looked at for each query, from those of each branch: all steps that it needs.

        A step that queries share counts for each of them.
        """
        above = np.arange(len(self.group_parent))
        total = np.zeros(len(above), np.int64)
        while len(here := np.flatnonzero(above >= 0)):
            total[here] += looked[self.group_branch[above[here]]]
            above[here] = self.group_parent[above[here]]
        end, entry = self.entries.members(np.arange(len(above)))
        found = np.zeros(len(self.queries.ids), np.int64)
        np.add.at(found, self.query[entry], total[end])
        return found


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries by their place in the catalogue, and their templates: streams by input, and output columns.

    `texts` are the numbers of their texts (`text_numbers`). Rows below `first` or older than `since` do not count.
    `constants` are those of all queries, and the place of the first one of each.
    """

    ids: pa.Array
    texts: pa.Array
    first: Keys
    since: Indices
    template: Indices
    window: Indices
    width: Indices
    inputs: Indices
    stream: Indices
    outputs: Outputs
    constants: tuple[pa.Array, Indices]


# `Queries.window` is a place in this list.
WINDOWS: Final = ("", *map(str, WindowOf))


# --- Hashes of constants and of the rows' values --------------------------------------------------------------------

_BRANCH = np.uint64(0x9E3779B97F4A7C15)
_ATTRIBUTE = np.uint64(0xD1B54A32D192ED03)
_TAG = np.uint64(0x8CB92BA72F3D8DD7)


def branch_keys(branches: Indices) -> Keys:
    """What the hashes of the constants of a branch's groups are added to."""
    return mix(branches.astype(np.uint64) * _BRANCH + _BRANCH)


def tag_keys(probes: Indices, tags: Indices) -> Keys:
    """By what groups below kept steps are found: the probe and the tag. So its branches need not be gone through."""
    return branch_keys(probes) ^ mix(tags.astype(np.uint64) * _TAG + _TAG)


def value_hashes(values: pa.Array, attribute: int, kind: SqlType) -> Keys:
    """Hashes of values of an attribute, without nulls, or of constants that it is compared with: equal if they are."""
    if kind.name == "decimal":
        values = values.cast(pa.decimal128(MAX_DECIMAL_DIGITS, kind.scale))
    salt = mix(np.array([attribute], np.uint64) * _ATTRIBUTE + _ATTRIBUTE)
    return mix(order_keys([values]) ^ salt)
