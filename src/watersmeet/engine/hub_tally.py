"""What a task tells of the queries of a hub: those that answered most, and those that cost most."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.kernel.keys import Indices
from watersmeet.model.tally import QueryTally

# A tally is a small file in each batch. Ten of each kind are what a person reads.
TOP_QUERIES = 10


def top_queries(ids: pa.Array, answers: Indices, looked: Indices) -> tuple[QueryTally, ...]:
    """The queries with the most answers, and those for which most rows were looked at. Idle ones are left out.

    >>> top_queries(pa.array(["a", "b"]), np.array([0, 2]), np.array([0, 5]))
    (QueryTally(query='b', answers=2, looked_rows=5),)
    """
    places = np.unique(np.concatenate([_largest(answers), _largest(looked)])).tolist()
    return tuple(QueryTally(ids[at].as_py(), int(answers[at]), int(looked[at])) for at in places)


def _largest(values: Indices) -> Indices:
    """The places of the largest values, the first of equal ones, without zeros."""
    places = np.argsort(-values, kind="stable")[:TOP_QUERIES]
    found: Indices = places[values[places] > 0]
    return found
