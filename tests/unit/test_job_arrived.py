"""Rows that came in with a batch, from the manifests of a join."""

from __future__ import annotations

import pyarrow as pa

from tests import life
from watersmeet.jobs.arrived import count_rows_in
from watersmeet.jobs.progress import Batches
from watersmeet.log.files import LocalFiles

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})


def rows(count: int) -> pa.Table:
    return pa.table({"k": [None, *range(count - 1)], "x": range(count)}, schema=SCHEMA)


def test_rows_in_are_those_that_reached_the_join(tmp_path):
    join = life.start({"l": SCHEMA, "r": SCHEMA}, tmp_path)
    join.batch(l=rows(3), r=rows(5))
    join = life.restarted(join)
    join.batch(l=rows(4))
    spec = join.operator.spec
    (query,) = LocalFiles(tmp_path / spec.name).folders()
    reported = [Batches(number, number, rows_in=2, rows_out=0, ms=9) for number in range(3)]
    found = count_rows_in(LocalFiles(tmp_path), [spec, spec], query, reported)
    assert [batch.rows_in for batch in found] == [8, 4, 0]
    assert found[0].ms == 9
