"""The size of a database's pages: measured costs in, a number of small pages out."""

import sqlite3

import pytest

from tests.unit.table_helpers import all_rows
from watersmeet.log.files import open_files
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import table
from watersmeet.tables.tuning import WITHOUT_MEASURE, pages_together

ROWS, ROW_BYTES = 500, 128
SMALL_BYTES = ROWS * ROW_BYTES


class Database:
    """Reads that cost what they are said to, on a clock of their own."""

    def __init__(self, pages, seek_s, byte_ns):
        self.pages, self.seek_s, self.byte_ns = pages, seek_s, byte_ns
        self.now_s = 0.0
        self.reads = []

    def read(self, low, high):
        assert 0 <= low < high <= self.pages
        self.reads.append((low, high))
        size = (high - low) * SMALL_BYTES
        self.now_s += self.seek_s + self.byte_ns * 1e-9 * size
        return size

    def together(self):
        return pages_together(self.read, self.pages, ROWS, lambda: self.now_s)


@pytest.mark.parametrize(
    ("seek_s", "byte_ns", "least_kb", "most_kb"),
    [
        (20e-6, 5.0, 64, 64),
        (100e-6, 5.0, 128, 256),
        (1e-3, 5.0, 1_024, 2_048),
        (20e-3, 10.0, 4_096, 8_192),
    ],
    ids=["embedded", "same machine", "same room", "far away"],
)
def test_the_longer_a_database_takes_to_answer_the_larger_are_its_pages(seek_s, byte_ns, least_kb, most_kb):
    database = Database(10_000, seek_s, byte_ns)
    together = database.together()
    assert least_kb <= together * SMALL_BYTES / 1000 * 1.024 <= most_kb * 1.05
    # One read of this size against the best there is: a tenth is lost, and a little to the power of two.
    alone = seek_s / (seek_s + byte_ns * 1e-9 * together * SMALL_BYTES)
    assert alone < 0.35


def test_a_few_reads_in_different_places_are_all_it_takes():
    database = Database(10_000, 1e-3, 5.0)
    database.together()
    assert len(database.reads) == len(set(database.reads)) == 8
    assert sum(high - low for low, high in database.reads) == 2 * (1 + 4 + 16 + 64)


def test_a_table_of_a_few_pages_is_not_measured():
    database = Database(7, 1e-3, 5.0)
    assert database.together() == WITHOUT_MEASURE
    assert not database.reads
    assert Database(8, 1e-3, 5.0).together() in (1, 2, 4, 8)


def test_costs_that_cannot_be_told_apart_from_nothing_are_no_problem():
    assert Database(100, 0.0, 0.0).together() >= 1
    assert Database(100, 1e-3, 0.0).together() >= 1


def test_pages_of_a_real_database_are_whole_numbers_of_small_ones(tmp_path):
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, x TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", ((k, f"{k:0100d}") for k in range(60_000)))
    connection.close()
    found = prepare(
        table(f"sqlite:///{tmp_path}/t.db", "k", table="t"), open_files(tmp_path / "state")
    ).open()
    rows = found.index.rows
    assert (rows[:-1] == rows[0]).all() and found.index.bytes[0] >= 60_000
    assert all_rows(found, ["k"]).column("k").to_pylist() == list(range(60_000))
