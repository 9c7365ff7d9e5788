"""What a query owes, as a batch DataFrame: `wm.owed`.

    range(shares) ── mapInArrow(OwedTask): pays the share of its number

When `wm.owed` is called, tasks look up the last committed batch, survey the runs that owe and verify them. The debts are
divided by that (plan/debts.py). The DataFrame names the batch, so it gives the same rows however often it is evaluated,
and reads what it needs from the state each time. Nothing is written.

Shares are independent, and there are several for each task, so Spark evens out what was estimated wrongly. A share is
paid slice by slice and its results go out as they are made: a task needs no more memory than in a batch of the query.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from watersmeet.engine.build import BuiltJoin
from watersmeet.engine.options import JoinOptions
from watersmeet.engine.owed import (
    Standing,
    check_owes,
    divide,
    find_standing,
    loss_in_words,
    pay_share,
    read_standing,
    survey,
)
from watersmeet.engine.spec import JoinSpec
from watersmeet.errors import UsageError
from watersmeet.log.bases import name_of
from watersmeet.log.checkpoint import read_checkpoint
from watersmeet.log.folders import absolute
from watersmeet.log.names import ManifestName
from watersmeet.model.facts import Manifest, Run
from watersmeet.model.tally import Tally
from watersmeet.plan.debts import DebtShare, DividedDebts, Survey, owing_runs
from watersmeet.spark.file_frames import OpenInputs, open_file_inputs
from watersmeet.spark.frames import results_of
from watersmeet.spark.operator import Inputs, PlannedJoin, check_inputs, plan_join
from watersmeet.spark.there import call_there
from watersmeet.spark.worker import keep_modules
from watersmeet.tables.spec import Table


@dataclass(frozen=True)
class OwedTask:
    """`mapInArrow` over numbers of shares: yields what each owes."""

    spec: JoinSpec
    query: str
    name: ManifestName
    shares: tuple[DebtShare, ...]
    lost: tuple[str, ...]

    def __call__(self, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_modules()
        manifest = read_standing(self.spec, self.query, self.name)
        for numbers in incoming:
            for number in numbers.column(0).to_pylist():
                yield from pay_share(self.spec, manifest, self.shares[number], self.lost, Tally())


@dataclass(frozen=True)
class Debtor:
    """A join of a query that has ended, and the place of its checkpoint."""

    planned: PlannedJoin
    checkpoint: str

    @property
    def built(self) -> BuiltJoin:
        return self.planned.built[0]

    @property
    def spec(self) -> JoinSpec:
        return self.built.operator_spec

    @property
    def spark(self) -> SparkSession:
        return next(iter(self.planned.frames.values())).sparkSession

    def standing(self) -> Standing:
        spec, place = self.spec, self.checkpoint
        return call_there(self.spark, lambda _: find_standing(spec, read_checkpoint(place)))[0]

    def debts(self, manifest: Manifest) -> DividedDebts:
        """Survey all runs that owe, in parallel, and divide what they owe."""
        runs, tasks = owing_runs(manifest), self.spec.settings.tasks
        surveys: list[Survey] = []
        if runs:
            shares = _even_by_bytes(runs, min(len(runs), tasks))
            function = partial(_surveyed, self.spec, manifest.batch.query, name_of(manifest), shares)
            found = call_there(self.spark, function, len(shares))
            surveys = [one for mine in found for one in mine]
        return divide(self.spec, manifest, surveys, tasks)

    def results(self, manifest: Manifest, debts: DividedDebts) -> DataFrame:
        """All that is owed, with the columns of the query's results."""
        number = max(1, len(debts.shares))
        source = self.spark.range(0, len(debts.shares), 1, number)

        def task(spec: JoinSpec) -> OwedTask:
            return OwedTask(spec, manifest.batch.query, name_of(manifest), debts.shares, tuple(debts.lost))

        (stage,) = self.planned.chain.stages
        return results_of(source, self.built, self.planned.schemas, str(stage.options.on), task)


def owed_frame(inputs: Inputs, options: JoinOptions, checkpoint: str) -> DataFrame:
    """What the query of a checkpoint owes. A run that cannot be read is left out, with a warning."""
    debtor = plan_debtor(inputs, options, checkpoint)
    manifest = debtor.standing().manifest
    debts = debtor.debts(manifest)
    if debts.lost:
        warnings.warn(loss_in_words(manifest, debts), stacklevel=3)
    return debtor.results(manifest, debts)


def plan_debtor(inputs: Inputs | OpenInputs, options: JoinOptions, checkpoint: str) -> Debtor:
    """Check what can be checked without the state."""
    check_inputs(inputs)
    if any(isinstance(given, Table) for given in inputs.values()):
        raise UsageError("a join with a wm.table owes nothing: it takes no budget for its history")
    opened = open_file_inputs(inputs)
    for name, frame in opened.items():
        if not isinstance(frame, Table) and not frame.isStreaming:
            raise UsageError(
                f"input {name} is not streaming: only a streaming query owes results. Give the streams of the query"
            )
    planned = plan_join(opened, options)
    debtor = Debtor(planned, absolute(checkpoint))
    check_owes(debtor.spec)
    return debtor


def _surveyed(
    spec: JoinSpec, query: str, name: ManifestName, shares: list[list[str]], number: int
) -> list[Survey]:
    return list(survey(spec, read_standing(spec, query, name), shares[number]))


def _even_by_bytes(runs: list[Run], parts: int) -> list[list[str]]:
    """The paths of the runs in parts of about as many bytes."""
    found: list[list[str]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for run in sorted(runs, key=lambda run: -run.bytes):
        least = sizes.index(min(sizes))
        found[least].append(run.path)
        sizes[least] += run.bytes
    return found
