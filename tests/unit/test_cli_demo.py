"""The parts of the demo without Spark: the market, its files, the check, the display."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from watersmeet.cli.demo.market import Market
from watersmeet.cli.demo.oracle import compare
from watersmeet.cli.demo.panel import HEAVIEST, DemoPanel
from watersmeet.cli.demo.producer import Producer
from watersmeet.cli.demo.sink import ResultFiles
from watersmeet.cli.meters import Meters
from watersmeet.cli.run_panel import RunPanel
from watersmeet.jobs.file import parse_job
from watersmeet.jobs.model import Join
from watersmeet.jobs.progress import Batches
from watersmeet.log.status import InputStatus, JoinStatus


def test_the_market_is_the_seeds():
    first, second = Market(seed=5), Market(seed=5)
    for _ in range(3):
        assert first.next_slice(500, 900) == second.next_slice(500, 900)
    assert Market(seed=6).next_slice(500, 900) != Market(seed=5).next_slice(500, 900)


def test_the_market_has_what_the_join_must_sort_out():
    market = Market(seed=1)
    slices = [market.next_slice(2_000, 4_000) for _ in range(5)]
    orders = pa.concat_tables(o for o, _ in slices)
    trades = pa.concat_tables(t for _, t in slices)
    assert orders["id"].to_pylist() == list(range(10_000))
    joined = trades.join(orders, "order_id", "id", join_type="inner", right_suffix="_o")
    assert len(joined) < len(trades), "some trades are on orders that are not there yet"
    assert 0 < pc.sum(pc.not_equal(joined["symbol"], joined["symbol_o"])).as_py() < len(joined) // 20
    assert 0 < pc.sum(pc.greater(joined["px"], joined["px_o"])).as_py() < len(joined) // 2
    by_symbol = sorted(pc.value_counts(orders["symbol"]).field("counts").to_pylist())
    assert by_symbol[-1] > 50 * by_symbol[len(by_symbol) // 2], "a few symbols have most of the business"


def test_the_producer_writes_whole_files_only(tmp_path):
    producer = Producer(tmp_path, seed=1)
    producer.write(10, 20)
    producer.write(1, 2)
    assert producer.rows == {"orders": 11, "trades": 22}
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
    results = ResultFiles(tmp_path, key="s")
    assert results.heaviest(2) == []
    for number, symbols in enumerate((["a", "b", "a"], ["b", "b"], ["c"])):
        pq.write_table(pa.table({"s": symbols}), tmp_path / f"{number}.parquet")
    (tmp_path / "half.parquet").write_bytes(b"PAR1")
    commit(tmp_path, "0", "0.parquet")
    assert results.heaviest(2) == [("a", 2), ("b", 1)]
    commit(tmp_path, "1.compact", "0.parquet", "1.parquet")
    (tmp_path / "_spark_metadata" / ".1.compact.crc").touch()
    assert results.heaviest(1) == [("b", 3)]
    assert list(results.committed) == [str(tmp_path / f"{n}.parquet") for n in (0, 1)]


LARGE = JoinStatus(
    name="fills",
    query="q",
    batch=99,
    starts=1,
    predicate=None,
    inputs=tuple(InputStatus(n, 123, 123_456_789, 98_765_432_100, 0, 0) for n in ("o", "t")),
    pending_rows=12_345_678,
    pending_parts=345,
    written_ms=0,
    age_s=0.0,
    live_bytes=98_765_432_100,
    disk_bytes=198_765_432_100,
    damage=(),
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
    return raw.getvalue().decode(encoding).splitlines()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("state", [None, LARGE], ids=["before the first batch", "large figures"])
def test_the_demos_display_fits_and_keeps_its_height(width, encoding, state):
    panel = DemoPanel(Join("o.id = t.id " * 20, "fills"), {"o": "orders", "t": "trades"}, 30, meters(state))
    if state is not None:
        panel.heaviest = [(f"SYM{n}", 1_234_567 // (n + 1)) for n in range(HEAVIEST)]
        panel.phase = None
    lines = drawn(panel, width, encoding)
    assert all(len(line) <= width for line in lines)
    assert len(lines) == 17
    if state is not None:
        assert [line for line in lines if "…" in line or "..." in line] == lines[2:3], (
            "only the predicate is cut"
        )
        assert any("12,345,678 rows in 345 parts" in line for line in lines)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("state", [None, LARGE], ids=["before the first batch", "large figures"])
def test_the_display_of_run_fits(width, state):
    text = '[inputs.a]\nformat="x"\n[inputs.b]\nformat="x"\n[join]\non="a.k=b.k"\n[sink]\nformat="x"\n[job]\ncheckpoint="c"'
    panel = RunPanel(parse_job(text, Path("/x/name.toml"), {}), meters(state))
    lines = drawn(panel, width, "utf-8")
    assert all(len(line) <= width for line in lines)
    assert len(lines) == 7
    assert any("name" in line for line in lines)
