"""Settle a job's query: what `watersmeet settle` does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from watersmeet.engine.owed import loss_in_words
from watersmeet.jobs.frames import complaints, read_inputs
from watersmeet.jobs.model import Job
from watersmeet.jobs.runner import query_errors
from watersmeet.jobs.secrets import expand_all
from watersmeet.spark.owed import Debtor, plan_debtor
from watersmeet.spark.settle import FILE_FORMATS, Outcome, settle_query

# Options of a sink that say where or how a stream writes, not how a file looks.
_OF_STREAMS = ("path", "checkpointlocation", "retention")


@dataclass(frozen=True, slots=True)
class Owing:
    """How much a query owes after its last committed batch: rows that owe results, and the most results.

    `uncommitted` is a batch that the state has and Spark has not committed. `lost` names damaged runs, in words.
    """

    batch: int
    uncommitted: int | None
    rows: int
    most_results: int
    lost: str


# Runs the write of the results. It gets the write, the number of shares that are paid in it, and how many are done.
Watch = Callable[[Callable[[], None], int, Callable[[], int]], None]


def debtor_of(spark: SparkSession, job: Job, env: Mapping[str, str]) -> Debtor:
    """The join of a job whose query has ended, checked as far as it can be without the state."""
    inputs = read_inputs(spark, job, env)
    with complaints(f"{job.file.name}: [join]"):
        return plan_debtor(inputs, job.join, job.checkpoint)


def owing_of(debtor: Debtor) -> Owing:
    """How much a query owes. Nothing is changed."""
    with query_errors():
        standing = debtor.standing()
        debts = debtor.debts(standing.manifest)
    lost = loss_in_words(standing.manifest, debts)
    return Owing(standing.batch, standing.uncommitted, debts.rows, debts.most_results, lost)


def settle_debtor(
    debtor: Debtor,
    job: Job,
    to: str,
    env: Mapping[str, str],
    *,
    accept_loss: bool,
    say: Callable[[str], None],
    watch: Watch,
) -> Outcome:
    sink = job.sink
    files = sink.format.lower() in FILE_FORMATS
    given = expand_all(sink.options, env, "sink") if files else {}
    with query_errors():
        return settle_query(
            debtor,
            to,
            format=sink.format if files else FILE_FORMATS[0],
            options={name: value for name, value in given.items() if name.lower() not in _OF_STREAMS},
            accept_loss=accept_loss,
            apart=[sink.path] if sink.path else [],
            say=say,
            watch=lambda write, debts: watch(
                write, max(1, len(debts.shares)), partial(_paid, debtor.spark, max(1, len(debts.shares)))
            ),
        )


def stop_jobs(spark: SparkSession) -> None:
    """Stop what Spark is doing for this session, as far as it can be told."""
    with contextlib.suppress(Exception):
        spark.sparkContext.cancelAllJobs()


def _paid(spark: SparkSession, shares: int) -> int:
    """The tasks that are done of the stage that pays; 0 where Spark does not say, as over Spark Connect."""
    with contextlib.suppress(Exception):
        tracker = spark.sparkContext.statusTracker()
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None and info.numTasks == shares:
                return int(info.numCompletedTasks)
    return 0
