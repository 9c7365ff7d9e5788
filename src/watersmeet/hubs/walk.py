"""Find the answers of a batch: fresh rows take the first steps of the forest, and what they are bound to the next ones.

A round is one join of bindings with steps, whichever queries they are for:

    1. every binding goes down the branches of its group (`Forest.branches`)
    2. the values that the steps look up are read, and found in the indexes
    3. rows are left out that are too new for the step or older than its queries
    4. the step's other equalities are checked
    5. rows go to the groups whose constants they satisfy

Bindings of complete groups are answers. Rounds go depth first, a piece at a time, so that memory does not depend on
the number of answers.

Invariant: every combination of rows with a fresh one that satisfies a query is yielded once, if its rows are not older
than the query or its SINCE, nor late if it has a window. Idreos et al. (2008) keep rewritten queries at the nodes of an overlay and send them on; here a binding
is a rewritten query that lives as long as its batch, and the log takes the place of the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.hubs.constants import compared_type
from watersmeet.hubs.forest import OPS, WINDOWS, Forest, branch_keys, value_hashes
from watersmeet.hubs.lists import spread
from watersmeet.hubs.rows import LAST_ROW, Rows, is_late
from watersmeet.hubs.window import WindowOf
from watersmeet.kernel.evaluate import evaluate, same_value
from watersmeet.kernel.gather import numbered
from watersmeet.kernel.keys import Indices, Keys, Mask, order_keys
from watersmeet.kernel.rows import take_values
from watersmeet.model.expression import Call, Column
from watersmeet.model.types import BOOLEAN

# Bindings that take a round together. Queries of many shapes make hundreds of thousands of small searches in a batch, so
# the calls cost more than the rows, and pieces are larger than the cache: 65,536 rows take a fifth more time.
PIECE_ROWS = 262_144
# The number of pieces that are sorted by the index that they look into, before they are cut. Look-ups are few and long
# then: half the CPU time of a batch of random shapes. Sixteen save no more.
SORTED_PIECES = 4


@dataclass(frozen=True, slots=True)
class Bindings:
    """Groups, and the positions of the rows that are bound in each of their steps: a column for each step."""

    group: Indices
    rows: tuple[Indices, ...]

    def __len__(self) -> int:
        return len(self.group)

    def slice(self, low: int, high: int) -> Bindings:
        return Bindings(self.group[low:high], tuple(column[low:high] for column in self.rows))

    def at(self, places: Indices) -> Bindings:
        return Bindings(self.group[places], tuple(column[places] for column in self.rows))


@dataclass(frozen=True, slots=True)
class Found:
    """Answers: the places of their queries in the catalogue, and by input the positions of their rows; -1 is none.

    `oldest` and `newest` are publication times in microseconds.
    """

    query: Indices
    rows: Indices
    oldest: Indices
    newest: Indices

    def __len__(self) -> int:
        return len(self.query)


@dataclass(frozen=True)
class Walk:
    """Walks the forest over the rows of one batch. `fresh_from` is the number of the batch's first row, in any stream.

    `time` is the name of the column of publication times. `looked`, if given, counts the rows that each branch looks at.
    """

    forest: Forest
    rows: Rows
    fresh_from: Keys
    time: str
    piece_rows: int = PIECE_ROWS
    looked: Indices | None = None
    _last: dict[int, Keys] = field(default_factory=dict, init=False)

    def answers(self, fresh: Mapping[int, Indices]) -> Iterator[Found]:
        """The answers whose first bound row is one of these fresh rows, given by stream as positions."""
        yield from self.follow_all(
            part for stream, positions in fresh.items() for part in self.rooted(stream, positions)
        )

    def rooted(self, stream: int, positions: Indices) -> Iterator[Bindings]:
        """Bind fresh rows of a stream to all first steps over it."""
        roots = self.forest.roots[stream]
        step = max(1, self.piece_rows // max(1, len(roots)))
        if self.looked is not None:
            self.looked[roots] += len(positions)
        for low in range(0, len(positions), step):
            part = positions[low : low + step]
            branch, row = np.repeat(roots, len(part)), np.tile(part, len(roots))
            yield from self.admitted(branch, (), row)

    def follow_all(self, parts: Iterable[Bindings]) -> Iterator[Found]:
        """The answers of all parts, followed together: a call costs as much for a few bindings as for many."""
        for group, *rows in _together(((one.group, *one.rows) for one in parts), self.piece_rows):
            yield from self.follow(Bindings(group, tuple(rows)))

    def follow(self, bound: Bindings) -> Iterator[Found]:
        """The answers of some bindings, and of all that they lead to."""
        forest = self.forest
        for low, high in _cut(forest.entries.counts(bound.group), self.piece_rows):
            found = self.complete(bound.slice(low, high))
            if len(found):
                yield found
        for low, high in _cut(forest.branches.counts(bound.group), SORTED_PIECES * self.piece_rows):
            part = bound.slice(low, high)
            yield from self.follow_all(self.branched(part))

    # --- one round ------------------------------------------------------------------------------------------------

    def branched(self, bound: Bindings) -> Iterator[Bindings]:
        """Take all branches of some bindings, those that look into one index together."""
        owner, branch = self.forest.branches.members(bound.group)
        sought = self.forest.nodes.attribute[self.forest.branch_node[branch]]
        order = np.argsort(sought, kind="stable")
        for first in range(0, len(order), self.piece_rows):
            mine = order[first : first + self.piece_rows]
            yield from self.taken(bound.at(owner[mine]), branch[mine])

    def taken(self, bound: Bindings, branch: Indices) -> Iterator[Bindings]:
        """Take one branch from each binding."""
        for binding, number in _together(self.candidates(bound, branch), self.piece_rows):
            node = self.forest.branch_node[branch[binding]]
            row = self.positions(self.forest.nodes.stream[node], number)
            stored = np.flatnonzero(row >= 0)
            binding, row = binding[stored], row[stored]
            kept = self.equal(branch[binding], bound.at(binding).rows, row)
            binding, row = binding[kept], row[kept]
            yield from self.admitted(branch[binding], bound.at(binding).rows, row)

    def candidates(self, bound: Bindings, branch: Indices) -> Iterator[tuple[Indices, Keys]]:
        """What the branches look up: bindings, and the numbers of the rows that the indexes have for each."""
        nodes = self.forest.nodes
        node = self.forest.branch_node[branch]
        keys, known = self.keys_of(nodes.value[node], _column(bound.rows, nodes.depth[node]))
        first_row, end_row = (
            self.forest.branch_low[branch],
            np.where(nodes.old[node], self.fresh_from, LAST_ROW),
        )
        sought_as = nodes.attribute[node[known]]
        for attribute in np.unique(sought_as).tolist():
            mine = known[sought_as == attribute]
            sought, key_of = numbered(keys[mine])
            hits = self.rows.look_up(attribute, sought)
            # The bindings that seek each key, behind each other.
            seekers = np.bincount(key_of, minlength=len(sought))
            begins = np.cumsum(seekers) - seekers
            by_key = mine[np.argsort(key_of, kind="stable")]
            for first, end in _cut(hits.counts * seekers, self.piece_rows):
                # Where one key has more than a piece by itself, its entries come in parts.
                limit = max(1, self.piece_rows // int(seekers[first:end].max()))
                for key, number in hits.entries(first, end, limit if end - first == 1 else self.piece_rows):
                    at, place = spread(begins[key], seekers[key])
                    binding, found = by_key[place], number[at]
                    if self.looked is not None:
                        np.add.at(self.looked, branch[binding], 1)
                    here = np.flatnonzero((found >= first_row[binding]) & (found < end_row[binding]))
                    yield binding[here], found[here]

    def positions(self, stream: Indices, number: Keys) -> Indices:
        """Where rows lie, by stream and number; -1 for rows that are not stored any more."""
        row = np.full(len(number), -1, np.int64)
        for one in np.unique(stream).tolist():
            mine = np.flatnonzero(stream == one)
            row[mine] = self.rows.streams[one].positions(number[mine])
        return row

    def keys_of(self, attribute: Indices, positions: Indices) -> tuple[Keys, Indices]:
        """The order keys of values, by attribute and position, and where they are not null."""
        keys, known = np.zeros(len(attribute), np.uint64), np.zeros(len(attribute), np.bool_)
        for one in np.unique(attribute).tolist():
            mine, values = self.values(one, np.flatnonzero(attribute == one), positions)
            keys[mine], known[mine] = order_keys([values]), True
        return keys, np.flatnonzero(known)

    def values(self, attribute: int, at: Indices, positions: Indices) -> tuple[Indices, pa.Array]:
        """The values of an attribute at some places, without nulls, and the places that are left."""
        values = self.rows.take(attribute, positions[at])
        if not values.null_count:
            return at, values
        valid = values.is_valid()
        return at[valid.to_numpy(zero_copy_only=False)], values.filter(valid)

    def equal(self, branch: Indices, rows: tuple[Indices, ...], row: Indices) -> Indices:
        """The places where the other equalities of the step hold."""
        nodes = self.forest.nodes
        owner, check = nodes.checks.members(self.forest.branch_node[branch])
        if not len(owner):
            return np.arange(len(row))
        left, right = nodes.check_left[check], nodes.check_right[check]
        depth = nodes.check_depth[check]
        failed = np.zeros(len(row), np.bool_)
        width = len(self.forest.attributes.columns)
        for pair in np.unique(left * width + right).tolist():
            one, other = divmod(pair, width)
            mine = np.flatnonzero((left == one) & (right == other))
            at = owner[mine]
            bound = _column(tuple(column[at] for column in rows), depth[mine])
            same = same_value(self.rows.take(one, bound), self.rows.take(other, row[at]))
            failed[at[~_true(same)]] = True
        return np.flatnonzero(~failed)

    def admitted(self, branch: Indices, rows: tuple[Indices, ...], row: Indices) -> Iterator[Bindings]:
        """Put rows into the groups below their branch whose constants they satisfy."""
        forest = self.forest
        key, known = self.branch_hashes(branch, row)
        first = np.searchsorted(forest.group_key, key[known])
        count = np.searchsorted(forest.group_key, key[known], side="right") - first
        for low, high in _cut(count, self.piece_rows):
            owner, place = spread(first[low:high], count[low:high])
            at, group = known[low:high][owner], forest.group_of[place]
            # Two branches may have equal hashes. Those of constants are compared with the constants themselves below.
            mine = np.flatnonzero(forest.group_branch[group] == branch[at])
            at, group = at[mine], group[mine]
            kept = self.passing(group, row[at])
            at, group = at[kept], group[kept]
            yield Bindings(group, (*(column[at] for column in rows), row[at]))

    def branch_hashes(self, branch: Indices, row: Indices) -> tuple[Keys, Indices]:
        """The keys by which groups are found, and the places that can have one: those without a null."""
        nodes = self.forest.nodes
        key = branch_keys(branch)
        owner, at = nodes.equal.members(self.forest.branch_node[branch])
        attribute, known = nodes.equal_attribute[at], np.ones(len(branch), np.bool_)
        for one in np.unique(attribute).tolist():
            places = owner[attribute == one]
            here, values = self.values(one, places, row)
            known[places] = False
            known[here] = True
            key[here] += value_hashes(values, one, self.forest.attributes.types[one])
        return key, np.flatnonzero(known)

    def passing(self, group: Indices, row: Indices) -> Indices:
        """The places where a row satisfies all comparisons of a group, and is not too old for it."""
        tests = self.forest.tests
        owner, test = tests.of.members(group)
        failed = np.zeros(len(group), np.bool_)
        kind = tests.attribute[test] * len(OPS) + tests.op[test]
        for one in np.unique(kind).tolist():
            attribute, op = divmod(one, len(OPS))
            mine = np.flatnonzero(kind == one)
            passed = self.compared(attribute, OPS[op], row[owner[mine]], test[mine])
            failed[owner[mine[~passed]]] = True
        return np.flatnonzero(~failed)

    def compared(self, attribute: int, op: str, row: Indices, test: Indices) -> Mask:
        """Whether each comparison of a row with constants is true."""
        values, tests = self.rows.take(attribute, row), self.forest.tests
        if op in ("is null", "is not null"):
            null = values.is_null().to_numpy(zero_copy_only=False)
            return null if op == "is null" else ~null
        if op not in ("in", "not in"):
            constants = take_values(tests.constants[attribute], tests.first[test])
            return self.true(attribute, op, values, constants)
        owner, place = spread(tests.first[test], tests.count[test])
        same = self.true(
            attribute, "=", take_values(values, owner), take_values(tests.constants[attribute], place)
        )
        found = np.zeros(len(row), np.bool_)
        found[owner[same]] = True
        if op == "in":
            return found
        return ~found & values.is_valid().to_numpy(zero_copy_only=False)

    def true(self, attribute: int, op: str, values: pa.Array, constants: pa.Array) -> Mask:
        kind = self.forest.attributes.types[attribute]
        left, right = Column("row", "", kind), Column("constant", "", compared_type(kind))
        columns = {("row", ""): values, ("constant", ""): constants}
        return _true(evaluate(Call(op, (left, right), BOOLEAN), columns, len(values), ansi=True))

    # --- answers --------------------------------------------------------------------------------------------------

    def complete(self, bound: Bindings) -> Found:
        """The answers of the bindings whose groups are complete: their rows by input, if the window holds them."""
        forest, queries = self.forest, self.forest.queries
        owner, entry = forest.entries.members(bound.group)
        query = forest.query[entry]
        rows = np.full((len(entry), forest.placed.shape[1]), -1, np.int64)
        for depth, column in enumerate(bound.rows):
            rows[np.arange(len(entry)), forest.placed[entry, depth]] = column[owner]
        oldest = np.full(len(entry), np.iinfo(np.int64).max)
        newest = np.full(len(entry), np.iinfo(np.int64).min)
        kept = np.ones(len(entry), np.bool_)
        stream_of = queries.stream[queries.template[query]]
        for input_ in range(len(bound.rows)):
            for stream in np.unique(stream_of[:, input_]).tolist():
                mine = np.flatnonzero(stream_of[:, input_] == stream)
                positions, stored = rows[mine, input_], self.rows.streams[stream]
                times = stored.take(self.time, positions).to_numpy()
                oldest[mine] = np.minimum(oldest[mine], times)
                newest[mine] = np.maximum(newest[mine], times)
                numbers, asked = stored.numbers(positions), query[mine]
                kept[mine] &= numbers >= queries.first[asked]
                kept[mine] &= ~(is_late(numbers) & (queries.window[asked] > 0))
                counted = np.flatnonzero(queries.window[asked] == OVER_ROWS)
                if len(counted):
                    first = self.first_of_last(stream, queries.width[asked[counted]])
                    kept[mine[counted]] &= numbers[counted] >= first
        kept &= oldest >= queries.since[query]
        kept &= within(queries.window[query], queries.width[query], oldest, newest)
        here = np.flatnonzero(kept)
        return Found(query[here], rows[here], oldest[here], newest[here])

    def first_of_last(self, stream: int, widths: Indices) -> Keys:
        """The first of the last rows of a stream from before the batch, for each number of rows."""
        queries = self.forest.queries
        if stream not in self._last:
            most = int(queries.width[queries.window == OVER_ROWS].max())
            self._last[stream] = self.rows.streams[stream].last_numbers(self.fresh_from, most)
        last = self._last[stream]
        # With fewer rows than the window has, the first is the first of all.
        numbers = np.append(last, np.uint64(0))
        return np.where(widths <= len(last), numbers[len(last) - np.minimum(widths, len(last))], np.uint64(0))


OVER_ROWS = WINDOWS.index(WindowOf.ROWS)


def within(window: Indices, width: Indices, oldest: Indices, newest: Indices) -> Mask:
    """Whether the times of an answer's rows lie in the window of its query, if it is one over time."""
    kept = np.ones(len(window), np.bool_)
    sliding = np.flatnonzero(window == WINDOWS.index(WindowOf.TIME))
    kept[sliding] = newest[sliding] - oldest[sliding] <= width[sliding]
    tumbling = np.flatnonzero(window == WINDOWS.index(WindowOf.TUMBLING))
    kept[tumbling] = newest[tumbling] // width[tumbling] == oldest[tumbling] // width[tumbling]
    return kept


def _column(rows: tuple[Indices, ...], depth: Indices) -> Indices:
    """Of each binding the row that is bound at some depth."""
    if len(rows) == 1:
        return rows[0]
    return np.stack(rows)[depth, np.arange(len(depth))]


def _cut(rows: Indices, limit: int) -> Iterator[tuple[int, int]]:
    """Stretches of about `limit` rows, or of one thing that has more; nothing where there are no rows."""
    reached = np.cumsum(rows)
    first = 0
    while first < len(rows) and reached[-1] > (reached[first - 1] if first else 0):
        before = int(reached[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(reached, before + limit, side="right")))
        yield first, end
        first = end


def _together(
    parts: Iterable[tuple[npt.NDArray[Any], ...]], limit: int
) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """Columns of several parts behind each other, about `limit` rows at a time."""
    held: list[tuple[npt.NDArray[Any], ...]] = []
    rows = 0
    for part in parts:
        if len(part[0]):
            held.append(part)
            rows += len(part[0])
        if rows >= limit:
            yield tuple(map(np.concatenate, zip(*held, strict=True)))
            held, rows = [], 0
    if held:
        yield tuple(map(np.concatenate, zip(*held, strict=True)))


def _true(values: pa.Array) -> Mask:
    found: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found
