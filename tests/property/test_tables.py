"""Any rows, in any batches and page sizes, come out of the sorted copy once, each where it is sought."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.table_helpers import check_table
from watersmeet.log.files import open_files
from watersmeet.tables.sorted_copy import write_sorted_copy
from watersmeet.tables.source import PreparedTable, no_report
from watersmeet.tables.spec import table

# Few values, so that keys repeat and fill pages; text that agrees in its first bytes.
KEYS = {
    pa.int64(): st.integers(-2, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    pa.string(): st.sampled_from(["", "a", "aaaaaaaaa", "aaaaaaaab", "é", "\U0001f600"]),
    pa.float64(): st.sampled_from([-0.0, 0.0, float("nan"), float("inf"), -1.5]),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], pa.Table]:
    kinds = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(st.none() | KEYS[kind] for kind in kinds)), max_size=40))
    names = [f"k{place}" for place in range(len(kinds))]
    columns = {
        name: pa.array([row[place] for row in rows], kind)
        for place, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }
    return names, pa.table({**columns, "n": pa.array(range(len(rows)), pa.int32())})


@dataclass(frozen=True)
class Rows:
    """A table's rows in batches."""

    whole: pa.Table
    batch_rows: int
    fingerprint: str = "x"

    @property
    def schema(self) -> pa.Schema:
        return self.whole.schema

    def rows(self) -> None: ...

    def batches(self, label: str) -> Iterator[pa.RecordBatch]:
        yield from self.whole.combine_chunks().to_batches(max_chunksize=self.batch_rows)


@given(tables(), st.integers(1, 12), st.integers(1, 12))
def test_every_row_with_a_key_is_in_the_sorted_copy_once(case, page_rows, batch_rows):
    keys, rows = case
    with tempfile.TemporaryDirectory() as place:
        spec = table("t.parquet", keys, page_rows=page_rows)
        entry = write_sorted_copy(open_files(place), "tables/x", spec, Rows(rows, batch_rows), no_report)
        opened = PreparedTable(place, "tables/x", entry.version).open()
        assert entry.rows + entry.null_rows == rows.num_rows
        assert (opened.index.rows <= page_rows).all()
        check_table(opened, rows)
