"""Order words: 64 bits for each value that are ordered as Spark orders the values."""

from __future__ import annotations

import pyarrow as pa

from watersmeet.kernel.sorted import Keys
from watersmeet.model.types import SqlType


def words(column: pa.Array, kind: SqlType) -> Keys:
    """A word for each value of a column without nulls that holds values of `kind` (or narrower integers)."""
    raise NotImplementedError
