"""`python -m bench wide`: what a row with strings costs on its way in, in the sort, in the run and on its way out.

NEXMark's bids are joined with its auctions on the local driver, one task, no Spark: with all columns, and with the
numbers alone. The phases are calls of the operator, noted as in `timeline_daemon.py`; times are CPU.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from bench.events import AUCTION, BID, make_events
from bench.timeline_daemon import NOTES, Call, noted, noted_generator, replaced
from bench.timeline_facts import Span, innermost
from watersmeet.local.join import LocalJoin

SEED = 7
BATCH_EVENTS, BATCHES = 100_000, 10
# The first batches load modules and have no history to speak of.
WARM_UP = 3

# Phases by the calls that they are made of. Each moment belongs to the innermost.
CALLS: tuple[Call, ...] = (
    ("hash keys and find the order", "watersmeet.engine.ingest", "sort_rows"),
    ("move rows into the order", "watersmeet.engine.ingest", "take_rows"),
    ("describe the run", "watersmeet.engine.ingest", "write_run"),
    ("write the file and its checksum", "watersmeet.log.files", "LocalFiles.write"),
    ("verify a run at its first use", "watersmeet.log.runs", "RunReader._opened"),
    ("merge runs", "watersmeet.engine.operator", "merge_assigned"),
    ("gather results", "watersmeet.kernel.emit", "take_values"),
    ("gather results", "watersmeet.kernel.few", "take_rows"),
    ("weigh results", "watersmeet.kernel.emit", "row_bytes"),
)
GENERATORS: tuple[Call, ...] = (("look up keys", "watersmeet.engine.operator", "Operator.results"),)
REST = "agree, plan and all else"

Batch = Mapping[str, pa.Table]


def batches_of(texts: bool, events: int, count: int) -> list[Batch]:
    """Bids and auctions, with or without their texts."""
    found: list[Batch] = []
    for number in range(count):
        first = number * events
        rows = {
            "b": make_events(BID, first, first + events, SEED),
            "a": make_events(AUCTION, first, first + events, SEED),
        }
        found.append({name: one if texts else _numbers(one) for name, one in rows.items()})
    return found


def _numbers(rows: pa.Table) -> pa.Table:
    return rows.select([field.name for field in rows.schema if not pa.types.is_string(field.type)])


def measure(batches: Sequence[Batch], warm_up: int) -> tuple[dict[str, float], int, int]:
    """CPU seconds by phase of the batches that count, and their new rows and results."""
    schemas = {name: rows.schema for name, rows in batches[0].items()}
    select = [
        f"{name}.{column} AS {name}_{column}" for name, schema in schemas.items() for column in schema.names
    ]
    spent: dict[str, float] = defaultdict(float)
    rows = results = 0
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-wide-") as state,
        replaced(CALLS, noted),
        replaced(GENERATORS, noted_generator),
    ):
        join = LocalJoin(schemas, on="b.auction = a.id", select=select, state=state, tasks=1)
        for number, batch in enumerate(batches):
            NOTES.begin(0)
            began_s = time.process_time()
            found = join.count(**batch)
            whole_s = time.process_time() - began_s
            if number < warm_up:
                continue
            spans = [Span(label, 1e3 * begin, 1e3 * end, 1e3 * cpu) for label, begin, end, cpu in NOTES.spans]
            parts = innermost(spans)
            for part in parts:
                spent[part.label] += part.cpu_ms / 1e3
            spent[REST] += whole_s - sum(part.cpu_ms for part in parts) / 1e3
            rows += sum(one.num_rows for one in batch.values())
            results += found
    return spent, rows, results


def wide(
    events: Annotated[int, typer.Option(min=50, help="Events of a batch.")] = BATCH_EVENTS,
    batches: Annotated[
        int, typer.Option(min=WARM_UP + 1, help="Batches; the first ones do not count.")
    ] = BATCHES,
) -> None:
    """What a row with strings costs in each phase, beside one of numbers; no Spark, half a minute."""
    measured = {}
    for name, texts in (("numbers only", False), ("all columns", True)):
        made = batches_of(texts, events, batches)
        size = sum(one.nbytes for one in made[0].values()) / sum(one.num_rows for one in made[0].values())
        spent, rows, results = measure(made, WARM_UP)
        measured[f"{name}, {size:.0f} bytes a row"] = {label: 1e9 * s / rows for label, s in spent.items()}
    table = Table(
        "CPU ns for each new row", *measured, title=f"{results / rows:.2f} results for each new row"
    )
    labels = dict.fromkeys([label for label, _, _ in CALLS] + [label for label, _, _ in GENERATORS] + [REST])
    for label in labels:
        table.add_row(label, *(f"{found.get(label, 0.0):.0f}" for found in measured.values()))
    table.add_row("all", *(f"{sum(found.values()):.0f}" for found in measured.values()))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
