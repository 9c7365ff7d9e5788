"""Scripted lives of a join on the local driver: start it, feed it, crash it, start it again, compare its results.

A batch is given as partitions, by input: `{"l": [table, table], "r": []}`. Its number is the join's own, as in
`LocalJoin.batch`. The plan of every batch that `run_batch` runs is checked by the scheme that made it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast
from unittest import mock

import pyarrow as pa
from hypothesis import HealthCheck, settings

from watersmeet import failpoints
from watersmeet.engine import operator as engine
from watersmeet.engine.operator import Operator
from watersmeet.engine.spec import Settings
from watersmeet.errors import StateInUse
from watersmeet.local.join import GivenRows, LocalJoin
from watersmeet.log.descriptors import Told
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.storage import Files
from watersmeet.model.facts import BatchId, Manifest, Run
from watersmeet.model.limits import Limits
from watersmeet.plan.room import estimate_room_bytes, oldest_that_fit
from watersmeet.schemes.hub import HubPlan
from watersmeet.tables.spec import Table

Row = tuple[Any, ...]
Parts = Mapping[str, Sequence[GivenRows]]

# So that a few dozen rows go through several runs a partition, merges in several parts, clean-up and many result batches.
TINY = Limits(
    fan_in=2,
    min_part_rows=3,
    part_rows=4,
    clean_every_batches=2,
    piece_rows=3,
    output_rows=5,
    heavy_pairs=4,
    # Runs list every key, so that keys of a few rows are heavy.
    least_listed_rows=1,
    # A base every few batches, and descriptors and receipts in files of their own.
    least_base_runs=3,
    inline_values=4,
    least_file_values=12,
    inline_descriptor_bytes=1200,
    # Every term with a choice gets an order.
    sampled_rows=4,
    least_sampled_rows=1,
    # Merges wait for room on the disk however small the state is.
    least_scarce_bytes=0,
    # Shares of what is owed have some keys, and keys are cut into cells.
    debt_work=4,
)

# Before its claim is written a start is not known to anybody.
UNCLAIMED = "start-half-written"


# A life takes a tenth of a second and more, so fewer of them are drawn than of other examples. Every run draws others.
LIVES = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=settings().max_examples // 3)


@dataclass
class Clock:
    """A clock that moves when it is told to, in seconds."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


# An arrangement may have so many times the sorted sequences of the first one of its input, and so many more. A merge
# that is planned counts as done: it may hold any number of sequences while its parts wait for the budget of a batch.
MOST_AS_MANY, MOST_MORE = 2, 2


class Driven(Protocol):
    """One start of a join, or of a hub, whose batches are driven here."""

    number: int
    query: str
    run: str
    tasks: int

    @property
    def clock(self) -> Callable[[], float]: ...

    @property
    def operator(self) -> Operator: ...

    @property
    def stages(self) -> Sequence[Any]: ...

    @property
    def batch(self) -> Callable[..., pa.Table]: ...

    def arriving(self, name: str, rows: GivenRows) -> Iterable[pa.RecordBatch]: ...


# --- starts -------------------------------------------------------------------------------------------------------------


def start(
    inputs: pa.Schema | Mapping[str, pa.Schema | Table],
    state: Path | str,
    on: str | Any = "l.k = r.k",
    *,
    tasks: int = 2,
    settings: Mapping[str, Any] | None = None,
    **how: Any,
) -> LocalJoin:
    """A join of `l` and `r`, both of one schema, or of these inputs. `settings` are fields of `Settings`."""
    named = {"l": inputs, "r": inputs} if isinstance(inputs, pa.Schema) else inputs
    chosen = Settings(state=str(state), tasks=tasks, **settings or {})
    return LocalJoin(named, on=on, state=str(state), tasks=tasks, settings=chosen, **how)


def restarted(join: LocalJoin, at: int | None = None, **changes: Any) -> LocalJoin:
    """The same query after a restart: a new start that begins with batch `at`, by default the next one."""
    if "tasks" in changes and join.settings is not None:
        changes = {"settings": replace(join.settings, tasks=changes["tasks"]), **changes}
    return replace(join, run=uuid.uuid4().hex, number=join.number if at is None else at, **changes)


def forget() -> None:
    """Forget what this process keeps of any state: the next task runs as if in another process."""
    engine._KEPT.clear()


# --- batches ------------------------------------------------------------------------------------------------------------


def batch_of(join: Driven) -> BatchId:
    """The batch that comes next."""
    return BatchId(join.query, join.run, join.number)


def ingest(join: Driven, batch: BatchId, name: str, rows: GivenRows, partition: int = 0) -> Told:
    """Store one partition of an input, as an ingest task does."""
    return join.operator.ingest(batch, name, partition, join.arriving(name, rows))


def ingest_all(join: Driven, batch: BatchId, parts: Parts) -> list[Told]:
    return [
        ingest(join, batch, name, rows, partition)
        for name, partitions in parts.items()
        for partition, rows in enumerate(partitions)
    ]


def task_rows(join: Driven, batch: BatchId, task: int, descriptors: Sequence[Told]) -> list[Row]:
    """All results of one task."""
    return [row for found in join.operator.join(batch, task, descriptors) for row in rows_of(found)]


def run_batch(join: Driven, parts: Parts) -> Counter[Row]:
    """Run the next batch in all tasks, of all stages if the join has several."""
    if len(join.stages) > 1:
        found = multiset(
            join.batch(**{name: cast("GivenRows", list(given)) for name, given in parts.items()})
        )
        check_plan(join)
        return found
    batch = batch_of(join)
    descriptors = ingest_all(join, batch, parts)
    found = Counter(row for task in range(join.tasks) for row in task_rows(join, batch, task, descriptors))
    join.number += 1
    check_plan(join)
    return found


def check_plan(join: Driven) -> None:
    """Raise if the plan of the batch that was just run misses a pair or joins it twice, or overlooks a merge."""
    for stage in join.stages:
        spec = stage.operator.spec
        kept = engine._kept(spec, batch_of(join), join.clock)
        manifest = kept.last
        assert manifest is not None
        assert manifest.batch == replace(batch_of(join), number=join.number - 1)
        spec.scheme.check(manifest.plan.scheme, spec.settings.tasks)
        check_merges(kept.files.place, manifest)
        check_assigned(manifest, spec.settings.limits)
        # Indexes of a hub come and go, each with another part of the rows.
        if not isinstance(manifest.plan.scheme, HubPlan):
            check_arrangements(manifest, spec.settings)


def check_merges(place: str, manifest: Manifest) -> None:
    """Raise if a part that the batch before merged is not in place: all its tasks were done."""
    parent, merged = _MERGED.get(place, (None, frozenset()))
    pending = {
        (merge.id, number)
        for merge in manifest.merges
        for number, part in enumerate(merge.parts)
        if part.output is None
    }
    if manifest.parent == parent:
        assert not pending & merged, f"merged in {parent} and not seen since: {pending & merged}"
    _MERGED[place] = manifest.batch, frozenset((one.merge, one.part) for one in manifest.plan.assignments)


def forget_merges() -> None:
    """Expect nothing of merges so far: their receipts may be damaged, removed, or listed late."""
    _MERGED.clear()


# What the last batch of each state has merged, as merges and parts.
_MERGED: dict[str, tuple[BatchId | None, frozenset[tuple[str, int]]]] = {}


def check_assigned(manifest: Manifest, limits: Limits) -> None:
    """Raise if a part of a merge waits although the batch has not done what every batch may do."""
    assigned = {(one.merge, one.part) for one in manifest.plan.assignments}
    parts = {(merge.id, number): part for merge in manifest.merges for number, part in enumerate(merge.parts)}
    waiting = {one for one, part in parts.items() if part.output is None and one not in assigned}
    rows = sum(parts[one].rows for one in assigned)
    assert not waiting or rows >= limits.min_budget_rows, f"{rows} rows are merged, and these wait: {waiting}"


def check_arrangements(manifest: Manifest, how: Settings) -> None:
    """Raise if an arrangement has many more runs than the first one of its input: with the same rows they merge alike.

    They do not merge at once. The budget of a batch may do for the merge of one of them, and the bytes that merged runs
    leave on the disk may be too many for one of them: `check_assigned` and the tests of plan/room.py watch these.
    """
    merge_of = {path: merge.id for merge in manifest.merges for path in merge.runs}
    now = Counter(name for name, _ in {(run.input, run.group) for run in manifest.live})
    planned = Counter(
        name for name, _ in {(run.input, merge_of.get(run.path, run.group)) for run in manifest.live}
    )
    for one in manifest.signature.inputs:
        if one.of and planned[one.name] > MOST_AS_MANY * now[one.of] + MOST_MORE:
            assert _waits_for_room(manifest, one.name, how), (
                f"{one.name} has {now[one.name]} runs, {planned[one.name]} when all merges are done; {one.of} {now[one.of]}"
            )


def _waits_for_room(manifest: Manifest, name: str, how: Settings) -> bool:
    """Whether the disk had no room to merge an arrangement when the batch was planned, with all its runs in one tier."""
    groups: dict[str, list[Run]] = {}
    for run in manifest.history:
        if run.input == name:
            groups.setdefault(run.group, []).append(run)
    before = [merge for merge in manifest.merges if merge.batch < manifest.batch.number]
    busy = {path for merge in before for path in merge.runs}
    free = [group for group in groups.values() if not busy.intersection(run.path for run in group)]
    room = estimate_room_bytes(
        [*groups.values()], before, manifest.batch.number, how.retain_batches, how.limits
    )
    return not oldest_that_fit(free, room, how.limits)


# --- crashes ------------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process is gone; nothing catches this but the script."""


@contextlib.contextmanager
def crash_at(place: str | None, passed: int = 0) -> Iterator[None]:
    """Raise `Crash` at a failpoint, where a process would be killed, after it was passed some times; at none if no place
    is given.
    """
    left = iter(range(passed))

    # Asked before half a file is written: a process that goes on must not leave one.
    def is_due(name: str) -> bool:
        return next(left, None) is None

    def act(name: str) -> None:
        raise Crash(name)

    points = {place: ("crash", None)} if place else {}
    with mock.patch.multiple(failpoints, _POINTS=points, _is_due=is_due, act=act):
        try:
            yield
        except Crash:
            # A clean-up may have removed receipts already that the batch needs again when it is replayed.
            forget_merges()
            raise


def run_through(
    join: LocalJoin, parts: Parts, crash: str | None = None, *, zombie: bool = False
) -> tuple[LocalJoin, Counter[Row]]:
    """Run the next batch. After a crash the query starts again and replays it, as Spark does.

    As a zombie the first start then wakes up and runs the batch too.
    """
    try:
        with crash_at(crash):
            return join, run_batch(join, parts)
    except Crash:
        dead, join = join, restarted(join)
    found = run_batch(join, parts)
    if zombie:
        # It may find its own manifest and go on, or find that it was superseded; nobody reads its results.
        with contextlib.suppress(StateInUse):
            run_batch(dead, parts)
            if crash == UNCLAIMED:
                # It claims only now, so it looks like a later start: the query fails, and starts again.
                join = restarted(join)
    return join, found


# --- results and state --------------------------------------------------------------------------------------------------


def rows_of(found: pa.Table | pa.RecordBatch) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def multiset(*found: pa.Table | pa.RecordBatch) -> Counter[Row]:
    return Counter(row for table in found for row in rows_of(table))


def ask_duckdb(query: str, **tables: pa.Table) -> Counter[Row]:
    """The rows that DuckDB gives for a query over these tables: an oracle that knows nothing of batches or runs."""
    with oracle() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return Counter(connection.execute(query).fetchall())


def oracle() -> Any:
    """A connection to DuckDB, to be closed. To open a database takes 17 ms, a cursor on one that is open 0.3."""
    return _database(os.getpid()).cursor()


@functools.cache
def _database(process: int) -> Any:
    """One for each process: a forked one must not use that of its parent."""
    import duckdb

    return duckdb.connect(config={"threads": 1})


def difference(found: Counter[Row], expected: Counter[Row]) -> str:
    """What results have too little or too much, in words; empty if they are right."""
    if found == expected:
        return ""
    missing, surplus = expected - found, found - expected
    return (
        f"{missing.total()} results are missing, {surplus.total()} too many, of {expected.total()}: "
        f"missing {sorted(missing.elements(), key=repr)[:5]}, too many {sorted(surplus.elements(), key=repr)[:5]}"
    )


def files_of(state: Path | str, name: str = "join", query: str = "local") -> LocalFiles:
    """The files of one query, by default that of a `LocalJoin` without a name."""
    return LocalFiles(Path(state) / name / query)


def manifests(state: Path | str | Files) -> list[Manifest]:
    """All manifests of a query that are still there, oldest first. A path is that of a `LocalJoin` without a name."""
    files = files_of(state) if isinstance(state, Path | str) else state
    return [read_manifest(files, name) for name in list_manifests(files)]


def newest(state: Path | str | Files) -> Manifest:
    files = files_of(state) if isinstance(state, Path | str) else state
    return read_manifest(files, list_manifests(files)[-1])
