"""What a state owes after the last batch that Spark has committed: find it, divide it, and pay shares of it.

Nothing here writes. Each function needs only the committed files, so it can run in any process, and again:

    find_standing     the facts of the last committed batch
    survey            what some of the runs hold, each verified
    plan_debts        divide the debts (plan/debts.py)
    pay_share         the results of one share

A batch that the state has but Spark has not committed is left out: its rows are not in the inputs that count as joined,
and its payments have not happened. Together with the results of all committed batches, what is owed is exactly the join
of their rows.

A run that cannot be read takes no part. The rest is owed and paid all the same, and `DividedDebts.lost` names the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.engine.payment import Debts as Payer
from watersmeet.engine.spec import JoinSpec
from watersmeet.errors import CorruptFile, StateError, UsageError
from watersmeet.kernel.bounds import coalesce
from watersmeet.log.checkpoint import Checkpoint
from watersmeet.log.files import open_files
from watersmeet.log.manifests import open_manifest
from watersmeet.log.names import ManifestName
from watersmeet.log.parents import find_parent
from watersmeet.log.runs import RunReader
from watersmeet.log.seen import Seen
from watersmeet.log.settlings import uncommitted_batch
from watersmeet.log.starts import next_number
from watersmeet.log.storage import Files
from watersmeet.model.cells import RunRows, blocks_of, count_cells
from watersmeet.model.facts import BatchId, Cells, KeyRange, Manifest, Start
from watersmeet.model.figures import count
from watersmeet.model.generations import generations_of
from watersmeet.model.tally import Tally
from watersmeet.plan.compatible import check_compatible
from watersmeet.plan.debts import (
    DebtShare,
    DividedDebts,
    Survey,
    border_after,
    once_more,
    owing_runs,
    plan_debts,
    segments_of,
    survey_run,
    without,
)
from watersmeet.plan.pushes import count_within


@dataclass(frozen=True, slots=True)
class Standing:
    """A query after the last batch that Spark has committed. `uncommitted` is a batch that the state has besides."""

    manifest: Manifest
    uncommitted: int | None = None

    @property
    def batch(self) -> int:
        return self.manifest.batch.number


def check_owes(spec: JoinSpec) -> None:
    """Refuse a join that never owes anything."""
    if not spec.may_owe:
        raise UsageError(
            "this join owes nothing: only equality joins of streams on one key that all share take memory= and put "
            "results off"
        )


def files_of(spec: JoinSpec, query: str) -> Files:
    return open_files(spec.settings.storage).under(spec.name, query)


def find_standing(spec: JoinSpec, checkpoint: Checkpoint) -> Standing:
    """The facts of the last committed batch; StateError if there is none, or the state is not of this join."""
    if checkpoint.query is None:
        raise StateError(
            "no query has started with this checkpoint: correct the path, or run the query first"
        )
    if checkpoint.fresh:
        raise StateError(
            "the checkpoint has no finished batch yet, so nothing can be owed: run the query first"
        )
    files, seen = files_of(spec, checkpoint.query), Seen()
    batch = BatchId(checkpoint.query, "", checkpoint.next_batch)
    start = Start(next_number(files), batch.run, batch.number)
    manifest = find_parent(files, batch, start, spec.settings.accept_gap, seen)
    assert manifest is not None, "a batch was done"
    check_compatible(manifest.signature, spec.signature)
    return Standing(manifest, uncommitted_batch(files, manifest))


def survey(spec: JoinSpec, manifest: Manifest, paths: Sequence[str] | None = None) -> Iterator[Survey]:
    """Read some runs, or all that may owe something, one after the other."""
    segments, limits = segments_of(manifest), spec.settings.limits
    reader = _reader(spec, manifest)
    for run in owing_runs(manifest):
        if paths is not None and run.path not in paths:
            continue
        try:
            yield survey_run(run, reader.keys(run), segments, limits)
        except CorruptFile as error:
            nothing = np.zeros(len(segments.lows), np.int64)
            yield Survey(run.path, nothing, nothing, problem=str(error))


def pay_share(
    spec: JoinSpec, manifest: Manifest, share: DebtShare, lost: Sequence[str], tally: Tally
) -> Iterator[pa.RecordBatch]:
    """Yield the results of one share, in batches of a few thousand rows. `manifest` is the whole one."""
    limits = spec.settings.limits
    found = _paid(spec, manifest, share, frozenset(lost), tally)
    most_rows = limits.output_rows
    yield from coalesce(found, most_rows, limits.output_bytes, alone=most_rows // 4)


def _paid(
    spec: JoinSpec, manifest: Manifest, share: DebtShare, lost: frozenset[str], tally: Tally
) -> Iterator[pa.RecordBatch]:
    # Cells that were begun are numbered by the blocks of all runs, also of those that cannot be read.
    manifest = manifest if share.cells is not None else without(manifest, lost)
    pushes = manifest.pushes if share.cells is not None else once_more(manifest)
    generations = generations_of(manifest.live, pushes, share.ranges)
    payer = Payer(
        _reader(spec, manifest),
        manifest.signature,
        generations,
        pushes,
        spec.kernel,
        tally,
        spec.settings.limits,
        lost,
    )
    payer.expect(share.ranges)
    if share.cells is not None:
        yield from payer.pay_cells(share.cells)
    elif share.block_rows:
        (range_,) = share.ranges
        yield from payer.pay_cells(_cells(payer, share, range_, border_after(manifest)))
    else:
        yield from payer.pay_ranges(share.ranges)


def _cells(payer: Payer, share: DebtShare, range_: KeyRange, border: int) -> Cells:
    """This share of the cells of a key, all of which is set aside."""
    generations = payer.generations
    (segment,) = generations.segments_in(range_).tolist()
    found: dict[str, list[RunRows]] = {name: [] for name in payer.signature.names}
    for run, number in zip(generations.runs, generations.of[:, segment].tolist(), strict=True):
        if 0 <= number < generations.current and range_.overlaps(run):
            rows = count_within(payer.reader.keys(run), (range_,))
            found[run.input].append(RunRows(number, run.path, rows))
    of = count_cells([blocks_of(mine, share.block_rows) for mine in found.values()])
    first, end = of * share.number // share.of, of * (share.number + 1) // share.of
    return Cells(range_, border, share.block_rows, first, end, of)


def divide(spec: JoinSpec, manifest: Manifest, surveys: Sequence[Survey], tasks: int) -> DividedDebts:
    return plan_debts(manifest, segments_of(manifest), surveys, tasks, spec.settings.limits)


def loss_in_words(manifest: Manifest, debts: DividedDebts) -> str:
    """Which runs took no part in what was paid; empty if all did."""
    rows = {run.path: run for run in manifest.live}
    lost = [
        f"{problem} (its {count(rows[path].stored_rows)} rows of input {rows[path].input} take no part in what is owed)"
        for path, problem in debts.lost.items()
    ]
    if debts.dropped_keys:
        keys = "1 key" if debts.dropped_keys == 1 else f"{count(debts.dropped_keys)} keys"
        lost.append(
            f"all that {keys} still owes is left out too: a payment was under way, and the state of an earlier version "
            "does not say which part of it the lost rows are"
        )
    return "; ".join(lost)


# --- What a process keeps -------------------------------------------------------------------------------------------

# A run is verified when it is first opened. Several shares are paid in one process, and later ones find it open.
_READERS: dict[tuple[str, str, BatchId], RunReader] = {}


def _reader(spec: JoinSpec, manifest: Manifest) -> RunReader:
    place = (spec.settings.state, spec.name, manifest.batch)
    found = _READERS.get(place)
    if found is None:
        _READERS.clear()
        found = _READERS[place] = RunReader(files_of(spec, manifest.batch.query), spec.settings.limits)
    return found


# Manifests are read by name in each process: they would be as long as the state in every task.
_MANIFESTS: dict[tuple[str, str, ManifestName], Manifest] = {}


def read_standing(spec: JoinSpec, query: str, name: ManifestName) -> Manifest:
    place = (spec.settings.state, spec.name, name)
    found = _MANIFESTS.get(place)
    if found is None:
        _MANIFESTS.clear()
        found = _MANIFESTS[place] = open_manifest(files_of(spec, query), name, Seen())
    return found


def forget() -> None:
    """Forget what this process keeps."""
    _READERS.clear()
    _MANIFESTS.clear()
