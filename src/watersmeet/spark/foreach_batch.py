"""A `foreachBatch` function that also works on Spark Connect.

Spark Connect calls the function in a Python process of the server and gives it a DataFrame and a batch number. The jobs
that the function starts do not carry the query's id, its run id or the batch number, which the join needs to emit every
result once. So the wrapper finds the query among the active ones of the session that started it, and tags the session
while the function runs. `spark/micro_batch.py` reads the tag in the tasks.

Several queries may be active. The right one has the attributes of the batch's DataFrame in its plan: Spark numbers them
uniquely, and again at each start. If several queries have them, the query's name must decide, or the batch fails.

With a classic session nothing is done: its tasks have Spark's own properties.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.errors import UsageError, WatersmeetError
from watersmeet.model.facts import BatchId
from watersmeet.spark.micro_batch import QUERY_ID, query_of_tags, tag_of

BatchFunction = Callable[[DataFrame, int], Any]

_ATTRIBUTE = re.compile(r"#(\d+)")


class ForeachBatch:
    """See `wm.foreach_batch`. It is pickled to the server once for each start of a query."""

    def __init__(self, function: BatchFunction, query_name: str | None):
        self._function = function
        self._query_name = query_name
        # The session that started the query, known only in the server's process.
        self._started_in: SparkSession | None = None
        self._start: tuple[str, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self._function, "query_name": self._query_name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["function"], state["query_name"])  # type: ignore[misc]
        # Later the active session is the clone that runs the batches, which knows of no query.
        self._started_in = SparkSession.getActiveSession()

    def __call__(self, frame: DataFrame, number: int) -> None:
        session = frame.sparkSession
        if not is_connect(session):
            self._function(frame, number)
            return
        if self._start is None:
            self._start = self._find_start(frame)
        tag = tag_of(BatchId(*self._start, number))
        session.addTag(tag)
        try:
            self._function(frame, number)
        finally:
            session.removeTag(tag)

    def _find_start(self, frame: DataFrame) -> tuple[str, str]:
        """Spark's ids of the query and of this start. The query is active while its first batch runs."""
        session = self._started_in or frame.sparkSession
        found: Sequence[Any] = session.streams.active
        if self._query_name is not None:
            found = [query for query in found if query.name == self._query_name]
        else:
            wanted = _attributes(frame)
            found = [query for query in found if wanted <= _attributes(query)]
        if len(found) != 1:
            raise WatersmeetError(
                f"{len(found) or 'none'} of the active queries can be the one that this foreachBatch function belongs "
                f"to{f' (query_name={self._query_name!r})' if self._query_name else ''}. Name the query with "
                "writeStream.queryName(name), and give wm.foreach_batch(function, query_name=name) the same name"
            )
        return str(found[0].id), str(found[0].runId)


def wrap(function: BatchFunction, query_name: str | None) -> ForeachBatch:
    if not callable(function):
        raise UsageError(
            f"wm.foreach_batch takes a function of a DataFrame and a batch number, not a {type(function).__name__}"
        )
    return ForeachBatch(function, query_name)


def is_connect(session: SparkSession) -> bool:
    """Whether this is a Connect session, by its module: importing the class needs packages that classic lacks."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def query_id(session: SparkSession) -> str | None:
    """Spark's id of the query whose batch this thread processes; None if Spark does not say."""
    if is_connect(session):
        return query_of_tags(session.getTags())
    return session.sparkContext.getLocalProperty(QUERY_ID)


def _attributes(explained: Any) -> set[str]:
    """The numbers of the attributes in the plan of a DataFrame or a query."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        explained.explain(True)
    return set(_ATTRIBUTE.findall(text.getvalue()))
