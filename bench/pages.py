"""Which pages of a table a join reads: one strategy on one workload, batch by batch, without Spark.

`python -m bench.pages --competitor watersmeet-hybrid --workload table-4m --out x.json`. The tasks run one after the
other in this process, by the same operator over the same files, and every page that they ask the table for is noted.
Which pages *hold* keys of a batch is found by another way: all pages are read beforehand and each id is put down under
its page; neither the index nor the operator's search has a part in it. Counts do not depend on the machine.

A page that a task has kept from an earlier batch is needed and not read. Here all tasks share what is kept; on Spark
each worker keeps its own, so that a page is read there by every worker that needs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import typer

import watersmeet as wm
from bench.data import input_dir, stream_file
from bench.measured import write_measured
from bench.report import LOOKUPS
from bench.workloads import CORES, TableWorkload, by_name
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.schemes.table.facts import PagePlan
from watersmeet.tables.source import OpenTable, PreparedTable

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NotedSource(PreparedTable):
    """A source that notes the pages that are read through it."""

    read: list[int] = field(default_factory=list)

    def open(self) -> NotedTable:
        return NotedTable(PreparedTable.open(self), self.read)


class NotedTable(OpenTable):
    def __init__(self, inner: OpenTable, noted: list[int]):
        self.inner, self.noted = inner, noted
        self.source, self.version = inner.source, inner.version
        self.schema, self.index = inner.schema, inner.index

    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        self.noted.append(page)
        return self.inner.read(page, columns)

    def read_many(self, pages: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for page, rows in self.inner.read_many(pages, columns):
            self.noted.append(page)
            yield page, rows

    def lookup(self, keys: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch | None:
        return self.inner.lookup(keys, columns)

    def newest(self, *, make: bool = True) -> PreparedTable | None:
        return self.inner.newest(make=make)

    def close(self) -> None:
        self.inner.close()


def pages_of_ids(table: OpenTable, key: str, ids: int) -> Numbers:
    """The page of each id from 0 on, from the pages' own rows."""
    found = np.full(ids, -1, np.int64)
    for page in range(len(table.index)):
        found[table.read(page, [key]).column(key).to_numpy()] = page
    return found


def note_reads(join: LocalJoin) -> NotedSource:
    """Put a source that takes notes into a join that has not begun."""
    spec = join.operator.spec
    assert spec.table is not None
    given = spec.table.source
    source = NotedSource(given.place, given.folder, given.version, given.origin, given.cache, given.relation)
    join.operator = replace(join.operator, spec=replace(spec, table=replace(spec.table, source=source)))
    return source


def run_batches(
    batches: Sequence[pa.Table], join: LocalJoin, source: NotedSource, homes: Numbers
) -> Iterator[dict[str, Any]]:
    """For each batch the pages that hold its keys, those that the status says it needed, and those that were read."""
    for batch in batches:
        holding = np.unique(homes[batch.column("product").to_numpy()])
        results, read = join.count(s=batch), np.array(source.read, np.int64)
        source.read.clear()
        plan = wm.status(join.state).joins[0].plan
        assert isinstance(plan, PagePlan)
        yield {
            "rows": len(batch),
            "results": results,
            "pages": plan.table.pages,
            "holding": len(holding),
            "needed": plan.pages_read,
            "needed_bytes": plan.bytes_read,
            "reads": len(read),
            "stray": int((~np.isin(read, holding)).sum()),
        }


def measure(competitor: str, workload: TableWorkload, scratch: Path) -> dict[str, Any]:
    files = input_dir(workload)
    batches = [pq.read_table(stream_file(files, "s", number)) for number in range(workload.batches)]
    join = LocalJoin(
        {"s": batches[0].schema, "p": wm.table(str(files / "p"), key=workload.key, in_place=False)},
        on=workload.on,
        select=workload.select,
        state=str(scratch / "state"),
        tasks=CORES,
        strategy=LOOKUPS[competitor],
    )
    source = note_reads(join)
    homes = pages_of_ids(PreparedTable.open(source), workload.key, workload.table_rows)
    found = []
    for batch in run_batches(batches, join, source, homes):
        found.append(batch)
        print(json.dumps({"batch": len(found), "of": workload.batches}), flush=True)
    return {"paging": found}


def pages_needed(state: Path) -> list[dict[str, int | bool]]:
    """What the status said after each batch of a run; nothing if it was no join with a table."""
    if not state.exists():
        return []
    (query,) = state.iterdir()
    files = open_files(str(query))
    plans = [read_manifest(files, name).plan.scheme for name in list_manifests(files)]
    return [
        {
            "pages": p.pages_read,
            "bytes": p.bytes_read,
            "of": p.table.pages,
            # Of a table that was read in place when the query started.
            "copied": p.decoding is not None and p.table.folder == p.decoding.copy_folder,
        }
        for p in plans
        if isinstance(p, PagePlan)
    ]


def main(
    competitor: Annotated[str, typer.Option(help=f"One of: {', '.join(LOOKUPS)}.")],
    workload: Annotated[str, typer.Option(help="A name of bench/workloads.py, or NAME-quick.")],
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")],
) -> None:
    """Note which pages each batch reads, and write their numbers as JSON."""
    work = by_name(workload)
    if not isinstance(work, TableWorkload):
        raise typer.BadParameter(f"{workload} has no table")
    write_measured(out, competitor, workload, lambda scratch: measure(competitor, work, scratch))


if __name__ == "__main__":
    typer.run(main)
