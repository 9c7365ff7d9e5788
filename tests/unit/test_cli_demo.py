"""The parts of the demo without Spark: the market, its files, the check, the display."""

from __future__ import annotations

import io
import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len
from rich.console import Console

from watersmeet.cli.demo.market import BUYS_A_ROUND, SELLS_A_ROUND, Market
from watersmeet.cli.demo.oracle import compare
from watersmeet.cli.demo.panel import DemoPanel
from watersmeet.cli.demo.producer import Producer
from watersmeet.cli.demo.sink import ResultFiles
from watersmeet.cli.meters import Meters
from watersmeet.cli.run_panel import RunPanel
from watersmeet.engine.options import JoinOptions
from watersmeet.jobs.file import parse_job
from watersmeet.jobs.progress import Batches
from watersmeet.log.status import InputStatus, JoinStatus
from watersmeet.model.facts import InputTotals
from watersmeet.schemes.balance import even_ranges
from watersmeet.schemes.biclique import BicliquePlan
from watersmeet.schemes.hash import HashPlan
from watersmeet.schemes.hypercube.facts import Bounds, CubeChange, CubePlan, HeavyKey


def test_the_market_is_the_seeds():
    first, second = Market(seed=5), Market(seed=5)
    for _ in range(3):
        assert first.next_slice(500, 900) == second.next_slice(500, 900)
    assert Market(seed=6).next_slice(500, 900) != Market(seed=5).next_slice(500, 900)


def test_the_market_has_what_the_join_must_sort_out():
    market = Market(seed=1)
    buys, sells = (
        pa.concat_tables(side)
        for side in zip(*(market.next_slice(BUYS_A_ROUND, SELLS_A_ROUND) for _ in range(2)), strict=True)
    )
    assert buys["id"].to_pylist() == list(range(2 * BUYS_A_ROUND))
    rounds = {
        name: np.array([int(lot.split("-")[1]) for lot in side["lot"].to_pylist()])
        for name, side in (("buys", buys), ("sells", sells))
    }
    assert rounds["buys"].tolist() == [0] * BUYS_A_ROUND + [1] * BUYS_A_ROUND
    second = rounds["sells"][SELLS_A_ROUND:]
    assert 0.01 < np.mean(second == 0) < 0.03, "some sells are reported a round late"
    assert 0 < np.mean(second == 2) < 0.02, "and some before their round has begun"
    with duckdb.connect() as engine:
        engine.register("b", buys)
        engine.register("s", sells)
        pairs, deals, most = engine.execute(
            "SELECT sum(pairs), sum(deals), max(pairs) FROM (SELECT count(*) AS pairs, "
            "count(*) FILTER (s.px <= b.px) AS deals FROM b JOIN s ON b.lot = s.lot GROUP BY b.lot)"
        ).fetchall()[0]
    assert 0.01 < deals / pairs < 0.03, "most sells ask for too much"
    assert most / (pairs / 2) > 0.4, "one lot of a round has about half of its pairs"


def test_the_producer_writes_whole_files_only(tmp_path):
    producer = Producer(tmp_path, seed=1)
    producer.write(10, 20)
    producer.write(1, 2)
    assert producer.rows == {"buys": 11, "sells": 22}
    for name, rows in producer.rows.items():
        found = sorted(p.name for p in (tmp_path / name).iterdir())
        assert found == ["000000.parquet", "000001.parquet"]
        assert len(pq.read_table(tmp_path / name)) == rows
    producer.stop()


@pytest.fixture
def inputs(tmp_path) -> dict[str, Path]:
    tables = {"l": {"k": [1, 1, 2], "x": [1, 1, 5]}, "r": {"k": [1, 2, 2], "y": [9, 9, 4]}}
    for name, table in tables.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(table), tmp_path / name / "0.parquet")
    return {name: tmp_path / name for name in tables}


@pytest.mark.parametrize(
    "results, missing, unexpected",
    [
        ([(1, 9), (1, 9), (2, 9)], 0, 0),
        ([(1, 9), (2, 9)], 1, 0),
        ([(1, 9), (1, 9), (1, 9), (2, 9)], 0, 1),
        ([(1, 9), (1, 9), (2, 4)], 1, 1),
        ([], 3, 0),
    ],
    ids=["equal", "one copy lost", "one copy too many", "one wrong", "nothing came out"],
)
def test_the_oracle_compares_multisets(tmp_path, inputs, results, missing, unexpected):
    files = []
    if results:
        files = [str(tmp_path / "it's.parquet")]
        pq.write_table(pa.table(list(zip(*results, strict=True)), names=["k", "y"]), files[0])
    verdict = compare(inputs, "l.k = r.k AND l.x < r.y", ["l.k", "r.y"], files)
    assert (verdict.results, verdict.missing, verdict.unexpected) == (len(results), missing, unexpected)
    assert verdict.equal == (missing == unexpected == 0)
    assert len(verdict.examples) == missing + unexpected


def commit(folder: Path, name: str, *files: str) -> None:
    (folder / "_spark_metadata").mkdir(exist_ok=True)
    entries = [json.dumps({"path": f"file://{folder / file}", "action": "add"}) for file in files]
    (folder / "_spark_metadata" / name).write_text("\n".join(["v1", *entries]))


def test_only_committed_results_count(tmp_path):
    results = ResultFiles(tmp_path)
    results.update()
    assert not results.committed
    (tmp_path / "half.parquet").write_bytes(b"PAR1")
    commit(tmp_path, "0", "0.parquet")
    results.update()
    commit(tmp_path, "1.compact", "0.parquet", "1.parquet")
    (tmp_path / "_spark_metadata" / ".1.compact.crc").touch()
    results.update()
    assert list(results.committed) == [str(tmp_path / f"{n}.parquet") for n in (0, 1)]


# Values that would clear the screen, break lines, be taken for rich's markup, run over the edge or hide.
NASTY = (
    "\x1b[2J\x1b]0;title\x07evil\x1b[31m",
    "two\nlines\tand\rmore",
    "[red]markup[/] [link=x]",
    "東京都庁舎の展望台と都議会議事堂と第一本庁舎と第二本庁舎と都民広場",
    "\u202ebackwards\u2066 \x9b31m " + "a" * 26,
)
CUBE = CubePlan(
    ("b", "s"),
    even_ranges(10_000),
    heavy=tuple(
        HeavyKey(
            key,
            label,
            (Bounds(999_999, 9_999_999), Bounds(999_998, 999_999)),
            (1_024, 2_048),
            tuple(range(10_000)),
        )
        for key, label in enumerate(NASTY)
    ),
    epoch=1_234,
    load=123_456_789_012,
    mean=98_765_432_101,
    changes=tuple(CubeChange(99_999, label, (512, 1_024), (1_024, 2_048), 123_456_789) for label in NASTY),
)
LARGE = JoinStatus(
    name="deals",
    query="q",
    batch=99,
    starts=1,
    predicate=None,
    inputs=tuple(InputStatus(n, 123, 123_456_789, 98_765_432_100, InputTotals()) for n in ("b", "s")),
    pending_rows=12_345_678,
    pending_parts=345,
    written_ms=0,
    age_s=0.0,
    live_bytes=98_765_432_100,
    disk_bytes=198_765_432_100,
    damage=(),
    strategy="hypercube",
    plan=CUBE,
)


def meters(state: JoinStatus | None) -> Meters:
    filled = Meters()
    if state is not None:
        filled.add(
            [Batches(n, n, 1_234_567 * (n % 7), 987_654 * (n % 5), 1_000 + n) for n in range(300)], state
        )
    return filled


def drawn(panel, width: int, encoding: str) -> list[str]:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding=encoding), width=width, height=24, highlight=False)
    console.print(panel.draw(width - 1, ascii_only=console.options.ascii_only))
    console.file.flush()
    # Not splitlines(): it would also split at characters that must not be there.
    return raw.getvalue().decode(encoding).removesuffix("\n").split("\n")


def assert_harmless(lines: list[str], width: int) -> None:
    assert all(cell_len(line) <= width for line in lines)
    assert not [one for line in lines for one in line if unicodedata.category(one) in ("Cc", "Cf")]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("state", [None, LARGE], ids=["before the first batch", "large figures"])
def test_the_demos_display_fits_and_keeps_its_height(width, encoding, state):
    panel = DemoPanel(
        JoinOptions(on="b.id = s.id " * 20, name="deals"), {"b": "buys", "s": "sells"}, 30, meters(state)
    )
    if state is not None:
        panel.phase = None
    lines = drawn(panel, width, encoding)
    assert_harmless(lines, width)
    assert len(lines) == 22, "it fits 24 lines"
    if state is not None:
        assert "merging debt  12,345,678 rows" in "\n".join(lines)
        assert sum("999,999 to 10.0M" in line and "1024 x 2048  10000" in line for line in lines) == len(
            NASTY
        ), "labels are cut, figures are not"
        assert any("planned balance 1.25 (busiest / mean), 1,234 changes" in line for line in lines)
        assert any(
            "batch 99999: " in line and "512 x 1024 -> 1024 x 2048, 123,456,789 rows moved" in line
            for line in lines
        )


def run_panel(state: JoinStatus | None) -> RunPanel:
    text = '[inputs.a]\nformat="x"\n[inputs.b]\nformat="x"\n[join]\non="a.k=b.k"\n[sink]\nformat="x"\n[job]\ncheckpoint="c"'
    return RunPanel(parse_job(text, Path("/x/name.toml"), {}), meters(state))


PLAIN = replace(LARGE, strategy="hash", plan=HashPlan(even_ranges(2)))
BICLIQUE = replace(PLAIN, strategy="biclique", plan=BicliquePlan(units=48, groups=24))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "state, height",
    [(None, 7), (PLAIN, 8), (BICLIQUE, 8), (LARGE, 19)],
    ids=["before the first batch", "hash", "biclique", "hypercube"],
)
def test_the_display_of_run_fits(width, state, height):
    lines = drawn(run_panel(state), width, "utf-8")
    assert_harmless(lines, width)
    assert len(lines) == height
    assert any("name" in line for line in lines)
    if state is PLAIN:
        assert any("strategy hash" in line for line in lines)
    if state is BICLIQUE:
        assert any("biclique of 48 units in 24 groups" in line for line in lines)
    if state is LARGE:
        assert any("heavy key" in line and "rows of b" in line and "rows of s" in line for line in lines)
