"""Disks and listings that fail: EIO at any call, a cache disk that is full, directories that are listed late.

A start that meets a failing disk may complete or stop with one of our own errors. The next start, on a sound disk, must
complete with the right rows. Late listings are no fault: the start must complete.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.chaos.cases import to_tables
from tests.chaos.lives import Life
from tests.chaos.processes import Outcome, in_child, last_calls
from tests.chaos.scenario import Scenario, Unit, Wrong, describe, finish, require_done
from tests.late_files import LateFiles, Listings
from tests.life import Driven, batch_of, ingest, task_rows
from watersmeet.engine import operator
from watersmeet.errors import WatersmeetError

# --- EIO and ENOSPC -------------------------------------------------------------------------------------------------


class Faulty:
    """Makes calls fail whose path is below a directory: `failing` are their numbers."""

    def __init__(self, root: str, number: int, failing: range, *, only_writes: bool = False):
        self.root = root
        self.number = number
        self.failing = failing
        self.only_writes = only_writes
        self.calls = 0
        self.failed = 0

    def install(self) -> None:
        for module, names, writes in (
            (os, ("mkdir",), True),
            # A full disk has room for another name.
            (os, ("link", "rename", "replace", "unlink", "scandir", "fsync"), False),
            (pa, ("memory_map",), False),
        ):
            for name in names:
                self._wrap(module, name, lambda *args, writes=writes, **kwargs: writes)
        self._wrap(
            os, "open", lambda path, flags=0, *args, **kwargs: bool(flags & (os.O_CREAT | os.O_WRONLY))
        )
        self._wrap(pa, "OSFile", lambda path, mode="r", *args, **kwargs: "w" in mode)
        self._wrap(io, "open", lambda path, mode="r", *args, **kwargs: bool(set(mode) & set("wxa")))
        builtins.open = io.open

    def _wrap(self, module: Any, name: str, writes: Callable[..., bool]) -> None:
        original = getattr(module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._below(args[0] if args else None):
                return original(*args, **kwargs)
            writing = writes(*args, **kwargs)
            self._count(
                writing, f"{name}({os.fsdecode(args[0]) if not isinstance(args[0], int) else args[0]})"
            )
            result = original(*args, **kwargs)
            return _Written(result, self) if writing and name == "open" and module is io else result

        setattr(module, name, call)

    def _below(self, path: Any) -> bool:
        try:
            text = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fsdecode(path)
        except (OSError, TypeError):
            return False
        return os.path.abspath(text).startswith(self.root)

    def _count(self, writing: bool, what: str) -> None:
        if self.only_writes and not writing:
            return
        self.calls += 1
        if self.calls in self.failing:
            self.failed += 1
            raise OSError(self.number, os.strerror(self.number), what)


class _Written:
    """A file that is written to: each write may fail, too."""

    def __init__(self, file: Any, faulty: Faulty):
        self._file, self._faulty = file, faulty

    def write(self, content: Any) -> int:
        self._faulty._count(True, "write")
        return int(self._file.write(content))

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def run_eio(unit: Unit) -> Counter[str]:
    rng = unit.rng
    life = unit.life(fsync=rng.random() < 0.5, grace_s=-1.0)
    counts: Counter[str] = Counter()
    for start in _starts(life, 4, lambda one: one.root):
        # The disk may recover at once, or not in this start.
        first, lasts = rng.randint(1, start.calls), rng.random() < 0.3
        failing = range(first, 1 << 30 if lasts else first + 1)
        counts += _suffer(life, start, str(life.root), errno.EIO, failing)
        if rng.random() < 0.5:
            life.age()
    assert counts["starts"], f"{describe(life)}: no call failed"
    finish(life, "after EIO", jitter_s=rng.random() * 4)
    life.remove()
    return counts


def run_full(unit: Unit) -> Counter[str]:
    rng = unit.rng
    life = unit.life(remote=True, grace_s=-1.0)
    counts: Counter[str] = Counter()
    for start in _starts(life, 2, lambda one: one.folder / one.cache_name, only_writes=True):
        life.cache_name = start.cache_name
        first, lasts = rng.randint(1, start.calls), rng.randrange(1, 12)
        cache = str(life.folder / life.cache_name)
        counts += _suffer(life, start, cache, errno.ENOSPC, range(first, first + lasts), only_writes=True)
    assert counts["starts"], f"{describe(life)}: no write failed"
    finish(life, "after a full cache disk", jitter_s=rng.random() * 4)
    life.remove()
    return counts


@dataclass(frozen=True)
class _Start:
    """A start that ends before batch `until`, and how many calls it makes on a sound disk."""

    until: int
    cache_name: str
    calls: int


def _starts(
    life: Life, count: int, root: Callable[[Life], Path], *, only_writes: bool = False
) -> list[_Start]:
    """Starts that share the batches of a life, each with a cache of its own.

    Their calls are counted in a life of the same rows. A start that could go to the end would leave none for the next.
    """
    folder = life.folder.with_name(f"{life.folder.name}-unharmed")
    state = f"s3://{uuid.uuid4().hex}/state" if life.is_remote else str(folder / "state")
    twin = replace(life, folder=folder, state=state)
    require_done(twin, "unharmed", in_child(twin.prepare))
    starts = []
    for number in range(count):
        twin.cache_name = f"cache-{number}"
        until = life.batches * (number + 1) // count

        def work(until: int = until) -> int:
            faulty = Faulty(str(root(twin)), 0, range(0), only_writes=only_writes)
            faulty.install()
            twin.drive(until)
            return faulty.calls

        outcome = in_child(work)
        require_done(twin, "unharmed", outcome)
        starts.append(_Start(until, twin.cache_name, outcome.value))
    twin.remove()
    # Windows may leave a start without a run to fetch.
    return [start for start in starts if start.calls]


def _suffer(
    life: Life, start: _Start, root: str, number: int, failing: range, *, only_writes: bool = False
) -> Counter[str]:
    def work() -> tuple[int, Outcome]:
        faulty = Faulty(root, number, failing, only_writes=only_writes)
        faulty.install()
        outcome = Outcome()
        try:
            life.drive(start.until)
        except BaseException as error:
            outcome = _as_outcome(error)
        return faulty.failed, outcome

    ended = in_child(work)
    if not ended.done:
        raise Wrong(f"{describe(life)}, {errno.errorcode[number]}: {ended}")
    failed, outcome = ended.value
    if not (outcome.done or outcome.error):
        raise Wrong(f"{describe(life)}, {errno.errorcode[number]}: {outcome}")
    if not failed:
        return Counter({"not struck": 1})
    return Counter({"starts": 1, "refused" if outcome.error else "right": 1})


def _as_outcome(error: BaseException) -> Outcome:
    if isinstance(error, WatersmeetError):
        return Outcome(error=type(error).__name__, text=str(error))
    return Outcome(raw=True, text=last_calls(error))


# --- late listings --------------------------------------------------------------------------------------------------


class MachineListings(Listings):
    """What a machine remembers of directories, as an NFS client does; some of it from before this process began."""

    def __init__(self, rng: random.Random, seen: dict[str, list[str]]):
        super().__init__()
        self.rng = rng
        self._kept: dict[tuple[str, str], tuple[list[Any], int]] = {}
        self._before = {key: names for key, names in seen.items() if rng.random() < 0.5}

    def look(self, key: tuple[str, str], read: Callable[[], list[Any]]) -> list[Any]:
        """A listing: as it was, some times; then as it is."""
        kept, left = self._kept.get(key, ([], 0))
        if left:
            self._kept[key] = kept, left - 1
            return kept
        found = read()
        if key not in self._kept and key[1] in self._before:
            names = set(self._before[key[1]])
            found = [entry for entry in found if getattr(entry, "name", entry) in names]
        self._kept[key] = found, self.rng.choice([0, 1, 5, 30])
        return found

    def changed_here(self, folder: str) -> None:
        """A machine knows what it did itself, and asks the server then; or it has only its own entry."""
        for key in [key for key in self._kept if key[1] == folder]:
            del self._kept[key]


def run_late(unit: Unit) -> Counter[str]:
    """Tasks run on two machines, whose listings are late for some time; starts follow each other quickly."""
    rng = unit.rng
    # Tasks are driven one by one, as in races.py.
    life = unit.life(of=lambda case: not case.is_chain, retain=4)
    life.root.mkdir()
    (life.folder / "other").symlink_to(life.root)
    seen: dict[str, list[str]] = {}
    for _ in range(3):
        until, seed = rng.randint(life.committed(), life.batches), rng.random()
        before = _listing(life)
        outcome = in_child(partial(_drive_late, life, until, random.Random(seed), seen))
        if not outcome.done:
            raise Wrong(f"{describe(life)}, late listings: {outcome}")
        seen = before
    finish(life, "after late listings", jitter_s=rng.random() * 4)
    life.remove()
    return Counter({"lives": 1})


def _listing(life: Life) -> dict[str, list[str]]:
    return {os.path.realpath(folder): [*folders, *names] for folder, folders, names in os.walk(life.root)}


def _drive_late(life: Life, until: int, rng: random.Random, seen: dict[str, list[str]]) -> None:
    """A start whose tasks run on either of two machines, each with its own way to the state."""
    places = (life.state, str(life.folder / "other"))
    listings = {place: MachineListings(rng, seen) for place in places}
    original = getattr(operator, "open_files")  # noqa: B009

    def open_late(place: Any, **how: Any) -> Any:
        files = original(place, **how)
        return LateFiles(
            files, next(found for state, found in listings.items() if files.place.startswith(state))
        )

    setattr(operator, "open_files", open_late)  # noqa: B010
    run = f"{rng.getrandbits(128):032x}"
    hosts = [life.join(run=run, state=state) for state in listings]
    for number in range(life.committed(), until):
        life.commit(number, _batch_on(hosts, life, number, rng))


def _batch_on(hosts: list[Driven], life: Life, number: int, rng: random.Random) -> list[Any]:
    hosts = [life.at(host, number) for host in hosts]
    batch = batch_of(hosts[0])
    descriptors = [
        ingest(rng.choice(hosts), batch, side, part, partition)
        for side, parts in to_tables(life.rows[number]).items()
        for partition, part in enumerate(parts)
    ]
    return [
        row for task in range(life.tasks) for row in task_rows(rng.choice(hosts), batch, task, descriptors)
    ]


EIO = Scenario("eio", "a call on the state's disk fails with EIO", "starts", 150, run_eio)
FULL = Scenario("full", "the disk of the cache of remote state is full", "starts", 40, run_full)
LATE = Scenario("late", "directories are listed late, as over NFS", "lives", 80, run_late)
