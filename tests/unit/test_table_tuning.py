"""The size of a database's pages: measured costs in, a number of small pages out."""

import sqlite3

import numpy as np
import pytest

from tests.unit.table_helpers import all_rows
from watersmeet.log.files import open_files
from watersmeet.tables.prepare import prepare
from watersmeet.tables.session import Session
from watersmeet.tables.spec import table
from watersmeet.tables.tuning import PROBE_BYTES, pages_together

ROWS, ROW_BYTES = 500, 128
SMALL_BYTES = ROWS * ROW_BYTES


class Database:
    """Reads that cost what they are said to, on a clock of their own. The first ones may take longer."""

    def __init__(self, rows, seek_s, byte_ns, *, row_bytes=ROW_BYTES, cold=(), expected_bytes=None):
        self.rows = np.full(rows, ROWS) if isinstance(rows, int) else np.asarray(rows)
        self.row_bytes = np.broadcast_to(row_bytes, self.rows.shape)
        self.expected_bytes = expected_bytes or float(self.row_bytes[0])
        self.seek_s, self.byte_ns = seek_s, byte_ns
        self.cold = list(cold)
        self.now_s = 0.0
        self.reads, self.sizes = [], []

    def read(self, low, high, limit):
        assert 0 <= low < high <= len(self.rows)
        assert limit < 10 * self.rows[low:high].sum(), "a read has a limit"
        size = int((self.rows * self.row_bytes)[low:high].sum())
        self.reads.append((low, high))
        self.sizes.append(size)
        self.now_s += self.seek_s + self.byte_ns * 1e-9 * size + (self.cold.pop(0) if self.cold else 0.0)
        return size

    def choice(self):
        return pages_together(self.read, self.rows, self.expected_bytes, lambda: self.now_s)


COSTS = {
    "embedded": (20e-6, 5.0, 1),
    "same machine": (100e-6, 5.0, 4),
    "same room": (1e-3, 5.0, 16),
    "far away": (20e-3, 10.0, 128),
}


@pytest.mark.parametrize(("seek_s", "byte_ns", "together"), COSTS.values(), ids=COSTS)
def test_the_longer_a_database_takes_to_answer_the_larger_are_its_pages(seek_s, byte_ns, together):
    choice = Database(10_000, seek_s, byte_ns).choice()
    assert choice.together == together
    assert (choice.seek_ns, choice.byte_ns) == pytest.approx((seek_s * 1e9, byte_ns))
    # One read of this size against the best there is: a tenth is lost, and a little to the power of two.
    assert seek_s / (seek_s + byte_ns * 1e-9 * together * SMALL_BYTES) < 0.35


@pytest.mark.parametrize(("seek_s", "byte_ns", "together"), COSTS.values(), ids=COSTS)
def test_pages_of_uneven_sizes_are_measured_by_what_each_read_brought(seek_s, byte_ns, together):
    rng = np.random.default_rng(5)
    rows = np.where(rng.random(10_000) < 0.1, rng.integers(ROWS, 20 * ROWS, 10_000), ROWS)
    choice = Database(rows, seek_s, byte_ns).choice()
    assert (choice.seek_ns, choice.byte_ns) == pytest.approx((seek_s * 1e9, byte_ns))
    assert choice.together == together


@pytest.mark.parametrize("cold", [[0.05], [0.01, 0.01], [0.0, 0.0, 0.02], [0.5, 0.0, 0.0, 0.0, 0.0, 0.03]])
def test_a_few_cold_reads_do_not_decide(cold):
    warm = Database(10_000, 20e-6, 5.0).choice().together
    assert Database(10_000, 20e-6, 5.0, cold=cold).choice().together <= 2 * warm


def test_a_few_reads_in_different_places_are_all_it_takes():
    database = Database(10_000, 1e-3, 5.0)
    database.choice()
    assert len(database.reads) == len(set(database.reads)) == 9
    assert sum(high - low for low, high in database.reads) == 1 + 2 * (1 + 4 + 16 + 64)


def test_a_key_that_fills_many_pages_is_not_read_to_measure():
    rows = np.full(1_000, ROWS)
    # Where a probe of each size would be.
    rows[[*range(240, 260), *range(735, 755)]] = 20_000_000
    database = Database(rows, 1e-3, 5.0)
    choice = database.choice()
    assert choice.seek_ns == pytest.approx(1e6) and choice.byte_ns == pytest.approx(5.0)
    assert max(database.sizes) <= PROBE_BYTES
    assert {high - low for low, high in database.reads} == {1, 4, 16, 64}


def test_rows_of_megabytes_are_not_read_to_measure():
    database = Database(np.ones(1_000, np.int64), 1e-3, 5.0, row_bytes=10 << 20)
    assert database.choice().together == 1
    assert not database.reads


def test_rows_that_are_wider_than_the_first_ones_are_noticed_with_the_first_probe():
    widths = np.where(np.arange(10_000) < 100, ROW_BYTES, 100 * ROW_BYTES)
    database = Database(np.full(10_000, ROWS), 1e-3, 5.0, row_bytes=widths, expected_bytes=ROW_BYTES)
    assert database.choice().together == 1
    assert len(database.reads) >= 3
    assert max(database.sizes) <= PROBE_BYTES


@pytest.mark.parametrize(
    ("row_bytes", "together"), [(ROW_BYTES, 2), (4 * ROW_BYTES, 1), (ROW_BYTES // 8, 16)]
)
def test_a_table_of_a_few_pages_is_not_measured(row_bytes, together):
    database = Database(7, 1e-3, 5.0, row_bytes=row_bytes)
    assert database.choice().together == together
    assert not database.reads


def test_the_smallest_table_that_is_measured():
    database = Database(8, 1e-3, 5.0)
    assert database.choice().together == 8
    assert {high - low for low, high in database.reads} == {1, 4}
    assert Database(8, 1e-6, 5.0).choice().together == 1


@pytest.mark.parametrize(
    ("seek_s", "byte_ns", "together"), [(0.0, 1.0, 1), (1e-3, 0.0, 64)], ids=["no seek", "bytes for nothing"]
)
def test_a_cost_that_is_nothing(seek_s, byte_ns, together):
    assert Database(100, seek_s, byte_ns).choice().together == together


def test_a_clock_that_stands_still_is_no_problem():
    """Nothing is told apart, nothing is lost: as if a read cost the same whatever it brings."""
    assert Database(100, 0.0, 0.0).choice().together == 64


@pytest.fixture
def results(monkeypatch):
    """The bytes of every result of every query."""
    sizes, run = [], Session.run

    def counted(self, *arguments):
        found = run(self, *arguments)
        sizes.append(found.nbytes)
        return found

    monkeypatch.setattr(Session, "run", counted)
    return sizes


def prepared(tmp_path, rows, **options):
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (k INTEGER, x BLOB)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.execute("CREATE INDEX t_k ON t (k)")
    connection.close()
    spec = table(f"sqlite:///{tmp_path}/t.db", "k", table="t", **options)
    return prepare(spec, open_files(tmp_path / "state")).open()


def test_pages_of_a_real_database_are_whole_numbers_of_small_ones(tmp_path, caplog):
    with caplog.at_level("INFO", "watersmeet"):
        found = prepared(tmp_path, ((k, b"x" * 100) for k in range(60_000)))
    rows = found.index.rows
    assert (rows[:-1] == rows[0]).all() and rows.sum() == 60_000 and found.index.bytes[0] >= 60_000
    assert f"pages of about {found.index.bytes[0] // 1024} KB" in caplog.text
    assert all_rows(found, ["k"]).column("k").to_pylist() == list(range(60_000))


def test_a_hot_key_is_not_read_while_pages_are_found(tmp_path, results):
    """Half of the table is one key, behind a quarter of the others, where a probe would be."""
    rows = ((k if k < 7_500 else max(k - 25_000, 7_500), b"x" * 500) for k in range(55_000))
    found = prepared(tmp_path, rows)
    assert found.index.rows.max() > 25_000 and found.index.bytes.max() > PROBE_BYTES
    assert max(results) < 5 << 20


def test_wide_rows_are_not_all_read_to_know_how_wide_they_are(tmp_path, results):
    found = prepared(tmp_path, ((k, bytes(3 << 20)) for k in range(20)))
    assert len(found.index) == 20
    assert max(results) < PROBE_BYTES
