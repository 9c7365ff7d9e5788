"""Bases: the runs that were live after some batch, so that manifests need not repeat them.

A manifest says what its history differs in from a base: positions of runs that are gone, and the runs that came since.
Every manifest has the whole difference, so two files at most tell all: the manifest and its base. Both never change.

    bases/<start>-<batch>-<checksum>.arrow

*What it holds.* The base that batch b brings in is the live runs of b's parent, in their order, whatever planned b. It
is published before the manifest of b, which names it. So:

- A manifest whose base is missing was never published. A base that no retained manifest names is garbage: its planner
  died, or another one was faster and needed none.
- Tasks that plan b at the same time write the same bytes under the same name, or a base that nobody names.
- A process that has the parent in memory has the base in memory: it does not read it. Where statistics were put
  together for the base, the manifest says so (`Moved`), and the process follows them.
- A replay, a rollback or another start goes on from whatever parent `log/parents.py` finds. The difference is taken
  from the base of that parent, or the parent becomes the base.
- A base is removed like a run: no retained manifest names it, it is older than the grace period, and its batch is
  older than the current one. Its name has the start, so no other start brings it back to life.

*When.* Writing a base costs its runs; not writing one costs the runs that every later manifest repeats, and every task
reads a manifest. A new base is written when the repeated runs since the last one add up to a share of its size. With N
live runs and k new ones a batch, a batch writes and reads some sqrt(Nk) runs: for 10,000 runs and 2 new ones 140.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from watersmeet import failpoints
from watersmeet.errors import CorruptFile
from watersmeet.log.columns import from_file, load, store, to_file
from watersmeet.log.names import BASES, ManifestName, batch_stem
from watersmeet.log.seen import BaseRef, Seen
from watersmeet.log.statistics import Places, follow
from watersmeet.log.storage import Files
from watersmeet.model.facts import Elsewhere, Manifest, Run, RunStats
from watersmeet.model.limits import Limits

_ADVICE = "Restore the file from a copy, roll the checkpoint back to an earlier batch, or start with a new checkpoint"

Spans = list[list[int]]


# A manifest is read by every task, a base only by a process that has not seen the batch before: what manifests repeat
# counts more.
_SHARE = 4


def is_due(base: BaseRef | None, repeated: int, least_runs: int) -> bool:
    """Whether a new base pays for a manifest that would repeat `repeated` runs.

    >>> is_due(None, 200, least_runs=128)
    True
    """
    if repeated < least_runs:
        return False
    return base is None or _SHARE * (base.repeated + repeated) >= base.runs


def write_base(
    files: Files, places: Places, name: ManifestName, parent: Manifest, limits: Limits
) -> tuple[BaseRef, Sequence[Run]]:
    """Store the live runs of the parent as a base for the manifest `name`."""
    moved = places.put_together(parent.live, limits.least_file_values)
    runs = parent.live
    content = to_file(Run, runs, instead={"stats": [places.stats_of(run) for run in runs]})
    path = store(files, f"{BASES}/{batch_stem(name.run_seq, name.batch)}", content)
    failpoints.reach("base-written")
    return BaseRef(path, len(content), name_of(parent), len(runs), as_it_was=moved is None, moved=moved), runs


def read_base(files: Files, seen: Seen, base: BaseRef) -> Sequence[Run]:
    """The runs of a base, from memory if this process has seen them or the manifest that they are of."""
    runs = seen.bases.get(base.path)
    if runs is None and (of := seen.manifests.get(base.of)) is not None:
        if base.as_it_was:
            runs = of.manifest.live
        elif base.moved is not None:
            runs = follow(seen, of.manifest.live, base.moved)
    if runs is None:
        where = f"base {base.path} of batch {base.of.batch} in {files.place}"
        content = load(files, base.path, where, _ADVICE)
        if len(content) != base.bytes:
            raise CorruptFile(f"{where} has {len(content)} bytes instead of {base.bytes}. {_ADVICE}")
        runs, _ = from_file(Run, content, where)
    seen.bases.put(base.path, runs)
    return runs


@dataclass(frozen=True, slots=True)
class _RunFiles:
    """What a clean-up needs to know of a run."""

    path: str
    stats: RunStats | None = None


def paths_in_base(files: Files, path: str) -> list[tuple[str, ...]]:
    """The files that each run of a base needs. They are read: in memory a run may have its statistics with it."""
    where = f"base {path} in {files.place}"
    runs, _ = from_file(_RunFiles, load(files, path, where, _ADVICE), where, only=("path", "stats"))
    return [paths_of(run) for run in runs]


def paths_of(run: Run | _RunFiles) -> tuple[str, ...]:
    """The files that a run needs: its own, and that of its statistics."""
    return files_of(run.path, run.stats)


def files_of(path: str, stats: RunStats | None) -> tuple[str, ...]:
    return (path, stats.file) if isinstance(stats, Elsewhere) else (path,)


def difference(base: Sequence[Run], history: Sequence[Run]) -> tuple[list[int], tuple[Run, ...]]:
    """The positions of the base's runs that the history lacks, and the runs that follow the others in the history.

    The base without the former, and then the latter, is the history in its order, whatever it is.

    >>> def run(name): return Run("l", name, name, 0, 1, 1, 0, 9, "")
    >>> gone, came = difference([run("a"), run("b"), run("c")], [run("a"), run("c"), run("d")])
    >>> gone, [run.path for run in came]
    ([1], ['d'])
    """
    removed: list[int] = []
    reached = 0
    for place, run in enumerate(base):
        if reached < len(history) and _is_same(run, history[reached]):
            reached += 1
        else:
            removed.append(place)
    return removed, tuple(history[reached:])


def _is_same(run: Run, other: Run) -> bool:
    """Whether two facts are of one run. Its path has its checksum; its statistics may be elsewhere in one of them."""
    return run is other or (run.path == other.path and run.base == other.base and run.held == other.held)


def without(base: Sequence[Run], removed: frozenset[int]) -> list[Run]:
    return [run for place, run in enumerate(base) if place not in removed] if removed else list(base)


def to_spans(places: Iterable[int]) -> Spans:
    """Ascending numbers as spans, the end not included.

    >>> to_spans([1, 2, 3, 7])
    [[1, 4], [7, 8]]
    """
    spans: Spans = []
    for place in places:
        if spans and spans[-1][1] == place:
            spans[-1][1] = place + 1
        else:
            spans.append([place, place + 1])
    return spans


def from_spans(spans: Iterable[Sequence[int]]) -> list[int]:
    return [place for low, high in spans for place in range(low, high)]


def name_of(manifest: Manifest) -> ManifestName:
    return ManifestName(manifest.run_seq, manifest.batch.number, manifest.batch.run)
