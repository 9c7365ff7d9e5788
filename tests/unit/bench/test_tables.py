"""The benchmark of a stream against a table: its data, and the pages that each strategy reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def table_workload(**changes):
    from bench.workloads import TableWorkload

    facts = {"name": "few", "rows": 8_000, "table_rows": 20_000, "batches": 4, "heap_gb": 1}
    return TableWorkload(**facts | changes)


def read_sales(workload) -> list[pa.Table]:
    from bench.data import input_dir, stream_file

    return [pq.read_table(stream_file(input_dir(workload), "s", n)) for n in range(workload.batches)]


@pytest.mark.parametrize("by_id", [True, False], ids=["popular ids first", "popularity scattered"])
def test_sales_follow_zipfs_law(by_id):
    from papers.shared.zipf import rank_shares

    workload = table_workload(by_id=by_id)
    sales = pa.concat_tables(read_sales(workload))
    assert sales.column("sale").to_pylist() == list(range(workload.rows))
    counts = np.bincount(sales.column("product").to_numpy(), minlength=workload.table_rows)
    expected = workload.rows * rank_shares(workload.table_rows, 1.0)[:100].sum()
    assert np.sort(counts)[-100:].sum() == pytest.approx(expected, rel=0.1)
    assert (counts[:100].sum() == pytest.approx(expected, rel=0.1)) == by_id


def test_products_are_one_file_of_rows_of_120_bytes():
    from bench.data import input_dir

    workload = table_workload()
    (path,) = (input_dir(workload) / "p").iterdir()
    products = pq.read_table(path)
    assert products.column("id").to_pylist() == list(range(workload.table_rows))
    assert products.nbytes / len(products) == pytest.approx(120, rel=0.05)
    assert len(set(products.column("note").to_pylist())) == len(products)


def page_through(workload, strategy: str, state: Path) -> list[dict]:
    import watersmeet as wm
    from bench.data import input_dir
    from bench.pages import note_reads, pages_of_ids, run_batches
    from watersmeet.local.join import LocalJoin
    from watersmeet.tables.source import PreparedTable

    sales = read_sales(workload)
    products = wm.table(str(input_dir(workload) / "p"), key="id", in_place=False, page_rows=10)
    schemas = {"s": sales[0].schema, "p": products}
    join = LocalJoin(schemas, on=workload.on, select=workload.select, state=str(state), strategy=strategy)
    source = note_reads(join)
    homes = pages_of_ids(PreparedTable.open(source), "id", workload.table_rows)
    assert (homes == np.arange(workload.table_rows) // 10).all()
    return list(run_batches(sales, join, source, homes))


@pytest.mark.parametrize(
    "strategy, reads, stray",
    [
        ("hybrid", "holding", lambda batch: 0),
        ("mesh", "pages", lambda batch: batch["pages"] - batch["holding"]),
        ("index", "rows", lambda batch: 0),
    ],
)
def test_which_pages_each_strategy_reads(strategy, reads, stray, tmp_path):
    workload = table_workload(rows=400, table_rows=5_000)
    batches = page_through(workload, strategy, tmp_path / "state")
    holding = [len({k // 10 for k in sales.column("product").to_pylist()}) for sales in read_sales(workload)]
    assert [batch["holding"] for batch in batches] == holding
    assert all(batch["results"] == batch["rows"] == 100 for batch in batches)
    # Nothing is kept from earlier batches in the first one.
    assert batches[0]["reads"] == batches[0][reads]
    assert batches[0]["stray"] == stray(batches[0])
    if strategy != "mesh":
        assert [batch["needed"] for batch in batches] == holding
        assert not any(batch["stray"] for batch in batches)


def test_pages_needed_are_found_in_the_state_afterwards(tmp_path):
    from bench.pages import pages_needed

    workload = table_workload(rows=400, table_rows=5_000)
    batches = page_through(workload, "hybrid", tmp_path / "state")
    assert pages_needed(tmp_path / "state" / "join") == [
        {"pages": batch["needed"], "bytes": batch["needed_bytes"], "of": batch["pages"], "copied": False}
        for batch in batches
    ]
    assert pages_needed(tmp_path / "no state") == []


def table_results(paging: list[dict], needed: list[int] | None = None):
    from bench.report import HYBRID, Results

    run = {"workload": "table-4m", "competitor": HYBRID}
    runs = [run | {"paging": paging}] if paging else []
    if needed is not None:
        runs.append(run | {"batches": [], "needed": [{"pages": pages} for pages in needed]})
    return Results(runs)


def paged(**changes) -> dict:
    batch = {"rows": 9, "results": 9, "pages": 5, "holding": 3, "needed": 3, "reads": 2, "stray": 0}
    return batch | changes


@pytest.mark.parametrize(
    "paging, on_spark, met",
    [
        ([paged(), paged(holding=2, needed=2)], [3, 2], True),
        ([paged(), paged(needed=4)], [3, 3], False),
        ([paged(), paged()], [3, 4], False),
        ([paged(), paged()], [3], False),
        ([paged()], None, None),
        ([], [3], None),
    ],
    ids=[
        "equal",
        "more than hold keys",
        "more on Spark",
        "a batch missing",
        "no run on Spark",
        "not counted",
    ],
)
def test_the_status_must_say_what_the_keys_say(paging, on_spark, met):
    from bench.tables import needed

    assert needed(table_results(paging, on_spark), "table-4m").met is met


@pytest.mark.parametrize(
    "paging, met",
    [
        ([paged(), paged()], True),
        ([paged(), paged(stray=1)], False),
        ([paged(), paged(results=8, reads=0)], False),
        ([], None),
    ],
    ids=["none", "one page too many", "a row without a result", "not counted"],
)
def test_a_page_without_a_key_is_one_too_many(paging, met):
    from bench.tables import strays

    assert strays(table_results(paging), "table-4m").met is met


def test_the_verdict_on_a_background_copy_shows_the_whole_run_too():
    from bench.report import CHOSEN, STATIC, Results
    from bench.tables import settled
    from bench.workloads import TABLE_GROUPS

    ours = {
        "batches": [{"batch": n, "seconds": 4.0 if n < 3 else 1.0} for n in range(6)],
        "needed": [{"copied": n >= 3} for n in range(6)],
    }
    theirs = {"batches": [{"batch": n, "seconds": 5.0} for n in range(6)]}
    runs = [
        {"workload": TABLE_GROUPS.name, "competitor": name, **run}
        for name, run in ((CHOSEN, ours), (STATIC, theirs))
    ]
    found = settled(Results(runs), TABLE_GROUPS.name, 3.0)
    assert "5.00x (1.000 s against 5.000 s, in the last 3 of 6)" in found.measured
    assert "all batches 2.86x (1.750 s)" in found.measured
