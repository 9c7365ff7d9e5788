"""Join inputs along different keys: fresh rows are extended, input by input, through what is stored by each key.

An input is found by each of its keys: through an *arrangement*. The first holds its columns, the others only say where
their rows are in the first. A band leads to an arrangement that is sorted by value (near.py). For the fresh rows of one
input, the *start*, a share has the arrangements of all other inputs, with the rows that the delta rule owes (see
multi.py): all rows of the inputs before the start, old rows of those behind it. The kernel binds one input after the other:

1. As soon as an input is bound, all arrangements that its rows can be looked up in are searched, for the distinct keys
   of all combinations so far. A combination without a partner in one of them is dropped before anything is expanded.
   Where there are many, most of these are dropped before their keys are even sorted (key_table.py).
2. If the plan has an order for this term (schemes/delta/orders.py), the next input is bound. Otherwise, of the inputs
   that can be expanded now, the one that gives the fewest combinations comes next. The counts are exact, so the order
   follows the data, piece by piece, but does not see what lies behind an input. An input that can be found by several keys is expanded, for each
   combination, by the key with the fewest candidates, and checked in the others.
   On a cycle, the last input is found by two keys at once: its arrangement is sorted by one and then by the other. So no
   row is bound that does not close the cycle, which is the idea of worst-case optimal joins (Ngo et al. 2012). In a
   clique of four or more inputs the third key is only compared. Bands that lead to the same value of an input narrow
   its interval in the same way, each as soon as its other input is bound.
3. Its rows are gathered, bound as positions, and tested by all conditions whose inputs are bound; those that may raise
   wait for the last input.

No intermediate result is stored. Combinations are expanded depth first in bounded pieces, so memory follows the number
of inputs and not the fan-out.

Every combination that the share owes comes out once: binding is a product over the inputs in some order, and each step
keeps exactly the rows with equal keys that pass the conditions. Sharing the work evenly is the scheme's business.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from watersmeet.kernel.edges import Arranged, Edge
from watersmeet.kernel.emit import (
    Candidates,
    Emission,
    Equality,
    OutputColumn,
    Picked,
    close_to,
    kept,
    picked_at,
    rows_together,
)
from watersmeet.kernel.evaluate import may_raise
from watersmeet.kernel.gather import (
    Looked,
    Part,
    gather,
    locate,
    look_up,
    look_up_prefixes,
    numbered,
    pieces_of_keys,
    row_bytes,
    views,
    whole_part,
)
from watersmeet.kernel.key_table import WORTH_RATIO, KeyTable, key_table
from watersmeet.kernel.keys import Indices, Keys, joined_keys, order_keys, prefix_ranges, words
from watersmeet.kernel.late import Cards, LateDeal
from watersmeet.kernel.match import Matches, expand
from watersmeet.kernel.near import (
    Intervals,
    Primary,
    distinct_locators,
    fetched,
    look_up_near,
    parts_near,
    stretches_of,
)
from watersmeet.kernel.pieces import Side, pieces
from watersmeet.kernel.rows import Keyed
from watersmeet.model.expression import Expression, columns_of, conjunction, inputs_of
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.tally import Work
from watersmeet.model.walks import Arc, WalkGraph
from watersmeet.model.window import AT

# Numbers combinations while they are tested. No input has this name.
_NUMBER = "#"
_NO_ROWS = pa.RecordBatch.from_pydict({})


@dataclass(frozen=True, slots=True)
class WalkJoin:
    """Combinations of rows, one of each input, that agree along all `edges` and for which all `conjuncts` are true."""

    edges: tuple[Edge, ...]
    arranged: tuple[Arranged, ...]
    conjuncts: tuple[Expression, ...]
    output: tuple[OutputColumn, ...]
    ansi: bool = True

    def results(
        self,
        sides: tuple[Side, ...],
        within: int | None,
        limits: Limits = DEFAULT_LIMITS,
        work: Work | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All results of one share: the fresh rows of the first side with all rows of the other sides.

        With `within`, only combinations whose window times are all at most that far apart come out. `work` counts what
        is done.
        """
        start, *others = sides
        slices = {side.name: [s for s in (*side.history, *side.fresh) if len(s)] for side in others}
        met = {one.name: one for one in self.arranged if one.stored in slices}
        ranked = sorted((side for side in others if side.rank is not None), key=lambda side: side.rank or 0)
        order = tuple(dict.fromkeys(self.input_of(side.name) for side in ranked))
        slices_of = {name: slices[one.stored] for name, one in met.items()}
        walk = _Walk(self, met, slices_of, within, limits, work or Work(), order)
        origin = self.input_of(start.name)
        read = self.read(origin, within)
        for piece in pieces(origin, start.fresh, limits):
            rows, at = piece.picked(np.arange(len(piece.keys)))
            found = {origin: Picked(rows.select(read), at)}
            yield from walk.go_on(found, origin, {}, late=start.late)

    @property
    def arrangements(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The names of the stored arrangements of each input."""
        stored: dict[str, list[str]] = {}
        for one in self.arranged:
            if not one.scanned:
                stored.setdefault(one.input, []).append(one.name)
        return tuple((name, tuple(names)) for name, names in stored.items())

    @property
    def graph(self) -> WalkGraph:
        return WalkGraph(
            tuple(edge.inputs for edge in self.edges),
            tuple(
                Arc(one.input, one.edge, one.then, one.also) for one in self.arranged if one.edge is not None
            ),
        )

    def walking(self, slices: Mapping[str, Sequence[Keyed]], limits: Limits) -> _Walk:
        """A walk through these rows, by stored arrangement, for whoever takes its steps one by one."""
        met = {one.name: one for one in self.arranged if one.stored in slices}
        slices_of = {name: slices[one.stored] for name, one in met.items()}
        return _Walk(self, met, slices_of, None, limits, Work(), ())

    def input_of(self, arrangement: str) -> str:
        return next(one.input for one in self.arranged if one.name == arrangement)

    def read(self, name: str, within: int | None) -> list[str]:
        """The columns that are needed of an input."""
        return list(
            dict.fromkeys(
                [
                    *(c.column for c in self.output if c.input == name),
                    *(key for edge in self.edges if name in edge.inputs for key in edge.of(name)),
                    *(c.name for part in self.conjuncts for c in columns_of(part) if c.input == name),
                    *([AT] if within is not None else ()),
                ]
            )
        )

    def conditions(self, bound: Sequence[str], name: str, last: bool) -> tuple[Expression, ...]:
        """The conjuncts that can be tested now that `name` is bound too, and could not before."""

        def due(part: Expression, inputs: Sequence[str]) -> bool:
            return inputs_of(part) <= set(inputs) and not may_raise(part)

        return tuple(
            part
            for part in self.conjuncts
            if (last or due(part, (*bound, name))) and not (bound and due(part, bound))
        )

    def equalities(self, bound: Sequence[str], name: str, found_by: Iterable[int]) -> tuple[Equality, ...]:
        """The key columns to compare now that `name` is bound too, and was found by some edges."""
        return tuple(
            ((other, one), (name, also))
            for number, edge in enumerate(self.edges)
            if edge.band is None and name in edge.inputs and not (number in found_by and edge.exact)
            for other in [next((other for other in bound if other in edge.inputs), None)]
            if other is not None
            for one, also in zip(edge.of(other), edge.of(name), strict=True)
        )

    def bands(self, bound: Sequence[str], name: str, found_by: Iterable[int]) -> tuple[tuple[Edge, str], ...]:
        """The bands to test now that `name` is bound too, and the other input of each. Those of `found_by` hold."""
        return tuple(
            (edge, other)
            for number, edge in enumerate(self.edges)
            if edge.band is not None and edge.exact and name in edge.inputs and number not in found_by
            for other in bound
            if other in edge.inputs
        )


@dataclass(frozen=True, slots=True)
class Sought:
    """What a lookup in one arrangement has found: where each key is, how often, and the key of each combination.

    `by` are the edges that it was by. Instead of keys it is for intervals, `near`, if the arrangement is by value.
    """

    arranged: Arranged
    looked: Sequence[Looked]
    rows: Indices
    of: Indices
    by: frozenset[int]
    near: Intervals | None = None

    @property
    def counts(self) -> Indices:
        """The rows that each combination would meet."""
        return self.rows[self.of]

    def at(self, keep: Indices) -> Sought:
        return replace(self, of=self.of[keep])


@dataclass(frozen=True, slots=True)
class _Walk:
    """One share's way through the arrangements. The inputs are bound in this `order`, if there is one."""

    join: WalkJoin
    arranged: Mapping[str, Arranged]
    slices: Mapping[str, Sequence[Keyed]]
    within: int | None
    limits: Limits
    work: Work
    order: tuple[str, ...]
    # By arrangement, made when one is first worth it.
    tables: dict[str, KeyTable] = field(default_factory=dict)

    def seek(self, arranged: Arranged, found: Candidates) -> Sought:
        """What combinations find in one arrangement."""
        return self._look_up(arranged, found)

    def go_on(
        self,
        found: Candidates,
        newest: str,
        sought: dict[str, Sought],
        by: frozenset[int] = frozenset(),
        late: LateDeal | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All results of some combinations, whose row of the input `newest` was bound last, found exactly by edges `by`.

        `sought` has what was looked up before and is not bound yet. With a `late` deal other tasks have the same
        combinations, and each takes its part of them on the way (late.py).
        """
        bound = [name for name in found if name != newest]
        last = {one.input for one in self.arranged.values()} <= found.keys()
        join = self.join
        emission = Emission(
            join.output if last else (),
            conjunction(join.conditions(bound, newest, last)),
            join.ansi,
            join.equalities(bound, newest, by),
            limits=self.limits,
        )
        bands = join.bands(bound, newest, by)
        if last:
            yield from emission.results(self._close(found, newest, bands))
            return
        found, sought = self._tested(found, newest, sought, bands, emission)
        if not len(found[newest].at):
            return
        for arranged in self.arranged.values():
            if self._finds_more(arranged, found, newest, sought.get(arranged.name)):
                looked = self._look_up(arranged, found)
                keep = np.flatnonzero(looked.counts)
                if not len(keep):
                    return
                found = kept(found, keep)
                sought = {name: one.at(keep) for name, one in (sought | {arranged.name: looked}).items()}
        left = {one.input for one in self.arranged.values()} - found.keys()
        if late is None or late.large or left != {one.arranged.input for one in sought.values()}:
            yield from self._expanded(found, sought, late)
            return
        for keep, rest in late.cut(_estimated(sought)):
            mine = {name: one.at(keep) for name, one in sought.items()}
            yield from self._expanded(kept(found, keep), mine, rest)

    def _close(self, found: Candidates, newest: str, bands: Iterable[tuple[Edge, str]]) -> Candidates:
        """The combinations whose row of the input `newest` is within the window, and within these bands."""
        if self.within is not None:
            found = close_to(found, newest, self.within)
        for edge, other in bands:
            inside = edge.near(found, other).hold(words(found[newest].values(*edge.of(newest))))
            found = kept(found, np.flatnonzero(inside))
        return found

    def _tested(
        self,
        found: Candidates,
        newest: str,
        sought: dict[str, Sought],
        bands: Iterable[tuple[Edge, str]],
        emission: Emission,
    ) -> tuple[Candidates, dict[str, Sought]]:
        """The combinations that pass, with what was looked up for them."""
        passing = found | {_NUMBER: Picked(_NO_ROWS, np.arange(len(found[newest].at)))}
        passing = emission.passing(self._close(passing, newest, bands))
        keep = passing.pop(_NUMBER).at
        return passing, {name: one.at(keep) for name, one in sought.items()}

    def _finds_more(self, arranged: Arranged, found: Candidates, newest: str, known: Sought | None) -> bool:
        """Whether the rows that were bound last find rows in an arrangement, or fewer than those known."""
        edges = self.join.edges
        if arranged.input in found or arranged.edge is None:
            return False
        if edges[arranged.edge].band is not None:
            # Each band leads there alone.
            leading: tuple[int | None, ...] = (arranged.edge, *arranged.also)
        else:
            leading = (arranged.edge if known is None else arranged.then,)
        used = frozenset() if known is None else known.by
        return any(newest in edges[one].inputs for one in leading if one is not None and one not in used)

    def _look_up(self, arranged: Arranged, found: Candidates) -> Sought:
        """Look up the keys of all combinations: by both keys of the arrangement if both are bound."""
        slices = self.slices[arranged.name]
        self.work.looked_rows += len(next(iter(found.values())).at)
        assert arranged.edge is not None
        if self.join.edges[arranged.edge].band is not None:
            return self._look_up_near(arranged, found)
        by = frozenset({arranged.edge})
        prefix = self._keys(arranged.edge, found)
        assert prefix is not None
        if not len(prefix):
            # Without a key all rows are found.
            whole = (Matches(*np.array([[0], [0], [len(s)]])) for s in slices)
            looked = [Looked(s, False, at) for s, at in zip(slices, whole, strict=True)]
            combinations = len(next(iter(found.values())).at)
            return Sought(
                arranged, looked, np.array([sum(map(len, slices))]), np.zeros(combinations, np.int64), by
            )
        suffix = None if arranged.then is None else self._keys(arranged.then, found)
        if suffix is not None and arranged.then is not None:
            by |= {arranged.then}
        if not arranged.halves:
            return self._look_up_exactly(arranged, order_keys(prefix), by)
        if suffix is not None:
            return self._look_up_exactly(arranged, joined_keys(order_keys(prefix), order_keys(suffix)), by)
        keys, of = numbered(prefix_ranges(order_keys(prefix))[0])
        looked = look_up_prefixes(keys, slices)
        return Sought(arranged, looked, _rows_found(looked, len(keys)), of, by)

    def _look_up_exactly(self, arranged: Arranged, keys: Keys, by: frozenset[int]) -> Sought:
        """Look up whole order keys, of each combination one. Most of those that are absent are not even sorted."""
        slices = self.slices[arranged.name]
        table = self.tables.get(arranged.name)
        if table is None and 0 < sum(map(len, slices)) <= WORTH_RATIO * len(keys):
            table = self.tables[arranged.name] = key_table([s.keys for s in slices])
        likely = np.arange(len(keys)) if table is None else table.likely(keys)
        sought, numbers = numbered(keys if table is None else keys[likely])
        looked = look_up(sought, slices)
        # Combinations that find nothing are numbered as if of one more key, which has no rows.
        of = np.full(len(keys), len(sought))
        of[likely] = numbers
        return Sought(arranged, looked, np.append(_rows_found(looked, len(sought)), 0), of, by)

    def _look_up_near(self, arranged: Arranged, found: Candidates) -> Sought:
        """Look up the values of all combinations: by all bands whose other input is bound, each narrowing the others."""
        assert arranged.edge is not None
        edges = self.join.edges
        leading = [
            (number, name)
            for number in (arranged.edge, *arranged.also)
            for name in edges[number].inputs
            if name in found
        ]
        near = [edges[number].near(found, name) for number, name in leading]
        sought, of = functools.reduce(Intervals.met, near).distinct()
        looked = look_up_near(sought, self.slices[arranged.name])
        by = frozenset(number for number, _ in leading)
        return Sought(arranged, looked, _rows_found(looked, len(sought.lower)), of, by, sought)

    def _keys(self, number: int, found: Candidates) -> list[pa.Array] | None:
        """The key of an edge in each combination, if an input of the edge is bound."""
        edge = self.join.edges[number]
        bound = next((name for name in found if name in edge.inputs), None)
        return None if bound is None else [found[bound].values(column) for column in edge.of(bound)]

    def _expanded(
        self, found: Candidates, sought: dict[str, Sought], late: LateDeal | None
    ) -> Iterator[pa.RecordBatch]:
        """Bind the next input: as ordered, or else the one with the fewest rows to bind.

        Each combination is extended by the key that has the fewest rows.
        """
        by_input: dict[str, list[Sought]] = {}
        for one in sought.values():
            by_input.setdefault(one.arranged.input, []).append(one)
        counts = {name: np.stack([one.counts for one in ways]) for name, ways in by_input.items()}
        ordered = next((name for name in self.order if name in counts), None)
        chosen = ordered or min(counts, key=lambda name: int(counts[name].min(axis=0).sum()))
        rest = {name: one for name, one in sought.items() if one.arranged.input != chosen}
        best = counts[chosen].argmin(axis=0)
        cards = None
        if late is not None:
            last = {one.input for one in self.arranged.values()} <= {*found, chosen}
            cards, late = late.next_step(int(counts[chosen].min(axis=0).sum()), last=last)
        for way, one in enumerate(by_input[chosen]):
            keep = np.flatnonzero(best == way)
            if len(keep):
                others = {name: other.at(keep) for name, other in rest.items()}
                yield from self._bound(kept(found, keep), others, one.at(keep), late, cards)

    def _bound(
        self,
        found: Candidates,
        rest: dict[str, Sought],
        one: Sought,
        late: LateDeal | None = None,
        cards: Cards | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Bind the rows of one arrangement to the combinations, a piece of its keys at a time.

        Of the combinations that are made here only those of this hand go on, if there are `cards`.
        """
        name = one.arranged.input
        read = self.join.read(name, self.within)
        used = np.zeros(len(one.rows), np.bool_)
        used[one.of] = True
        keys = np.flatnonzero(used)
        looked, rows = [found_.only(used) for found_ in one.looked], one.rows[keys]
        of = (np.cumsum(used) - 1)[one.of]
        # Combinations of one key stay in their order. Tasks deal them out later (late.py), so all must have the same order,
        # and how an unstable sort leaves equal keys depends on the processor.
        order = np.sort(of * len(of) + np.arange(len(of))) % max(1, len(of))
        of = of[order]
        # Half an order key is never exact. A value is compared again where rows are only located.
        exact = one.near is not None or not (one.arranged.halves or one.arranged.through)
        by = one.by if exact else frozenset()
        for part, low, high, first in self._parts(one, looked, rows, of, keys, read):
            of_part = of[low:high] - first
            places = np.flatnonzero(part.count[of_part])
            of_part = of_part[places]
            limit = rows_together(self.limits, part.rows, *(picked.rows for picked in found.values()))
            for which, at in expand(places, part.start[of_part], part.count[of_part], limit):
                if cards is not None:
                    mine = cards.next_of(len(which))
                    which, at = which[mine], at[mine]
                self.work.bound_rows += len(which)
                combined = picked_at(found, order[low:high][which])
                combined[name] = Picked(part.rows, part.order[at])
                others = {other: left.at(order[low:high][which]) for other, left in rest.items()}
                yield from self.go_on(combined, name, others, by, late)

    def _parts(
        self,
        one: Sought,
        looked: Sequence[Looked],
        rows: Indices,
        of: Indices,
        keys: Indices,
        read: list[str],
    ) -> Iterator[tuple[Part, int, int, int]]:
        """The rows of some keys of an arrangement in parts, a piece of the keys at a time.

        With each part: from where to where the combinations of its keys are in `of`, and the first of its keys.
        """
        name, through = one.arranged.input, one.arranged.through
        if one.near is not None:
            assert one.arranged.edge is not None
            column = self.join.edges[one.arranged.edge].of(name)[0]
            located = None if through is None else Primary(self.slices[through], column)
            for part in parts_near(name, looked, one.near.at(keys), read, self.limits, located):
                yield part, 0, len(of), 0
            return
        size = rows * row_bytes(self.slices[through or one.arranged.name], read)
        for first, end in pieces_of_keys(rows, size, self.limits):
            low, high = (int(place) for place in np.searchsorted(of, [first, end]))
            large = end - first == 1 and (
                rows[first] > self.limits.piece_rows or size[first] > self.limits.piece_bytes
            )
            parts: Iterable[Part]
            if through is not None:
                parts = self._located(one.arranged, looked, first, end, read, large)
            elif large:
                parts = (part for _, part in views(name, looked, first, {name: read}, self.limits))
            else:
                parts = [gather(name, looked, first, end, read).owed(0, 1)]
            for part in parts:
                yield part, low, high, first

    def _located(
        self, arranged: Arranged, looked: Sequence[Looked], first: int, end: int, read: list[str], large: bool
    ) -> Iterator[Part]:
        """The rows of some keys, or of one key that is too large for a piece, through the arrangement that has them."""
        assert arranged.through is not None
        name, slices = arranged.input, self.slices[arranged.through]
        if large:
            here = [stretches_of(one, first, end) for one in looked]
            for locators in distinct_locators(here, self.limits.piece_rows):
                yield from (
                    whole_part(name, rows) for rows in fetched(name, locators, slices, read, self.limits)
                )
            return
        key, pairs = locate(looked, first, end, slices)
        by_key = [replace(one, at=one.at._replace(found=key[one.at.found])) for one in pairs]
        # An arrangement may still locate rows that another one has evicted.
        if any(len(one.at.found) for one in by_key):
            yield gather(name, by_key, 0, end - first, read).owed(0, 1)


def _estimated(sought: Mapping[str, Sought]) -> list[Indices]:
    """The rows that each combination would bind of each input that was looked up."""
    fewest: dict[str, Indices] = {}
    for one in sought.values():
        known = fewest.get(one.arranged.input)
        fewest[one.arranged.input] = one.counts if known is None else np.minimum(known, one.counts)
    return list(fewest.values())


def _rows_found(looked: Iterable[Looked], keys: int) -> Indices:
    rows = np.zeros(keys, np.int64)
    for one in looked:
        rows[one.at.found] += one.at.rows
    return rows
