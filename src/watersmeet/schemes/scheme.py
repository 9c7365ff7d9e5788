"""The protocol of all schemes, and the types that plans are made of.

A scheme decides which task joins which rows. It is pure: it maps facts to facts, and the engine reads the rows. For
each batch

    describe   what ingest and merging record about a run, for later plans
    plan       who joins what in this batch, from the plan before and the runs
    shares     what one task joins under a plan, as slices of runs
    check      raise if a plan misses a pair or joins it twice

Invariant of every scheme: each combination of rows that the batch owes lies in exactly one share of one task. The
batch owes every combination with at least one fresh row. The kernels apply that rule inside a share, so `shares` names
fresh and stored rows of each input separately.

A new scheme is a new file here and a line in `schemes/register.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from watersmeet.model.closed import ClosedSet
from watersmeet.model.facts import (
    FULL_RANGE,
    KEY_SPACE,
    Cells,
    Descriptor,
    KeyRange,
    Manifest,
    Merge,
    Payment,
    Push,
    Run,
    RunStats,
    SchemePlan,
)
from watersmeet.model.limits import Limits
from watersmeet.model.ranges import Ranges, intersected, joined
from watersmeet.model.signature import JoinSignature, Layout, Order
from watersmeet.model.tally import TaskTally
from watersmeet.model.walks import FanOut, KeyCut, WalkGraph
from watersmeet.schemes.balance import even_ranges

Keys = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

# Returns the sorted order keys of a run that is not cut into sections.
KeysOf = Callable[[Run], Keys]

# Returns the fan-outs that a sample of an input's fresh rows finds in fresh and stored runs.
FanOutsOf = Callable[[str, Sequence[Run], Sequence[Run]], Sequence[FanOut]]

AnyPlan = TypeVar("AnyPlan", bound=SchemePlan)


@dataclass(frozen=True, slots=True)
class SectionRange:
    """Sections from `low` up to, not including, `high`."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class RowPart:
    """Parts `low` up to, not including, `high` of `of` equal parts of a run's rows of one key.

    The cut is rotated by an amount from the run's checksum, so that the remainders do not all fall to the same part.
    Cuts are nested: part x of n is parts 2x and 2x + 1 of 2n. That is the split of Streaming HyperCube's migration
    (3.2), without a second hash function.
    """

    low: int
    high: int
    of: int

    def positions(self, run: Run, count: int) -> tuple[int, int]:
        """The first and the end position of these parts among `count` rows.

        >>> run = Run("l", "p", "p", 0, 9, 1, 0, 9, "8000000000000000")
        >>> [RowPart(part, part + 1, 4).positions(run, 9) for part in range(4)]
        [(0, 2), (2, 5), (5, 7), (7, 9)]
        """
        turn = int(run.checksum or "0", 16) * self.of >> 64
        return (count * self.low + turn) // self.of, (count * self.high + turn) // self.of


@dataclass(frozen=True, slots=True)
class Deal:
    """Every `of`-th row of each run, dealt to number `hand`. The first hand is another one for each run."""

    hand: int
    of: int

    def positions(self, turn: int, count: int) -> Indices:
        """The positions among `count` rows of a run whose checksum is `turn`.

        >>> [Deal(hand, 3).positions(1, 7).tolist() for hand in range(3)]
        [[2, 5], [0, 3, 6], [1, 4]]
        """
        return np.arange((self.hand - turn) % self.of, count, self.of)


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of one input: a key range, optionally only some sections, a part of each run, some rows of each run, or
    without some keys.
    """

    range: KeyRange = FULL_RANGE
    sections: tuple[SectionRange, ...] | None = None
    part: RowPart | None = None
    deal: Deal | None = None
    without: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LateShare:
    """Share number `hand` of `of` of what some rows lead to. All tasks may bind the same `room_rows` before that."""

    hand: int
    of: int
    room_rows: int


@dataclass(frozen=True, slots=True)
class InputShare:
    """The fresh and the stored rows of one input that a task joins; None means no rows.

    Where inputs are joined one after the other, `rank` is the place of this one; None leaves the order to the kernel.
    With a `late` deal all tasks have the same fresh rows, and the kernel shares out what they lead to. `cuts` are the
    keys of the combinations that are joined; without any, all.
    """

    input: str
    fresh: Slice | None
    history: Slice | None
    rank: int | None = None
    late: LateShare | None = None
    cuts: tuple[KeyCut, ...] = ()


# What a task joins at once: the share of each input, in the order of the signature.
Share = tuple[InputShare, ...]


def share_of(input_name: str, rows: Slice) -> InputShare:
    """Use the same slice for fresh and stored rows."""
    return InputShare(input_name, rows, rows)


@dataclass(frozen=True, slots=True)
class NewRun:
    """A new run, before the scheme describes it.

    `keys` ascend; they are empty if the run is cut into sections. `sequence_rows` counts the rows of the sorted
    sequence that the run is a part of. `labels` returns the values of some keys as text, by their first positions and
    rows; a label may be empty. A merge has no labels, but the runs that it was `merged_from`.
    """

    keys: Keys
    sequence_rows: int
    labels: Callable[[Indices, Indices], Sequence[str]] | None = None
    merged_from: Sequence[Run] = ()
    limits: Limits = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Decision:
    """The key ranges that a batch pushes, and those whose debts it pays. Paying comes first (plan/pushes.py).

    `parts` are paid of keys that owe too much for one batch. `at_ms` is when an earlier attempt of the batch decided,
    if there was one.
    """

    pushed: Ranges = ()
    paid: Ranges = ()
    parts: tuple[Cells, ...] = ()
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a batch is planned under, besides its rows and those before.

    `keys_of` gives the sorted order keys of a run. `outside` is what the scheme's part of the engine has seen of the
    world outside the inputs: the table, for the scheme of tables. `tallies` are those of some tasks of the batch
    before, or of none: a plan may be better with them, but must be right without. `fan_outs_of` samples walks, if the
    join is one. `remote` state is fetched by every machine that reads it. `repeated` is what an earlier attempt of the
    batch decided, if there was one. `trigger_ms` is the query's trigger interval, if it is known.
    """

    now_ms: int
    tasks: int
    keys_of: KeysOf
    limits: Limits
    outside: Any = None
    tallies: tuple[TaskTally, ...] = ()
    fan_outs_of: FanOutsOf | None = None
    remote: bool = False
    repeated: Decision | None = None
    trigger_ms: int | None = None

    def by_name(self) -> dict[str, Any]:
        """The circumstances alone, as keyword arguments."""
        return {field.name: getattr(self, field.name) for field in fields(Circumstances)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts(Circumstances):
    """The facts that a scheme may use to plan a batch.

    `before` is the parent's plan, by whichever scheme, and `batch_before` its batch. Of the `history` only `reachable`
    runs hold rows that a fresh row can meet; without a window the two are the same. `pushes` are in force before this
    batch, `paying` has been paid of keys that owe too much for one batch, and `merges` are pending. A run of the
    history that stands for a part of its file has the rows and bytes of that part, and `keys_of` gives their keys.
    """

    batch: int
    inputs: tuple[str, ...]
    before: SchemePlan | None
    batch_before: int | None
    history: tuple[Run, ...]
    reachable: tuple[Run, ...]
    fresh: tuple[Run, ...]
    windowed: bool = False
    pushes: tuple[Push, ...] = ()
    paying: tuple[Cells, ...] = ()
    merges: tuple[Merge, ...] = ()

    def plan_before(self, kind: type[AnyPlan]) -> AnyPlan | None:
        """The parent's plan if it has this class, else None."""
        return self.before if isinstance(self.before, kind) else None


class Facing(Protocol):
    """Which rows can be partners, by their order keys, in a join sorted by value."""

    def __call__(self, left: KeyRange) -> KeyRange:
        """The right keys that may be partners of a left key in this range. No partner is outside."""

    def right_of(self, left: Keys) -> tuple[Keys, Keys]:
        """For estimates: the first and the last right key that may be a partner of each of these left keys."""

    def left_of(self, right: Keys) -> tuple[Keys, Keys]:
        """For estimates: the first and the last left key that may be a partner of each of these right keys."""


@dataclass(frozen=True, slots=True)
class Partners:
    """How a row finds its partners, where an equal key does not say it all.

    `facing` is set if runs are sorted by value. `arrangements` names what is stored of each input, if inputs are stored
    by several keys, and `graph` says how they are found from each other: the join is a walk.
    """

    facing: Facing | None = None
    arrangements: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    graph: WalkGraph | None = None


@dataclass(frozen=True, slots=True)
class SchemeRequest:
    """The arguments of a scheme: the user's, and facts about the join.

    `adapting` is the policy of a grid without a fixed mapping. `memory` is the budget of a task, in bytes, and
    `pushing` the policy that keeps to it.
    """

    tasks: int
    cells: int | None = None
    mapping: tuple[int, int] | None = None
    groups: int | None = None
    adapting: Any = None
    partners: Partners = Partners()
    memory: int | None = None
    pushing: Any = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A plan for display: one line, and optionally a table and the latest changes, newest first.

    The first cell of a row and the middle of an event are raw values of users' data. Escape them before display.
    """

    summary: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    events: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OwnWindow:
    """Which rows of a batch are late, and which are expired, by input (plan/window.py).

    `watermarks` decided about the batch's rows. History below `floors` is expired, and `later` are those of the next
    batch.
    """

    watermarks: Mapping[str, int]
    floors: Mapping[str, int]
    later: Mapping[str, int]


def by_input(runs: Iterable[Run], inputs: Sequence[str]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {name: [] for name in inputs}
    for run in runs:
        found[run.input].append(run)
    return found


class Serves(ClosedSet):
    """What the operator of a scheme serves: streams (or batches), a stream and a table, or many queries."""

    STREAMS = "streams"
    TABLE = "table"
    HUB = "hub"


class Scheme(ABC, Generic[AnyPlan]):
    """One way of sharing a join. Instances are frozen, small and picklable, and hold the user's choices."""

    __slots__ = ()

    # Stored in the signature, and the value of `strategy=`.
    name: ClassVar[str]
    # The class of its plans, for reading manifests, and of its records about runs, if any.
    plan_type: ClassVar[type[SchemePlan]]
    stats_type: ClassVar[type[RunStats] | None] = None
    # The run orders (`InputSpec.order`) that it supports, what a predicate needs for that, and its own arguments of
    # `wm.join`.
    orders: ClassVar[tuple[str, ...]] = (Order.HASH,)
    needs: ClassVar[str] = (
        "an equality between the two inputs, and the predicate has none (text under a collation other than UTF8_BINARY "
        "cannot be a key)"
    )
    arguments: ClassVar[tuple[str, ...]] = ()
    # The inputs that it can share out: two if its matrix has two sides.
    most_inputs: ClassVar[int] = 2
    # Whether its plans use tallies: if not, none is read for them.
    weighs_tallies: ClassVar[bool] = False
    # Whether its batches may push rows aside: decisions that a replay repeats.
    pushes: ClassVar[bool] = False
    # What its operator serves.
    serves: ClassVar[Serves] = Serves.STREAMS
    # Whether it joins one input after the other, each by its own keys.
    walks: ClassVar[bool] = False
    # Whether runs are merged. False if no row stays for long.
    merges: ClassVar[bool] = True

    @classmethod
    def make(cls, request: SchemeRequest) -> Scheme[AnyPlan]:
        """Make the scheme for one join. Raise UsageError if an argument does not fit."""
        return cls()

    @property
    def layout(self) -> Layout | None:
        """How runs are cut into sections; None if they are not."""
        return None

    def describe(self, run: NewRun, tasks: int) -> RunStats | None:
        """Describe a run for later plans."""
        return None

    def check_located(self, descriptors: Sequence[Descriptor], outside: Any) -> None:
        """Raise StateError if rows were ingested under other facts than the batch is planned with."""

    def carried(
        self, parent: Manifest, live: tuple[Run, ...], keys_of: KeysOf, outside: Any
    ) -> tuple[Run, ...]:
        """The live runs that the batch after `parent` still needs."""
        return live

    def window(self, outside: Any) -> OwnWindow | None:
        """The watermarks and floors of a batch, if they do not follow from the window of the signature."""
        return None

    def added(self, outside: Any) -> tuple[Run, ...]:
        """Runs of the batch besides those of its inputs."""
        return ()

    @abstractmethod
    def plan(self, facts: BatchFacts) -> AnyPlan:
        """Decide who joins what in this batch. Pure."""

    def decide(self, plan: AnyPlan, facts: BatchFacts) -> Decision:
        """What this batch pushes and pays. A scheme without a budget pays all debts at once."""
        return facts.repeated or Decision(paid=joined(one for push in facts.pushes for one in push.ranges))

    def payments(self, plan: AnyPlan, paid: Ranges, tasks: int) -> tuple[Payment, ...]:
        """Who pays what is owed in some key ranges."""
        return tuple(
            Payment(task, range_)
            for task, mine in enumerate(even_ranges(tasks))
            for range_ in intersected(paid, (mine,))
        )

    def groups_of(self, plan: AnyPlan) -> Ranges:
        """The partition groups by which results are counted for later plans; none if they are not."""
        return ()

    @classmethod
    def settled(cls, plan: AnyPlan) -> AnyPlan:
        """The plan of a batch after all that it owed was paid outside of the query."""
        return plan

    @abstractmethod
    def shares(self, plan: AnyPlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        """Yield what one task joins, one share after the other."""

    @abstractmethod
    def check(self, plan: AnyPlan, tasks: int) -> None:
        """Raise AssertionError if a combination of rows is in no share, or in two."""

    @classmethod
    def show(cls, plan: AnyPlan, inputs: Sequence[str]) -> Shown:
        """The plan as `watersmeet status` and the live displays show it."""
        return Shown(f"strategy {cls.name}")

    @classmethod
    def check_continues(
        cls, old: JoinSignature, new: JoinSignature, as_joins: Callable[[JoinSignature, JoinSignature], None]
    ) -> None:
        """Raise StateMismatch if a state cannot be continued. `as_joins` compares predicates, keys and columns."""
        as_joins(old, new)

    @classmethod
    def words_for_layout(cls, layout: Layout | None) -> str:
        """Describe how this scheme stores rows, for the message that refuses another one."""
        return "ranges of keys, in one piece"

    @classmethod
    def refuse_layout(cls, old: Layout | None, new: Layout | None) -> str | None:
        """Why a state of this scheme cannot be continued under another layout, and what to do; None for the default."""
        return None


def check_ranges(ranges: Sequence[KeyRange], tasks: int) -> None:
    """Raise unless the ranges of all tasks, in their order, cover every key once.

    >>> check_ranges([KeyRange(0, 9), KeyRange(9, KEY_SPACE)], 2)
    """
    assert len(ranges) == tasks, f"{len(ranges)} ranges for {tasks} tasks"
    bounds = [0, *(range_.high for range_ in ranges)]
    assert [range_.low for range_ in ranges] == bounds[:-1], "ranges leave a gap or overlap"
    assert bounds[-1] == KEY_SPACE, f"ranges end at {bounds[-1]}"
    assert all(range_.low <= range_.high for range_ in ranges), "a range ends before it begins"
