"""Settle the query of a checkpoint: `wm.settle`, and what `watersmeet settle` runs.

The steps of `engine/settle.py` run in tasks, as they need the state. Between the first and the last Spark writes what
is owed, like any other DataFrame.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from watersmeet.engine.owed import loss_in_words
from watersmeet.engine.settle import Begun, begin, finish, settlement_of
from watersmeet.errors import CorruptFile, UsageError
from watersmeet.log.checkpoint import read_checkpoint
from watersmeet.log.folders import absolute, check_apart, draft_of
from watersmeet.log.starts import settling_run
from watersmeet.model.facts import Settlement
from watersmeet.model.figures import count
from watersmeet.plan.debts import DividedDebts
from watersmeet.spark.owed import Debtor
from watersmeet.spark.there import call_there

# Formats that Spark writes as files in a folder, whole when the write is done.
FILE_FORMATS = ("parquet", "orc", "avro", "json", "csv", "text")

_ROWS = "rows"


@dataclass(frozen=True)
class Outcome:
    """A settling, and whether it was done before. `lost` names the runs that took no part, in words."""

    settlement: Settlement
    before: bool = False
    lost: str = ""


# How a folder of results is written: the default is that the DataFrame writes itself.
Write = Callable[[Callable[[], None], DividedDebts], None]


def _at_once(write: Callable[[], None], debts: DividedDebts) -> None:
    write()


def settle_query(
    debtor: Debtor,
    to: str,
    *,
    format: str = "parquet",
    options: Mapping[str, str] | None = None,
    accept_loss: bool = False,
    apart: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
    watch: Write = _at_once,
) -> Outcome:
    """Write what is owed to a folder and mark the state as settled.

    `apart` are further places that the folder must not be, hold or lie in. `say` tells each step, `watch` runs the write.
    """
    if format.lower() not in FILE_FORMATS:
        raise UsageError(f"format {format!r} is no file format of Spark: use {', '.join(FILE_FORMATS)}")
    spec, spark, checkpoint = debtor.spec, debtor.spark, debtor.checkpoint
    to = absolute(to)
    check_apart(to, checkpoint, spec.settings.state, *apart)
    run = settling_run(uuid.uuid4().hex)
    say("looking up the state ...")
    begun: Begun = call_there(spark, lambda _: begin(spec, lambda: read_checkpoint(checkpoint), to, run))[0]
    if begun.start is None:
        return Outcome(begun.manifest.settlements[-1], before=True)
    say("reading what owes results ...")
    debts = debtor.debts(begun.manifest)
    lost = loss_in_words(begun.manifest, debts)
    if lost and not accept_loss:
        raise CorruptFile(
            f"{lost}. Nothing was settled. Restore the file from a copy and settle again, or accept that these results "
            "are lost and settle the rest: accept_loss=True, or --accept-loss"
        )
    say(f"writing what {count(debts.rows)} rows owe ...")
    frame, observed = debtor.results(begun.manifest, debts), Observation()
    counted = frame.observe(observed, F.count(F.lit(1)).alias(_ROWS))
    watch(lambda: _write(counted, draft_of(to, run), format, options or {}), debts)
    rows = int(observed.get[_ROWS])
    settlement = settlement_of(begun, to, rows, tuple(debts.lost), time.time())
    say("marking the state ...")
    call_there(spark, lambda _: finish(spec, begun, settlement, to))
    return Outcome(settlement, lost=lost)


def _write(frame: DataFrame, folder: str, format: str, options: Mapping[str, str]) -> None:
    # A task of this settling that was repeated, or whose driver is gone, may have left files here.
    frame.write.format(format).options(**options).mode("overwrite").save(folder)
