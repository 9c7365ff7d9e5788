"""Pay what the generations of some keys owe each other: the clean-up of a partition group, inside a batch.

Source: Liu, Rundensteiner 2005 (State-intensive queries), section 4.2, equation 1, for any number of inputs. There
the generations of a group are merged one after the other: what two of them owe is the join of both together, less the
join of each. Here it is written without the subtraction. Let G1 .. Gk be the generations of a range of keys, the
current one last. For j = 2 .. k, with B = G1 u .. u G(j-1), all combinations of rows of B u Gj are owed that have a row
of both. By the part that the row of the first input is in, and then the first input whose row is in the other part,
that is the disjoint union of 2 (m - 1) plain joins:

    Gj x .. x Gj x  B  x (B u Gj) x .. x (B u Gj)        the B at input 2, 3, .. m
    B  x .. x B  x  Gj x (B u Gj) x .. x (B u Gj)        the Gj at input 2, 3, .. m

A plain join is the join's own kernel, with the rows of the first input as fresh and all others as history.

The fresh rows of the batch take no part. Differs from the paper: payment is not a stage after the query, but the
results of an ordinary batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.engine.spec import Join
from watersmeet.kernel.equal import EquiJoin
from watersmeet.kernel.multi import MultiJoin
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Keyed
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import KeyRange, Manifest, Run
from watersmeet.model.generations import NOT_HELD, Generations, paid_generations
from watersmeet.model.limits import Limits
from watersmeet.model.ranges import Ranges
from watersmeet.model.tally import Tally
from watersmeet.model.window import over_time

Slices = list[Keyed]


def pay(
    reader: RunReader,
    manifest: Manifest,
    groups: Ranges,
    join: Join,
    task: int,
    tally: Tally,
    limits: Limits,
) -> Iterator[pa.RecordBatch]:
    """Yield the results of this task's payments."""
    assert isinstance(join, EquiJoin | MultiJoin), "only joins on one shared key owe results"
    mine = [payment.range for payment in manifest.plan.payments if payment.task == task]
    if not mine:
        return
    generations = paid_generations(manifest, groups)
    window = manifest.signature.window
    within = window.width if window is not None and over_time(window) else None
    reader.expect(lambda: _runs(generations, mine))
    for range_ in mine:
        found = [
            _by_generation(reader, manifest, generations, name, range_, tally)
            for name in manifest.signature.names
        ]
        for term in owed_terms(found):
            first, *others = (
                Side(name, [], rows) for name, rows in zip(manifest.signature.names, term, strict=True)
            )
            yield from join.results((Side(first.name, first.history, []), *others), within, limits)


def owed_terms(generations: Sequence[Sequence[Slices]]) -> Iterator[tuple[Slices, ...]]:
    """The plain joins that generations owe: for each, the rows of every input.

    `generations` has for each input its rows by generation, as many for all. No combination is in two terms.
    """
    inputs = range(len(generations))
    for number in range(1, len(generations[0])):
        base = [list(itertools.chain.from_iterable(mine[:number])) for mine in generations]
        added = [list(mine[number]) for mine in generations]
        both = [[*before, *now] for before, now in zip(base, added, strict=True)]
        for one, other in ((added, base), (base, added)):
            for turn in inputs[1:]:
                term = tuple(
                    one[place] if place < turn else other[place] if place == turn else both[place]
                    for place in inputs
                )
                if all(any(map(len, rows)) for rows in term):
                    yield term


def _runs(generations: Generations, ranges: Sequence[KeyRange]) -> Iterator[Run]:
    return (run for run in generations.runs if any(range_.overlaps(run) for range_ in ranges))


def _by_generation(
    reader: RunReader, manifest: Manifest, generations: Generations, name: str, range_: KeyRange, tally: Tally
) -> list[Slices]:
    """The rows of an input in a range of keys, by generation."""
    found: list[Slices] = [[] for _ in range(generations.current + 1)]
    segments = generations.segments_in(range_)
    for run, of in zip(generations.runs, generations.of[:, segments], strict=True):
        if run.input != name or not range_.overlaps(run) or (of == NOT_HELD).all():
            continue
        for rows in reader.slices(run, range_, manifest.signature.columns(name)):
            held = segments[of != NOT_HELD]
            tally.touch(run.path, held, generations.size_of(run, rows.keys, held), len(generations.lows))
            for number in np.unique(of[of != NOT_HELD]).tolist():
                part = rows.among(generations.ranges_of(segments[of == number].tolist()))
                if len(part):
                    found[number].append(part)
    return found
