"""Statistics of runs in files of their own, apart from the manifests that name the runs.

A run's statistics can be a hundred times as large as all else that a manifest says of it, and only a task that plans or
merges needs them. Every task reads the manifest. So a batch with many of them writes the statistics of its new runs
into one file, and a run in a manifest has an `Elsewhere` instead: the file and the run's place in it. Few stay where
they are.

    statistics/<start>-<batch>-<checksum>.arrow

The file is published before the manifest that names it. A file that no retained manifest names is garbage. A run keeps
its place as long as it lives. When a base is written (`log/bases.py`), the files that have become small are put
together, so a planner that has seen nothing reads a bounded number of files.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet import failpoints
from watersmeet.log.columns import count_values, file_of, from_file, load_many, store, to_file
from watersmeet.log.names import STATISTICS, batch_stem
from watersmeet.log.seen import Moved, Seen
from watersmeet.log.storage import Files
from watersmeet.model.facts import Elsewhere, Manifest, Merge, Run, RunStats

_ADVICE = "Restore the file from a copy, roll the checkpoint back to an earlier batch, or start with a new checkpoint"


@dataclasses.dataclass(frozen=True, slots=True)
class Described:
    """What a file of statistics holds of a run."""

    stats: RunStats | None


def complete(files: Files, seen: Seen, manifest: Manifest) -> Manifest:
    """The manifest with the statistics of its runs, which a planner needs."""
    outputs = [part.output or () for merge in manifest.merges for part in merge.parts]
    parts = (manifest.history, manifest.fresh, *outputs)
    if not any(isinstance(run.stats, Elsewhere) for runs in parts for run in runs):
        return manifest
    found = iter(complete_runs(files, seen, list(itertools.chain.from_iterable(parts))))
    history, fresh, *outputs = (tuple(itertools.islice(found, len(runs))) for runs in parts)
    given = iter(outputs)
    merges = tuple(_with_outputs(merge, [next(given) for _ in merge.parts]) for merge in manifest.merges)
    return replace(manifest, history=history, fresh=fresh, merges=merges)


def complete_runs(files: Files, seen: Seen, runs: Sequence[Run]) -> list[Run]:
    """The runs with their statistics."""
    wanted = {run.path: run.stats for run in runs if isinstance(run.stats, Elsewhere)}
    missing = [place.file for place in wanted.values() if place.file not in seen.statistics]
    for path, content in load_many(files, missing, "file of statistics", _ADVICE).items():
        described, _ = from_file(Described, content, f"file of statistics {path} in {files.place}")
        seen.statistics[path] = [one.stats for one in described]
    seen.places.update(wanted)
    return [
        run
        if not isinstance(run.stats, Elsewhere)
        else replace(run, stats=seen.statistics[run.stats.file][run.stats.at])
        for run in runs
    ]


def _with_outputs(merge: Merge, outputs: Sequence[tuple[Run, ...]]) -> Merge:
    return replace(
        merge,
        parts=tuple(
            part if part.output is None else replace(part, output=output)
            for part, output in zip(merge.parts, outputs, strict=True)
        ),
    )


def forget_statistics(seen: Seen, manifest: Manifest) -> None:
    """Forget where the statistics of dead runs are, and the files that only they were in."""
    alive = manifest.named_paths
    seen.places = {path: place for path, place in seen.places.items() if path in alive}
    used = {place.file for place in seen.places.values()}
    seen.statistics = {path: found for path, found in seen.statistics.items() if path in used}


def follow(seen: Seen, runs: Sequence[Run], moved: Moved) -> tuple[Run, ...] | None:
    """The runs with their statistics where they are since they moved; None if those of others seem to have."""
    gone = frozenset(moved.files)
    places: dict[str, Elsewhere] = {}
    for run in runs:
        place = run.stats if isinstance(run.stats, Elsewhere) else seen.places.get(run.path)
        if run.stats is not None and place is not None and place.file in gone:
            places[run.path] = Elsewhere(moved.to, len(places))
    if len(places) != moved.runs:
        return None
    # A run that has its statistics with it must know where they are, too.
    seen.places.update((path, place) for path, place in places.items() if path in seen.places)
    return tuple(
        replace(run, stats=places[run.path])
        if run.path in places and isinstance(run.stats, Elsewhere)
        else run
        for run in runs
    )


class Places:
    """Where the statistics of the runs of a manifest are. They count once the manifest is published (`keep`).

    Another task may publish its own first, with other places.
    """

    def __init__(self, files: Files, seen: Seen, run_seq: int, batch: int) -> None:
        self._files = files
        self._seen = seen
        self._stem = f"{STATISTICS}/{batch_stem(run_seq, batch)}"
        self._new: dict[str, Elsewhere] = {}

    def stats_of(self, run: Run) -> RunStats | None:
        """The statistics of a run as they are stored: where they are, or themselves."""
        return None if run.stats is None else self._of(run) or run.stats

    def set_apart(self, runs: Sequence[Run], inline_values: int) -> None:
        """Write the statistics of runs that have no place yet, if they have many values."""
        new = [run for run in runs if run.stats is not None and self._of(run) is None]
        if sum(_values(run) for run in new) > inline_values:
            self._store(new)

    def put_together(self, runs: Sequence[Run], least_values: int) -> Moved | None:
        """Write statistics that are in small files into one, if there are several of those, and return what moved.

        The statistics themselves must be known, as those of a parent that was completed are.
        """
        values: Counter[str] = Counter()
        small: list[tuple[str, Run]] = []
        for run in runs:
            place = None if run.stats is None else self._of(run)
            if place is not None:
                values[place.file] += _values(run)
                small.append((place.file, run))
        moved = [run for path, run in small if values[path] < least_values]
        files = tuple(path for path, count in values.items() if count < least_values)
        if len(files) < 2 or any(isinstance(run.stats, Elsewhere) for run in moved):
            return None
        return Moved(files, self._store(moved), len(moved))

    def keep(self) -> None:
        self._seen.places.update(self._new)

    def _of(self, run: Run) -> Elsewhere | None:
        if isinstance(run.stats, Elsewhere):
            return run.stats
        return self._new.get(run.path) or self._seen.places.get(run.path)

    def _store(self, runs: Sequence[Run]) -> str:
        columns = self._arrived(runs)
        content = (
            to_file(Described, [Described(run.stats) for run in runs])
            if columns is None
            else file_of(columns)
        )
        path = store(self._files, self._stem, content)
        failpoints.reach("statistic-written")
        self._seen.statistics[path] = [run.stats for run in runs]
        self._new.update((run.path, Elsewhere(path, at)) for at, run in enumerate(runs))
        return path

    def _arrived(self, runs: Sequence[Run]) -> dict[str, pa.Array] | None:
        """The statistics as columns, if they came so. To make columns of 100,000 numbers takes some 20 ms."""
        if self._seen.arrived is None:
            return None
        rows, columns = self._seen.arrived
        if not columns or any(run.path not in rows for run in runs):
            return None
        wanted = [rows[run.path] for run in runs]
        if wanted == list(range(len(rows))):
            return columns
        return {name: column.take(pa.array(wanted)) for name, column in columns.items()}


def _values(run: Run) -> int:
    return 0 if run.stats is None else count_values(run.stats)
