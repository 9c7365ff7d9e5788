"""The content of a state directory, from its manifests and listings: no Spark, no locks, no writes.

The query may be running, so files may change meanwhile: a manifest that the query removes between our listing and our
reading is not damage. Runs are checked by name and size only. The join verifies their checksums before it first uses
them.

Layout: STATE / join name / query id / {manifests, bases, statistics, descriptors, runs / input, receipts, starts,
tallies}.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from watersmeet.errors import CorruptFile, StateError
from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests, open_manifest
from watersmeet.log.names import (
    BASES,
    DESCRIPTORS,
    MANIFESTS,
    RECEIPTS,
    STATE_IN_CHECKPOINT,
    STATISTICS,
    TALLIES,
    ManifestName,
    is_join_folder,
    join_of,
)
from watersmeet.log.parents import is_settled
from watersmeet.log.runs import RUNS
from watersmeet.log.seen import Seen
from watersmeet.log.starts import STARTS, is_settling, starts_above
from watersmeet.log.storage import FileInfo, Files
from watersmeet.log.tallies import latest_tallies
from watersmeet.model.facts import Elsewhere, InputTotals, Manifest, SchemePlan, Settlement
from watersmeet.model.found import found_by
from watersmeet.model.tally import TaskTally
from watersmeet.model.window import lateness_text, over_time, time_text, width_text
from watersmeet.schemes.register import SCHEMES
from watersmeet.schemes.scheme import Serves, Shown

_FOLDERS = frozenset({MANIFESTS, RUNS, RECEIPTS})
_SMALL_FILES = (MANIFESTS, BASES, STATISTICS, DESCRIPTORS, RECEIPTS, STARTS, TALLIES)

# Folder names shown if the directory is not a state.
_SHOWN_FOLDERS = 5
# Folders in which a state is looked for then: a checkpoint has four beside it. Each costs some requests.
_SEARCHED_FOLDERS = 20


@dataclass(frozen=True, slots=True)
class InputStatus:
    """One input of a join: its live state, and its `totals` since the query began.

    Rows count once, however many `arrangements` they are stored in; runs and bytes are those of all of them. `found_by`
    says what they are found by, in words.
    """

    name: str
    runs: int
    rows: int
    bytes: int
    totals: InputTotals
    arrangements: int = 1
    found_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowStatus:
    """The window of a join as text, and the watermark for the rows of the next batch.

    `newest` is the latest time of each input: the watermark waits for the input that is behind.
    """

    within: str
    lateness: str | None
    watermark: str | None
    newest: dict[str, str]


@dataclass(frozen=True, slots=True)
class JoinStatus:
    """One join in one query. `batch` is None before the first batch; `age_s` is the time since it was written.

    `pending_rows` (an estimate) and `pending_parts` are the merging debt. `disk_bytes` counts every file, including
    unneeded ones that are not removed yet. `gaps` are batches whose rows may be missing because acceptGap named them.
    `plan` is the scheme's plan for the last batch. `tallies` are what is known of the tasks: the last tally of each, by
    task. Where many tasks take turns (log/tallies.py) they are of different batches. `part_of` is the join that
    this is a lookup of, if it is one among several stages. `settled` has every settling of the query, oldest first, and
    `is_settled` says that no batch came after the last one. `unsettled` is the batch of a settling that was begun and
    not finished, if nothing came after it.
    """

    name: str
    query: str
    batch: int | None
    starts: int
    predicate: str | None = None
    inputs: tuple[InputStatus, ...] = ()
    pending_rows: int = 0
    pending_parts: int = 0
    written_ms: int | None = None
    age_s: float | None = None
    live_bytes: int = 0
    disk_bytes: int = 0
    damage: tuple[str, ...] = ()
    strategy: str | None = None
    plan: SchemePlan | None = None
    window: WindowStatus | None = None
    gaps: tuple[str, ...] = ()
    tallies: tuple[TaskTally, ...] = ()
    part_of: str | None = None
    settled: tuple[Settlement, ...] = ()
    is_settled: bool = False
    unsettled: int | None = None

    @property
    def shown(self) -> Shown | None:
        """The plan for display."""
        if self.plan is None or self.strategy is None:
            return None
        return SCHEMES[self.strategy].show(self.plan, [one.name for one in self.inputs])

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.inputs)

    @property
    def runs(self) -> int:
        return sum(one.runs for one in self.inputs)


@dataclass(frozen=True, slots=True)
class Status:
    """Every join of every query whose state is in one directory."""

    state: str
    joins: tuple[JoinStatus, ...]

    @property
    def damage(self) -> tuple[str, ...]:
        return tuple(found for join in self.joins for found in join.damage)


def read_status(state: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> Status:
    """The present status of a state directory; StateError if it has no state."""
    files = open_files(state)
    try:
        joins = [join_status(files, name, query, now_s=clock()) for name, query in _queries(files)]
    except OSError as error:
        raise StateError(f"cannot read the state in {files.place}: {error.strerror or error}") from error
    if not joins:
        raise StateError(_nothing_found(files))
    return Status(files.place, tuple(joins))


def _queries(files: Files) -> Iterator[tuple[str, str]]:
    """The joins of a state directory, each with its queries."""
    return (
        (name, query)
        for name in files.folders()
        if is_join_folder(name)
        for query in files.under(name).folders()
        if is_join_folder(query) and _FOLDERS & set(files.under(name, query).folders())
    )


def join_status(files: Files, name: str, query: str, *, now_s: float, verify: bool = True) -> JoinStatus:
    """The status of one join in one query. Without `verify` it reads only the newest manifest."""
    mine = files.under(name, query)
    names = list_manifests(mine)
    # Manifests share bases: each is read once.
    seen = Seen()
    newest, damage = _newest_readable(mine, names, seen)
    runs = {folder: mine.entries(f"{RUNS}/{folder}") for folder in mine.under(RUNS).folders()}
    if verify:
        damage += _damaged_manifests(mine, names, newest, seen)
        damage += _lost_manifests(mine, names, newest)
        damage += _damaged_runs(mine, newest, runs)
        damage += _lost_statistics(mine, newest)
    found = JoinStatus(
        name=name,
        query=query,
        batch=names[-1].batch if names else None,
        starts=names[-1].run_seq + 1 if names else 0,
        disk_bytes=_bytes(*(mine.entries(folder) for folder in _SMALL_FILES), *runs.values()),
        damage=tuple(damage),
        part_of=join_of(name),
        unsettled=_unfinished(mine, names[-1].run_seq) if names and verify else None,
    )
    if newest is None:
        return found
    found = _with_manifest(found, newest, now_s)
    return replace(found, tallies=latest_tallies(mine, newest.run_seq)) if verify else found


def _with_manifest(found: JoinStatus, newest: Manifest, now_s: float) -> JoinStatus:
    """The status, with what the newest manifest that can be read says."""
    return replace(
        found,
        # A settling takes the number of a start.
        starts=found.starts - len(newest.settlements),
        predicate=newest.signature.predicate,
        inputs=_inputs(newest),
        pending_rows=sum(merge.pending_rows for merge in newest.merges),
        pending_parts=_pending_parts(newest),
        written_ms=newest.written_ms,
        age_s=max(0.0, now_s - newest.written_ms / 1000),
        live_bytes=sum(run.bytes for run in newest.live),
        strategy=newest.signature.scheme,
        plan=newest.plan.scheme,
        window=_window(newest),
        gaps=tuple(map(str, newest.gaps)),
        settled=newest.settlements,
        is_settled=is_settled(newest),
    )


def _unfinished(files: Files, newest_start: int) -> int | None:
    """The batch that a settling was begun for, if it claimed the newest start of all and left no mark."""
    found = None
    for start in starts_above(files, newest_start):
        found = start.first_batch if is_settling(start.run) else None
    return found


def _window(manifest: Manifest) -> WindowStatus | None:
    window = manifest.signature.window
    if window is None:
        return None
    return WindowStatus(
        within=width_text(window),
        lateness=lateness_text(window) if over_time(window) else None,
        watermark=None if manifest.watermark is None else time_text(window, manifest.watermark),
        # Arrangements have the times of their input.
        newest={
            spec.name: time_text(window, manifest.newest[spec.name])
            for spec in manifest.signature.inputs
            if not spec.of and spec.name in manifest.newest
        },
    )


def _newest_readable(
    files: Files, names: list[ManifestName], seen: Seen
) -> tuple[Manifest | None, list[str]]:
    """The newest readable manifest, and the damage of any newer one."""
    damage: list[str] = []
    for name in reversed(names):
        manifest, problem = _read(files, name, seen)
        if manifest is not None:
            if damage:
                damage.append(f"the figures are those of batch {name.batch}, the newest that can be read")
            return manifest, damage
        damage += [problem] if problem else []
    return None, damage


def _read(files: Files, name: ManifestName, seen: Seen) -> tuple[Manifest | None, str | None]:
    """The manifest, or its damage; neither if the running query has just removed it."""
    try:
        return open_manifest(files, name, seen), None
    except CorruptFile as error:
        return None, str(error) if name in list_manifests(files) else None


def _damaged_manifests(
    files: Files, names: list[ManifestName], newest: Manifest | None, seen: Seen
) -> list[str]:
    """The damage of manifests older than the newest readable one, which a rollback would need."""
    if newest is None:
        return []
    here = (newest.run_seq, newest.batch.number)
    older = [name for name in names if (name.run_seq, name.batch) < here]
    return [problem for name in older if (problem := _read(files, name, seen)[1])]


def _lost_manifests(files: Files, names: list[ManifestName], newest: Manifest | None) -> list[str]:
    """The batches of the newest start without a manifest: the checkpoint cannot be rolled back to the next one."""
    if newest is None:
        return []
    batches = {name.batch for name in names if name.run_seq == newest.run_seq}
    absent = [
        ManifestName(newest.run_seq, number, newest.batch.run)
        for number in range(min(batches, default=0), newest.batch.number)
        if number not in batches and not any(number in gap for gap in newest.gaps)
    ]
    # Ask by name: it may have been written during the listing.
    return [
        f"manifest {name.path} of batch {name.batch} in {files.place} is missing"
        for name in absent
        if not files.exists(name.path)
    ]


def _damaged_runs(files: Files, manifest: Manifest | None, found: dict[str, list[FileInfo]]) -> list[str]:
    sizes = {f"{RUNS}/{folder}/{info.name}": info.bytes for folder, infos in found.items() for info in infos}
    damage = []
    for run in manifest.live if manifest else ():
        where = f"run {run.path} of batch {run.batch} in {files.place}"
        if run.path not in sizes:
            damage.append(f"{where} is missing")
        elif sizes[run.path] != run.bytes:
            damage.append(f"{where} has {sizes[run.path]} bytes instead of {run.bytes}")
    return damage


def _lost_statistics(files: Files, manifest: Manifest | None) -> list[str]:
    named = {
        run.stats.file for run in (manifest.live if manifest else ()) if isinstance(run.stats, Elsewhere)
    }
    found = {f"{STATISTICS}/{info.name}" for info in files.entries(STATISTICS)} if named else set()
    return [f"file of statistics {path} in {files.place} is missing" for path in sorted(named - found)]


def _inputs(manifest: Manifest) -> tuple[InputStatus, ...]:
    described = []
    # A hub may index any column, and does where a live query needs it.
    is_hub = SCHEMES[manifest.signature.scheme].serves == Serves.HUB
    for spec in manifest.signature.inputs:
        if not spec.is_given:
            continue
        stored = [one.name for one in manifest.signature.inputs if one.input == spec.name]
        live = [run for run in manifest.live if run.input in stored]
        described.append(
            InputStatus(
                name=spec.name,
                runs=len(live),
                rows=sum(run.stored_rows for run in live if run.input == spec.name),
                bytes=sum(run.bytes for run in live),
                totals=manifest.totals.get(spec.name, InputTotals()),
                arrangements=len({spec.name} | {run.input for run in live}) if is_hub else len(stored),
                found_by=() if is_hub else found_by(manifest.signature, spec.name),
            )
        )
    return tuple(described)


def _pending_parts(manifest: Manifest) -> int:
    return sum(part.output is None for merge in manifest.merges for part in merge.parts)


def _bytes(*listings: Iterable[FileInfo]) -> int:
    return sum(info.bytes for listing in listings for info in listing)


def _nothing_found(files: Files) -> str:
    folders = [name for name in files.folders() if is_join_folder(name)]
    if not folders:
        return f"there is no state in {files.place}: the directory is missing or empty"
    above = any(_FOLDERS & set(files.under(folder).folders()) for folder in folders) or _FOLDERS & set(
        folders
    )
    if above:
        return f"{files.place} is part of a state directory: give the directory that was passed as state="
    below = [state.place for state in _states_below(files, folders[:_SEARCHED_FOLDERS])]
    if below:
        return f"{files.place} is not a state directory, but holds one: give {' or '.join(below[:_SHOWN_FOLDERS])}"
    shown = ", ".join(folders[:_SHOWN_FOLDERS])
    return f"there is no Watersmeet state in {files.place}: it holds {shown}"


def _states_below(files: Files, folders: Sequence[str]) -> Iterator[Files]:
    """The state directories among these folders, and in those of them that are the checkpoint of a job."""
    for folder in folders:
        for below in (files.under(folder), files.under(folder, STATE_IN_CHECKPOINT)):
            if any(True for _ in _queries(below)):
                yield below
