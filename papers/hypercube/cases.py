"""What is joined: one case for each point on the x axis of Figures 4 to 7.

Zipf, both inputs over the same 1,000 keys with the same ranks, so that a key is heavy in both; suppliers and lineitems in
TPC-H's numbers, where it is heavy in lineitem alone; points in buckets of similar ones, joined with themselves. The paper gives
neither rows nor keys nor the alpha of Figure 5 nor the values of r: these are ours. There are as many rows at each point as it
takes PHJ a second or more with 48 workers, since what operators do once in a batch would decide over milliseconds; all
operators have the same rows. In Figure 6 that is so at the strongest skew alone: with less, no worker has enough of the rows,
and it would take hundreds of millions.

Figure 6 has suppliers of all regions. With Query 5's one region, the heaviest supplier is in it or not by chance, and the skew
has results or none. Keys alone decide who does what, so other columns of TPC-H are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from papers.hypercube.histograms import as_matrix, histograms
from papers.hypercube.operators import JB, JB2, JB6, JBS, PHJ, SHC, Operator
from papers.shared.queries import SEED, Inputs, Query
from papers.shared.zipf import draw_keys
from watersmeet.similar import Buckets

KEYS = 1_000
# The skew at which Figure 5 varies the input, and from which on a join is called skewed.
ALPHA = 1.0

ZIPF = Query(
    "Zipf",
    "R(A, B) x S(B, C), B by Zipf's law",
    {"r": "", "s": ""},
    "r.b = s.b",
    ("r.a", "r.b", "s.c"),
    key="b",
)

TPCH = Query(
    "TPC-H",
    "suppliers x lineitems on suppkey, lineitem's by Zipf's law",
    {"s": "", "l": ""},
    "s.suppkey = l.suppkey",
    ("s.suppkey", "s.nation", "l.orderkey"),
    key="suppkey",
)
SUPPLIERS, LINES, NATIONS = 10_000, 6_000_000, 25

SIMILAR = Query(
    "Similar",
    "points that share a bucket, joined with themselves",
    {"l": "", "r": ""},
    "l.bucket = r.bucket",
    ("l.id", "r.id AS other"),
    key="bucket",
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run: the values of each x axis, with rows of both inputs together by alpha, the scale of TPC-H by alpha, and
    points by distance.

    `rounds` are those of 48 tasks, of which the fastest counts; `once` are cases of one round, which take long and whose time is
    mostly that of results, which are counted. On Spark each runs once, in `spark_batches`, over the first rows of a case: no
    more than have `spark_results`, nor than `spark_rows`. `one_key_rows` are the rows of the two joins that tell what a result
    costs on Spark, in each input, and `one_key_rounds` how often they run.
    """

    alphas: Mapping[float, int]
    inputs: tuple[int, ...]
    scales: Mapping[float, float]
    radii: Mapping[float, int]
    batches: int
    rounds: int
    once: frozenset[Case]
    spark_batches: int
    spark_results: int
    spark_rows: int
    one_key_rows: tuple[int, int]
    one_key_rounds: int

    def rounds_of(self, case: Case) -> int:
        """How often each operator runs with 48 tasks."""
        return 1 if case in self.once else self.rounds

    @property
    def strongest(self) -> float:
        """The strongest skew of Figure 6."""
        return max(self.scales)


@dataclass(frozen=True, slots=True)
class Axis:
    """What a figure varies: its sign in sentences, its name, how its values are written, and its scale."""

    sign: str
    name: str
    form: str = "{:g}"
    log: bool = False

    def value(self, x: float) -> str:
        return self.form.format(x)

    def text(self, x: float) -> str:
        return f"{self.sign} = {self.value(x)}"


AXES = {
    "fig4": Axis("alpha", "alpha of Zipf's law"),
    "fig5": Axis("IN", "rows of both inputs", "{:,.0f}"),
    "fig6": Axis("alpha", "alpha of Zipf's law"),
    "fig7": Axis("r", "distance r (log)", log=True),
}


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One point of a figure."""

    figure: str
    x: float

    @property
    def text(self) -> str:
        return f"{self.figure}, {AXES[self.figure].text(self.x)}"


def cases_for(figure: str, size: Size) -> list[Case]:
    values: dict[str, tuple[float, ...]] = {
        "fig4": tuple(size.alphas),
        "fig5": size.inputs,
        "fig6": tuple(size.scales),
        "fig7": tuple(size.radii),
    }
    return [Case(figure, x) for x in values.get(figure, ())]


# What Figure 6 is compared with: a key is heavy in both inputs.
MANY_MANY = Case("fig4", ALPHA)


def operators_of(case: Case) -> tuple[Operator, ...]:
    """Those that run with 48 tasks; with two, JB has one group whatever it is told."""
    # Where no key is heavy in both inputs few groups only look rows up more often: 8.5 times with three, 24.5 times with one.
    jbs = (JB, JB6, JB2) if case.figure == "fig6" else JBS
    return (PHJ, *jbs, SHC)


def make_inputs(case: Case, size: Size) -> Inputs:
    """The rows of a case."""
    if case.figure == "fig4":
        return zipf_inputs(size.alphas[case.x], case.x)
    if case.figure == "fig5":
        return zipf_inputs(round(case.x), ALPHA)
    if case.figure == "fig6":
        return supplier_inputs(size.scales[case.x], case.x)
    return similar_inputs(size.radii[case.x], case.x)


def zipf_inputs(rows: int, alpha: float) -> Inputs:
    """`rows` rows in all, half of them in each input."""
    rng = np.random.default_rng((SEED, round(100 * alpha), rows))
    # One draw for both, since a draw also says which key has which rank.
    return _zipf(*np.split(draw_keys(np.arange(KEYS), rows // 2 * 2, alpha, rng), 2))


def supplier_inputs(scale: float, alpha: float) -> Inputs:
    """Each lineitem has one supplier, and so one result."""
    rng = np.random.default_rng((SEED, round(100 * alpha), round(1000 * scale)))
    suppliers, lines = np.arange(round(SUPPLIERS * scale)), round(LINES * scale)
    return Inputs(
        TPCH,
        {
            "s": pa.table({"suppkey": rng.permutation(suppliers), "nation": suppliers % NATIONS}),
            "l": pa.table(
                {"suppkey": draw_keys(suppliers, lines, alpha, rng), "orderkey": np.arange(lines) // 4}
            ),
        },
    )


def first_rows(inputs: Inputs, most_results: int, most_rows: int) -> Inputs:
    """The first rows of both inputs, in proportion: about `most_results` results, and at most `most_rows` rows."""
    results, rows = inputs.count_results(), sum(inputs.rows)
    part = min(1.0, (most_results / max(1, results)) ** 0.5, most_rows / rows)
    return Inputs(
        inputs.query,
        {side: table.slice(0, max(1, round(part * len(table)))) for side, table in inputs.tables.items()},
    )


def one_key_inputs(rows: int) -> Inputs:
    """`rows` rows in each input, of one key: one task of PHJ gives out all results."""
    return _zipf(np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def _zipf(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> Inputs:
    return Inputs(
        ZIPF,
        {
            "r": pa.table({"b": left, "a": np.arange(len(left))}),
            "s": pa.table({"b": right, "c": np.arange(len(right))}),
        },
    )


def similar_inputs(points: int, radius: float) -> Inputs:
    """Generated histograms, once for each table of buckets, against themselves.

    A pair that shares the buckets of several tables comes out for each of them, as often as the codes are equal.
    """
    vectors = as_matrix(histograms(points, seed=SEED))
    codes = Buckets(radius, dimensions=vectors.shape[1], seed=SEED).codes(vectors)
    rows = pa.table(
        {
            "bucket": codes.reshape(-1),
            "id": np.repeat(np.arange(points), codes.shape[1]),
        }
    )
    orders = (np.random.default_rng((SEED, place)).permutation(len(rows)) for place in range(2))
    return Inputs(
        SIMILAR, {side: rows.take(order) for side, order in zip(SIMILAR.sides, orders, strict=True)}
    )
