"""NEXMark events, and what the suites nexmark, window and scale make of their runs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest


def events(kind: str, first: int = 500_000, last: int = 550_000, seed: int = 7) -> pa.Table:
    from bench.events import make_events

    return make_events(kind, first, last, seed)


def test_events_are_the_same_each_time_and_in_the_right_proportions():
    from bench.events import AUCTION, BID, PERSON

    assert [len(events(kind)) for kind in (PERSON, AUCTION, BID)] == [1_000, 3_000, 46_000]
    assert events(BID).equals(events(BID))
    assert not events(BID).equals(events(BID, seed=8))


def test_ids_continue_from_one_batch_to_the_next():
    from bench.events import AUCTION, PERSON

    for kind in (PERSON, AUCTION):
        ids = pa.concat_tables([events(kind, 0, 5_000), events(kind, 5_000, 10_000)])["id"].to_numpy()
        assert (np.diff(ids) == 1).all()
        assert ids[0] == 1_000


def test_half_of_the_bids_are_for_the_hot_auction_and_the_others_for_open_ones():
    from bench.events import AUCTION, BID

    bids, auctions = events(BID), events(AUCTION)
    # The newest auction at each bid: those of its epoch are before it.
    newest = np.repeat(auctions["id"].to_numpy()[2::3], 46)
    chosen = bids["auction"].to_numpy()
    hot = chosen == (newest - 1_000) // 100 * 100 + 1_000
    assert hot.mean() == pytest.approx(0.5, abs=0.02)
    assert (chosen[~hot] >= newest[~hot] - 100).all()
    assert (chosen[~hot] <= newest[~hot] + 10).all()


def test_three_of_four_auctions_have_the_hot_seller():
    from bench.events import AUCTION, PERSON

    newest = np.repeat(events(PERSON)["id"].to_numpy(), 3)
    sellers = events(AUCTION)["seller"].to_numpy()
    hot = sellers == (newest - 1_000) // 100 * 100 + 1_000
    assert hot.mean() == pytest.approx(0.75, abs=0.03)
    assert (np.abs(newest - sellers)[~hot] <= 1_000).all()


@pytest.mark.parametrize(("kind", "mean_bytes"), [("person", 200), ("auction", 500), ("bid", 100)])
def test_rows_have_the_size_that_the_generator_gives_them(kind, mean_bytes):
    rows = events(kind)
    # The generator counts neither channel and address nor, here, the start of the window.
    rows = rows.drop_columns([name for name in ("channel", "url", "period") if name in rows.column_names])
    texts = [name for name in rows.column_names if pa.types.is_string(rows.schema.field(name).type)]
    mean = sum(pc.mean(pc.binary_length(rows[name])).as_py() for name in texts) + 8 * (
        rows.num_columns - len(texts)
    )
    assert mean == pytest.approx(mean_bytes, rel=0.05)


def test_half_of_the_auctions_are_over_before_the_mean_length():
    from bench.events import AUCTION

    auctions = events(AUCTION)
    lasts_ms = pc.cast(pc.subtract(auctions["expires"], auctions["at"]), pa.int64()).to_numpy() / 1_000
    # A hundred auctions take 1,666 events, at ten a millisecond.
    assert lasts_ms.min() >= 1
    assert lasts_ms.mean() == pytest.approx(166, rel=0.05)


@pytest.mark.parametrize("query", ["q3", "q8", "q9", "q20"])
def test_the_local_driver_gives_the_results_of_duckdb(query, tmp_path):
    import duckdb

    from bench.driven import batches_of
    from bench.nexmark import QUERIES, EventWorkload
    from bench.peers import condition_of
    from watersmeet.local.join import LocalJoin

    workload = EventWorkload("few", query, 60_000, 3, 1)
    window = QUERIES[query].window
    bounds = {"within": window.within, "time": window.time, "lateness": window.lateness} if window else {}
    batches = list(batches_of(workload))
    schemas = {name: rows.schema for name, rows in batches[0].items()}
    join = LocalJoin(schemas, workload.on, str(tmp_path), workload.select, **bounds)
    found = pa.concat_tables([join.batch(**rows) for rows in batches])
    with duckdb.connect() as engine:
        for number, name in enumerate(workload.inputs):
            engine.register(f"all_{name}", pa.concat_tables(workload.batches_of(number)))
            engine.execute(
                f"CREATE VIEW {name} AS FROM all_{name} WHERE {workload.filters.get(name, 'true')}"
            )
        query_text = f"SELECT {', '.join(workload.select)} FROM {', '.join(workload.inputs)}"
        want = engine.sql(f"{query_text} WHERE {condition_of(workload)}").to_arrow_table()
    columns = found.column_names
    assert want.num_rows > 50
    assert multiset(found) == multiset(want.select(columns))


def multiset(rows: pa.Table) -> list[tuple]:
    plain = [
        rows[name].cast(pa.int64()) if pa.types.is_timestamp(rows[name].type) else rows[name]
        for name in rows.column_names
    ]
    return sorted(zip(*(one.to_pylist() for one in plain), strict=True))


def test_no_row_of_the_window_is_late():
    """Spark drops late rows after a join only if the state has gone: a late row would make results differ."""
    from bench.windows import WindowWorkload

    workload = WindowWorkload("few", 3_000, 100, 3, 1)
    for number in range(2):
        times = [rows["at"].cast(pa.int64()).to_numpy() for rows in workload.batches_of(number)]
        assert all(before.max() < after.min() for before, after in itertools.pairwise(times))
        # So the watermark is the same for both inputs.
        assert {int(one.max()) % 60_000_000 for one in times} == {(1_700_000_000_000_000 - 1) % 60_000_000}


def test_a_workload_of_another_size_has_the_same_shape():
    from bench.workloads import base_name, by_name

    few = by_name("q20-disk@100000")
    assert (few.events, few.batches, few.batch_events) == (100_000, 100, 1_000)
    small = by_name("scale-local@2000000")
    assert (small.rows, small.keys) == (2_000_000, 1_000_000)
    assert base_name("scale-local@2000000") == base_name("scale-local-quick") == "scale-local"
    with pytest.raises(KeyError, match="no other size"):
        by_name("table-4m@5")


def driven_run(seconds: float, disk: float = 2.0, results: int | None = None) -> dict:
    from bench.workloads import SCALE_LOCAL

    small = replace(SCALE_LOCAL, rows=2_000_000, keys=1_000_000)
    mean = small.rows**2 // small.keys
    batches = [
        {"seconds": seconds if number >= 190 else 1.0, "input_rows": 20_000, "results": mean // 200}
        for number in range(200)
    ]
    if results is not None:
        batches[0]["results"] = results
    look = {"batch": 199, "disk_bytes": int(disk * 1_000_000), "live_bytes": 1_000_000}
    return {
        "workload": "scale-local@2000000",
        "competitor": "watersmeet",
        "driven": batches,
        "disk": [look],
        "most_bytes": 500_000_000,
        "foreign_cpu_share": 0.0,
    }


@pytest.mark.parametrize(
    ("run", "missed"),
    [
        (driven_run, []),
        (lambda seconds: driven_run(1.2 * seconds), ["time per row in and out"]),
        (lambda seconds: driven_run(seconds, disk=2.6), ["disk"]),
        (lambda seconds: driven_run(seconds, results=0), []),
        (lambda seconds: driven_run(seconds, results=200_000), ["results"]),
    ],
    ids=[
        "as it should be",
        "late batches are slow",
        "the disk fills up",
        "a batch of chance",
        "too many results",
    ],
)
def test_a_large_state_is_judged_by_time_disk_and_results(run, missed):
    from bench.report import Results
    from bench.scale_demands import demands

    findings = demands(Results([run(1.0)]))
    assert [one.demand.partition(": ")[2] for one in findings if one.met is False] == missed
    # What did not run is not met and not missed.
    assert [one.met for one in findings if "scale-50m" in one.demand] == [None] * 4
