"""Similarity joins: vectors within a distance of each other, by an equality join on bucket codes.

    buckets = Buckets(radius=0.05, dimensions=64)
    near = wm.join(
        {"l": buckets.of(a, "v"), "r": buckets.of(b, "v")},
        on=buckets.near("l.v", "r.v"),
        select=["l.id", "r.id AS other"],
    )

A hash projects a vector on a random line and returns the number of the slot in which it lands (Datar et al. 2004: lines
with normal coordinates suit Euclidean distance). A bucket combines several hashes. A row has one bucket in each of
several tables. Two vectors meet if they share a bucket of any table: as a (r, 10r, 0.9, 0.1)-sensitive family, with a
probability of at least 0.9 at distance r and of at most 0.1 at distance 10r. The join then measures the distance of
those that meet, so all results are right, but some are missed.

    tables  hashes  width   at r    at 10 r
    1       any     any     0.9     0.275 at best: one table will not do
    2       2       5       0.914   0.075           the fewest hashes; widths from 4.65 to 5.8 do
    2       3       8       0.927   0.055           the default: more room on both sides for one product more
    3       5       6.85    0.902   0.004

More hashes put fewer distant vectors into a bucket, and also fewer neighbours. Each further table is one more copy of
every row in the state. A pair is emitted once: if it meets in several tables, the first counts.

The promised share of the pairs is not guaranteed for one data set. All rows share a few random lines, so if most pairs
lie in one dense group, they are found or missed together. Two machines whose arithmetic rounds a projection differently
may miss different pairs. A row's codes are computed once and travel with it, so no pair is emitted twice because of
that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import UsageError
from watersmeet.kernel.keys import mix, order_keys
from watersmeet.kernel.vectors import VectorLengths, vectors_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET: Final = "bucket"
# Followed by the number of a table: the row's bucket there, in the copies of the row for later tables.
EARLIER: Final = "bucket_"


@dataclass(frozen=True, slots=True)
class Buckets:
    """Random buckets for vectors of `dimensions` elements, in which neighbours within `radius` mostly meet.

    The same arguments give the same buckets in every process and release. Both sides of a join need the same. `width`
    is that of a hash's slots, in radii.

    >>> buckets = Buckets(radius=0.05, dimensions=64)
    >>> [round(buckets.meeting_probability(distance), 3) for distance in (0.05, 0.5)]
    [0.927, 0.055]
    """

    radius: float
    dimensions: int
    tables: int = 2
    hashes: int = 3
    width: float = 8.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("radius", "width"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise UsageError(f"{name}={value} must be a number above 0")
        for name in ("dimensions", "tables", "hashes"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)} must be at least 1")

    def of(self, frame: DataFrame, column: str) -> DataFrame:
        """The rows of a DataFrame, streaming or batch, once for each table, with their bucket codes.

        Rows whose vector is null, or holds a null, NaN or infinity, are near nothing: their codes are null.
        """
        kinds = dict(frame.dtypes)
        if column not in kinds:
            raise UsageError(f"there is no column {column}; the columns are {', '.join(kinds)}")
        if kinds[column] != "array<float>":
            raise UsageError(f"the column {column} is {kinds[column]}: cast it to array<float>")
        added = [BUCKET, *self._earlier]
        taken = [name for name in kinds if name.lower() in added]
        if taken:
            raise UsageError(f"the column {taken[0]} has the name of a bucket code: rename it")
        schema = type(frame.schema)(list(frame.schema.fields))
        for name in added:
            schema = schema.add(name, "long")
        return frame.mapInArrow(_Explode(self, column), schema)

    def near(self, left: str, right: str) -> str:
        """The join condition: two rows meet for the first time and are within the radius.

        >>> print(Buckets(radius=0.05, dimensions=64).near("l.v", "r.v"))
        l.bucket = r.bucket AND coalesce(l.bucket_0 <> r.bucket_0, true) AND vector_l2_distance(l.v, r.v) <= 0.05D
        """
        return f"{self.meeting(left, right)} AND vector_l2_distance({left}, {right}) <= {self.radius!r}D"

    def meeting(self, left: str, right: str) -> str:
        """The condition that two rows meet for the first time. Only the input's name of `l.v` is used."""
        one, other = left.partition(".")[0], right.partition(".")[0]
        before = [f"coalesce({one}.{name} <> {other}.{name}, true)" for name in self._earlier]
        return " AND ".join([f"{one}.{BUCKET} = {other}.{BUCKET}", *before])

    def explode(self, rows: pa.RecordBatch, column: str) -> Iterator[pa.RecordBatch]:
        """Do what `of` does for a batch of rows: one batch for each table. The rows themselves are not copied."""
        codes = self._codes_of(rows.column(column))
        for table in range(self.tables):
            batch = rows.append_column(BUCKET, codes[table])
            for number, name in enumerate(self._earlier):
                known = codes[number] if number < table else pa.nulls(rows.num_rows, pa.int64())
                batch = batch.append_column(name, known)
            yield batch

    def codes(self, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """The bucket codes of vectors, given as the rows of a matrix: one column for each table."""
        lines = self.tables * self.hashes
        normal = _normal(self.seed, (self.dimensions + 1) * lines).reshape(self.dimensions + 1, lines)
        # Where the slots of a line begin: uniform, as the distribution function of a normal number.
        shift = 0.5 * (1 + np.vectorize(math.erf)(normal[-1] / math.sqrt(2)))
        slots = np.floor(vectors.astype(np.float64) @ normal[:-1] / (self.width * self.radius) + shift)
        codes = np.empty((len(vectors), self.tables), np.int64)
        for table in range(self.tables):
            said = [slots[:, line] for line in range(table * self.hashes, (table + 1) * self.hashes)]
            keys = order_keys([pa.array(column) for column in (np.full(len(vectors), float(table)), *said)])
            codes[:, table] = keys.view(np.int64)
        return codes

    def meeting_probability(self, distance: float) -> float:
        """The probability that two vectors at this distance meet, over all seeds."""
        if distance == 0:
            return 1.0
        widths = self.width * self.radius / distance
        beside = math.sqrt(2 / math.pi) / widths * -math.expm1(-widths * widths / 2)
        same_slot = math.erf(widths / math.sqrt(2)) - beside
        return 1 - (1 - same_slot**self.hashes) ** self.tables

    @property
    def _earlier(self) -> list[str]:
        return [f"{EARLIER}{table}" for table in range(self.tables - 1)]

    def _codes_of(self, column: pa.Array) -> list[pa.Array]:
        vectors = vectors_of(column)
        known = np.ones(len(column), np.bool_) if vectors.nulls is None else ~vectors.nulls
        lengths = vectors.lengths[known]
        if (lengths != self.dimensions).any():
            found = lengths[lengths != self.dimensions][0]
            raise VectorLengths(f"a vector has {found} elements; these buckets are for {self.dimensions}")
        matrix = np.zeros((len(column), self.dimensions), np.float32)
        if known.any():
            matrix[known] = vectors.windows(self.dimensions)[vectors.starts[known]]
        finite = np.isfinite(matrix).all(axis=1)
        matrix[~finite] = 0
        codes = self.codes(matrix)
        return [pa.array(codes[:, table], mask=~(known & finite)) for table in range(self.tables)]


@dataclass(frozen=True, slots=True)
class _Explode:
    """The function that Spark's workers run."""

    buckets: Buckets
    column: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.buckets.explode(batch, self.column)


def _normal(seed: int, count: int) -> npt.NDArray[np.float64]:
    """Normal numbers from a seed, two from each pair of uniform ones (Box and Muller 1958).

    numpy's generators are not used: their streams may change with a release, and codes are kept in the state.
    """
    half = (count + 1) // 2
    start = mix(np.array([seed], np.uint64))
    words = mix(mix(np.arange(2 * half, dtype=np.uint64)) + start)
    uniform = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    length, angle = np.sqrt(-2 * np.log(uniform[:half])), 2 * np.pi * uniform[half:]
    return np.concatenate([length * np.cos(angle), length * np.sin(angle)])[:count]
