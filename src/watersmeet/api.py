"""The public verbs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from watersmeet.kernel.theta import Condition
    from watersmeet.log.status import Status
    from watersmeet.predicate.window import Length
    from watersmeet.tables.spec import Span, Table


def join(
    inputs: Mapping[str, DataFrame | Table],
    on: str | Condition,
    *,
    select: Sequence[str] | None = None,
    state: str | None = None,
    name: str | None = None,
    tasks: int | None = None,
    strategy: str = "auto",
    cells: int | None = None,
    mapping: tuple[int, int] | None = None,
    groups: int | None = None,
    within: Length | None = None,
    time: Mapping[str, str] | None = None,
    lateness: Length | None = None,
    how: str = "inner",
    max_delay: Span | None = None,
    memory: int | str | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Join two DataFrames, streaming or batch, on any predicate in Spark SQL; or a DataFrame and a `wm.table`.

    Args:
        inputs: two DataFrames by the names that `on` and `select` use for them, or one and a table.
        on: the predicate, such as `"l.k = r.k AND l.x < r.y + 3"` or `"abs(l.x - r.x) <= 5"`; `"true"` is a
            cross join. Or a Python function that takes two record batches of candidate pairs, row by row the
            left and the right of each, and returns an array of as many booleans.
        select: the columns that come out, such as `["l.id", "r.y - l.x AS gap"]`. Only what these and the
            predicate need is read and stored. Without it each input comes out whole, as one struct column.
        state: a directory or URI for the durable state, reachable by every executor. Default: the setting
            `spark.watersmeet.state`, then `spark.sql.streaming.checkpointLocation`.
        name: the operator's name inside the state. Two joins of one query need two names.
        tasks: how many tasks join in parallel. Default: the cores of the session.
        strategy: for an equality `"hypercube"`: tasks share out the keys, and the pairs of each heavy key;
            `"hash"`: each task joins an equal share of the keys; `"biclique"`: each task stores a part of one
            input. `"range"`: each task joins a range of the values of a band or an inequality. `"grid"`: tasks
            share out all pairs by a grid that reshapes itself; for any predicate. `"spark"`: Spark's own join,
            for batch inputs only. `"auto"` takes what suits the predicate; `wm.explain` says what that is and why.
            For a table `"hybrid"`, which `"auto"` takes: the pages that hold keys of the batch; `"mesh"`: all pages
            in every batch; `"index"`: key by key.
        cells: for `"grid"`, the number of cells. Default: the tasks, or a power of two above them. A power of
            two is best.
        mapping: for `"grid"`, rows and columns of a grid that is not to change, such as `(2, 4)`.
        groups: for `"biclique"`, into how many groups the keys are spread. Default: half the tasks.
        within: how far apart the times of two rows may be to meet, such as `"10 minutes"`, a `timedelta`, or a
            number if the times are numbers. Rows that can meet nothing any more leave the state. Or, for streams,
            such as `"100000 rows"`: a row meets the last so many rows of the other input that came in earlier
            batches, and all of its own batch.
        time: the time column of each input, such as `{"l": "ts", "r": "at"}`: timestamps, dates or integers.
        lateness: how far behind the newest row of its input a row may be and still be taken; the slower input
            counts. Later rows are dropped and counted. Default: 0.
        how: with a table, `"left"` keeps rows without a partner; the table's columns are then null.
        max_delay: with a table, how long a row may wait for others that need the same page, such as `"30 seconds"`:
            fewer pages are read. By default every batch is answered completely.
        memory: with a table, what a task may keep of it between batches, in bytes or such as `"64 MB"`, and as much
            for rows that wait. Default: 64 MB.
        options: the other settings, for platforms that do not let a session have them or do not tell them:
            `{"fsync": True}` is `spark.watersmeet.fsync`, `{"ansi": False}` says what `spark.sql.ansi.enabled` is.

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
    from watersmeet.engine.options import JoinOptions
    from watersmeet.spark.operator import join_inputs

    asked = JoinOptions(
        on=on,
        select=select,
        state=state,
        name=name,
        tasks=tasks,
        strategy=strategy,
        cells=cells,
        mapping=mapping,
        groups=groups,
        within=within,
        time=time,
        lateness=lateness,
        how=how,
        max_delay=max_delay,
        memory=memory,
        options=options,
    )
    return join_inputs(inputs, asked)


def explain(
    inputs: Mapping[str, DataFrame | Table],
    on: str | Condition,
    *,
    state: str | None = None,
    strategy: str = "auto",
    within: Length | None = None,
    time: Mapping[str, str] | None = None,
    lateness: Length | None = None,
    options: Mapping[str, object] | None = None,
) -> str:
    """Which strategy `wm.join` would take for these inputs, and why, in one line. Nothing is read.

    Example:
        >>> import watersmeet as wm
        >>> print(wm.explain({"l": orders, "r": trades}, on="abs(l.px - r.px) <= 1"))   # doctest: +SKIP
        range: the predicate bounds the distance or order of two values: runs are sorted by them
    """
    from watersmeet.engine.choose import SPARK, choose_lookup
    from watersmeet.engine.options import JoinOptions
    from watersmeet.model.window import explain_window
    from watersmeet.spark.operator import check_inputs, parse_frames

    tables = check_inputs(inputs)
    asked = JoinOptions(
        on=on, strategy=strategy, state=state, within=within, time=time, lateness=lateness, options=options
    )
    if tables:
        choice = choose_lookup(strategy)
        return f"{choice.name}: {choice.why}"
    parsed = parse_frames(cast("Mapping[str, DataFrame]", inputs), asked)
    text = f"{parsed.choice.name}: {parsed.choice.why}"
    if parsed.compiled.signature.window is not None:
        text += f"; {explain_window(parsed.compiled.signature.window)}"
    if parsed.compiled.spark_checks and parsed.choice.name != SPARK:
        text += "; Spark then checks the predicate, since a part of it cannot be evaluated on Arrow exactly"
    return text


def foreach_batch(
    function: Callable[[DataFrame, int], object], *, query_name: str | None = None
) -> Callable[[DataFrame, int], None]:
    """Wrap a `foreachBatch` function so that it can evaluate the results of a join on Spark Connect.

    With a classic session it changes nothing, and is not needed.

    Args:
        function: the function of a DataFrame and a batch number, as `foreachBatch` takes it.
        query_name: the name that `writeStream.queryName` gives to the query. Needed only where an error says that
            several active queries cannot be told apart.

    Example:
        >>> import watersmeet as wm
        >>> writer = joined.writeStream.foreachBatch(wm.foreach_batch(save))    # doctest: +SKIP
    """
    from watersmeet.spark.foreach_batch import wrap

    return wrap(function, query_name)


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
