"""Choose the order in which the fresh rows of an input are extended through the other inputs.

The kernel knows, at each step, exactly how many rows every input that it can look up would bind, and takes the fewest
(kernel/walk.py). It cannot know what lies behind: in a path a - b - c - d fresh rows of b may meet two rows of a and
three of c, of which few lead to a row of d. To begin with c is right then, although it binds more rows at first. A plan
sees this in a sample of fresh rows (kernel/fan_outs.py). So a term gets an order where a choice comes before all inputs
can be looked up (`needs_foresight`). Elsewhere the counts decide, since they are exact and an estimate is not.

An order costs the rows that a walk looks up and binds, for one fresh row (`estimate_work`): a combination is looked up
in every arrangement that a newly bound input leads to, is dropped if one of them has no partner, and is multiplied by
the partners of the input that is bound next. The cheapest order is found layer by layer, keeping the cheapest way to
each set of bound inputs. That is exact for up to eight inputs; with more, `BEAM` sets are kept in a layer.

A change of order moves nothing, so it need only be real: `MIN_GAIN`. And if tallies prove a prediction wrong, the term
is left to the counts for a while: `MISLED`, `HELD_BATCHES`. Results never depend on any of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.model.tally import TermTally
from watersmeet.model.walks import Arc, FanOut, WalkGraph

# A new order must be this many times cheaper by the same sample. Estimates from 512 rows vary by some 5%: less would
# change back and forth between orders that are alike, more could miss the best order by as much.
MIN_GAIN = 1.1
# Twice the predicted work is more than a sample's noise: rare keys with very many rows, or a condition that the sample
# does not test.
MISLED = 2.0
# Batches between two samples of a term whose tallies tell what was predicted: a sample is some 3 ms of a batch. What
# they cannot tell, that another order has become cheaper, is seen within three batches.
SAMPLE_EVERY = 3
# Work that is off by more than half is no noise: the rates have changed, or the state has grown much.
DRIFT = 1.5
# Batches without a new order after such a mistake: the counts are never far off, and data seldom changes back sooner.
HELD_BATCHES = 8
# The sets of bound inputs that are kept of each size. No set is dropped with up to eight inputs: seven others have at
# most 35 subsets of one size.
BEAM = 35


@dataclass(frozen=True, slots=True)
class TermOrder:
    """The order of one term: the fresh rows of `start` are extended through the inputs `then`, in this order.

    Without `then` the kernel goes by its counts. `since` is the batch of the decision. `predicted` is the work for a
    fresh row by the sample of batch `sampled`, and `measured` that of the batch before by its tallies; None if not
    known. No order is taken before batch `held_until`.
    """

    start: str
    then: tuple[str, ...] = ()
    since: int = 0
    predicted: float | None = None
    measured: float | None = None
    sampled: int = 0
    held_until: int = 0


@dataclass(frozen=True, slots=True)
class OrderChange:
    """A decision on the order of a term: what its work for a fresh row was predicted to be with either order.

    `measured` is the work by the tallies of the batch before the change, `then_measured` by those of the batch after.
    """

    batch: int
    start: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    predicted_before: float | None
    predicted_after: float | None
    measured: float | None = None
    then_measured: float | None = None


def needs_foresight(graph: WalkGraph, start: str, inputs: Sequence[str]) -> bool:
    """Whether a walk from `start` must choose between inputs while others cannot be looked up yet.

    >>> path = WalkGraph((("a", "b"), ("b", "c"), ("c", "d")), tuple(
    ...     Arc(name, edge) for name, edge in [("a", 0), ("b", 0), ("b", 1), ("c", 1), ("c", 2), ("d", 2)]))
    >>> [needs_foresight(path, start, "abcd") for start in "abcd"]
    [False, True, True, False]
    """
    bound = {start}
    while len(reached := graph.reaches(bound)) == 1:
        bound |= reached
    return len(reached) > 1 and len(bound | reached) < len(inputs)


@dataclass(frozen=True, slots=True)
class _State:
    """Some inputs are bound, in an order that took `work`: `combinations` are left of one fresh row.

    `open` has the partners of a combination by each arc that was looked up and whose input is not bound.
    """

    then: tuple[str, ...]
    work: float
    combinations: float
    open: Mapping[Arc, float]


@dataclass(frozen=True, slots=True)
class _Costs:
    graph: WalkGraph
    start: str
    found: Mapping[tuple[str, int], FanOut]

    def begin(self) -> _State:
        return self._entered(_State((), 0.0, 1.0, {}), self.start)

    def bind(self, state: _State, name: str) -> _State:
        combinations = state.combinations * min(rows for arc, rows in state.open.items() if arc.input == name)
        left = {arc: rows for arc, rows in state.open.items() if arc.input != name}
        bound = _State((*state.then, name), state.work + combinations, combinations, left)
        return self._entered(bound, name)

    def _entered(self, state: _State, newest: str) -> _State:
        """Look up all that the input bound last leads to."""
        bound = {self.start, *state.then}
        work, combinations, open_ = state.work, state.combinations, dict(state.open)
        for arc in self.graph.arcs:
            if arc.input in bound:
                continue
            closes = arc in open_ and not arc.also
            leading = (arc.then,) if closes else (arc.edge, *arc.also)
            if not any(newest in self.graph.edges[edge] for edge in leading if edge is not None):
                continue
            rows, hit = self._rows(arc, closed=closes)
            work += combinations
            combinations *= hit
            open_[arc] = rows / hit if hit else 0.0
        return _State(state.then, work, combinations, open_)

    def _rows(self, arc: Arc, *, closed: bool) -> tuple[float, float]:
        """The partners of a combination by an arc, and the share of combinations that have one."""
        fan_out = self.found.get((arc.input, arc.edge))
        if fan_out is None:
            return 1.0, 1.0
        if not closed:
            return fan_out.rows, fan_out.hit
        # Found by two keys, each as selective as the first: no arrangement tells what the second is alone.
        rows = fan_out.rows * fan_out.rows / max(1, fan_out.stored_rows)
        return rows, min(1.0, rows)


def estimate_work(
    graph: WalkGraph, start: str, then: Sequence[str], fan_outs: Sequence[FanOut]
) -> float | None:
    """Estimate the work for one fresh row in this order; None if the graph has no such walk."""
    costs = _Costs(graph, start, {(one.input, one.edge): one for one in fan_outs})
    state = costs.begin()
    for name in then:
        if name not in {arc.input for arc in state.open}:
            return None
        state = costs.bind(state, name)
    return state.work


def choose_order(
    graph: WalkGraph, start: str, inputs: Sequence[str], fan_outs: Sequence[FanOut]
) -> tuple[tuple[str, ...], float]:
    """The cheapest order of the other inputs, and the estimated work for one fresh row; no order if there is none.

    Fresh rows of b find two rows in a, and three in c, of which one in a thousand has a partner in d:

    >>> graph = WalkGraph((("a", "b"), ("b", "c"), ("c", "d")), tuple(
    ...     Arc(name, edge) for name, edge in [("a", 0), ("b", 0), ("b", 1), ("c", 1), ("c", 2), ("d", 2)]))
    >>> found = [FanOut("a", 0, 2.0, 1.0, 100), FanOut("c", 1, 3.0, 1.0, 100), FanOut("d", 2, 0.001, 0.001, 100)]
    >>> choose_order(graph, "b", "abcd", found)[0]
    ('c', 'd', 'a')
    """
    costs = _Costs(graph, start, {(one.input, one.edge): one for one in fan_outs})
    layer = [costs.begin()]
    for _ in range(len(inputs) - 1):
        best: dict[frozenset[str], _State] = {}
        for state in layer:
            for name in {arc.input: None for arc in state.open}:
                bound = costs.bind(state, name)
                known = best.get(names := frozenset(bound.then))
                if known is None or (bound.work, bound.then) < (known.work, known.then):
                    best[names] = bound
        if not best:
            return (), 0.0
        layer = sorted(best.values(), key=lambda state: (state.work, state.then))[:BEAM]
    cheapest = layer[0]
    return cheapest.then, cheapest.work


def wants_sample(before: TermOrder, tally: TermTally | None, batch: int) -> bool:
    """Whether a term is sampled in this batch: without tallies always, otherwise if they are off, or in its turn."""
    if batch < before.held_until:
        return False
    measured = _measured(tally)
    if not before.then or before.predicted is None or measured is None:
        return True
    near = measured <= DRIFT * before.predicted and before.predicted <= DRIFT * measured
    return not near or batch - before.sampled >= SAMPLE_EVERY


def _measured(tally: TermTally | None) -> float | None:
    return tally.work / tally.fresh_rows if tally is not None and tally.fresh_rows else None


def decide_order(
    graph: WalkGraph,
    before: TermOrder,
    inputs: Sequence[str],
    fan_outs: Sequence[FanOut],
    tally: TermTally | None,
    batch: int,
) -> tuple[TermOrder, float | None]:
    """The order of a term in this batch, and what the order before would cost by the same sample, if that is known.

    `fan_outs` are empty if none were sampled.
    """
    measured = _measured(tally)
    order = replace(before, measured=measured)
    predicted = before.predicted
    told = before.then and before.sampled == batch - 1
    if told and predicted is not None and measured is not None and measured > MISLED * predicted:
        return replace(
            order, then=(), since=batch, predicted=None, held_until=batch + HELD_BATCHES
        ), predicted
    if not fan_outs or batch < before.held_until:
        return order, predicted
    then, work = choose_order(graph, before.start, inputs, fan_outs)
    kept = estimate_work(graph, before.start, before.then, fan_outs) if before.then else None
    if kept is not None and kept <= MIN_GAIN * work:
        return replace(order, predicted=kept, sampled=batch), kept
    return replace(order, then=then, since=batch, predicted=work, sampled=batch), kept
