"""Find the micro-batch of a task, from the local properties that Spark gives it.

`BatchId` needs three facts: the query (stable over restarts), the start of it (new each time) and the batch number.

- Query and number are properties of their own, set by Spark.
- The start: Spark's run id is in the job group only, and `sc.setJobGroup` inside a `foreachBatch` function replaces it
  for this batch and all later ones. So the start is identified by its session: a streaming query runs in a clone of the
  user's session, made at each start, and Spark tags all jobs with its id. The job group is used only without that tag,
  and only if it can be a run id.
- Spark Connect runs the jobs of a `foreachBatch` function in another thread, without these properties. There
  `wm.foreach_batch` tags them with all three facts, and Spark's run id identifies the start: the wrapper can ask for
  it, and nobody can replace it, as a Connect client sets no job group. Both kinds of threads work for one batch:
  adaptive execution runs the ingest stage in the thread of the stream.

Measured on Spark 4.3, classic and Connect. A query that is started inside the `foreachBatch` function of another
inherits that one's tags, so its batch may be mistaken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from watersmeet.errors import WatersmeetError
from watersmeet.model.facts import BatchId

# Returns a local property of the task; None if it is not set.
Properties = Callable[[str], str | None]

# The property with the id of the query.
QUERY_ID = "sql.streaming.queryId"

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_JOB_TAGS = "spark.job.tags"
# The session of the outermost SQL execution: that of the batch, whatever runs inside it.
_ROOT_SESSION = re.compile(rf"spark-session-({_UUID})-execution-root-id-\d+")
_SESSION = re.compile(rf"spark-session-({_UUID})")
# Connect puts a prefix with user and session before the tags of a user.
_OWN_TAG = re.compile(rf"(?:.*_Tag_)?watersmeet/({_UUID})/({_UUID})/(\d+)")


def tag_of(batch: BatchId) -> str:
    """The session tag that tells the tasks of a micro-batch its id. Tags may not contain a comma."""
    return f"watersmeet/{batch.query}/{batch.run}/{batch.number}"


def query_of_tags(tags: Iterable[str]) -> str | None:
    """The query that the tags of a session name; None if none does."""
    found = (_OWN_TAG.fullmatch(tag) for tag in tags)
    return next((str(match[1]) for match in found if match), None)


def micro_batch(properties: Properties) -> BatchId:
    """The micro-batch of a task with these local properties."""
    number, query = properties("streaming.sql.batchId"), properties(QUERY_ID)
    if number and query:
        return BatchId(query, _start(properties), int(number))
    for tag in _matches(_OWN_TAG, properties):
        return BatchId(tag[1], tag[2], int(tag[3]))
    raise WatersmeetError(_MISSING_ON_CONNECT if _on_connect(properties) else _MISSING)


def _start(properties: Properties) -> str:
    if not _on_connect(properties):
        for pattern in (_ROOT_SESSION, _SESSION):
            for tag in _matches(pattern, properties):
                return str(tag[1])
    group = properties("spark.jobGroup.id") or ""
    if not re.fullmatch(_UUID, group):
        raise WatersmeetError(
            f"the job group of this task is {group!r}, which is not the id that Spark gave to this start of the query. "
            "A foreachBatch function must not call setJobGroup here: remove the call, and name its jobs with "
            "sc.setJobDescription or sc.addJobTag"
        )
    return group


def _matches(pattern: re.Pattern[str], properties: Properties) -> Iterator[re.Match[str]]:
    found = (pattern.fullmatch(tag) for tag in (properties(_JOB_TAGS) or "").split(","))
    return (match for match in found if match)


def _on_connect(properties: Properties) -> bool:
    """Whether a Connect client started this job or the stream: a new thread inherits the tags of its parent."""
    return properties("spark.connect.operation_id") is not None or "SparkConnect_" in (
        properties(_JOB_TAGS) or ""
    )


_MISSING = (
    "Spark did not say which micro-batch this task belongs to. If a foreachBatch function evaluates its DataFrame in a "
    "separate thread, start that thread as pyspark.InheritableThread, or persist the DataFrame first"
)
_MISSING_ON_CONNECT = (
    "Spark Connect did not say which micro-batch this task belongs to. Wrap the function of foreachBatch: "
    "writeStream.foreachBatch(wm.foreach_batch(function)). If it evaluates its DataFrame in a separate thread, start "
    "that thread as pyspark.InheritableThread(target=..., session=frame.sparkSession)"
)
