"""Manifests: their names, what they hold, and how all tasks of a batch agree on one.

A manifest is named `<number of the start>-<batch>-<run id>.json`. Tasks know all three, so they open it by name and
never depend on a listing, which may be late on a shared filesystem. `log/parents.py` finds the parent of a batch.

In memory a `Manifest` has every live run. As a file it has the batch's own runs and what the history differs in from a
base (`log/bases.py`); statistics may be in files of their own (`log/statistics.py`). What a batch writes and reads thus
follows the batch, not the history. A long one is compressed (`log/codec.py`). All that a manifest names is published
before it.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from watersmeet import failpoints
from watersmeet.errors import CorruptFile, StateInUse
from watersmeet.log.bases import (
    difference,
    files_of,
    from_spans,
    is_due,
    name_of,
    paths_of,
    read_base,
    to_spans,
    without,
    write_base,
)
from watersmeet.log.codec import (
    close_checked,
    from_plain,
    known_only,
    open_checked,
    to_plain,
)
from watersmeet.log.columns import from_columns, to_columns
from watersmeet.log.formats import upgrade
from watersmeet.log.names import MANIFESTS, RUNS, ManifestName, manifest_parts
from watersmeet.log.seen import BaseRef, Decoded, Named, Seen
from watersmeet.log.statistics import Places, complete, forget_statistics
from watersmeet.log.storage import FileInfo, Files
from watersmeet.model.facts import (
    BatchId,
    Elsewhere,
    Left,
    Manifest,
    Merge,
    MergePart,
    Push,
    Run,
    RunStats,
    Start,
)
from watersmeet.model.limits import DEFAULT_LIMITS, Limits

# The first format with bases.
_WITH_BASES = 6


def list_manifests(files: Files) -> list[ManifestName]:
    """All published manifests, ascending by run sequence, then batch."""
    return manifests_among(files.entries(MANIFESTS))


def manifests_among(infos: Iterable[FileInfo]) -> list[ManifestName]:
    """The published manifests of a listing, ascending."""
    found = (manifest_parts(info.name) for info in infos)
    return sorted(ManifestName(*parts) for parts in found if parts)


def read_manifest(files: Files, name: ManifestName, seen: Seen | None = None) -> Manifest:
    """A manifest with all that it says, statistics included; CorruptFile if it is missing."""
    seen = seen or Seen()
    return complete(files, seen, open_manifest(files, name, seen))


def open_manifest(files: Files, name: ManifestName, seen: Seen) -> Manifest:
    """A manifest as a task needs it that neither plans nor merges: statistics may be elsewhere."""
    found = read_if_there(files, name, seen)
    if found is None:
        raise CorruptFile(f"{_where(files, name)} is missing")
    return found


def _where(files: Files, name: ManifestName) -> str:
    return f"manifest {name.path} of batch {name.batch} in {files.place}"


def read_if_there(files: Files, name: ManifestName, seen: Seen | None = None) -> Manifest | None:
    """Open a manifest by name, which a listing may not show yet; None if it is missing."""
    seen = seen or Seen()
    try:
        content = files.read(name.path)
    except FileNotFoundError:
        return None
    known = seen.manifests.get(name)
    if known is not None and content == known.content:
        return known.manifest
    return _decode(files, seen, name, content)


def agree(
    files: Files,
    batch: BatchId,
    start: Start,
    instance: str,
    find_parent: Callable[[], Manifest | None],
    decide: Callable[[Manifest | None], Manifest],
    seen: Seen | None = None,
    limits: Limits = DEFAULT_LIMITS,
    patience_s: float = 0.0,
    pause: Callable[[float], None] = time.sleep,
) -> Manifest:
    """The one manifest of this batch: the published one, or else the one that this call publishes.

    It waits for another task's manifest for `patience_s` seconds, at most, before it decides.

    `decide` turns the parent into the manifest of this batch. It must be a pure function of committed facts. But even
    if two tasks decide differently, only one result is ever used.
    """
    seen = seen or Seen()
    name = ManifestName(start.number, batch.number, batch.run)
    manifest = read_if_there(files, name, seen)
    for wait_s in waits(patience_s):
        if manifest is not None:
            break
        pause(wait_s)
        manifest = read_if_there(files, name, seen)
    if manifest is None:
        parent = find_parent()
        if parent is not None:
            if parent.batch.run == batch.run:
                _check_instance(files, parent, instance)
            parent = complete(files, seen, parent)
        manifest = decide(parent)
        failpoints.reach("manifest-before-write")
        if publish_manifest(files, seen, name, manifest, parent, limits):
            failpoints.reach("manifest-written")
            return manifest
        failpoints.reach("manifest-lost")
        manifest = open_manifest(files, name, seen)
    _check_instance(files, manifest, instance)
    return manifest


def waits(patience_s: float) -> Iterator[float]:
    """The pauses between looks for a manifest, each twice as long as the one before, so that looks are few.

    >>> list(waits(0.5))
    [0.1, 0.2, 0.2]
    """
    pause_s = _FIRST_PAUSE_S
    while patience_s > _LEAST_PAUSE_S:
        yield (taken := round(min(pause_s, patience_s), 3))
        patience_s -= taken
        pause_s *= 2


# About what planning takes with hundreds of descriptors.
_FIRST_PAUSE_S = 0.1
_LEAST_PAUSE_S = 0.001


def _check_instance(files: Files, manifest: Manifest, instance: str) -> None:
    """Check that one operator wrote every manifest of a run."""
    if manifest.instance != instance:
        raise StateInUse(
            f"two joins of one query keep their state in {files.place}: give each its own name=, "
            'such as wm.join(..., name="orders-trades")'
        )


# --- What is stored -----------------------------------------------------------------------------------------------


def publish_manifest(
    files: Files, seen: Seen, name: ManifestName, manifest: Manifest, parent: Manifest | None, limits: Limits
) -> bool:
    """Publish a manifest and, before it, the files that it names. False if another one has this name.

    `parent` has its statistics, and its base is known if this process has read it with `seen`.
    """
    places = Places(files, seen, name.run_seq, name.batch)
    known = None if parent is None else seen.manifests.get(name_of(parent))
    base = known.base if known else None
    runs: Sequence[Run] = read_base(files, seen, base) if base else ()
    removed, added = difference(runs, manifest.history)
    if parent is not None and is_due(base, len(added), limits.least_base_runs):
        base, runs = write_base(files, places, name, parent, limits)
        removed, added = difference(runs, manifest.history)
    elif base is not None:
        base = replace(base, repeated=base.repeated + len(added))
    outputs = list(_outputs(manifest.merges))
    places.set_apart([*added, *outputs], limits.inline_values)
    places.set_apart(manifest.fresh, limits.inline_values)
    seen.arrived = None
    content = close_checked(_to_plain(manifest, base, removed, added, outputs, places))
    if not files.publish(name.path, content):
        return False
    places.keep()
    if base is not None:
        seen.bases.put(base.path, runs)
    seen.manifests.put(name, Decoded(content, manifest, base))
    own = (*added, *manifest.fresh, *outputs)
    seen.named.put(name, _named(base, removed, (files_of(run.path, places.stats_of(run)) for run in own)))
    forget_statistics(seen, manifest)
    return True


def _outputs(merges: Sequence[Merge]) -> Iterator[Run]:
    return (run for merge in merges for part in merge.parts for run in part.output or ())


def _to_plain(
    manifest: Manifest,
    base: BaseRef | None,
    removed: Sequence[int],
    added: Sequence[Run],
    outputs: Sequence[Run],
    places: Places,
) -> dict[str, Any]:
    tables = [(runs, [*map(places.stats_of, runs)]) for runs in (added, manifest.fresh, outputs)]
    statistics = list(
        dict.fromkeys(one.file for _, stats in tables for one in stats if isinstance(one, Elsewhere))
    )
    added_, fresh, outputs_ = (_runs_to_plain(runs, stats, statistics) for runs, stats in tables)
    by_place = manifest.merges or manifest.pushes or manifest.paid
    place_of = {run.path: place for place, run in enumerate(manifest.history)} if by_place else {}
    plain = {
        field.name: to_plain(getattr(manifest, field.name))
        for field in dataclasses.fields(manifest)
        if field.name not in ("history", "fresh", "merges", *_PUSHES)
    }
    return (
        plain
        | {
            "base": to_plain(base),
            "removed": to_spans(removed),
            "added": added_,
            "fresh": fresh,
            "merges": [_merge_to_plain(merge, place_of) for merge in manifest.merges],
            "outputs": outputs_,
            "statistics": statistics,
        }
        | {
            name: [_by_place(push, place_of) for push in pushes]
            for name in _PUSHES
            if (pushes := getattr(manifest, name))
        }
    )


# Fields of a manifest whose facts name runs of its history.
_PUSHES = ("pushes", "paid")


def _by_place(fact: Push | Left, place_of: dict[str, int]) -> dict[str, Any]:
    """A fact with the places of its runs in the history, by their names where some are not in it."""
    plain: dict[str, Any] = to_plain(replace(fact, runs=()))
    return plain | {"runs": _places(fact.runs, place_of)}


def _places(paths: Sequence[str], place_of: dict[str, int]) -> list[Any]:
    if all(path in place_of for path in paths):
        return to_spans(place_of[path] for path in paths)
    return list(paths)


def _paths(plain: list[Any], history: Sequence[Run]) -> list[str]:
    """Runs by name, from names or from places in the history."""
    return plain if plain and isinstance(plain[0], str) else [history[at].path for at in from_spans(plain)]


def _merge_to_plain(merge: Merge, place_of: dict[str, int]) -> dict[str, Any]:
    """A merge with the places of its runs in the history, its parts as columns, and the outputs of each counted."""
    plain: dict[str, Any] = to_plain(replace(merge, runs=(), parts=(), left=()))
    plain["parts"] = to_columns(MergePart, [replace(part, output=None) for part in merge.parts])
    plain["parts"]["output"] = [None if part.output is None else len(part.output) for part in merge.parts]
    plain["left"] = [_by_place(one, place_of) for one in merge.left]
    return plain | {"runs": _places(merge.runs, place_of)}


def _decode(files: Files, seen: Seen, name: ManifestName, content: bytes) -> Manifest:
    where = _where(files, name)
    version, plain = open_checked(content, where)
    with known_only(version, where):
        if version < _WITH_BASES:
            manifest: Manifest = from_plain(Manifest, upgrade(Manifest, plain, version))
            seen.manifests.put(name, Decoded(content, manifest))
            return manifest
        base, removed, added, fresh, outputs, rest = _parts(plain)
        runs = read_base(files, seen, base) if base else ()
        gone = frozenset(removed)
        history = (*without(runs, gone), *added)
        manifest = _manifest(rest, history, fresh, outputs)
    seen.manifests.put(name, Decoded(content, manifest, base))
    seen.named.put(name, _named(base, gone, map(paths_of, (*added, *fresh, *outputs))))
    return manifest


def _parts(
    plain: dict[str, Any],
) -> tuple[BaseRef | None, list[int], list[Run], list[Run], list[Run], dict[str, Any]]:
    """Base, removed, added, fresh and output runs of a manifest as it is stored, and all else that it says."""
    rest = dict(plain)
    base = from_plain(BaseRef | None, rest.pop("base"))
    statistics = rest.pop("statistics")
    removed = from_spans(rest.pop("removed"))
    tables = [_runs_from_plain(rest.pop(table), statistics) for table in ("added", "fresh", "outputs")]
    return base, removed, *tables, rest


def _manifest(
    rest: dict[str, Any], history: tuple[Run, ...], fresh: list[Run], outputs: list[Run]
) -> Manifest:
    merges = _merges_from_plain(rest["merges"], history, outputs)
    pushes = {
        name: [one | {"runs": _paths(one["runs"], history)} for one in rest[name]]
        for name in _PUSHES
        if name in rest
    }
    manifest: Manifest = from_plain(Manifest, rest | pushes | {"history": (), "fresh": (), "merges": ()})
    return replace(manifest, history=history, fresh=tuple(fresh), merges=merges)


def _merges_from_plain(plain: list[Any], history: Sequence[Run], outputs: Sequence[Run]) -> tuple[Merge, ...]:
    left = iter(outputs)
    merges = []
    for one in plain:
        counts = one["parts"].pop("output")
        staying = [each | {"runs": _paths(each["runs"], history)} for each in one.get("left", ())]
        paths = _paths(one["runs"], history)
        merge: Merge = from_plain(Merge, one | {"runs": paths, "parts": [], "left": staying})
        parts = tuple(
            part if count is None else replace(part, output=tuple(itertools.islice(left, count)))
            for part, count in zip(from_columns(MergePart, one["parts"]), counts, strict=True)
        )
        merges.append(replace(merge, parts=parts))
    return tuple(merges)


# Runs as JSON columns, in fewer words: a path repeats the input, the batch and the checksum, and a run that stands
# alone is its own group (-1). Groups are numbered. Statistics elsewhere are [number of the file, place].


def _runs_to_plain(
    runs: Sequence[Run], stats: Sequence[RunStats | None], statistics: Sequence[str]
) -> dict[str, Any]:
    number_of_file = {path: number for number, path in enumerate(statistics)}
    columns = to_columns(Run, runs, {"stats": [None] * len(runs)})
    groups = list(dict.fromkeys(run.group for run in runs if run.group != run.path))
    number_of = {group: number for number, group in enumerate(groups)}
    columns[_GROUPS] = groups
    columns["group"] = [number_of.get(run.group, -1) for run in runs] if groups else []
    labels = [_label(run) for run in runs]
    if None not in labels:
        columns["path"] = labels
        columns[_SHORT] = True
    if any(one is not None for one in stats):
        columns["stats"] = [
            [number_of_file[one.file], one.at] if isinstance(one, Elsewhere) else to_plain(one)
            for one in stats
        ]
    return columns


def _runs_from_plain(columns: dict[str, Any], statistics: Sequence[str]) -> list[Run]:
    columns = dict(columns)
    if columns.pop(_SHORT, False):
        rows = zip(*(_each(columns, name) for name in ("input", "batch", "path", "checksum")), strict=False)
        columns["path"] = list(itertools.starmap(_path, itertools.islice(rows, columns["count"])))
    groups, paths = columns.pop(_GROUPS), list(itertools.islice(_each(columns, "path"), columns["count"]))
    columns["group"] = (
        [groups[n] if n >= 0 else path for n, path in zip(columns["group"], paths, strict=True)]
        if groups
        else paths
    )
    if "stats" in columns:
        columns["stats"] = [
            {"kind": Elsewhere.kind, "file": statistics[one[0]], "at": one[1]}
            if isinstance(one, list)
            else one
            for one in columns["stats"]
        ]
    return from_columns(Run, columns)


_SHORT, _GROUPS = "short", "groups"


def _each(columns: dict[str, Any], name: str) -> Iterable[Any]:
    values = columns[name]
    return values if isinstance(values, list) else itertools.repeat(values)


def _label(run: Run) -> str | None:
    """What the path of a run says besides its input, batch and checksum; None if it is not made from them."""
    stem, tail = f"{RUNS}/{run.input}/{run.batch:010d}-", f"-{run.checksum}.arrow"
    if run.path.startswith(stem) and run.path.endswith(tail) and len(run.path) > len(stem) + len(tail):
        return run.path[len(stem) : -len(tail)]
    return None


def _path(input_name: str, batch: int, label: str, checksum: str) -> str:
    return f"{RUNS}/{input_name}/{batch:010d}-{label}-{checksum}.arrow"


# --- What a manifest keeps alive ------------------------------------------------------------------------------------


def named_by_each(files: Files, names: Sequence[ManifestName], seen: Seen) -> dict[ManifestName, Named]:
    """The files that each of some manifests keeps alive, without reading bases."""
    unseen = [name for name in names if seen.named.get(name) is None]
    # Each is reduced to names as soon as it is read: a hundred manifests in memory may be a hundred megabytes.
    read = dict(zip(unseen, files.each(lambda name: _named_by(files, name), unseen), strict=True))
    found = {name: read.get(name) or seen.named.get(name) for name in names}
    for name, named in read.items():
        seen.named.put(name, named)
    return {name: named for name, named in found.items() if named is not None}


def _named_by(files: Files, name: ManifestName) -> Named:
    try:
        content = files.read(name.path)
    except FileNotFoundError:
        raise CorruptFile(f"{_where(files, name)} is missing") from None
    version, plain = open_checked(content, _where(files, name))
    if version < _WITH_BASES:
        old = from_plain(Manifest, upgrade(Manifest, plain, version))
        return _named(None, (), map(paths_of, (*old.live, *_outputs(old.merges))))
    with known_only(version, _where(files, name)):
        base, removed, *tables, _ = _parts(plain)
    return _named(base, removed, map(paths_of, itertools.chain.from_iterable(tables)))


def _named(base: BaseRef | None, removed: Iterable[int], paths: Iterable[tuple[str, ...]]) -> Named:
    return Named(
        frozenset(itertools.chain.from_iterable(paths)),
        None if base is None else base.path,
        frozenset(removed),
    )
