"""Join inputs along different keys: fresh rows are extended, input by input, through what is stored by each key.

An input is found by each of its keys: through an *arrangement*. The first holds its columns, the others only say where
their rows are in the first. A band leads to an arrangement that is sorted by value (near.py). For the fresh rows of one
input, the *start*, a share has the arrangements of all other inputs, with the rows that the delta rule owes (see
multi.py): all rows of the inputs before the start, old rows of those behind it. The kernel binds one input after the
other:

1. As soon as an input is bound, all arrangements that its rows can be looked up in are searched, for the distinct keys
   of all combinations so far (seek.py). A combination without a partner in one of them is dropped before anything is
   expanded.
2. If the plan has an order for this term (schemes/delta/orders.py), the next input is bound. Otherwise, of the inputs
   that can be expanded now, the one that gives the fewest combinations comes next. The counts are exact, so the order
   follows the data, piece by piece, but does not see what lies behind an input. An input that can be found by several
   keys is expanded, for each combination, by the key with the fewest candidates, and checked in the others.
   On a cycle, the last input is found by two keys at once: its arrangement is sorted by one and then by the other. No
   row is bound that does not close the cycle, which is the idea of worst-case optimal joins (Ngo et al. 2012). In a
   clique of four or more inputs the third key is only compared. Bands that lead to the same value of an input narrow
   its interval in the same way, each as soon as its other input is bound.
3. Its rows are gathered (sought_rows.py), bound as positions, and tested by all conditions whose inputs are bound;
   those that may raise wait for the last input, and until then drop only what they certainly reject (early.py).

No intermediate result is stored. Combinations are expanded depth first in bounded pieces, so memory follows the number
of inputs and not the fan-out.

Every combination that the share owes comes out once: binding is a product over the inputs in some order, and each step
keeps exactly the rows with equal keys that pass the conditions. Sharing the work evenly is the scheme's business.

A share may be cut by the keys of some edges (schemes/delta/shares.py). The key of an edge is tested when the first of
its inputs is bound: all others have the same one. The arrangements then hold the rows of these keys only. That spares
reading, and a lookup of any other key finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from watersmeet.kernel.edges import Arranged, Edge
from watersmeet.kernel.emit import (
    Emission,
    EqualColumns,
    OutputColumn,
    Picked,
    PickedRows,
    close_to,
    columns_read,
    kept,
    picked_at,
    rows_together,
)
from watersmeet.kernel.evaluate import may_raise
from watersmeet.kernel.keys import order_keys, words
from watersmeet.kernel.late import Cards, LateDeal
from watersmeet.kernel.match import expand
from watersmeet.kernel.pieces import Side, pieces
from watersmeet.kernel.seek import Seeker, Sought, fewest_rows
from watersmeet.kernel.sought_rows import SoughtRows
from watersmeet.model.expression import Expression, conjunction, inputs_of
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.tally import Tally, Work
from watersmeet.model.walks import Arc, KeyCut, WalkGraph

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
    on_one_key: ClassVar[bool] = False

    def results(
        self,
        sides: tuple[Side, ...],
        within: int | None,
        limits: Limits = DEFAULT_LIMITS,
        tally: Tally | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All results of one share: the fresh rows of the first side with all rows of the other sides.

        With `within`, only combinations whose window times are all at most that far apart come out. `tally` counts
        the work.
        """
        start, *others = sides
        slices = {side.name: [s for s in (*side.history, *side.fresh) if len(s)] for side in others}
        met = {one.name: one for one in self.arranged if one.stored in slices}
        ranked = sorted((side for side in others if side.rank is not None), key=lambda side: side.rank or 0)
        order = tuple(dict.fromkeys(self.input_of(side.name) for side in ranked))
        slices_of = {name: slices[one.stored] for name, one in met.items()}
        work = Work()
        seeker = Seeker(self.edges, slices_of, work)
        walk = _Walk(self, met, seeker, within, limits, order, start.cuts)
        origin = self.input_of(start.name)
        read = self.read(origin, within)
        for piece in pieces(origin, start.fresh, limits):
            rows, at = piece.picked(np.arange(len(piece.keys)))
            found = {origin: Picked(rows.select(read), at)}
            yield from walk.go_on(found, origin, {}, late=start.late)
        if tally is not None:
            # The other inputs of a term are looked up in.
            tally.add_walk(origin, sum(map(len, start.fresh)), work)

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
            tuple(
                (one.name, one.edge)
                for one in self.arranged
                if one.edge is not None and not one.scanned
                if self.edges[one.edge].band is None and self.edges[one.edge].of(one.input)
            ),
        )

    def input_of(self, arrangement: str) -> str:
        return next(one.input for one in self.arranged if one.name == arrangement)

    def read(self, name: str, within: int | None) -> list[str]:
        """The columns that are needed of an input."""
        keys = (key for edge in self.edges if name in edge.inputs for key in edge.of(name))
        return columns_read(name, self.output, keys, self.conjuncts, within)

    def conditions(self, bound: Sequence[str], name: str, last: bool) -> tuple[Expression, ...]:
        """The conjuncts that can be tested now that `name` is bound too, and could not before."""

        def due(part: Expression, inputs: Sequence[str]) -> bool:
            return inputs_of(part) <= set(inputs) and not may_raise(part)

        return tuple(
            part
            for part in self.conjuncts
            if (last or due(part, (*bound, name))) and not (bound and due(part, bound))
        )

    def early(self, bound: Sequence[str], name: str) -> tuple[Expression, ...]:
        """The conjuncts that wait for the last input, and whose inputs are all bound now that `name` is."""
        return tuple(
            part for part in self.conjuncts if may_raise(part) and name in inputs_of(part) <= {*bound, name}
        )

    def equalities(
        self, bound: Sequence[str], name: str, found_by: Iterable[int]
    ) -> tuple[EqualColumns, ...]:
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
class _Walk:
    """One share's way through the arrangements. The inputs are bound in this `order`, if there is one.

    Only combinations of the keys of all `cuts` are made.
    """

    join: WalkJoin
    arranged: Mapping[str, Arranged]
    seeker: Seeker
    within: int | None
    limits: Limits
    order: tuple[str, ...]
    cuts: tuple[KeyCut, ...] = ()

    def go_on(
        self,
        found: PickedRows,
        newest: str,
        sought: dict[str, Sought],
        by: frozenset[int] = frozenset(),
        late: LateDeal | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All results of some combinations. Their row of `newest` was bound last, found exactly by the edges `by`.

        `sought` has what was looked up before and is not bound yet. With a `late` deal other tasks have the same
        combinations, and each takes its part of them on the way (late.py).
        """
        bound = [name for name in found if name != newest]
        found, sought = self._of_cuts(found, newest, bound, sought)
        last = {one.input for one in self.arranged.values()} <= found.keys()
        join = self.join
        emission = Emission(
            join.output if last else (),
            conjunction(join.conditions(bound, newest, last)),
            join.ansi,
            join.equalities(bound, newest, by),
            early=() if last else join.early(bound, newest),
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
            if self.seeker.finds_more(arranged, found, newest, sought.get(arranged.name)):
                looked = self.seeker.look_up(arranged, found)
                keep = np.flatnonzero(looked.counts)
                if not len(keep):
                    return
                found = kept(found, keep)
                sought = {name: one.at(keep) for name, one in (sought | {arranged.name: looked}).items()}
        left = {one.input for one in self.arranged.values()} - found.keys()
        if late is None or late.large or left != {one.arranged.input for one in sought.values()}:
            yield from self._expanded(found, sought, late)
            return
        for keep, rest in late.cut(fewest_rows(sought)):
            mine = {name: one.at(keep) for name, one in sought.items()}
            yield from self._expanded(kept(found, keep), mine, rest)

    def _of_cuts(
        self, found: PickedRows, newest: str, bound: Sequence[str], sought: dict[str, Sought]
    ) -> tuple[PickedRows, dict[str, Sought]]:
        """The combinations whose keys are those of the cuts, with what was looked up for them.

        Only the edges of which `newest` is the first input are tested.
        """
        for cut in self.cuts:
            edge = self.join.edges[cut.edge]
            if newest not in edge.inputs or any(name in edge.inputs for name in bound):
                continue
            keys = order_keys([found[newest].values(column) for column in edge.of(newest)])
            # The end of the last range is no 64-bit number.
            keep = np.flatnonzero((keys >= cut.range.low) & (keys <= cut.range.high - 1))
            found, sought = kept(found, keep), {name: one.at(keep) for name, one in sought.items()}
        return found, sought

    def _close(self, found: PickedRows, newest: str, bands: Iterable[tuple[Edge, str]]) -> PickedRows:
        """The combinations whose row of the input `newest` is within the window, and within these bands."""
        if self.within is not None:
            found = close_to(found, newest, self.within)
        for edge, other in bands:
            inside = edge.near(found, other).hold(words(found[newest].values(*edge.of(newest))))
            found = kept(found, np.flatnonzero(inside))
        return found

    def _tested(
        self,
        found: PickedRows,
        newest: str,
        sought: dict[str, Sought],
        bands: Iterable[tuple[Edge, str]],
        emission: Emission,
    ) -> tuple[PickedRows, dict[str, Sought]]:
        """The combinations that pass, with what was looked up for them."""
        passing = found | {_NUMBER: Picked(_NO_ROWS, np.arange(len(found[newest].at)))}
        passing = emission.passing(self._close(passing, newest, bands))
        keep = passing.pop(_NUMBER).at
        return passing, {name: one.at(keep) for name, one in sought.items()}

    def _expanded(
        self, found: PickedRows, sought: dict[str, Sought], late: LateDeal | None
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
        found: PickedRows,
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
        sought = SoughtRows.found_by(one)
        # Half an order key is never exact. A value is compared again where rows are only located.
        exact = one.near is not None or not (one.arranged.halves or one.arranged.through)
        by = one.by if exact else frozenset()
        for part, low, high, first in sought.parts(self.seeker.slices, self._value(one), read, self.limits):
            of_part = sought.of[low:high] - first
            combination = sought.order[low:high]
            places = np.flatnonzero(part.count[of_part])
            of_part = of_part[places]
            limit = rows_together(self.limits, part.rows, *(picked.rows for picked in found.values()))
            for which, at in expand(places, part.start[of_part], part.count[of_part], limit):
                if cards is not None:
                    mine = cards.next_of(len(which))
                    which, at = which[mine], at[mine]
                self.seeker.work.bound_rows += len(which)
                combined = picked_at(found, combination[which])
                combined[name] = Picked(part.rows, part.order[at])
                others = {other: left.at(combination[which]) for other, left in rest.items()}
                yield from self.go_on(combined, name, others, by, late)

    def _value(self, one: Sought) -> str | None:
        """The column whose values an arrangement is sorted by, if it is."""
        if one.near is None or one.arranged.edge is None:
            return None
        return self.join.edges[one.arranged.edge].of(one.arranged.input)[0]
