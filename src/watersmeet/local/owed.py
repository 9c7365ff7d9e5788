"""Pay what a state owes in this process: the same steps as on Spark, one share after the other."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.engine.owed import check_owes, divide, find_standing, loss_in_words, pay_share, survey
from watersmeet.engine.settle import begin, finish, settlement_of
from watersmeet.engine.spec import JoinSpec
from watersmeet.errors import CorruptFile
from watersmeet.log.checkpoint import Checkpoint
from watersmeet.log.folders import draft_of, open_folder
from watersmeet.log.starts import settling_run
from watersmeet.model.facts import Manifest, Settlement
from watersmeet.model.tally import Tally
from watersmeet.plan.debts import DividedDebts


def owed_results(spec: JoinSpec, checkpoint: Checkpoint) -> Iterator[pa.RecordBatch]:
    check_owes(spec)
    manifest = find_standing(spec, checkpoint).manifest
    yield from _results(spec, manifest, _debts(spec, manifest))


def settle_into(
    spec: JoinSpec,
    checkpoint: Checkpoint,
    folder: str,
    shape: Callable[[Iterable[pa.RecordBatch]], pa.Table],
    now_s: float,
) -> Settlement:
    check_owes(spec)
    run = settling_run(uuid.uuid4().hex)
    begun = begin(spec, lambda: checkpoint, folder, run)
    if begun.start is None:
        return begun.manifest.settlements[-1]
    debts = _debts(spec, begun.manifest)
    if debts.lost:
        raise CorruptFile(loss_in_words(begun.manifest, debts))
    found = shape(_results(spec, begun.manifest, debts))
    files, draft = open_folder(draft_of(folder, run))
    files.create_dir(draft)
    pq.write_table(found, f"{draft}/part-0.parquet", filesystem=files)
    settlement = settlement_of(begun, folder, len(found), (), now_s)
    finish(spec, begun, settlement, folder)
    return settlement


def _debts(spec: JoinSpec, manifest: Manifest) -> DividedDebts:
    return divide(spec, manifest, list(survey(spec, manifest)), spec.settings.tasks)


def _results(spec: JoinSpec, manifest: Manifest, debts: DividedDebts) -> Iterator[pa.RecordBatch]:
    for share in debts.shares:
        yield from pay_share(spec, manifest, share, list(debts.lost), Tally())
