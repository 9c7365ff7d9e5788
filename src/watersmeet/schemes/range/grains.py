"""The work of a batch along the left order keys, in grains: the ranges of keys that bounds lie between.

Grains begin at sampled left rows, so each has about as many rows. A hot value, twice in a finer sample, has a grain of
its own. Right rows matter as much: a left value with few rows may face a hot right one. So grains also begin and end
where a hot right value begins and ceases to be a partner, and around stretches without left rows that many right rows
face.

Counts are exact, because runs are sorted: the left rows of each grain, and the right rows that face its first left row.
All left rows of a grain are assumed to have as many partners as the first one. For a grain of one value that is true.

Not seen: a single value that is below the resolution of the sample in both inputs, and has many pairs all the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, Run
from watersmeet.schemes.scheme import Facing, Keys, KeysOf

Counts = npt.NDArray[np.int64]
Amounts = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Sampled rows for each task, of the fresh and the stored rows of each input: a bound is then off by a few per cent of a
# task's work. More cost more than they gain: the plan of 48 tasks is to take less than 3 ms.
SAMPLES_PER_TASK = 16
# With few tasks a sample is cheap, and should still see a value with some per mille of the rows.
LEAST_SAMPLES = 512

# Hot values are found in a sample that is this many times as fine: a value with a third of a task's pairs may have less
# than a thousandth of the rows. Keys are drawn at little cost; what costs is to look them up.
FINER = 8
# Hot values are at most this part of the coarse sample, the most frequent ones: each is looked up.
HOT_PART = 1 / 4

# Runs are put together up to this many rows: sorting them costs less than looking up in each of them.
STACKED_ROWS = 32_768

# Up to this many partners the number that one row has says little about the other rows of a wide grain: with one
# partner on average, tasks would differ by a fifth.
FEW_PARTNERS = 16
# Rows with more partners do not tell how far the band reaches: one hot right row would count for all.
MOST_TELLING = 128
# Grains on each side over which the reach of the band is averaged.
AVERAGED_GRAINS = 256
# A grain is wide if its keys reach this many times as far as the band.
WIDE = 4.0

# Where one input has no rows, fewer rows of the other one are not set aside (voids.py): reading the shares around them
# costs about as much as to look them up.
LEAST_VOID_ROWS = 64

# Multiples of the golden ratio are spread most evenly between two integers.
_GOLDEN = (5**0.5 - 1) / 2
_ONE, _LAST = np.uint64(1), np.uint64(KEY_SPACE - 1)


@dataclass(frozen=True, slots=True)
class Held:
    """The sorted order keys of some runs, small runs put together."""

    stacks: tuple[Keys, ...]

    @classmethod
    def of(cls, runs: Sequence[Run], keys_of: KeysOf) -> Held:
        stacks: list[Keys] = []
        small: list[Keys] = []
        for run in sorted(runs, key=lambda run: run.rows):
            if sum(map(len, small)) + run.rows <= STACKED_ROWS:
                small.append(keys_of(run))
            else:
                stacks.append(keys_of(run))
        if len(small) > 1:
            # A stable sort recognises sorted stretches.
            small = [np.sort(np.concatenate(small), kind="stable")]
        return cls((*stacks, *small))

    @property
    def rows(self) -> int:
        return sum(map(len, self.stacks))

    def below(self, keys: Keys) -> Counts:
        """For each key the rows with a smaller one. The keys should ascend: that is faster."""
        return sum((np.searchsorted(stack, keys) for stack in self.stacks), np.zeros(len(keys), np.int64))

    def up_to(self, keys: Keys) -> Counts:
        """For each key the rows with this or a smaller one."""
        return sum(
            (np.searchsorted(stack, keys, side="right") for stack in self.stacks),
            np.zeros(len(keys), np.int64),
        )

    def from_to(self, first: Keys, last: Keys) -> Counts:
        """Rows between two keys, both included."""
        return np.maximum(self.up_to(last) - self.below(first), 0)

    def next_from(self, keys: Keys) -> Keys:
        """For each key the smallest one that is held and not smaller; the last key of all if there is none."""
        found = np.full(len(keys), _LAST)
        for stack in self.stacks:
            at = np.searchsorted(stack, keys)
            inside = at < len(stack)
            found[inside] = np.minimum(found[inside], stack[at[inside]])
        return found

    def behind_previous(self, keys: Keys) -> Keys:
        """For each key the one after the largest that is held and smaller; the first of all if there is none."""
        found = np.zeros(len(keys), np.uint64)
        for stack in self.stacks:
            at = np.searchsorted(stack, keys)
            inside = at > 0
            found[inside] = np.maximum(found[inside], stack[at[inside] - 1] + _ONE)
        return found

    def sample(self, count: int) -> Keys:
        """At most `count` keys, ascending: one from each of as many stretches of equal length, over all stacks.

        The place in a stretch moves by the golden ratio: a fixed place might hit the same position of every stack.
        """
        rows = self.rows
        count = min(rows, count)
        if not count:
            return np.zeros(0, np.uint64)
        numbers = np.arange(count)
        places = ((numbers + numbers * _GOLDEN % 1) * (rows / count)).astype(np.int64)
        ends = list(itertools.accumulate(map(len, self.stacks)))
        cuts = np.searchsorted(places, [0, *ends]).tolist()
        drawn = [
            stack[places[low:high] - (end - len(stack))]
            for stack, end, (low, high) in zip(self.stacks, ends, itertools.pairwise(cuts), strict=True)
        ]
        # A stable sort recognises sorted stretches.
        return np.sort(np.concatenate(drawn), kind="stable")


@dataclass(frozen=True, slots=True)
class Grains:
    """Grains by the key that each begins with. They end where the next one begins, the last at the end of all keys.

    A fresh left row costs `per_new`: itself and its pairs. A stored one costs `per_old`: its pairs with fresh right
    rows. A task that joins grains i to j looks up the fresh right rows from `reads_from[i]` up to `reads_to[j]`. Grains
    are `hot` if they hold a hot left value, or face a hot right one. A grain `faces` nothing if no
    right row, fresh or stored, can be a partner of any of its keys. A `void` is not joined with its neighbours
    (voids.py).
    """

    edges: Keys
    new: Counts
    old: Counts
    per_new: Amounts
    per_old: Amounts
    reads_from: Counts
    reads_to: Counts
    hot: Mask
    faces: Mask
    void: Mask

    def __len__(self) -> int:
        return len(self.edges)

    def where(self, mask: Mask) -> Grains:
        """Some of the grains. Each then ends where the next of them begins."""
        return Grains(**{part.name: getattr(self, part.name)[mask] for part in fields(self)})

    @property
    def work(self) -> Amounts:
        """Fresh left rows and pairs."""
        return self.new * self.per_new + self.old * self.per_old


@dataclass(frozen=True, slots=True)
class InputRuns:
    """The runs of one input: history and fresh."""

    old: Sequence[Run]
    new: Sequence[Run]


def count_grains(
    left: InputRuns, right: InputRuns, facing: Facing, keys_of: KeysOf, tasks: int
) -> Grains | None:
    """Find grains and count their work. None if no left row can have a pair in this batch."""
    left_new, right_new = Held.of(left.new, keys_of), Held.of(right.new, keys_of)
    # Stored rows are met only if the other input has fresh ones.
    left_old = Held.of(left.old if right_new.rows else (), keys_of)
    right_old = Held.of(right.old if left_new.rows else (), keys_of)
    everything = Held((*left_new.stacks, *left_old.stacks))
    if not everything.rows:
        return None
    edges, firsts, hot, faces_hot = _edges(
        everything,
        [left_new, left_old],
        [right_new, right_old],
        facing,
        max(LEAST_SAMPLES, SAMPLES_PER_TASK * tasks),
    )
    new, old = (np.diff(held.below(edges), append=held.rows) for held in (left_new, left_old))
    first_partner, last_partner = facing.right_of(firsts)
    begun_new, begun_old = (held.below(first_partner) for held in (right_new, right_old))
    met_new, met_old = (
        np.maximum(held.up_to(last_partner) - begun, 0)
        for held, begun in ((right_new, begun_new), (right_old, begun_old))
    )
    usual = (new + old > 0) & ~hot
    per_old, per_more = _partners(firsts, (met_new, met_old), (begun_new, begun_old), usual)
    begin, end = facing.right_of(edges)[0], facing.right_of(_ends(edges))[1]
    reads_from, reads_to = right_new.below(begin), right_new.up_to(end)
    faces = reads_to > reads_from
    faces[~faces] = right_old.from_to(begin[~faces], end[~faces]) > 0
    found = Grains(
        edges,
        new,
        old,
        per_new=1 + per_old + per_more,
        per_old=per_old,
        reads_from=reads_from,
        reads_to=reads_to,
        hot=hot | faces_hot,
        faces=faces,
        void=np.zeros(len(edges), np.bool_),
    )
    return _without_empty(found, right_old, facing)


def _partners(
    firsts: Keys,
    met: tuple[Counts, Counts],
    begun: tuple[Counts, Counts],
    usual: Mask,
) -> tuple[Amounts, Amounts]:
    """The fresh and the stored partners of a row in each grain.

    `met` has those of its first row, `begun` the right rows before them. Most grains take them as they are. In a wide
    grain with few partners they are mostly chance. There the right rows that lie between this grain's first row and the
    next one's tell more: their number for each step of the keys, times the reach of the band. The reach, in steps, is
    what explains the partners of the `usual` grains around.
    """
    width = np.append(np.diff(firsts).astype(np.float64), 0.0)
    density = [np.append(np.diff(reached), 0) / np.maximum(width, 1.0) for reached in begun]
    counted = (met[0] + met[1]).astype(np.float64)
    smooth = usual & (counted <= MOST_TELLING) & (width > 0)
    reach = np.zeros(len(firsts))
    # Twice: how far the band reaches where rows are far apart must not follow from rows that are close to each other.
    for _ in range(2):
        if not smooth.any():
            break
        # Between two rows that happen to be close the density says little.
        weight = np.where(smooth, np.minimum(width, np.median(width[smooth])), 0.0)
        found, likely = _around(counted * weight), _around((density[0] + density[1]) * weight)
        reach = found / np.where(likely > 0, likely, np.inf)
        smooth &= width > WIDE * reach
    smooth &= (reach > 0) & (reach * (density[0] + density[1]) <= MOST_TELLING / 2)
    new, old = (_likely(reach * part, one, smooth) for part, one in zip(density, met, strict=True))
    return new, old


def _around(amounts: Amounts) -> Amounts:
    """For each grain the sum over the grains on both sides of it."""
    reached = np.concatenate([[0.0], np.cumsum(amounts)])
    places = np.arange(len(amounts))
    high = np.minimum(places + AVERAGED_GRAINS + 1, len(amounts))
    total: Amounts = reached[high] - reached[np.maximum(places - AVERAGED_GRAINS, 0)]
    return total


def _likely(likely: Amounts, counted: Counts, smooth: Mask) -> Amounts:
    """The likely number of partners where it is small, unless the count differs by more than chance allows."""
    by_chance = np.abs(counted - likely) <= 4 * np.sqrt(likely) + 4
    return np.where(smooth & (likely <= FEW_PARTNERS) & by_chance, likely, counted)


def _edges(
    everything: Held, left: Sequence[Held], right: Sequence[Held], facing: Facing, samples: int
) -> tuple[Keys, Keys, Mask, Mask]:
    """Where grains begin, the first left key of each, and which begin with a hot left value or face a hot right one.

    The first key may be behind the end of the grain if it has no row.
    """
    fine, others = ([held.sample(FINER * samples) for held in side] for side in (left, right))
    drawn = [_coarse(keys, samples) for keys in fine]
    hot = np.concatenate([_frequent(keys, samples) for keys in fine])
    first, last = facing.left_of(np.unique(np.concatenate([_frequent(keys, samples) for keys in others])))
    lowest = np.array([min(int(stack[0]) for stack in everything.stacks)], np.uint64)
    rows = np.concatenate([lowest, *drawn])
    # Here no left row needs to be.
    between = np.concatenate(
        [
            np.zeros(1, np.uint64),
            first,
            _after(hot),
            _after(last),
            _around_voids(everything, right[0], _coarse(others[0], samples), facing),
        ]
    )
    edges, at = np.unique(np.concatenate([rows, between]), return_index=True)
    firsts = edges.copy()
    placed = at >= len(rows)
    firsts[placed] = everything.next_from(edges[placed])
    return edges, firsts, np.isin(edges, hot), np.isin(edges, first)


def _around_voids(left: Held, right: Held, drawn: Keys, facing: Facing) -> Keys:
    """Where the voids between left rows begin and end that many right rows face. `drawn` are sampled right keys."""
    lonely = np.unique(drawn)
    first, last = facing.left_of(lonely)
    alone = left.from_to(first, last) == 0
    begin, at = np.unique(left.behind_previous(first[alone]), return_index=True)
    end = left.next_from(last[alone][at])
    before = np.where(begin > 0, right.up_to(facing.right_of(begin - np.minimum(begin, _ONE))[1]), 0)
    after = np.where(end < _LAST, right.below(facing.right_of(end)[0]), right.rows)
    many = after - before > LEAST_VOID_ROWS
    return np.concatenate([begin[many], end[many]])


def _ends(edges: Keys) -> Keys:
    """The last key of each grain."""
    return np.append(edges[1:] - _ONE, _LAST)[: len(edges)]


def _without_empty(grains: Grains, right_old: Held, facing: Facing) -> Grains:
    """Join grains without left rows to a neighbour that faces the same right rows: then they cost nothing.

    By itself such a grain would make its task look up the right rows of a hot neighbour once more, for nothing. The
    stored right rows must be the same too: if they are cut by position, all parts should hold partners.
    """
    empty = np.flatnonzero((grains.new == 0) & (grains.old == 0))
    if not len(empty):
        return grains
    last = len(grains) - 1
    before, after = np.maximum(empty, 1) - 1, np.minimum(empty + 1, last)
    ends = _ends(grains.edges)
    end, end_before = (right_old.up_to(facing.right_of(ends[at])[1]) for at in (empty, before))
    begin, begin_after = (right_old.below(facing.right_of(grains.edges[at])[0]) for at in (empty, after))
    into_before = (empty > 0) & (grains.reads_to[empty] == grains.reads_to[before]) & (end == end_before)
    into_after = (
        (empty < last)
        & (grains.reads_from[empty] == grains.reads_from[after])
        & (begin == begin_after)
        # Of two empty grains that would each join the other, one must stay.
        & ~np.isin(after, empty[into_before])
    )
    edges = grains.edges.copy()
    for place in empty[into_after & ~into_before].tolist():
        edges[place + 1] = edges[place]
    kept = np.ones(len(grains), np.bool_)
    kept[empty[into_before | into_after]] = False
    return replace(grains, edges=edges).where(kept)


def _coarse(fine: Keys, samples: int) -> Keys:
    """At least `samples` of the sampled keys, if there are as many, and less than twice as many."""
    step = max(1, len(fine) // samples)
    return fine[step // 2 :: step]


def _frequent(drawn: Keys, samples: int) -> Keys:
    """The keys that were sampled more than once: the most frequent ones, if they are many."""
    begin = np.flatnonzero(np.append(True, drawn[1:] != drawn[:-1])[: len(drawn)])
    hits = np.diff(begin, append=len(drawn))
    many = np.flatnonzero(hits > 1)
    many = many[np.argsort(-hits[many], kind="stable")[: int(HOT_PART * samples)]]
    return np.sort(drawn[begin[many]])


def _after(keys: Keys) -> Keys:
    """The key after each; none after the last of all."""
    return keys[keys < _LAST] + _ONE
