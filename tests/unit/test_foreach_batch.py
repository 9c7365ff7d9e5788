"""The wrapper for Spark Connect finds its query, or refuses: with stand-ins for Connect's session and queries."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

from watersmeet.errors import UsageError, WatersmeetError
from watersmeet.model.facts import BatchId
from watersmeet.spark import foreach_batch
from watersmeet.spark.foreach_batch import ForeachBatch, wrap
from watersmeet.spark.micro_batch import micro_batch

ONE, TWO, RUN = (f"{digit * 8}-7ab5-4413-a683-bccf8d276808" for digit in "123")


@dataclass
class Query:
    id: str
    plan: str
    name: str = ""
    runId: str = RUN  # noqa: N815

    def explain(self, extended: bool) -> None:
        print(self.plan)


@dataclass
class Streams:
    active: list[Query]


@dataclass
class Session:
    streams: Streams
    tags: list[str] = field(default_factory=list)

    def addTag(self, tag: str) -> None:  # noqa: N802
        self.tags.append(tag)

    def removeTag(self, tag: str) -> None:  # noqa: N802
        self.tags.remove(tag)


# As that of Connect, which is known by its module.
Session.__module__ = "pyspark.sql.connect.session"


@dataclass
class Frame:
    sparkSession: Session  # noqa: N815
    plan: str = "LogicalRDD [x#5, y#6L], false"

    def explain(self, extended: bool) -> None:
        print(self.plan)


MINE = "WriteToMicroBatchDataSourceV1\n+- MapInArrow f(task#3)#4, [x#5, y#6L], false"
OTHER = "WriteToMicroBatchDataSourceV1\n+- MapInArrow f(task#13)#14, [x#15, y#6L], false"


def told(queries: list[Query], query_name: str | None = None, number: int = 7) -> BatchId:
    """The batch that tasks learn of from a wrapped function."""
    session = Session(Streams(queries))
    seen: list[str] = []
    frame: Any = Frame(session)
    wrap(lambda frame, number: seen.extend(session.tags), query_name)(frame, number)
    assert session.tags == []
    return micro_batch({"spark.job.tags": ",".join(seen)}.get)


def test_the_only_query_is_the_one():
    assert told([Query(ONE, MINE)]) == BatchId(ONE, RUN, 7)


def test_of_several_it_is_the_one_with_the_attributes_of_the_batch():
    assert told([Query(TWO, OTHER), Query(ONE, MINE)]) == BatchId(ONE, RUN, 7)


def test_a_name_tells_queries_of_one_plan_apart():
    assert told([Query(ONE, MINE, "a"), Query(TWO, MINE, "b")], "b") == BatchId(TWO, RUN, 7)


@pytest.mark.parametrize(
    "queries, name",
    [
        pytest.param([Query(ONE, MINE), Query(TWO, MINE)], None, id="two-with-the-same-attributes"),
        pytest.param([Query(TWO, OTHER)], None, id="only-another-query"),
        pytest.param([], None, id="none"),
        pytest.param([Query(ONE, MINE, "a")], "b", id="a-name-that-no-query-has"),
    ],
)
def test_in_doubt_the_batch_fails_and_asks_for_a_name(queries, name):
    with pytest.raises(WatersmeetError, match="query_name="):
        told(queries, name)


def test_the_tag_goes_also_if_the_function_fails():
    session = Session(Streams([Query(ONE, MINE)]))

    def fail(frame, number):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        wrap(fail, None)(Frame(session), 0)
    assert session.tags == []


def test_the_query_is_looked_for_in_the_session_that_the_function_arrives_in(monkeypatch):
    """Batches run in a clone of it, which has no queries."""
    started_in, clone = Session(Streams([Query(ONE, MINE)])), Session(Streams([]))
    monkeypatch.setattr(foreach_batch.SparkSession, "getActiveSession", classmethod(lambda _: started_in))
    arrived: ForeachBatch = pickle.loads(pickle.dumps(wrap(print, None)))  # noqa: S301
    arrived._function = lambda frame, number: None
    arrived(Frame(clone), 3)
    assert arrived._start == (ONE, RUN)


def test_with_a_classic_session_the_function_is_just_called():
    calls = []
    wrap(lambda frame, number: calls.append(number), None)(Frame(object()), 5)
    assert calls == [5]


def test_only_a_function_can_be_wrapped():
    with pytest.raises(UsageError, match="takes a function"):
        wrap("save", None)
