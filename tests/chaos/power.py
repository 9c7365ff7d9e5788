"""Power losses: what a disk has after the power fails is worked out from a trace of what the processes did to it.

A start is traced: every creation, write, link, rename, removal, new directory and fsync below the state, in order. The
trace is cut at a random place. What was synced before is on the disk. Of everything else, each change of a directory is
there or not, whatever its order; the content of a file that was not synced is whole, cut off, zeros, or nothing. A
directory that is lost takes along what is in it. This is what POSIX allows, and more than a usual filesystem does.

With `fsync` on, the next start must complete with the right rows. With it off, it may also be refused by name.
"""

from __future__ import annotations

import builtins
import io
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.chaos.lives import Life
from tests.chaos.processes import in_child
from tests.chaos.scenario import Scenario, Unit, Wrong, check_life, describe, require_done

LOSSES = 10


@dataclass(frozen=True)
class Op:
    """`kind` is create, data, sync, link, rename, unlink, mkdir, rmdir, sink or commit. Paths are below the state."""

    kind: str
    path: str = ""
    other: str = ""
    content: bytes = b""
    batch: int = -1


# --- the trace ------------------------------------------------------------------------------------------------------


class Tracer:
    """Records what this process does to files below a directory, by standing in for the calls that do it."""

    def __init__(self, root: Path):
        self.root = str(root)
        self.ops: list[Op] = []
        self._unread: set[str] = set()

    def install(self) -> None:
        self._wrap(os, "link", lambda a, b, **k: self._two("link", a, b))
        self._wrap(os, "rename", lambda a, b, **k: self._two("rename", a, b))
        self._wrap(os, "replace", lambda a, b, **k: self._two("rename", a, b))
        self._wrap(os, "unlink", lambda a, **k: self._one("unlink", a, k))
        self._wrap(os, "remove", lambda a, **k: self._one("unlink", a, k))
        self._wrap(os, "mkdir", lambda a, *m, **k: self._one("mkdir", a, k))
        self._wrap(os, "rmdir", lambda a, **k: self._one("rmdir", a, k))
        self._wrap(os, "fsync", self._fsync)
        self._wrap(os, "fdatasync", self._fsync)
        self._wrap(os, "open", lambda a, flags=0, *m, **k: self._created(a) if flags & os.O_CREAT else None)
        self._wrap(
            io, "open", lambda a, mode="r", *m, **k: self._created(a) if set(mode) & set("wxa") else None
        )
        builtins.open = io.open
        self._wrap(pa, "OSFile", lambda a, mode="r", *m, **k: self._created(a) if "w" in mode else None)

    def mark(self, kind: str, batch: int) -> None:
        self.ops.append(Op(kind, batch=batch))

    def finish(self) -> list[Op]:
        for path in sorted(self._unread):
            self._take_data(path)
        return self.ops

    def _wrap(self, module: Any, name: str, before: Callable[..., None]) -> None:
        """A call is recorded before it is made, and forgotten if it fails."""
        original = getattr(module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            length, unread = len(self.ops), set(self._unread)
            before(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            except BaseException:
                del self.ops[length:]
                self._unread = unread
                raise

        setattr(module, name, call)

    def _below(self, path: Any) -> str | None:
        try:
            text = os.path.abspath(os.fsdecode(path))
        except TypeError:
            return None
        return (
            os.path.relpath(text, self.root)
            if text == self.root or text.startswith(f"{self.root}/")
            else None
        )

    def _created(self, path: Any) -> None:
        if (name := self._below(path)) is not None:
            self.ops.append(Op("create", name))
            self._unread.add(name)

    def _one(self, kind: str, path: Any, how: dict[str, Any]) -> None:
        if how.get("dir_fd") is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{how['dir_fd']}"), os.fsdecode(path))
        if (name := self._below(path)) is not None:
            self._unread.discard(name)
            self.ops.append(Op(kind, name))

    def _two(self, kind: str, path: Any, other: Any) -> None:
        name, target = self._below(path), self._below(other)
        if name is not None and target is not None:
            self._take_data(name)
            self.ops.append(Op(kind, name, target))

    def _fsync(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path == os.path.dirname(self.root):
            self.ops.append(Op("sync", _ABOVE))
        elif (name := self._below(path)) is not None:
            if os.path.isfile(path):
                self._take_data(name)
            self.ops.append(Op("sync", name))

    def _take_data(self, name: str) -> None:
        """Files are written once: what is there at the first use of a file is all of it."""
        if name in self._unread:
            self._unread.discard(name)
            handle = _OPEN(os.path.join(self.root, name), os.O_RDONLY)
            try:
                content = b"".join(iter(lambda: os.read(handle, 1 << 20), b""))
            finally:
                os.close(handle)
            self.ops.append(Op("data", name, content=content))


_OPEN = os.open


def trace(life: Life, *how: str) -> list[Op]:
    """Run the whole life in this process, and return what it did to its state."""
    tracer = Tracer(life.root)
    tracer.install()
    original = life.commit

    def commit(number: int, rows: Any) -> None:
        original(number, rows)
        tracer.mark("commit", number)

    life.commit = commit  # type: ignore[method-assign]
    life.drive()
    return tracer.finish()


# --- the disk -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class File:
    content: bytes = b""
    synced: bool = False
    whole: bool = False


@dataclass(eq=False)
class Folder:
    """`durable` is what an fsync has made sure of; `pending` are changes since, by name: the new entry, or None."""

    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder | None]] = field(default_factory=list)

    @property
    def now(self) -> dict[str, File | Folder]:
        return _applied(self.durable, self.pending)


def _applied(
    entries: dict[str, File | Folder], changes: list[dict[str, File | Folder | None]]
) -> dict[str, File | Folder]:
    result = dict(entries)
    for change in changes:
        for name, entry in change.items():
            if entry is None:
                result.pop(name, None)
            else:
                result[name] = entry
    return result


class Disk:
    """A filesystem that knows what would survive."""

    def __init__(self) -> None:
        # The state's directory is made by the first write, in a directory that is there: it is one of the entries.
        self.above = Folder()

    def apply(self, op: Op) -> None:
        if op.kind == "mkdir":
            self._change(op.path, Folder())
        elif op.kind == "create":
            self._change(op.path, File())
        elif op.kind == "data":
            file = self._find(op.path)
            assert isinstance(file, File), op
            file.content, file.whole = op.content, True
        elif op.kind == "sync":
            self._sync(op.path)
        elif op.kind in ("unlink", "rmdir"):
            self._change(op.path, None)
        elif op.kind == "link":
            self._change(op.other, self._find(op.path))
        elif op.kind == "rename":
            self._rename(op)

    def flush(self) -> None:
        """All that there is comes to be durable."""
        folders = [self.above]
        while folders:
            folder = folders.pop()
            folder.durable, folder.pending = folder.now, []
            for entry in folder.durable.values():
                if isinstance(entry, Folder):
                    folders.append(entry)
                elif entry.whole:
                    entry.synced = True

    def survivors(self, rng: random.Random | None) -> dict[str, bytes | None]:
        """Paths and contents after a power loss; without `rng`, what is there without one. None is a directory."""
        found: dict[str, bytes | None] = {}
        self._collect("", self.above, rng, found)
        return found

    def _collect(
        self, path: str, folder: Folder, rng: random.Random | None, found: dict[str, bytes | None]
    ) -> None:
        kept = folder.pending if rng is None else _some(folder.pending, rng)
        for name, entry in _applied(folder.durable, kept).items():
            where = f"{path}/{name}" if path else name
            if isinstance(entry, Folder):
                found[where] = None
                self._collect(where, entry, rng, found)
            else:
                found[where] = entry.content if rng is None else _content(entry, rng)

    def _rename(self, op: Op) -> None:
        entry = self._find(op.path)
        if os.path.dirname(op.path) == os.path.dirname(op.other):
            # Within a directory it is one change: both names, or none.
            parent = self._folder(os.path.dirname(_full(op.path)))
            parent.pending.append({os.path.basename(op.path): None, os.path.basename(op.other): entry})
        else:
            self._change(op.other, entry)
            self._change(op.path, None)

    def _sync(self, path: str) -> None:
        entry = self.above if path == _ABOVE else self._find(path)
        if isinstance(entry, File):
            entry.synced = True
        else:
            entry.durable, entry.pending = entry.now, []

    def _change(self, path: str, entry: File | Folder | None) -> None:
        full = _full(path)
        self._folder(os.path.dirname(full)).pending.append({os.path.basename(full): entry})

    def _find(self, path: str) -> File | Folder:
        full = _full(path)
        return self._folder(os.path.dirname(full)).now[os.path.basename(full)]

    def _folder(self, path: str) -> Folder:
        found: File | Folder = self.above
        for part in filter(None, path.split("/")):
            assert isinstance(found, Folder)
            found = found.now[part]
        assert isinstance(found, Folder)
        return found


_ROOT = "state"
# The directory that holds the state's.
_ABOVE = ".."


def _full(path: str) -> str:
    return _ROOT if path == "." else f"{_ROOT}/{path}"


def _some(changes: list[Any], rng: random.Random) -> list[Any]:
    """All, none, the first ones, or any: a journal keeps the order, and not every filesystem has one."""
    kind = rng.random()
    if kind < 0.2:
        return changes
    if kind < 0.5:
        return changes[: rng.randint(0, len(changes))]
    return [change for change in changes if rng.random() < 0.5]


def _content(file: File, rng: random.Random) -> bytes:
    if file.synced:
        return file.content
    size = rng.randint(0, len(file.content))
    return rng.choice(
        [
            file.content,
            b"",
            file.content[:size],
            bytes(len(file.content)),
            file.content[:size] + bytes(len(file.content) - size),
        ]
    )


# --- the scenario ---------------------------------------------------------------------------------------------------


def run(unit: Unit) -> Counter[str]:
    rng = unit.rng
    life = unit.life(fsync=unit.index % 2 == 0, retain=3, grace_s=-1.0)
    traced = in_child(lambda: (trace(life), _tree(life.root)))
    require_done(life, "while it is traced", traced)
    ops, tree = traced.value
    _check_trace(life, ops, tree)
    counts: Counter[str] = Counter()
    for number in range(LOSSES):
        at = rng.randint(1, len(ops))
        counts += _lose_power(life, ops[:at], rng, number)
    life.remove()
    return counts


def _tree(root: Path) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {_ROOT: None}
    for path in root.rglob("*"):
        found[f"{_ROOT}/{path.relative_to(root)}"] = path.read_bytes() if path.is_file() else None
    return found


def _check_trace(life: Life, ops: list[Op], tree: dict[str, bytes | None]) -> None:
    """A call that the tracer does not know would make all that follows worthless."""
    disk = Disk()
    for op in ops:
        disk.apply(op)
    found = disk.survivors(None)
    if found != tree:
        odd = sorted(name for name in {*found, *tree} if found.get(name, 0) != tree.get(name, 0))
        raise Wrong(f"{describe(life)}: the trace misses changes of {odd[:5]}")


def _lose_power(life: Life, ops: list[Op], rng: random.Random, number: int) -> Counter[str]:
    disk = Disk()
    # Without any fsync the system writes everything out every few seconds; perhaps it did.
    flushed = rng.randrange(len(ops)) if rng.random() < 0.7 else 0
    for op in ops[:flushed]:
        disk.apply(op)
    disk.flush()
    for op in ops[flushed:]:
        disk.apply(op)
    committed = sum(op.kind == "commit" for op in ops)
    after = _restored(life, disk.survivors(rng), committed, number)
    outcome = in_child(after.drive)
    what = f"power lost after {len(ops)} operations, {committed} batches committed, fsync {'on' if life.fsync else 'off'}"
    try:
        if outcome.error and not life.fsync:
            return Counter({"losses": 1, "refused": 1})
        if not outcome.done:
            raise Wrong(f"{describe(life)}, {what}: {outcome}")
        check_life(after, what)
        return Counter({"losses": 1, "right": 1})
    finally:
        after.remove()


def _restored(life: Life, files: dict[str, bytes | None], committed: int, number: int) -> Life:
    """The life as the next start finds it. The sink and the checkpoint are on a disk of their own."""
    folder = life.folder.with_name(f"{life.folder.name}-loss-{number}")
    for name in ("sink", "commits"):
        (folder / name).mkdir(parents=True)
        for batch in sorted(os.listdir(life.folder / name))[:committed]:
            shutil.copy(life.folder / name / batch, folder / name / batch)
    if life.case.has_table:
        # With its time, which is part of the table's fingerprint.
        shutil.copy2(life.folder / "table.parquet", folder / "table.parquet")
    for path, content in sorted(files.items()):
        if content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).write_bytes(content)
    return Life(
        folder,
        life.case_name,
        life.seed,
        str(folder / _ROOT),
        life.tasks,
        life.batches,
        life.fsync,
        life.grace_s,
        life.retain,
        began_s=life.began_s,
    )


POWER = Scenario("power", "simulated power losses, with fsync on and off", "losses", 300, run, share=1.5)
