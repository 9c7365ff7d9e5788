"""Any rows, in any batches and page sizes, come out of the form once, each where it is sought."""

from __future__ import annotations

import tempfile

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.table_helpers import check_table
from watersmeet.log.files import open_files
from watersmeet.tables.form import FormSource
from watersmeet.tables.source import no_report
from watersmeet.tables.writing import write_form

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


@given(tables(), st.integers(1, 12), st.integers(1, 12))
def test_every_row_with_a_key_is_in_the_form_once(case, page_rows, batch_rows):
    keys, rows = case
    with tempfile.TemporaryDirectory() as place:
        batches = rows.combine_chunks().to_batches(max_chunksize=batch_rows)
        facts = write_form(
            open_files(place), "tables/x", "t", batches, rows.schema, keys, no_report, page_rows=page_rows
        )
        opened = FormSource(place, "tables/x", facts.version).open()
        assert facts.rows + facts.null_rows == rows.num_rows
        assert (opened.index.rows <= page_rows).all()
        check_table(opened, rows)
