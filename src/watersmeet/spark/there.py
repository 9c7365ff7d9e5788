"""Run a function where the tasks run: only they need to reach the state, and over Spark Connect nobody else may."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from watersmeet.errors import WatersmeetError
from watersmeet.spark.worker import keep_modules

T = TypeVar("T")

_FOUND = pa.schema({"found": pa.binary()})


@dataclass(frozen=True)
class _Call:
    """`mapInArrow` over numbers: calls the function with each, and sends what it returns, or the error of ours."""

    function: Callable[[int], object]

    def __call__(self, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_modules()
        for numbers in incoming:
            for number in numbers.column(0).to_pylist():
                yield pa.RecordBatch.from_arrays([pa.array([self._called(number)])], schema=_FOUND)

    def _called(self, number: int) -> bytes:
        try:
            found = self.function(number)
        except WatersmeetError as error:
            # As a value: Spark would repeat the task, and hand over the text of the error alone.
            found = error
        return cast("bytes", cloudpickle.dumps(found))


def call_there(spark: SparkSession, function: Callable[[int], T], times: int = 1) -> list[T]:
    """Call a function with the numbers from 0 on, each in a task, and return the results in order.

    The function may be called again for the same number, as Spark may repeat a task.
    """
    rows = spark.range(0, times, 1, times).mapInArrow(_Call(function), "found binary").collect()
    # From a task of this very session.
    found: list[Any] = [pickle.loads(row[0]) for row in rows]  # noqa: S301
    for one in found:
        if isinstance(one, WatersmeetError):
            raise one
    return found
