"""Many queries over some streams: tasks divide the fresh rows of every stream, and each can read all rows.

The queries of a batch are in a catalogue, which the plan names, with the one that the batch's commands made of it. The
engine reads and writes catalogues (engine/hub_desk.py) and hands over what follows from them: which runs are needed.

Invariant: history is what the parent left live, without the runs that no live query needs, unless they are retained, and
those whose rows are all expired. The catalogue in force is
part of it, so that cleaning keeps it as it keeps any run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from watersmeet.errors import StateInUse, StateMismatch
from watersmeet.model.facts import Descriptor, Manifest, Run, SchemePlan
from watersmeet.model.signature import InputSpec, JoinSignature, Order
from watersmeet.model.window import TIMESTAMP, CountedRows, Window, WindowKind, time_text
from watersmeet.schemes.scheme import (
    BatchFacts,
    Deal,
    InputShare,
    KeysOf,
    OwnWindow,
    Scheme,
    Serves,
    Share,
    Shown,
    Slice,
)


@dataclass(frozen=True, slots=True)
class HubPlan(SchemePlan):
    """The runs of two catalogues, by path: the queries `in_force` in the batch, and those `after` its commands.

    They are the same run if there were no commands. `watermarks` decide which rows of the next batch are late, by
    stream, in microseconds. `tasks` is among how many DISTINCT queries are divided. `counted` are the rows of streams
    that are read through windows over rows.

    Rows are kept for `retain` microseconds longer than queries need them (hubs/retained.py). `unkept` is the newest
    publication time of which a row may be missing, by stream. Of the history the batch reads the streams and indexes in
    `reads`, each from a publication time on. `judged` are the watermarks of the batch itself.
    """

    kind: ClassVar[str] = "hub"
    in_force: str
    after: str
    watermarks: dict[str, int] = field(default_factory=dict)
    tasks: int = 1
    counted: dict[str, CountedRows] = field(default_factory=dict)
    retain: int | None = None
    unkept: dict[str, int] = field(default_factory=dict)
    reads: dict[str, int] = field(default_factory=dict)
    judged: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HubFacts:
    """The catalogues of a batch, as the engine has found or written them, and what follows from them.

    `known_as` is what ingest tasks call the catalogue in force, `written` are the runs of catalogues that this batch
    brings, `announced` those that the tasks of the batch before have added, and `past` the entries that indexes lacked.
    `needed` is the first batch whose rows are needed, of each stream and index, and `window` says which of them are late
    or expired. Of each stream rows from `retained` on are kept, also if no query needs them. `place` is where the state is.
    """

    plan: HubPlan
    known_as: str
    written: tuple[Run, ...]
    announced: tuple[Run, ...]
    past: tuple[Run, ...]
    needed: Mapping[str, int]
    window: OwnWindow
    retained: Mapping[str, int]
    place: str


@dataclass(frozen=True, slots=True)
class HubScheme(Scheme[HubPlan]):
    """Deal the fresh rows of each stream to the tasks. No join chooses it: only a hub has its plans."""

    name: ClassVar[str] = "hub"
    plan_type = HubPlan
    orders: ClassVar[tuple[Order, ...]] = ()
    needs: ClassVar[str] = "a hub"
    serves: ClassVar[Serves] = Serves.HUB

    def check_located(self, descriptors: Sequence[Descriptor], outside: HubFacts) -> None:
        if any(one.table != outside.known_as for one in descriptors):
            raise StateInUse(
                "another start of this query published the batch while this one stored its rows in "
                f"{outside.place}: two drivers must not run on one checkpoint. Stop one, and start the other again"
            )

    def carried(
        self, parent: Manifest, live: tuple[Run, ...], keys_of: KeysOf, outside: HubFacts
    ) -> tuple[Run, ...]:
        written = {run.path for run in outside.written}
        return tuple(
            run
            for run in live
            if (run.path == outside.plan.in_force and run.path not in written)
            # A merged run has the batch of its merge, so it may stay longer than its rows are needed.
            or (run.input in outside.needed and run.batch >= outside.needed[run.input])
            or (run.input in outside.retained and run.times[-1] >= outside.retained[run.input])
        )

    def window(self, outside: HubFacts) -> OwnWindow:
        return outside.window

    def added(self, outside: HubFacts) -> tuple[Run, ...]:
        return (*outside.written, *outside.announced, *outside.past)

    def plan(self, facts: BatchFacts) -> HubPlan:
        assert isinstance(facts.outside, HubFacts), "a hub needs the facts about its catalogues"
        return facts.outside.plan

    def shares(self, plan: HubPlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        """Every task has one share: its hand of the fresh rows, and all stored ones."""
        yield tuple(InputShare(name, Slice(deal=Deal(task, tasks)), Slice()) for name in inputs)

    def check(self, plan: HubPlan, tasks: int) -> None:
        assert plan.in_force and plan.after, "a plan of a hub names two catalogues"

    @classmethod
    def check_continues(
        cls, old: JoinSignature, new: JoinSignature, as_joins: Callable[[JoinSignature, JoinSignature], None]
    ) -> None:
        """Refuse other streams, and other times of rows.

        Other columns are refused where a live query uses the change: the engine knows the queries (hubs/changes.py).
        """
        before = {one.name: one for one in old.inputs if not one.of}
        after = {one.name: one for one in new.inputs if not one.of}
        given = [[name for name, one in found.items() if one.is_given] for found in (before, after)]
        if sorted(given[0]) != sorted(given[1]):
            raise StateMismatch(
                f"the streams of the hub were {', '.join(given[0])}, now they are {', '.join(given[1])}: give it those "
                "that it had, or start with a new checkpoint"
            )
        for name, was in before.items():
            now = after.get(name)
            if now is None or (was != now and not was.is_given):
                raise StateMismatch(
                    f"the state holds {name} as {_columns_of(was)}, and this version as {_columns_of(now)}: continue with "
                    "the version that wrote it, or start with a new checkpoint"
                )
            if _time_of(was) != _time_of(now):
                raise StateMismatch(
                    f"the time of stream {name} was {_time_of(was)}, now it is {_time_of(now)}: rows of two meanings would "
                    "meet in windows. Change it back, or start with a new checkpoint"
                )

    @classmethod
    def show(cls, plan: HubPlan, inputs: Sequence[str]) -> Shown:
        rows = tuple((name, _moment(mark)) for name, mark in sorted(plan.watermarks.items()))
        return Shown(
            "many queries: tasks divide the fresh rows of every stream", ("stream", "watermark"), rows
        )


def _moment(micros: int) -> str:
    return time_text(Window(WindowKind.TIME, 1, of=TIMESTAMP), micros)


def _time_of(spec: InputSpec) -> str:
    kinds = {one.name: one.type for one in spec.stored}
    return f"{spec.time} {kinds[spec.time]}" if spec.time else "that of its batches"


def _columns_of(spec: InputSpec | None) -> str:
    stored = spec.stored if spec else ()
    return ", ".join(f"{one.name} {one.type}" for one in stored) or "none"
