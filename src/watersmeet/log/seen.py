"""What a process has seen of the log: decoded manifests, bases and statistics. All of it can be read again.

Manifests and the files that they name never change, so what was decoded once stays right as long as the bytes are the
same. A manifest is still opened by its name each time: it may have been removed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

from watersmeet.log.names import ManifestName
from watersmeet.model.facts import Elsewhere, Manifest, Run, RunStats

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Newest(Generic[K, V]):
    """The last `count` entries that were put in or found."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._entries: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        found = self._entries.pop(key, None)
        if found is not None:
            self._entries[key] = found
        return found

    def put(self, key: K, value: V) -> None:
        self._entries.pop(key, None)
        self._entries[key] = value
        while len(self._entries) > self._count:
            del self._entries[next(iter(self._entries))]

    def pop(self, key: K) -> None:
        self._entries.pop(key, None)


@dataclass(frozen=True, slots=True)
class Moved:
    """Statistics that were put together when a base was written: the files that they were in, and the one that they are
    in since, in the order of the runs. `runs` is how many they are of."""

    files: tuple[str, ...]
    to: str
    runs: int


@dataclass(frozen=True, slots=True)
class BaseRef:
    """A base as a manifest names it: the runs that were live after the batch `of`.

    `repeated` counts the runs that manifests have repeated since: when it reaches `runs`, a new base pays. `as_it_was`
    says that statistics are still where the manifest of that batch has them; if not, `moved` says where they are. (In
    format 6 only the base did.)
    """

    path: str
    bytes: int
    of: ManifestName
    runs: int
    repeated: int = 0
    as_it_was: bool = True
    moved: Moved | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """A manifest, the content of its file, and the base that it is stored with."""

    content: bytes
    manifest: Manifest
    base: BaseRef | None = None


# The manifest of a batch, its parent, and those that a start looks at before.
_MANIFESTS = 4
# The base of a batch, and of its parent.
_BASES = 2
# A retained manifest needs some hundred bytes here, and a cleaning process reads each of them once.
_NAMED = 1_000


@dataclass(frozen=True, slots=True)
class Named:
    """The files that a manifest keeps alive: its own runs, and the runs of its base but for some positions."""

    paths: frozenset[str]
    base: str | None = None
    removed: frozenset[int] = frozenset()


@dataclass
class Seen:
    manifests: Newest[ManifestName, Decoded] = field(default_factory=lambda: Newest(_MANIFESTS))
    bases: Newest[str, Sequence[Run]] = field(default_factory=lambda: Newest(_BASES))
    named: Newest[ManifestName, Named] = field(default_factory=lambda: Newest(_NAMED))
    # Decoded files of statistics, and where the statistics of live runs are.
    statistics: dict[str, Sequence[RunStats | None]] = field(default_factory=dict)
    places: dict[str, Elsewhere] = field(default_factory=dict)
    # The statistics of the runs of a batch as they came in descriptors, as columns, and the row of each run.
    arrived: tuple[dict[str, int], dict[str, pa.Array]] | None = None
