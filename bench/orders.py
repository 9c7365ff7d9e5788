"""Whether the chosen orders of a walk keep up with the best fixed ones, when the fan-outs swap in the middle.

`python -m bench.orders --competitor watersmeet --workload path-swap --out x.json`. A path a - b - c - d is joined on the
local driver, once with the orders that the plan chooses, and once with each fixed order of the terms that have a choice:
new rows of b and of c. Two things are compared: work, the rows that are looked up and bound, since it is the same on
any machine, and CPU time, in which the samples for the orders count too.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

import watersmeet as wm
from bench.graphs import SwapWorkload
from bench.measured import write_measured
from bench.report import OURS, Finding, Results
from bench.workloads import by_name
from watersmeet.engine.operator import Operator
from watersmeet.local.join import LocalJoin
from watersmeet.model.tally import total_terms
from watersmeet.schemes.delta.orders import TermOrder
from watersmeet.schemes.delta.scheme import Delta, DeltaPlan
from watersmeet.schemes.scheme import BatchFacts

CHOSEN = "chosen"
# The walks from b and from c that a path allows.
_FROM_B, _FROM_C = ("acd", "cad", "cda"), ("dba", "bda", "bad")
# Times the best fixed order, in all batches from this many after a change on.
MOST_OF_BEST, SETTLED_BATCHES = 1.2, 3
# The lives are run in turn, this many times each: CPU times of one run differ by a third.
ROUNDS = 5
# What is compared, and its name.
_COMPARED = {"work": "work", "cpu_s": "CPU time"}


@dataclass(frozen=True, slots=True)
class FixedDelta(Delta):
    """The scheme with orders that never change."""

    fixed: tuple[TermOrder, ...] = ()

    def plan(self, facts: BatchFacts) -> DeltaPlan:
        return DeltaPlan(self.inputs, self.fixed)


def fix(join: LocalJoin, orders: Sequence[TermOrder]) -> None:
    spec = join.operator.spec
    assert isinstance(spec.scheme, Delta)
    scheme = FixedDelta(spec.scheme.arrangements, spec.scheme.graph, tuple(orders))
    join.operator = Operator(replace(spec, scheme=scheme), join.clock)


def run_orders(
    workload: SwapWorkload, batches: Sequence[dict[str, pa.Table]], state: Path, orders: Sequence[TermOrder]
) -> Iterator[dict[str, Any]]:
    """Results, work and CPU seconds of each batch; without orders they are chosen."""
    schemas = {name: rows.schema for name, rows in batches[0].items()}
    join = LocalJoin(schemas, on=workload.on, select=workload.select, state=str(state))
    if orders:
        fix(join, orders)
    for batch in batches:
        started_s = time.process_time()
        results = join.count(**batch)
        cpu_s = time.process_time() - started_s
        (status,) = wm.status(str(state)).joins
        work = sum(term.work for term in total_terms(status.tallies).values())
        yield {"results": results, "work": work, "cpu_s": cpu_s}


def measure(workload: SwapWorkload, scratch: Path) -> dict[str, Any]:
    columns = [workload.batches_of(number) for number in range(len(workload.relations))]
    batches = [dict(zip(workload.inputs, rows, strict=True)) for rows in zip(*columns, strict=True)]
    lives = {CHOSEN: ()} | {
        f"b:{b} c:{c}": (TermOrder("b", tuple(b)), TermOrder("c", tuple(c)))
        for b, c in itertools.product(_FROM_B, _FROM_C)
    }
    rounds: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in lives}
    for number, (name, orders) in enumerate(list(lives.items()) * ROUNDS):
        print(json.dumps({"batch": number, "of": len(lives) * ROUNDS}), flush=True)
        rounds[name].append(list(run_orders(workload, batches, scratch / str(number), orders)))
    return {"change": workload.change, "orders": {name: in_the_median(of) for name, of in rounds.items()}}


def in_the_median(rounds: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The batches of a life that was run several times: results and work are the same, the CPU time is the median's.

    >>> in_the_median([[{"work": 7, "cpu_s": cpu_s}] for cpu_s in (3.0, 1.0, 2.0)])
    [{'work': 7, 'cpu_s': 2.0}]
    """
    return [
        same[0] | {"cpu_s": statistics.median(batch["cpu_s"] for batch in same)}
        for same in zip(*rounds, strict=True)
    ]


def near_best(results: Results, workload: str) -> list[Finding]:
    """The chosen orders against the best fixed ones: before the fan-outs change, and after."""
    runs = [run for run in results.of(workload, OURS) if "orders" in run]
    names = f"{workload}: before the fan-outs swap", f"{workload}: from {SETTLED_BATCHES} batches after"
    demands = [(name, what) for what in _COMPARED for name in names]
    if not runs:
        return [Finding(*_demanded(*demand), "-", None) for demand in demands]
    (run,) = runs
    lives, change = run["orders"], run["change"]
    batches = len(lives[CHOSEN])
    if any([b["results"] for b in life] != [b["results"] for b in lives[CHOSEN]] for life in lives.values()):
        return [
            Finding(*_demanded(*demand), "the orders have different results", False) for demand in demands
        ]
    spans = dict(
        zip(names, (slice(SETTLED_BATCHES, change), slice(change + SETTLED_BATCHES, batches)), strict=True)
    )
    return [_against_best(lives, name, what, spans[name]) for name, what in demands]


def _demanded(name: str, what: str) -> tuple[str, str]:
    """A demand and its target."""
    return f"{name}, {_COMPARED[what]}", f"<= {MOST_OF_BEST:g}x that of the best fixed order"


def _against_best(lives: dict[str, Any], name: str, what: str, span: slice) -> Finding:
    def total(life: str) -> float:
        return float(sum(batch[what] for batch in lives[life][span]))

    fixed = [life for life in lives if life != CHOSEN]
    best, worst = (choose(fixed, key=total) for choose in (min, max))
    ratio = total(CHOSEN) / total(best)
    said = f"{ratio:.2f}x of {best} (worst: {total(worst) / total(best):.2f}x)"
    return Finding(*_demanded(name, what), said, ratio <= MOST_OF_BEST)


def main(
    competitor: Annotated[str, typer.Option(help=f"Only {OURS}.")],
    workload: Annotated[str, typer.Option(help="A name of bench/graphs.py whose fan-outs swap.")],
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")],
) -> None:
    """Run a path with chosen and with all fixed orders, and write the work of each batch as JSON."""
    work = by_name(workload)
    if not isinstance(work, SwapWorkload):
        raise typer.BadParameter(f"the fan-outs of {workload} do not change")
    write_measured(out, competitor, workload, lambda scratch: measure(work, scratch))


if __name__ == "__main__":
    typer.run(main)
