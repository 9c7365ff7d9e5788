"""The public verbs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from watersmeet.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from watersmeet.log.status import Status

STRATEGIES = ("auto", "hash", "spark")

# An input's name is an alias in SQL and a folder in the state.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# An operator's name is a folder in the state.
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def join(
    inputs: Mapping[str, DataFrame],
    on: str,
    *,
    select: Sequence[str] | None = None,
    state: str | None = None,
    name: str | None = None,
    tasks: int | None = None,
    strategy: str = "auto",
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Join two DataFrames, streaming or batch, on a predicate in Spark SQL.

    Args:
        inputs: two DataFrames by the names that `on` and `select` use for them.
        on: the predicate, such as `"l.k = r.k AND l.x < r.y + 3"`. It needs at least one equality.
        select: the columns that come out, such as `["l.id", "r.y - l.x AS gap"]`. Only what these and the
            predicate need is read and stored. Without it each input comes out whole, as one struct column.
        state: a directory or URI for the durable state, reachable by every executor. Default: the setting
            `spark.watersmeet.state`, then `spark.sql.streaming.checkpointLocation`.
        name: the operator's name inside the state. Two joins of one query need two names.
        tasks: how many tasks join in parallel. Default: the cores of the session.
        strategy: `"hash"` is the log-structured operator, each task joining a share of the keys; `"spark"`
            is Spark's own join, for batch inputs only. `"auto"` takes `"hash"` for streams and `"spark"` for
            batches, where there is no state to keep and Spark's join is the faster one.
        options: the other settings, for platforms that do not let a session have them: `{"fsync": True}` is
            `spark.watersmeet.fsync`.

    Returns:
        An ordinary DataFrame, streaming if an input is.

    Example:
        >>> import watersmeet as wm
        >>> joined = wm.join(                                           # doctest: +SKIP
        ...     {"l": orders, "r": payments}, on="l.id = r.order_id", state="/data/state",
        ...     select=["l.id", "r.amount - l.price AS gap"],
        ... )
        >>> joined.writeStream.format("console").start()                # doctest: +SKIP
    """
    from watersmeet.spark.operator import join_batches, join_frames

    _check_inputs(inputs)
    chosen = _choose_strategy(strategy, streaming=next(iter(inputs.values())).isStreaming)
    if name is not None and not _FOLDER.fullmatch(name):
        raise UsageError(f"name={name!r} cannot be a folder name: use letters, digits, '-', '_' and '.'")
    if select is not None and isinstance(select, str):
        raise UsageError(f'select must be a list of columns, such as ["{select}"], not one string')
    if chosen == "spark":
        return join_batches(inputs, on, select=select)
    return join_frames(inputs, on, select=select, state=state, name=name, tasks=tasks, options=options)


def status(state: str | os.PathLike[str]) -> Status:
    """What a state directory holds: for each join its last batch, rows, runs, merging debt and damage.

    It only reads, needs no Spark and may be called while the query runs. StateError if there is no state.

    Args:
        state: the directory or URI that was passed as `state=`.

    Example:
        >>> import watersmeet as wm
        >>> for join in wm.status("/data/state").joins:                 # doctest: +SKIP
        ...     print(join.name, join.batch, join.rows, join.damage)
    """
    from watersmeet.log.status import read_status

    return read_status(state)


def _choose_strategy(strategy: str, *, streaming: bool) -> str:
    if strategy not in STRATEGIES:
        raise UsageError(f"strategy={strategy!r} is not known: use one of {', '.join(STRATEGIES)}")
    if strategy == "spark" and streaming:
        raise UsageError('strategy="spark" is for batch inputs; streams are joined with "hash" or "auto"')
    if strategy == "auto":
        return "hash" if streaming else "spark"
    return strategy


def _check_inputs(inputs: Mapping[str, DataFrame]) -> None:
    if not isinstance(inputs, Mapping) or len(inputs) != 2:
        raise UsageError(
            'join takes two inputs by name, such as wm.join({"l": left, "r": right}, on="l.k = r.k")'
        )
    for name, frame in inputs.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"the input name {name!r} cannot be used in SQL: use letters, digits and '_'")
        if not hasattr(frame, "mapInArrow"):
            raise UsageError(f"input {name} is a {type(frame).__name__}, not a Spark DataFrame")
    streaming = {name: frame.isStreaming for name, frame in inputs.items()}
    if len(set(streaming.values())) > 1:
        still = next(name for name, moves in streaming.items() if not moves)
        raise UsageError(
            f"input {still} is not streaming and the other one is: read both as streams, or both as batches"
        )
