"""Publication times: which rows of a stream are late, and how old its next rows may be.

A row's publication time is its stream's time column. The *watermark* of such a stream is the newest time of earlier
batches minus the lateness: a row below it is late. It goes by all rows that arrived, whether or not a query read them,
and it never falls, even if a restart brings another lateness.

Without a time column it is the time of the batch, and no row is late. Should the clock go back, the batch has the newest
time so far, so the watermark of these streams is the time of the last batch that brought a row to any stream.

Here a hub differs from a join (plan/window.py), whose one watermark is that of its slowest input. The streams of a hub
belong to many queries. Which of its rows are late must follow from a stream alone: an answer does not depend on which
other queries live, and a stream that is idle holds back only the queries that read it (hubs/needed.py).

Late rows are left out of the answers of queries with a window, since the rows that they meet may have left. A query
without a window counts them. So a late row is stored only if such a query reads its stream, and its number says that it
is late (hubs/rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def next_watermarks(
    before: Mapping[str, int], newest: Iterable[Mapping[str, int]], timed: Iterable[str], lateness: int
) -> dict[str, int]:
    """The watermarks for the next batch, given the newest times that this one's partitions tell of.

    `timed` are the streams with a time column.

    >>> next_watermarks({"R": 90}, [{"R": 97, "S": 50}, {"R": 99}], ["R"], 5)
    {'R': 94, 'S': 50}
    """
    found, by_column = dict(before), set(timed)
    for told in newest:
        for stream, time in told.items():
            mark = time - lateness if stream in by_column else time
            found[stream] = max(mark, found.get(stream, mark))
    return found
