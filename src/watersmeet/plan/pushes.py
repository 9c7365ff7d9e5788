"""Put borders and payments into force: from what a batch decides, by key ranges, to pushes that name runs.

A *decision* is a set of key ranges to pay and a set to push. Everything else follows from it and from the history, so
a replay of a batch repeats the decision of the attempt before it, though merges may have replaced some runs since.

In one batch, in this order:

1. *Pay.* What the generations of a range owe each other is emitted, and the range leaves all pushes. Only history takes
   part: the batch's own rows are in no generation yet.
2. *Push.* Rows of the history in a range that is pushed are set aside, those that were just paid too.
3. *Join.* Fresh rows meet what is current now.

So a range that is paid and pushed in one batch is one generation afterwards, and owes nothing until other rows come.

A key that owes too much for one batch is paid in cells (model/cells.py). Once all of them are paid, the generations up
to a border are one, which stays set aside.

Invariant: at any time, the combinations that have come out are those whose rows all lie in one generation. A push makes
a generation of rows that have all met. A payment emits what is missing between the generations of a range, and makes
one of them. `tests/model/test_memory.py` holds that against DuckDB over whole lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from watersmeet.model.facts import Cells, Manifest, Merge, Payment, Push, Run
from watersmeet.model.generations import generations_of, restricted
from watersmeet.model.ranges import Ranges, intersected, joined, subtracted
from watersmeet.schemes.scheme import Decision, Keys, KeysOf


def decision_of(attempt: Manifest | None) -> Decision | None:
    """What an earlier attempt of a batch decided; None if there was none."""
    if attempt is None:
        return None
    pushed = (
        range_ for push in attempt.pushes if push.batch == attempt.batch.number for range_ in push.ranges
    )
    payments = attempt.plan.payments
    return Decision(
        joined(pushed),
        joined(payment.range for payment in payments if payment.cells is None),
        tuple(payment.cells for payment in payments if payment.cells is not None),
        attempt.plan.decided_ms,
    )


def owing(pushes: Iterable[Push]) -> Ranges:
    """The keys that some push has set rows aside of."""
    return joined(range_ for push in pushes for range_ in push.ranges)


@dataclass(frozen=True, slots=True)
class InForce:
    """Borders after a batch's decision: the pushes, those that were in force before it for the keys that it pays, and
    the keys that are paid over several batches."""

    pushes: tuple[Push, ...]
    paid: tuple[Push, ...]
    paying: tuple[Cells, ...]


def put_into_force(
    decision: Decision,
    pushes: Sequence[Push],
    history: Sequence[Run],
    batch: int,
    at_ms: int,
    paying: Sequence[Cells] = (),
) -> InForce:
    """The pushes and payments after a decision, which was taken at `at_ms`."""
    parts = tuple(cells for cells in decision.parts if not _is_paid(cells, decision.paid))
    paid = restricted(pushes, joined((*decision.paid, *(cells.range for cells in parts))))
    left: Iterable[Push] = (replace(push, ranges=subtracted(push.ranges, decision.paid)) for push in pushes)
    for cells in parts:
        if cells.is_last:
            left = _as_one(list(left), cells, at_ms)
    kept = prune([push for push in left if push.ranges], history)
    if decision.pushed:
        found = generations_of(history, kept, decision.pushed)
        holds = _holder(decision.pushed)
        here = [segment for range_ in decision.pushed for segment in found.segments_in(range_).tolist()]
        names = [
            run.path
            for run, current in zip(found.runs, found.is_current[:, here], strict=True)
            if current.any() and holds(run)
        ]
        if names:
            kept = (*kept, Push(batch, decision.pushed, tuple(names), at_ms))
    begun = {cells.range: cells for cells in (*paying, *parts)}
    going_on = (cells for cells in begun.values() if not cells.is_last and not _is_paid(cells, decision.paid))
    return InForce(kept, paid, tuple(going_on))


def _is_paid(cells: Cells, paid: Ranges) -> bool:
    return any(cells.range.low in range_ for range_ in paid)


def _as_one(pushes: Sequence[Push], cells: Cells, at_ms: int) -> Iterator[Push]:
    """The pushes once all cells of a key are paid: those up to the border are one push of this key.

    It has the batch of the border: a merge that is planned later leaves the rows of this generation alone, and may put
    later rows of the key into its outputs (see `rename`).
    """
    mine = restricted([push for push in pushes if push.batch <= cells.border], (cells.range,))
    one = Push(
        cells.border,
        (cells.range,),
        tuple(dict.fromkeys(path for push in mine for path in push.runs)),
        at_ms,
    )
    for push in pushes:
        if push.batch <= cells.border:
            yield replace(push, ranges=subtracted(push.ranges, (cells.range,)))
    yield one
    yield from (push for push in pushes if push.batch > cells.border)


def payments_of(
    decision: Decision,
    paying: Sequence[Cells],
    share_out: Callable[[Ranges], tuple[Payment, ...]],
) -> tuple[Payment, ...]:
    """Who pays what in a batch. Of a key that is being paid, and now is paid as a whole, the cells that are left too."""
    parts = {
        cells.range: replace(cells, first=cells.end, end=cells.of)
        for cells in paying
        if _is_paid(cells, decision.paid)
    } | {cells.range: cells for cells in decision.parts}
    return (
        *(replace(payment, cells=cells) for cells in parts.values() for payment in share_out((cells.range,))),
        *share_out(decision.paid),
    )


def prune(pushes: Iterable[Push], runs: Iterable[Run]) -> tuple[Push, ...]:
    """The pushes without runs that have no row for them any more, by their bounds."""
    by_path = {run.path: run for run in runs}
    found = []
    for push in pushes:
        holds = _holder(push.ranges)
        names = tuple(path for path in push.runs if path in by_path and holds(by_path[path]))
        if names:
            found.append(replace(push, runs=names))
    return tuple(found)


def _holder(ranges: Ranges) -> Callable[[Run], bool]:
    """Tell whether a run may hold a row with a key in some ranges, by its first and last key and what it stands for."""
    within: dict[tuple[int, ...], Ranges] = {(): ranges}

    def holds(run: Run) -> bool:
        if run.held not in within:
            within[run.held] = intersected(run.held_ranges, ranges)
        return any(range_.overlaps(run) for range_ in within[run.held])

    return holds


def rename(pushes: Sequence[Push], finished: Iterable[Merge]) -> tuple[Push, ...]:
    """The pushes after some merges: a push that came after a merge was planned names its outputs, too.

    All runs of a merge were history when it was planned, so such a push names each of them that has rows for it, and
    none of these rows is left behind. What a push before it had set aside is left in the runs.
    """
    done = list(finished)
    found = []
    for push in pushes:
        named = set(push.runs)
        also = [
            run.path
            for merge in done
            if push.batch > merge.batch and not named.isdisjoint(merge.runs)
            for part in merge.parts
            for run in part.output or ()
        ]
        found.append(replace(push, runs=(*push.runs, *also)) if also else push)
    return tuple(found)


# The numbers of the pushes that name a run, and the bounds of what it stands for.
_Alike = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Holes:
    """What merges must leave alone in each run: the rows that are set aside. Counts are exact.

    `keys_of` gives the order keys of the rows that a run stands for. What was found is kept: the ranges are hundreds, and
    most runs have the same.
    """

    pushes: tuple[Push, ...]
    keys_of: KeysOf | None = None
    # The pushes that name each run, by number.
    _naming: dict[str, list[int]] = field(default_factory=dict, init=False, compare=False, repr=False)
    # By these pushes and what a run stands for: the keys that are set aside, and whether these are all.
    _found: dict[_Alike, tuple[Ranges, bool]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _rows: dict[tuple[str, _Alike], int] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for number, push in enumerate(self.pushes):
            for path in push.runs:
                self._naming.setdefault(path, []).append(number)

    def of(self, run: Run) -> Ranges:
        """The keys of a run that are set aside, within what it stands for."""
        return self._holes(self._alike(run), run)[0]

    def has_all(self, run: Run) -> bool:
        """Whether all keys that a run stands for are set aside."""
        return self._holes(self._alike(run), run)[1]

    def rows_left(self, run: Run) -> int:
        """The rows of a run that are set aside. A run that is set aside as a whole is not opened."""
        alike = self._alike(run)
        if (run.path, alike) not in self._rows:
            self._rows[run.path, alike] = self._count(run, *self._holes(alike, run))
        return self._rows[run.path, alike]

    def _count(self, run: Run, holes: Ranges, all_: bool) -> int:
        if not any(range_.overlaps(run) for range_ in holes):
            return 0
        if all_:
            return run.stored_rows
        assert self.keys_of is not None
        return count_within(self.keys_of(run), holes)

    def _alike(self, run: Run) -> _Alike:
        return tuple(self._naming.get(run.path, ())), run.held

    def _holes(self, alike: _Alike, run: Run) -> tuple[Ranges, bool]:
        if alike not in self._found:
            mine = joined(range_ for number in alike[0] for range_ in self.pushes[number].ranges)
            holes = intersected(mine, run.held_ranges)
            self._found[alike] = holes, not subtracted(run.held_ranges, holes)
        return self._found[alike]

    def rows_owing(self, run: Run) -> int:
        """The rows of a run with keys that may owe results: those that are set aside, and others of their keys."""
        ranges = intersected(owing(self.pushes), run.held_ranges)
        if not any(range_.overlaps(run) for range_ in ranges):
            return 0
        if not subtracted(run.held_ranges, ranges):
            return run.stored_rows
        assert self.keys_of is not None
        return count_within(self.keys_of(run), ranges)


def reduced(run: Run, ranges: Ranges, rows: int) -> Run:
    """A run that stands only for its rows in some ranges."""
    bounds = tuple(bound for one in ranges for bound in (one.low, one.high - 1))
    return replace(run, held=bounds, held_rows=rows)


def set_aside(history: Sequence[Run], holes: Holes) -> tuple[Run, ...]:
    """The history after a push: a run of which all rows are set aside stands for them alone, and is not opened again.

    It has no rows between its holes, but only a look at its keys tells.
    """
    aside = {
        run.path: reduced(run, found, run.stored_rows)
        for run in history
        if (found := holes.of(run)) and not holes.has_all(run) and holes.rows_left(run) == run.stored_rows
    }
    return (*(run for run in history if run.path not in aside), *aside.values())


def count_within(keys: Keys, ranges: Ranges) -> int:
    """How many of the ascending keys lie in some ranges."""
    return int(sum(high - low for low, high in _stretches(keys, ranges)))


def _stretches(keys: Keys, ranges: Ranges) -> list[tuple[int, int]]:
    """Where the keys of each range begin and end."""
    lows = np.searchsorted(keys, np.array([one.low for one in ranges], np.uint64))
    highs = np.searchsorted(keys, np.array([one.high - 1 for one in ranges], np.uint64), side="right")
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def as_it_stands(run: Run) -> Run:
    """A run as planners see it, with the rows and bytes that it stands for; not less, by a byte."""
    if not run.held:
        return run
    return replace(run, rows=run.held_rows, bytes=-(-run.bytes * run.held_rows // max(1, run.rows)))


def held_keys(keys_of: KeysOf, runs: Iterable[Run]) -> KeysOf:
    """The keys of the rows that a run stands for, whether it is given as it is or as planners see it."""
    held = {run.path: run for run in runs if run.held}

    def keys(run: Run) -> Keys:
        stored = held.get(run.path)
        if stored is None:
            return keys_of(run)
        whole = keys_of(stored)
        return np.concatenate([whole[low:high] for low, high in _stretches(whole, stored.held_ranges)])

    return keys
