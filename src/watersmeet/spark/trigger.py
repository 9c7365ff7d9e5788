"""Tell the tasks of a query its trigger interval, for `defer="auto"`.

Spark does not say it to tasks, and a join is built before `writeStream` names a trigger. So a listener looks at each
query when it starts, and puts the interval into the settings of the query's own session, which Spark hands to the
tasks. Spark starts the first job of a query after its listeners have returned.

On Spark Connect listeners cannot see the trigger. Then, and with triggers that have no interval, the tasks know of none
(schemes/budget/tempo.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

# A setting of a query's own session. Spark gives tasks all settings named "spark...".
TRIGGER = "spark.watersmeet.triggerMs"

_INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")

# Sessions with our listener.
_WATCHED: WeakSet[SparkSession] = WeakSet()


def watch_triggers(spark: SparkSession) -> None:
    """From now on, tell the tasks of each query of a session its trigger interval, where Spark says it."""
    if hasattr(spark, "_jsparkSession") and spark not in _WATCHED:
        spark.streams.addListener(_TellInterval(spark))
        _WATCHED.add(spark)


def interval_of(trigger: str) -> int | None:
    """The interval in Spark's words for a trigger, in milliseconds; None if it has none.

    >>> interval_of("ProcessingTimeTrigger(5000)"), interval_of("ProcessingTimeTrigger(0)"), interval_of("OneTime")
    (5000, None, None)
    """
    found = _INTERVAL.search(trigger)
    return int(found[1]) or None if found else None


def trigger_ms(properties: Callable[[str], str | None]) -> int | None:
    """The trigger interval among a task's local properties, if it is there."""
    given = properties(TRIGGER)
    return int(given) if given else None


class _TellInterval(StreamingQueryListener):
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        query = self._spark.streams.get(str(event.id))
        if query is None:
            return
        execution = query._jsq.streamingQuery()
        interval_ms = interval_of(execution.trigger().toString())
        if interval_ms is not None:
            execution.sparkSessionForStream().conf().set(TRIGGER, str(interval_ms))

    def onQueryProgress(self, event: Any) -> None: ...  # noqa: N802

    def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802
