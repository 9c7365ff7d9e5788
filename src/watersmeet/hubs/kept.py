"""Kept steps: combinations of some inputs of a template, stored under the value that the next row must have.

In Idreos et al. (2008, section 3) a row that satisfies the first step of a query leaves a *rewritten query* behind, under
the stream, attribute and value that it seeks, and later rows find it there. Here a template may keep a connected set of
its inputs. Each combination of their rows that satisfies the equalities and constants among them is such a rewritten
query: a row of a run under the stream and attribute of an *edge* that leads out of the set, sorted by the order key of
the value.

    kept number    names a template and the constants of its kept inputs. Queries that have both in common share it. It is
                   never given twice (hubs/keep.py)
    tag            a kept number and an edge: which combinations a binding looks for

The delta rule puts kept inputs last. So a fresh row of another input meets old ones of them only, and these are what
earlier batches left. A fresh row of a kept input binds the others first, in the order of the rule: each combination of
kept inputs with a fresh row comes by once, and is stored.

Invariant: a combination of stored rows that a query counts is among the kept rows of the batches before, once for each
edge, from the second batch on in which it is in force that the template keeps them. In the first one combinations of old
rows are added (engine/hub_kept.py), and nothing is looked up in kept rows yet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from watersmeet.hubs.bindings import Bindings, cut
from watersmeet.hubs.language import MOST_INPUTS
from watersmeet.hubs.lists import Lists, numbered_pairs
from watersmeet.hubs.rows import Rows
from watersmeet.hubs.steps import Attributes
from watersmeet.kernel.keys import Indices, Keys, mix, order_keys
from watersmeet.kernel.rows import Sorted, sorted_order
from watersmeet.model.signature import OWN
from watersmeet.model.window import AT

# Inputs that a template keeps, at most: the rows of a combination are columns. More of them have more combinations.
MOST_KEPT: Final = 4
KEPT: Final = f"{OWN}kept"
TAG: Final = "tag"
# A hash of the index of the attribute that a combination waits for.
WAITS: Final = "waits"
ROWS: Final = tuple(f"row{number}" for number in range(MOST_KEPT))
KEPT_COLUMNS: Final = (TAG, WAITS, *ROWS, AT)
# Combinations that are held before they become runs: 72 bytes each.
HELD_ROWS: Final = 1 << 20
# Bindings that are held before they are turned into combinations, so that calls have many of them.
_HELD_BINDINGS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Edges:
    """What kept steps seek by, as lists by template: the number of the edge in its template, the attribute whose value
    is sought, and the place and attribute of what is kept that must equal it. `of_start` has the number of the edge by
    template and the input that a path starts from; -1 where there is none.
    """

    of: Lists
    number: Indices
    value: Indices
    place: Indices
    attribute: Indices
    of_start: Indices

    @classmethod
    def of_paths(cls, template: Indices, start: Indices, edge: Indices, templates: int) -> Edges:
        """The edges of some paths, whose `edge` has an attribute, a place and an attribute; -1 is none.

        Paths of a template that seek by the same edge share what is kept. It has the number of the first of them.
        """
        paths = np.flatnonzero(edge[:, 0] >= 0)
        template, start, edge = template[paths], start[paths], edge[paths]
        same = template
        for column in edge.T:
            _, same = numbered_pairs(same, column)
        number = np.full(len(paths), MOST_INPUTS, np.int64)
        np.minimum.at(number, same, start)
        of_start = np.full((templates, MOST_INPUTS), -1, np.int64)
        of_start[template, start] = number[same]
        one = np.flatnonzero(number[same] == start)
        one = one[np.argsort(template[one], kind="stable")]
        value, place, attribute = edge[one].T
        lists = Lists.of_owners(template[one], templates)
        return cls(lists, number[same[one]], value, place, attribute, of_start)


@dataclass(frozen=True, slots=True)
class Keeping:
    """The groups of a forest whose bindings are kept, as lists by group: the kept number, the template, the first row that
    any of its queries counts, and by place the depth at which the kept input is bound, and its stream; -1 behind the last
    one.
    """

    of: Lists
    number: Indices
    template: Indices
    low: Keys
    depth: Indices
    stream: Indices
    edges: Edges


def tags_of(numbers: Indices, edges: Indices) -> Indices:
    """The tags of kept numbers and edges."""
    return numbers * MOST_INPUTS + edges


@dataclass
class Keeper:
    """Gathers what is kept of the bindings of a walk."""

    keeping: Keeping
    rows: Rows
    time: str
    # Takes what many bindings have left, sorted.
    write: Callable[[Sorted], None]
    most_rows: int = field(default_factory=lambda: HELD_ROWS)
    _bound: dict[int, list[Bindings]] = field(default_factory=dict)
    _bound_rows: int = 0
    # The attribute that each combination waits for, its order key, tag, oldest time, and the numbers of its rows.
    _held: list[tuple[Indices, Keys, Indices, Indices, Keys]] = field(default_factory=list)
    _held_rows: int = 0

    def take(self, bound: Bindings) -> None:
        """Keep those of some bindings whose groups are kept."""
        mine = np.flatnonzero(self.keeping.of.counts(bound.group))
        if not len(mine):
            return
        found = Bindings(bound.group[mine], tuple(column[mine] for column in bound.rows))
        self._bound.setdefault(len(bound.rows), []).append(found)
        self._bound_rows += len(mine)
        if self._bound_rows >= _HELD_BINDINGS:
            self._gather()

    def close(self) -> None:
        """Write what has been taken so far."""
        self._gather()
        self._write()

    def _write(self) -> None:
        held, rows, self._held, self._held_rows = self._held, self._held_rows, [], 0
        if not rows:
            return
        waits, keys, tags, times, numbers = (np.concatenate(part) for part in zip(*held, strict=True))
        keys = waiting_keys(self.rows.attributes, waits, keys)
        order = sorted_order(keys)
        of_rows = numbers[order].view(np.int64).T.copy()
        columns = [tags[order], names_of(self.rows.attributes)[waits[order]], *of_rows, times[order]]
        self.write(Sorted(keys[order], pa.RecordBatch.from_arrays([*map(pa.array, columns)], KEPT_COLUMNS)))

    def _gather(self) -> None:
        for parts in self._bound.values():
            group = np.concatenate([one.group for one in parts])
            rows = [np.concatenate(column) for column in zip(*(one.rows for one in parts), strict=True)]
            columns = np.stack(rows)
            # One binding may be kept for thousands of templates.
            for low, high in cut(self._left_by[group], self.most_rows):
                self._combine(group[low:high], columns[:, low:high])
                if self._held_rows >= self.most_rows:
                    self._write()
        self._bound, self._bound_rows = {}, 0

    @functools.cached_property
    def _left_by(self) -> Indices:
        """How many combinations a binding of each group leaves at most."""
        keeping = self.keeping
        owner, entry = keeping.of.members(np.arange(len(keeping.of)))
        found = np.zeros(len(keeping.of), np.int64)
        np.add.at(found, owner, keeping.edges.of.counts(keeping.template[entry]))
        return found

    def _combine(self, group: Indices, columns: Indices) -> None:
        keeping, edges = self.keeping, self.keeping.edges
        owner, entry = keeping.of.members(group)
        positions = np.full((len(entry), MOST_KEPT), -1, np.int64)
        numbers = np.zeros((len(entry), MOST_KEPT), np.uint64)
        oldest = np.full(len(entry), np.iinfo(np.int64).max)
        for place in range(MOST_KEPT):
            depth, stream_of = keeping.depth[entry, place], keeping.stream[entry, place]
            for stream in np.unique(stream_of[depth >= 0]).tolist():
                mine = np.flatnonzero((depth >= 0) & (stream_of == stream))
                at, stored = columns[depth[mine], owner[mine]], self.rows.streams[stream]
                positions[mine, place], numbers[mine, place] = at, stored.numbers(at)
                oldest[mine] = np.minimum(oldest[mine], stored.take(self.time, at).to_numpy())
        # Rows from before a query are in none of its answers.
        is_empty = positions < 0
        counted = np.flatnonzero((is_empty | (numbers >= keeping.low[entry][:, None])).all(axis=1))
        entry, positions, numbers, oldest = (
            entry[counted],
            positions[counted],
            numbers[counted],
            oldest[counted],
        )
        which, edge = edges.of.members(keeping.template[entry])
        for attribute in np.unique(edges.attribute[edge]).tolist():
            mine = np.flatnonzero(edges.attribute[edge] == attribute)
            at, by = which[mine], edge[mine]
            keys, valid = self.rows.keys(attribute, positions[at, edges.place[by]])
            if valid is not None:
                keys, at, by = keys[valid], at[valid], by[valid]
            tags = tags_of(keeping.number[entry[at]], edges.number[by])
            self._held.append((edges.value[by], keys, tags, oldest[at], numbers[at]))
            self._held_rows += len(keys)


def waiting_keys(attributes: Attributes, waits: Indices, keys: Keys) -> Keys:
    """The order keys of combinations that wait for values of attributes, from those of the values.

    Equal for equal attributes and values only, as far as order keys are.
    """
    return mix(keys ^ _names(attributes)[waits])


def _names(attributes: Attributes) -> Keys:
    """A hash of the name of each attribute's index, which stays when other columns come or go."""
    names = [attributes.index_of(number) for number in range(len(attributes.columns))]
    return order_keys([pa.array(names, pa.string())])


def names_of(attributes: Attributes) -> Indices:
    """What stands for each attribute in the column `WAITS`."""
    return _names(attributes).view(np.int64)
