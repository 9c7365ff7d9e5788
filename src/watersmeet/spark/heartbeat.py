"""A stream that makes Spark run a batch each second, and brings no rows.

Rows that wait for a table's page must be emitted even if the stream is idle, and debts that are due must be paid. But
Spark runs no batch without new offsets. From Spark 4.2 on this is a Python source of our own (`spark/beats.py`), which also works with `availableNow`.

Before 4.2 Python sources do not, so Spark's `rate` source is used. With `availableNow`, Spark then takes the whole
backlog as one batch, whatever limits the other sources have. So such a query is refused: job files before they start,
other queries when Spark tells its listeners of the start. A listener cannot raise, so it puts the reason into the
settings of the query's own session, which Spark hands to the tasks: they raise it (`spark/tasks.py`). The batch that
Spark had planned stays in the checkpoint.

On Spark Connect the query is not refused, because listeners there cannot see the trigger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from watersmeet.spark.tasks import DESCRIPTOR_SCHEMA, REFUSAL

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

# The name of the `rate` source in the plan, by which the listener recognises the query.
_RATE_ALIAS = "watersmeet_rate_heartbeat"

NO_AVAILABLE_NOW = (
    "max_delay= and pay_within= cannot be combined with availableNow before Spark 4.2: the source behind them makes Spark "
    "take the whole backlog as one batch. Leave them out, take another trigger, or use Spark 4.2 or newer"
)

# Sessions that know our source, and sessions with our listener. Spark warns if a source is registered twice.
_READY: WeakSet[SparkSession] = WeakSet()
_WATCHED: WeakSet[SparkSession] = WeakSet()


def heartbeat(spark: SparkSession) -> DataFrame:
    """A stream without descriptors that has a new offset each second."""
    source = beat_source()
    if source is None:
        _watch(spark)
        beats = spark.readStream.format("rate").option("rowsPerSecond", 1).load().alias(_RATE_ALIAS)
    else:
        if spark not in _READY:
            spark.dataSource.register(source)
            _READY.add(spark)
        beats = spark.readStream.format(source.name()).load()
    empty = beats.where(F.lit(False))
    columns = (part.split() for part in DESCRIPTOR_SCHEMA.split(", "))
    return empty.select(*(F.lit(None).cast(kind).alias(name) for name, kind in columns))


def beat_source() -> type[DataSource] | None:
    """Our own source if Spark can run it with every trigger, else None."""
    try:
        from watersmeet.spark.beats import BeatSource
    except ImportError:
        return None
    return BeatSource


def _watch(spark: SparkSession) -> None:
    if hasattr(spark, "_jsparkSession") and spark not in _WATCHED:
        spark.streams.addListener(_RefuseAvailableNow(spark))
        _WATCHED.add(spark)


class _RefuseAvailableNow(StreamingQueryListener):
    """Fails queries with `max_delay` or `pay_within`, the `rate` source and the trigger `availableNow`.

    Spark starts the first job of a query after its listeners have returned.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        query = self._spark.streams.get(str(event.id))
        execution = query._jsq.streamingQuery()  # type: ignore[union-attr]
        if (
            "AvailableNow" in execution.trigger().toString()
            and _RATE_ALIAS in execution.analyzedPlan().toString()
        ):
            execution.sparkSessionForStream().conf().set(REFUSAL, NO_AVAILABLE_NOW)

    def onQueryProgress(self, event: Any) -> None: ...  # noqa: N802

    def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802
