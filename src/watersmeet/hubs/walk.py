"""Find the answers of a batch: fresh rows take the first steps of the forest, and what they are bound to the next ones.

A round is one join of bindings with steps, whichever queries they are for:

    1. every binding makes the probes of its group (`Forest.probes`): values are read, and found in the indexes
    2. what is found goes to the branches of the probe
    3. rows are left out that are too new for the step or older than its queries
    4. the step's other equalities are checked
    5. rows go to the groups whose constants they satisfy

A kept step binds several rows at once: what its probe finds are combinations that earlier batches left (hubs/kept.py).

Bindings of complete groups are answers. Rounds go depth first, a piece at a time, so that memory does not depend on
the number of answers.

Invariant: every combination of rows with a fresh one that satisfies a query is yielded once, if its rows are not older
than the query or its SINCE, nor late if it has a window. Idreos et al. (2008) keep rewritten queries at the nodes of an
overlay and send them on; here a binding is a rewritten query that lives as long as its batch, and the log takes the place
of the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.hubs.bindings import Bindings, Probed, chosen_rows, cut, grouped, stretches, together
from watersmeet.hubs.constants import compared_type
from watersmeet.hubs.forest import WINDOWS, Forest, branch_keys, tag_keys, value_hashes
from watersmeet.hubs.kept import ROWS, TAG, Keeper, waiting_keys
from watersmeet.hubs.lists import spread
from watersmeet.hubs.paths import OPS
from watersmeet.hubs.rows import LAST_ROW, Rows, is_late
from watersmeet.hubs.window import WindowOf
from watersmeet.kernel.evaluate import evaluate, same_value
from watersmeet.kernel.keys import Indices, Keys, Mask
from watersmeet.kernel.rows import take_values
from watersmeet.model.expression import Call, Column
from watersmeet.model.types import BOOLEAN

# Bindings that take a round together. Queries of many shapes make hundreds of thousands of small searches in a batch, so
# the calls cost more than the rows, and pieces are larger than the cache: 65,536 rows take a fifth more time.
PIECE_ROWS = 262_144
# The number of pieces whose lookups are put in the order of their indexes before they are cut: they are few and long then.
SORTED_PIECES = 4


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

    `time` is the name of the column of publication times. `looked`, if given, counts the rows that each branch looks at,
    and `keeper` takes the bindings that are kept.
    """

    forest: Forest
    rows: Rows
    fresh_from: Keys
    time: str
    piece_rows: int = PIECE_ROWS
    looked: Indices | None = None
    keeper: Keeper | None = None
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
        for group, *rows in together(((one.group, *one.rows) for one in parts), self.piece_rows):
            yield from self.follow(Bindings(group, tuple(rows)))

    def follow(self, bound: Bindings) -> Iterator[Found]:
        """The answers of some bindings, and of all that they lead to."""
        forest = self.forest
        if self.keeper is not None:
            self.keeper.take(bound)
        for low, high in cut(forest.entries.counts(bound.group), self.piece_rows):
            found = self.complete(bound.slice(low, high))
            if len(found):
                yield found
        for low, high in cut(forest.probes.counts(bound.group), SORTED_PIECES * self.piece_rows):
            part = bound.slice(low, high)
            yield from self.follow_all(self.branched(part))

    # --- one round ------------------------------------------------------------------------------------------------

    def branched(self, bound: Bindings) -> Iterator[Bindings]:
        """Take all branches of some bindings, those that look into one index together.

        Bindings of one group that lie together are a *stretch*: what is sought is sorted by stretches, not by bindings.
        """
        forest = self.forest
        starts = np.flatnonzero(np.diff(bound.group, prepend=-1))
        counts = np.diff(starts, append=len(bound))
        stretch, probe = forest.probes.members(bound.group[starts])
        order = grouped(forest.probe_value[probe])
        order = order[grouped(forest.probe_attribute[probe[order]])]
        stretch, probe = stretch[order], probe[order]
        starts, counts = starts[stretch], counts[stretch]
        columns = np.stack(bound.rows)
        # Those of kept rows are the last ones.
        kept = int(np.searchsorted(forest.probe_attribute[probe], forest.first_kept))
        for part, take in ((slice(kept), self.taken), (slice(kept, None), self.taken_kept)):
            for low, high in cut(counts[part], self.piece_rows):
                begun, made, probes = (one[part][low:high] for one in (starts, counts, probe))
                at, owner = spread(begun, made)
                yield from take(columns, owner, probes[at], Probed(probes, made))

    def taken(self, columns: Indices, owner: Indices, probe: Indices, sought: Probed) -> Iterator[Bindings]:
        """Take the branches of one probe from each of some bindings, whose rows `columns` has by depth."""
        forest, nodes = self.forest, self.forest.nodes
        for place, number in together(self.candidates(columns, owner, sought), self.piece_rows):
            for low, high in cut(forest.branches.counts(probe[place]), self.piece_rows):
                mine, branch = self.branches_of(probe[place[low:high]])
                mine += low
                if self.looked is not None:
                    np.add.at(self.looked, branch, 1)
                node, found = forest.branch_node[branch], number[mine]
                end = np.where(nodes.old[node], self.fresh_from, LAST_ROW)
                kept = np.flatnonzero((found >= forest.branch_low[branch]) & (found < end))
                branch, node, binding = branch[kept], node[kept], owner[place[mine[kept]]]
                new = self.positions(nodes.stream[node], found[kept])
                kept = np.flatnonzero(new >= 0)
                branch, binding, new = branch[kept], binding[kept], new[kept]
                kept = self.equal(branch, tuple(columns[:, binding]), (new,))
                yield from self.admitted(branch[kept], tuple(columns[:, binding[kept]]), new[kept])

    def taken_kept(
        self, columns: Indices, owner: Indices, probe: Indices, sought: Probed
    ) -> Iterator[Bindings]:
        """Take kept steps from each of some bindings. What is found goes to the groups with its tag."""
        forest, nodes, kept = self.forest, self.forest.nodes, self.rows.kept
        for place, found in together(self.waiting(columns, owner, sought), self.piece_rows):
            entry = found.astype(np.int64)
            at, group = self.tagged(probe[place], kept.take(TAG, entry).to_numpy())
            branch = forest.group_branch[group]
            if self.looked is not None:
                np.add.at(self.looked, branch, 1)
            binding, entry, node = owner[place[at]], entry[at], forest.branch_node[branch]
            streams = np.column_stack([nodes.stream[node], nodes.others[node]])
            widths = (streams >= 0).sum(axis=1)
            for width in np.unique(widths).tolist():
                some = np.flatnonzero(widths == width)
                new = []
                for name, stream in zip(ROWS[:width], streams[some].T, strict=False):
                    numbers = kept.take(name, entry[some]).to_numpy().view(np.uint64)
                    new.append(self.positions(stream, numbers))
                left = np.flatnonzero(np.stack(new).min(axis=0) >= 0)
                some, bound = some[left], tuple(columns[:, binding[some[left]]])
                rows = tuple(one[left] for one in new)
                left = self.equal(branch[some], bound, rows)
                yield Bindings(group[some[left]], tuple(one[left] for one in (*bound, *rows)))

    def tagged(self, probe: Indices, tag: Indices) -> tuple[Indices, Indices]:
        """The groups below probes of kept steps that have some tags: the places of these, and the groups."""
        forest = self.forest
        key = tag_keys(probe, tag)
        likely = forest.group_table.likely(key)
        first = np.searchsorted(forest.group_key, key[likely])
        count = np.searchsorted(forest.group_key, key[likely], side="right") - first
        owner, place = spread(first, count)
        at, group = likely[owner], forest.group_of[place]
        # The hash may be that of another group.
        branch, branches = forest.group_branch[group], forest.branches.starts
        below = (branch >= branches[probe[at]]) & (branch < branches[probe[at] + 1])
        kept = np.flatnonzero(below & (forest.group_tag[group] == tag[at]))
        return at[kept], group[kept]

    def branches_of(self, probe: Indices) -> tuple[Indices, Indices]:
        """The branches of some probes, and the place of the probe of each."""
        return self.forest.branches.members(probe)

    def candidates(self, columns: Indices, owner: Indices, sought: Probed) -> Iterator[tuple[Indices, Keys]]:
        """What probes find for some bindings: the places of bindings, and the numbers of the rows found for each."""
        attribute = self.forest.probe_attribute[sought.probe]
        keys, known = self.sought_keys(columns, owner, sought)
        ends = np.cumsum(sought.bindings)
        begins = ends - sought.bindings
        for first, end in stretches(attribute):
            low, high = int(begins[first]), int(ends[end - 1])
            some = None if known[low:high].all() else low + np.flatnonzero(known[low:high])
            wanted = keys[low:high] if some is None else keys[some]
            for place, number in self.rows.find(int(attribute[first]), wanted, self.piece_rows):
                yield low + place if some is None else some[place], number

    def waiting(self, columns: Indices, owner: Indices, sought: Probed) -> Iterator[tuple[Indices, Keys]]:
        """The same for probes of kept steps: what is found are places of combinations."""
        keys, known = self.sought_keys(columns, owner, sought)
        waits = np.repeat(self.forest.probe_value[sought.probe], sought.bindings)
        keys = waiting_keys(self.forest.attributes, waits, keys)
        mine = np.flatnonzero(known)
        for place, found in self.rows.find_kept(keys[mine], self.piece_rows):
            yield mine[place], found

    def sought_keys(self, columns: Indices, owner: Indices, sought: Probed) -> tuple[Keys, Mask]:
        """The order keys of the values that probes seek for some bindings, and which of these are not null."""
        forest, begins = self.forest, np.cumsum(sought.bindings) - sought.bindings
        value, depth = forest.probe_value[sought.probe], forest.probe_depth[sought.probe]
        keys, known = np.zeros(len(owner), np.uint64), np.ones(len(owner), np.bool_)
        order = grouped(value)
        for first, end in stretches(value[order], depth[order]):
            mine = order[first:end]
            _, at = spread(begins[mine], sought.bindings[mine])
            keys[at], valid = self.rows.keys(int(value[mine[0]]), columns[depth[mine[0]], owner[at]])
            if valid is not None:
                known[at] = valid
        return keys, known

    def positions(self, stream: Indices, number: Keys) -> Indices:
        """Where rows lie, by stream and number; -1 for rows that are not stored any more."""
        row = np.full(len(number), -1, np.int64)
        for one in np.unique(stream).tolist():
            mine = np.flatnonzero(stream == one)
            row[mine] = self.rows.streams[one].positions(number[mine])
        return row

    def values(self, attribute: int, at: Indices, positions: Indices) -> tuple[Indices, pa.Array]:
        """The values of an attribute at some places, without nulls, and the places that are left."""
        values = self.rows.take(attribute, positions[at])
        if not values.null_count:
            return at, values
        valid = values.is_valid()
        return at[valid.to_numpy(zero_copy_only=False)], values.filter(valid)

    def equal(self, branch: Indices, rows: tuple[Indices, ...], new: tuple[Indices, ...]) -> Indices:
        """The places where the other equalities of the step hold, which binds the rows `new`."""
        nodes = self.forest.nodes
        owner, check = nodes.checks.members(self.forest.branch_node[branch])
        if not len(owner):
            return np.arange(len(branch))
        left, right = nodes.check_left[check], nodes.check_right[check]
        depth, place = nodes.check_depth[check], nodes.check_place[check]
        failed = np.zeros(len(branch), np.bool_)
        width = len(self.forest.attributes.columns)
        for pair in np.unique(left * width + right).tolist():
            one, other = divmod(pair, width)
            mine = np.flatnonzero((left == one) & (right == other))
            at = owner[mine]
            bound = chosen_rows(tuple(column[at] for column in rows), depth[mine])
            found = chosen_rows(tuple(column[at] for column in new), place[mine])
            same = same_value(self.rows.take(one, bound), self.rows.take(other, found))
            failed[at[~_true(same)]] = True
        return np.flatnonzero(~failed)

    def admitted(self, branch: Indices, rows: tuple[Indices, ...], row: Indices) -> Iterator[Bindings]:
        """Put rows into the groups below their branch whose constants they satisfy."""
        forest = self.forest
        known, first, count = self.groups_of(branch, row)
        for low, high in cut(count, self.piece_rows):
            owner, place = spread(first[low:high], count[low:high])
            at, group = known[low:high][owner], forest.group_of[place]
            # Two branches may have equal hashes. Those of constants are compared with the constants themselves below.
            mine = np.flatnonzero(forest.group_branch[group] == branch[at])
            at, group = at[mine], group[mine]
            kept = self.passing(group, row[at])
            at, group = at[kept], group[kept]
            yield Bindings(group, (*(column[at] for column in rows), row[at]))

    def groups_of(self, branch: Indices, row: Indices) -> tuple[Indices, Indices, Indices]:
        """The places of rows that may have groups below their branch, and where these are in `Forest.group_of`."""
        forest = self.forest
        first, count = forest.branch_first[branch], forest.branch_groups[branch]
        hashed = np.flatnonzero(first < 0)
        if not len(hashed):
            return np.arange(len(branch)), first, count
        key, known = self.branch_hashes(branch[hashed], row[hashed])
        first[hashed], count[hashed] = 0, 0
        likely = known[forest.group_table.likely(key[known])]
        key, at = key[likely], hashed[likely]
        first[at] = np.searchsorted(forest.group_key, key)
        # Where a key is not found, the hash at its place is another.
        found = np.flatnonzero(forest.group_key[np.minimum(first[at], len(forest.group_key) - 1)] == key)
        at = at[found]
        count[at] = np.searchsorted(forest.group_key, key[found], side="right") - first[at]
        return np.arange(len(branch)), first, count

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


def _true(values: pa.Array) -> Mask:
    found: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found
