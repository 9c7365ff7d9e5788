"""Kept steps against steps that are looked up again: `python -m bench.hub_kept`.

Each load runs on the local driver in this process: the same batches with `keep` set to `never`, `auto` and `always`, one
after the other in turn. CPU time is that of a batch and of both tasks. Rows come in full batches from the beginning, as the
choice falls after the first ones, and what is kept is merged like any other run.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.hub_load import SEED, Load, domain_for, shape_queries, template_queries
from bench.hub_local import MeasuredHub, Timed
from bench.many_state import scratch
from watersmeet.model.keep import Keep

# The choice falls in batch 4, and is in force from batch 5 on. Old combinations come then, and are looked in from 6 on.
WARM_UP, ROUNDS = 7, 5


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    load: Load
    queries: Mapping[str, str]


def cases(batch_rows: int, scale: int) -> list[Case]:
    """As in `python -m bench hub`: templates with a selective constant, and random shapes."""
    mean = round(batch_rows * (WARM_UP + ROUNDS / 2))

    def load(chains: float, *, compared: bool) -> Load:
        return Load(domain_for(batch_rows, chains, batch_rows, mean), batch_rows, compared)

    templates, shapes = 100 // scale, 10_000 // scale
    return [
        Case(
            f"{templates * 100:,} queries of {templates} templates",
            load(templates / 40, compared=True),
            template_queries(templates),
        ),
        Case(f"{shapes:,} queries of random shapes", load(shapes, compared=False), shape_queries(shapes)),
    ]


def measured(case: Case, ways: Sequence[str]) -> dict[str, tuple[list[Timed], int, int]]:
    """The batches of each way, and the templates that keep something and the rows that are kept at the end."""
    with ExitStack() as stack:
        hubs = {
            way: MeasuredHub(Path(stack.enter_context(scratch())), case.load, case.queries, keep=way)
            for way in ways
        }
        found: dict[str, list[Timed]] = {way: [] for way in ways}
        for number in range(WARM_UP + ROUNDS):
            for way in (*ways[number % len(ways) :], *ways[: number % len(ways)]):
                batch = hubs[way].timed()
                if number >= WARM_UP:
                    found[way].append(batch)
        return {way: (found[way], *hubs[way].kept()) for way in ways}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hub_kept", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a batch (%(default)s)")
    parser.add_argument("--scale", type=int, default=1, help="a fraction of the queries (%(default)s)")
    parser.add_argument("--case", type=int, default=None, help="one of the loads, 0 or 1")
    parser.add_argument("--ways", nargs="*", default=[Keep.NEVER, Keep.AUTO, Keep.ALWAYS])
    options = parser.parse_args()
    table = Table(
        "load", "keep", "templates that keep", "kept rows", "taking in", "planning", "answers", "batch", "ratio",
        title=f"CPU time of a batch, medians; seed {SEED}",
    )  # fmt: skip
    for number, case in enumerate(cases(options.rows, options.scale)):
        if options.case not in (None, number):
            continue
        found = measured(case, options.ways)
        answers = {way: [batch.found for batch in batches] for way, (batches, *_) in found.items()}
        assert len(set(map(tuple, answers.values()))) == 1, f"other answers: {answers}"
        base = statistics.median(batch.cpu_s for batch in found[options.ways[0]][0])
        for way, (batches, templates, rows) in found.items():
            parts = (
                statistics.median(one.ingest_s for one in batches),
                statistics.median(one.plan_s for one in batches),
                statistics.median(sum(one.answer_s) for one in batches),
                statistics.median(one.cpu_s for one in batches),
            )
            shown = (f"{part:.3f} s" for part in parts)
            table.add_row(case.name, way, str(templates), f"{rows:,}", *shown, f"{parts[-1] / base:.2f}")
    Console(width=150).print(table)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
