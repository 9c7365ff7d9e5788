"""The public verbs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Unpack

    from watersmeet.engine.options import JoinArguments
    from watersmeet.file_inputs.spec import FileInput
    from watersmeet.kernel.theta import Condition
    from watersmeet.log.status import Status
    from watersmeet.model.facts import Settlement
    from watersmeet.predicate.window import Length
    from watersmeet.spark.hub import Hub
    from watersmeet.tables.spec import Span, Table


def join(
    inputs: Mapping[str, DataFrame | Table | FileInput],
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
    pay_within: Span | None = None,
    defer: Span | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Join 2 to 16 inputs, streaming or batch, on any predicate in Spark SQL: DataFrames, `wm.files` and `wm.table`.

    Args:
        inputs: the DataFrames, files and tables by the names that `on` and `select` use for them, 2 to 16 in all. At
            least one is not a table. A table is looked up before the streams are joined if one stream has its key,
            otherwise in their results.
        on: the predicate, such as `"l.k = r.k AND l.x < r.y + 3"` or `"abs(l.x - r.x) <= 5"`; `"true"` is a
            cross join of two. Three or more inputs may share a key, `"a.k = b.k AND b.k = c.k"`, or have different
            ones, `"a.x = b.x AND b.y = c.y"`; some condition must join each of them to the others. For two inputs
            also a Python function that takes two record batches of equal length, the left and the right rows of
            candidate pairs, and returns one boolean for each pair.
        select: the output columns, such as `["l.id", "r.y - l.x AS gap"]`. Only the columns that these and the
            predicate need are read and stored. Without it each input is returned whole, as one struct column.
        state: a directory or URI for the durable state, reachable by every executor. Default: the setting
            `spark.watersmeet.state`, then `spark.sql.streaming.checkpointLocation`.
        name: the operator's name inside the state. Two joins of one query need two names.
        tasks: the number of tasks that join in parallel. Default: the cores of the session.
        strategy: for an equality `"hypercube"`: tasks divide the keys, and the pairs of each heavy key;
            `"hash"`: each task joins an equal share of the keys; `"biclique"`: each task stores a part of one
            input. `"range"`: each task joins a range of the values of a band or an inequality. `"grid"`: tasks
            divide all pairs by a grid that reshapes itself, for any predicate. `"delta"`: tasks divide the new
            rows and look them up in one input after the other, for inputs on different keys and values. `"budget"`:
            as `"hash"`, within `memory=`. `"spark"`: Spark's own join, for batch inputs only. `"auto"` chooses by the
            predicate; `wm.explain` says which one and why.
            For tables `"hybrid"`, the default: read the pages that hold keys of the batch; `"mesh"`: read all
            pages in every batch; `"index"`: look up key by key.
        cells: for `"grid"`, the number of cells. Default: the tasks, or a power of two above them. A power of
            two is best.
        mapping: for `"grid"`, rows and columns of a grid that never changes, such as `(2, 4)`.
        groups: for `"biclique"`, the number of groups of keys. Default: half the tasks.
        within: the largest difference between the times of any two rows of a result, such as `"10 minutes"`, a
            `timedelta`, or a number if the times are numbers. Rows that can match nothing any more leave the
            state. Or, for streams, a number of rows such as `"100000 rows"`: each row is matched against the last
            100,000 rows of each other input from earlier batches, and all rows of its own batch.
        time: the time column of each input that is not a table, such as `{"l": "ts", "r": "at"}`: timestamps, dates or
            integers.
        lateness: how far a row may be behind the newest row of its input; the slower input counts. Later rows are
            dropped and counted. Default: 0.
        how: with tables, `"left"` keeps rows without a partner; the table's columns are then null. The condition of a
            table may then read one stream only.
        max_delay: with tables, how long a row may wait for others that need the same page, such as `"30 seconds"`,
            so that fewer pages are read. By default every batch joins all its rows.
        memory: for an equality join of streams on one shared key, the bytes of history that a task may touch in a
            batch, such as `"200 MB"`. Results that need more are owed and come out later, at the latest in a start
            without it. With tables, the memory of a task for the pages of each, and the same again for waiting rows;
            default 64 MB.
        pay_within: with `memory` or `defer`, how long results may be owed, such as `"10 minutes"`. Debts that are older
            are paid from all that a batch leaves of the budget, also while no rows come. It adds a source that brings
            no rows but starts a batch each second, so a query cannot add or drop it without a new checkpoint.
        defer: for the same joins, how long a task may take in a batch, such as `"30 seconds"`, before it sets history
            aside and owes results, so that a burst comes out late instead of never. `"auto"` is the trigger interval of
            the query; 10 seconds if it has none, or on Spark Connect. Alone or beside `memory`.
        options: other settings, for platforms that do not let you set or read them in the session:
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
        pay_within=pay_within,
        defer=defer,
        options=options,
    )
    return join_inputs(inputs, asked)


def sql(
    query: str,
    inputs: Mapping[str, DataFrame | Table | FileInput] | None = None,
    *,
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
    pay_within: Span | None = None,
    defer: Span | None = None,
    options: Mapping[str, object] | None = None,
    **more: DataFrame | Table | FileInput,
) -> DataFrame:
    """Join DataFrames by the text of a query: the same join as `wm.join`, written in SQL.

    Only the columns that the query names are read and stored.

    Args:
        query: `SELECT columns FROM a JOIN b ON condition ... WHERE condition`. Inner joins with `ON` or
            `USING (columns)`, lists with commas, and aliases: `FROM orders AS o, orders AS p`.
        inputs: the DataFrames and tables by the names that stand after FROM and JOIN. They can also be given as
            keywords, `wm.sql("SELECT ... FROM a, b WHERE ...", a=a, b=b)`, unless an argument has that name.
        state, name, tasks, strategy, cells, mapping, groups, within, time, lateness, how, max_delay, memory,
            pay_within, defer, options: as for `wm.join`. `time` goes by the names that the query uses, which are the aliases.

    Returns:
        An ordinary DataFrame with the selected columns, streaming if an input is.

    Example:
        >>> import watersmeet as wm
        >>> near = wm.sql(                                              # doctest: +SKIP
        ...     "SELECT o.id, t.id AS trade FROM orders o JOIN trades t ON abs(o.px - t.px) <= 0.05",
        ...     {"orders": orders, "trades": trades}, state="/data/state",
        ... )
    """
    from watersmeet.engine.options import JoinOptions
    from watersmeet.spark.operator import join_query

    asked = JoinOptions(
        on="true",
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
        pay_within=pay_within,
        defer=defer,
        options=options,
    )
    return join_query(query, inputs, more, asked)


def hub(
    streams: Mapping[str, DataFrame],
    *,
    queries: Mapping[str, str] | None = None,
    commands: DataFrame | str | os.PathLike[str] | None = None,
    state: str | None = None,
    name: str | None = None,
    tasks: int | None = None,
    time: Mapping[str, str] | None = None,
    lateness: Length | None = None,
    retain: Length | None = None,
    options: Mapping[str, object] | None = None,
) -> Hub:
    """Answer many continuous queries over the same streams in one streaming query.

    Queries are rows, not plans: thousands of them share their work, and come and go while the query runs. A query sees
    rows of later batches than its command, and with SINCE earlier ones too. Every combination of rows that satisfies it
    is one answer, in the batch in which its last row arrives. A bad text is refused as an event, and stops no other.

    A query is `SELECT [DISTINCT] expressions FROM streams WHERE conditions`, and at the end perhaps `WINDOW 10 MINUTES`,
    `WINDOW TUMBLING 1 HOUR` or `WINDOW 1000 ROWS`, and `SINCE TIMESTAMP '...'`, over one to eight streams, also the same
    one under several aliases. Conditions are joined by AND: equalities of columns of different streams, and comparisons
    of a column with constants.

    Args:
        streams: streaming DataFrames by the names that queries use for them.
        queries: texts by id. In a new hub they are in force from the first batch. At a restart they are commands: an id
            that is live keeps its text, and one that was removed stays removed. The logger warns of bad texts.
        commands: queries that come and go while the hub runs: a streaming DataFrame with the columns `op` (add or
            remove), `id` and `sql`, and perhaps `at`, a timestamp or an integer that orders the commands of a batch.
            Or a folder of JSON lines with these fields, which `answers()` makes if it is missing. Default: the folder
            `~commands/NAME` of the state, if that is in a directory. Spark cannot add a source to a checkpoint or drop one,
            so this choice stays.
        state: a directory or URI for the durable state, as for `wm.join`.
        name: the hub's name inside the state. Default: `"hub"`.
        tasks: the number of tasks that look for answers in parallel. Default: the cores of the session.
        time: the column with the publication time of a stream's rows, such as `{"R": "at"}`: a timestamp. The rows of
            other streams have the time of their batch.
        lateness: how far a row may be behind the newest of its stream: `"1 minute"`. Windows leave out later ones.
        retain: how much longer than queries need them rows are kept, for SINCE: `"10 minutes"`, or `"all"`. Default: no longer.
        options: other settings, as for `wm.join`.

    Returns:
        A `Hub`: `answers()` is one streaming DataFrame, `deliver(place)` writes a folder for each query,
        `read(id, place)` reads one back, `add(id, sql)` and `remove(id)` write commands, `status()` says what is live.

    Example:
        >>> import watersmeet as wm
        >>> hub = wm.hub(                                               # doctest: +SKIP
        ...     {"orders": orders, "payments": payments}, state="/data/state",
        ...     queries={"paid": "SELECT o.id, p.amount FROM orders o, payments p WHERE o.id = p.order_id"},
        ... )
        >>> hub.answers().writeStream.foreachBatch(hub.deliver("/data/out")).start()    # doctest: +SKIP
        >>> hub.read("paid", "/data/out").show()                        # doctest: +SKIP
    """
    from watersmeet.engine.hub import HubOptions
    from watersmeet.spark.hub import make_hub

    asked = HubOptions(
        {} if queries is None else queries, state, name, tasks, time, options, lateness, retain
    )
    return make_hub(streams, commands, asked).with_warnings()


def explain(
    inputs: Mapping[str, DataFrame | Table | FileInput],
    on: str | Condition,
    **arguments: Unpack[JoinArguments],
) -> str:
    """Say in one line which strategy `wm.join` would take for the same arguments, and why.

    No row is read, and nothing is written. Arguments that `wm.join` would refuse are refused. With `wm.files` it also
    says how rows reach the join, with tables among three or more inputs which are looked up before the streams are
    joined, and which after. Of a table the columns are read.

    Args:
        inputs, on, arguments: as for `wm.join`.

    Example:
        >>> import watersmeet as wm
        >>> print(wm.explain({"l": orders, "r": trades}, on="abs(l.px - r.px) <= 1"))   # doctest: +SKIP
        range: the predicate bounds the distance or order of two values: runs are sorted by them
    """
    from watersmeet.engine.options import JoinOptions
    from watersmeet.spark.explain import explain_join

    asked = JoinOptions.of_call("explain", on, arguments)
    return explain_join(inputs, asked)


def owed(
    inputs: Mapping[str, DataFrame | FileInput],
    on: str | Condition,
    *,
    checkpoint: str,
    **arguments: Unpack[JoinArguments],
) -> DataFrame:
    """The results that a query with `memory=` has put off, after it has ended. Nothing is changed.

    Together with the results of all batches that Spark has committed, these are the full join of their rows. A batch
    that Spark has not committed is left out: its rows are in neither, and the next start of the query joins them.

    The state is looked up when `owed` is called. The DataFrame may be evaluated any number of times and gives the same
    rows, as long as the files are there: if another driver of the query goes on meanwhile, it removes them in the end,
    and an error names the file. It may run on Spark Connect, where only tasks can reach the state.

    A damaged run takes no part. A warning names it, and everything else is owed all the same.

    Args:
        inputs, on, arguments: those of the `wm.join` of the query. The inputs are its streams, of which no row is read.
        checkpoint: the checkpoint of the query, which says what Spark has committed.

    Returns:
        A batch DataFrame with the columns of the query's results.

    Example:
        >>> import watersmeet as wm
        >>> late = wm.owed(                                             # doctest: +SKIP
        ...     {"l": orders, "r": payments}, on="l.id = r.order_id", state="/data/state",
        ...     checkpoint="/data/checkpoint",
        ... )
        >>> late.count()                                                # doctest: +SKIP
    """
    from watersmeet.engine.options import JoinOptions
    from watersmeet.spark.owed import owed_frame

    asked = JoinOptions.of_call("owed", on, arguments)
    return owed_frame(inputs, asked, checkpoint)


def settle(
    inputs: Mapping[str, DataFrame | FileInput],
    on: str | Condition,
    *,
    checkpoint: str,
    to: str,
    format: str = "parquet",
    accept_loss: bool = False,
    **arguments: Unpack[JoinArguments],
) -> Settlement:
    """Write what a query owes to a folder, and mark its state as settled, after the query has ended.

    Any other driver of the query stops. A later start of the query goes on from there: it does not pay again what was
    settled, and new rows meet all rows before them. It may be killed anywhere and called again.

    It is refused if Spark has not committed the last batch of the state: start the query once more to finish that.

    Args:
        inputs, on, arguments: those of the `wm.join` of the query.
        checkpoint: the checkpoint of the query.
        to: a folder that does not exist yet. It appears when everything is written. It must not be that of a streaming
            file sink: Spark's readers would not see the files.
        format: a file format of Spark, such as `"parquet"`, `"json"` or `"orc"`.
        accept_loss: settle the rest if a damaged run cannot be read. What its rows owed is lost then. By default that
            is refused, and nothing is settled.

    Returns:
        The batch, the folder and the number of results. If nothing came since the last settling, that one.

    Example:
        >>> import watersmeet as wm
        >>> done = wm.settle(                                           # doctest: +SKIP
        ...     {"l": orders, "r": payments}, on="l.id = r.order_id", state="/data/state",
        ...     checkpoint="/data/checkpoint", to="/data/late",
        ... )
        >>> print(done.rows, "results in", done.folder)                 # doctest: +SKIP
    """
    from watersmeet.engine.options import JoinOptions
    from watersmeet.spark.owed import plan_debtor
    from watersmeet.spark.settle import settle_query

    asked = JoinOptions.of_call("settle", on, arguments)
    debtor = plan_debtor(inputs, asked, checkpoint)
    return settle_query(debtor, to, format=format, accept_loss=accept_loss).settlement


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the session settings that make batches short. Settings that you have made anywhere stay as they are.

    Call it last, just before `getOrCreate`: the master decides which settings fit. No setting changes a result.
    docs/operations.md ("Faster batches") has each with its reason.

    Example:
        >>> import watersmeet as wm
        >>> from pyspark.sql import SparkSession
        >>> spark = wm.configure(SparkSession.builder.master("local[2]")).getOrCreate()     # doctest: +SKIP
    """
    from watersmeet.spark.settings import configure as configured

    return configured(builder)


def session_settings(*, local: bool = False) -> dict[str, str]:
    """The settings that `wm.configure` makes, for platforms that take them from a file or a form.

    Args:
        local: whether driver, executors and checkpoints are on one machine. Two more settings help there.

    Example:
        >>> import watersmeet as wm
        >>> wm.session_settings()["spark.sql.adaptive.streaming.stateless.enabled"]
        'false'
    """
    from watersmeet.spark.settings import advised

    return advised({}, one_machine=local)


def foreach_batch(
    function: Callable[[DataFrame, int], object], *, query_name: str | None = None
) -> Callable[[DataFrame, int], None]:
    """Wrap a `foreachBatch` function so that it can evaluate the results of a join on Spark Connect.

    With a classic session it is not needed and changes nothing.

    Args:
        function: the function of a DataFrame and a batch number, as `foreachBatch` takes it.
        query_name: the name that `writeStream.queryName` gives to the query. Needed only if an error says that
            several active queries cannot be told apart.

    Example:
        >>> import watersmeet as wm
        >>> writer = joined.writeStream.foreachBatch(wm.foreach_batch(save))    # doctest: +SKIP
    """
    from watersmeet.spark.foreach_batch import wrap

    return wrap(function, query_name)


def status(state: str | os.PathLike[str]) -> Status:
    """The content of a state directory: for each join its last batch, rows, runs, merging debt and damage.

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
