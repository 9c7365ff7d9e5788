"""What the hub is measured with: ten streams of ten attributes, and 4-way chain joins over them.

Chains are drawn as in the paper's experiments (Idreos et al. 2008, section 8): four of the ten streams, and an attribute
on each side of an edge, at random. The paper's 100 values are too few for a history: a value would find thousands of rows
in each stream. So values are uniform over a domain that follows from the number of answers (`domain_for`).

    templates    a chain on the first eight attributes, and a constant that the tenth of its first stream must equal
    shapes       a chain on any attributes, without constants, and no other query like it

The ninth attribute is the tenth divided by a hundred. So one query of a template that compares the ninth has the answers
of a hundred queries that compare the tenth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from papers.rjoin.sim.workload import Chains, Schema, draw_chains

SEED = 20260101
STREAMS, ATTRIBUTES, WAYS = 10, 10, 4
NAMES = [f"R{number}" for number in range(STREAMS)]
SCHEMA = pa.schema([(f"a{number}", pa.int64()) for number in range(ATTRIBUTES)])
# Queries of a template, and the values of the attribute that their constants are compared with: one in forty rows of the
# first stream is for one of them.
VARIANTS, CONSTANTS = 100, 4_000
GROUPS = CONSTANTS // VARIANTS
GROUP, CONSTANT = "a8", "a9"
JOINED = 8


@dataclass(frozen=True, slots=True)
class Load:
    """Batches of `batch_rows` rows over all streams, with values below `domain`.

    If `compared`, the last two attributes are for constants. Otherwise queries join by all attributes.
    """

    domain: int
    batch_rows: int
    compared: bool
    seed: int = SEED

    def batch(self, number: int) -> dict[str, pa.Table]:
        """The rows of a batch, by stream."""
        rng = np.random.default_rng([self.seed, number])
        rows = self.batch_rows // STREAMS
        found = {}
        for name in NAMES:
            columns = list(rng.integers(0, self.domain, (ATTRIBUTES, rows)))
            if self.compared:
                columns[9] = rng.integers(0, CONSTANTS, rows)
                columns[8] = columns[9] // VARIANTS
            found[name] = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)
        return found


def domain_for(answers: float, chains: float, batch_rows: int, before_rows: int) -> int:
    """The number of values at which a batch has that many answers, after `before_rows` rows.

    n rows of each stream have n^4 / domain^3 combinations that satisfy a chain.
    """
    before, after = before_rows / STREAMS, (before_rows + batch_rows) / STREAMS
    return max(2, round((chains * (after**WAYS - before**WAYS) / answers) ** (1 / (WAYS - 1))))


def template_queries(
    templates: int, variants: int = VARIANTS, first: int = 0, seed: int = SEED
) -> dict[str, str]:
    """Queries of some templates that differ in a constant: `variants` of each, from the constant `first` on."""
    texts = _chains(templates, JOINED, seed)
    return {
        f"t{number}-{constant}": f"{text} AND {source}.{CONSTANT} = {_constant(number, constant)}"
        for number, (source, text) in enumerate(texts)
        for constant in range(first, first + variants)
    }


def grouped_queries(templates: int, seed: int = SEED) -> dict[str, str]:
    """A query of each template, with all answers of its `VARIANTS` queries."""
    texts = _chains(templates, JOINED, seed)
    return {
        f"g{number}": f"{text} AND {source}.{GROUP} = {number % GROUPS}"
        for number, (source, text) in enumerate(texts)
    }


def shape_queries(
    count: int, seed: int = SEED, attributes: int = ATTRIBUTES, prefix: str = "s"
) -> dict[str, str]:
    """Queries of random shapes, on the first attributes. `JOINED` is all that has no constants."""
    return {f"{prefix}{number}": text for number, (_, text) in enumerate(_chains(count, attributes, seed))}


def _constant(template: int, number: int) -> int:
    return (template % GROUPS * VARIANTS + number) % CONSTANTS


def _chains(count: int, attributes: int, seed: int) -> list[tuple[str, str]]:
    """The first stream and the text of each chain. It shows an attribute of both ends."""
    chains: Chains = draw_chains(
        Schema(STREAMS, attributes), count, WAYS, np.random.default_rng([seed, count])
    )
    return [
        (NAMES[streams[0]], _text([NAMES[one] for one in streams], left, right))
        for streams, left, right in zip(
            chains.relations.tolist(), chains.left.tolist(), chains.right.tolist(), strict=True
        )
    ]


def _text(streams: list[str], left: list[int], right: list[int]) -> str:
    joined = " AND ".join(
        f"{streams[edge]}.a{one} = {streams[edge + 1]}.a{other}"
        for edge, (one, other) in enumerate(zip(left, right, strict=True))
    )
    return f"SELECT {streams[0]}.a{left[0]} AS x, {streams[-1]}.{CONSTANT} AS y FROM {', '.join(streams)} WHERE {joined}"


def told(queries: Mapping[str, str]) -> pa.Table:
    """Commands that add these queries."""
    return pa.table({"op": ["add"] * len(queries), "id": list(queries), "sql": list(queries.values())})
