"""Answers as rows: the output columns of each query as JSON, in the types of the query.

    numbers              as JSON numbers; decimals with all their digits; NaN and infinities as texts, which JSON lacks
    booleans, null       as JSON has them
    texts                as JSON texts
    dates, timestamps    as texts: 2026-01-31, 2026-01-31T12:30:00.000000Z (without the Z for timestamp_ntz)

Different queries have different columns, and all their answers are rows of one DataFrame. So an answer is one text. It
is put together by attribute and by shape of expression, never row by row.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.hubs.distinct import Answers
from watersmeet.hubs.forest import Queries
from watersmeet.hubs.outputs import in_places
from watersmeet.hubs.rows import Rows
from watersmeet.hubs.walk import Found
from watersmeet.kernel.rows import take_values
from watersmeet.model.types import SqlType

ANSWERS: Final = pa.schema(
    [
        ("query", pa.string()),
        ("event", pa.string()),
        ("batch", pa.int64()),
        ("oldest", pa.timestamp("us", "UTC")),
        ("newest", pa.timestamp("us", "UTC")),
        ("answer", pa.string()),
        ("message", pa.string()),
        ("text", pa.int64()),
    ]
)
ANSWER: Final = "answer"

# Control characters must be escaped too; they are rare, so a text is searched for them first.
_CONTROLS: Final = {chr(code): f"\\u{code:04x}" for code in range(0x20)}


def answer_rows(found: Found, rows: Rows, queries: Queries, batch: int) -> pa.RecordBatch:
    """Answers as rows of the hub's output."""
    shown = Answers(found.query, found.oldest, found.newest, _json(found, rows, queries))
    return distinct_rows(shown, queries.ids, queries.texts, batch)


def distinct_answers(found: Found, rows: Rows, queries: Queries) -> Answers:
    """Answers to DISTINCT queries, with their values as they are compared."""
    return Answers(found.query, found.oldest, found.newest, _json(found, rows, queries, no_minus_zero=True))


def distinct_rows(found: Answers, ids: pa.Array, texts: pa.Array, batch: int) -> pa.RecordBatch:
    """Answers with their values as rows of the hub's output. `ids` and `texts` (numbers) are those of the queries."""
    count = len(found)
    stamp = pa.timestamp("us", "UTC")
    return pa.RecordBatch.from_arrays(
        [
            take_values(ids, found.query),
            pa.repeat(pa.scalar(ANSWER), count),
            pa.repeat(pa.scalar(batch, pa.int64()), count),
            pa.array(found.oldest).cast(stamp),
            pa.array(found.newest).cast(stamp),
            found.text,
            pa.nulls(count, pa.string()),
            take_values(texts, found.query),
        ],
        schema=ANSWERS,
    )


def event_rows(events: pa.RecordBatch, batch: int) -> pa.RecordBatch:
    """What became of commands, as rows of the hub's output."""
    count, stamp = events.num_rows, pa.timestamp("us", "UTC")
    return pa.RecordBatch.from_arrays(
        [
            events.column("query"),
            events.column("event"),
            pa.repeat(pa.scalar(batch, pa.int64()), count),
            pa.nulls(count, stamp),
            pa.nulls(count, stamp),
            pa.nulls(count, pa.string()),
            events.column("message"),
            pa.nulls(count, pa.int64()),
        ],
        schema=ANSWERS,
    )


def _json(found: Found, rows: Rows, queries: Queries, *, no_minus_zero: bool = False) -> pa.Array:
    outputs, (texts, first) = queries.outputs, queries.constants
    owner, item = outputs.of.members(queries.template[found.query])
    constants = texts, first[found.query]
    parts, places = [], []
    for mine, values, kind in outputs.values(
        item, owner, found.rows, rows.take, rows.attributes.types, constants
    ):
        if no_minus_zero and kind.floating:
            values = pc.add(values, pa.scalar(0.0, values.type))
        parts.append(texts_of(values, kind))
        places.append(mine)
    shown = in_places(places, parts)
    names = quoted(pa.array(outputs.name, pa.string()))
    pairs = pc.binary_join_element_wise(take_values(names, item), shown, ":")
    starts = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(found)))))
    inside = pc.binary_join(pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pairs), ",")
    return pc.binary_join_element_wise("{", inside, "}", "")


def texts_of(values: pa.Array, kind: SqlType) -> pa.Array:
    """The JSON of each value.

    >>> from watersmeet.model.types import DOUBLE, STRING
    >>> texts_of(pa.array(['say "a"', None]), STRING).to_pylist()
    ['"say \\\\"a\\\\""', 'null']
    >>> texts_of(pa.array([1.5, -0.0, float("nan")]), DOUBLE).to_pylist()
    ['1.5', '-0.0', '"NaN"']
    """
    if kind.floating:
        texts = _floats(values)
    elif kind.name == "timestamp":
        texts = quoted(pc.strftime(values, "%Y-%m-%dT%H:%M:%SZ"))
    elif kind.name == "timestamp_ntz":
        texts = quoted(pc.strftime(values, "%Y-%m-%dT%H:%M:%S"))
    elif kind.numeric or kind.name == "boolean":
        texts = values.cast(pa.string())
    else:
        texts = quoted(values.cast(pa.string()))
    return texts.fill_null("null")


def _floats(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    # Spark reads a number without a point as an integer, which has no minus zero.
    texts = pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)
    finite = pc.is_finite(values)
    if pc.all(finite).as_py() is not False:
        return texts
    names = pc.if_else(pc.is_nan(values), "NaN", pc.if_else(pc.greater(values, 0), "Infinity", "-Infinity"))
    return pc.if_else(finite, texts, quoted(names))


def quoted(texts: pa.Array) -> pa.Array:
    """Texts as JSON texts."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for control, written in _CONTROLS.items():
            escaped = pc.replace_substring(escaped, control, written)
    return pc.binary_join_element_wise('"', escaped, '"', "")
