"""What is PostgreSQL's own: collations, types, credentials, and a server that goes away."""

from __future__ import annotations

import pickle
import threading
import time
import traceback

import pyarrow as pa
import pytest

from tests.unit.database_helpers import new_server, open_postgresql, server  # noqa: F401
from tests.unit.table_helpers import all_rows, check_table, same_rows, travelled
from watersmeet.errors import TableError
from watersmeet.log.files import open_files
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import table
from watersmeet.tables.sql import DatabaseSession

NAMES = ["", "Z", "a", "B", "é", "z", "zz", "É", "\U0001f600", "a b", "ab"]


@pytest.fixture
def shop(server):  # noqa: F811
    opened = open_postgresql(server)
    opened.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO PUBLIC")
    yield opened
    opened.close()


def prepared(tmp_path, uri, key, *, name="t", **options):
    return prepare(table(uri, key, table=name, **options), open_files(tmp_path / "state"))


def names(*, twice: int = 2) -> pa.Table:
    return pa.table({"name": NAMES * twice, "n": pa.array(range(len(NAMES) * twice), pa.int64())})


@pytest.mark.parametrize(
    "column, index",
    [
        ("text", "name"),
        ('text COLLATE "C"', "name"),
        ("text COLLATE ucs_basic", 'name COLLATE "C"'),
        ("varchar(20)", "name"),
        ("varchar(20)", "name, n"),
    ],
)
def test_text_is_ordered_by_its_bytes(tmp_path, shop, column, index):
    shop.run(f"CREATE TABLE t (name {column}, n bigint)")
    shop.add("t", names())
    shop.run(f"CREATE INDEX ON t ({index})")
    found = prepared(tmp_path, shop.uri, "name", page_rows=3).open()
    assert len(found.index) > 4
    check_table(found, names())
    looked_up = found.lookup(pa.record_batch({"k": ["é", "zz", "A"]}), ["name", "n"])
    assert sorted(looked_up.column("name").to_pylist()) == ["zz", "zz", "é", "é"]


@pytest.mark.parametrize("index", ["name", "name text_pattern_ops", 'name COLLATE "POSIX"'])
def test_an_index_in_another_order_is_of_no_use(tmp_path, shop, index):
    shop.run("CREATE TABLE t (name text COLLATE ucs_basic, n bigint)", f"CREATE INDEX ON t ({index})")
    shop.add("t", names())
    with pytest.raises(TableError, match=r'CREATE INDEX ON "t" \("name" COLLATE "C"\)'):
        prepared(tmp_path, shop.uri, "name")


def test_uuids_are_text_and_keys(tmp_path, shop):
    shop.run("CREATE TABLE t (id uuid PRIMARY KEY, n bigint)")
    shop.run("INSERT INTO t SELECT gen_random_uuid(), n FROM generate_series(1, 100) AS n")
    found = prepared(tmp_path, shop.uri, "id", page_rows=10).open()
    assert len(found.index) == 10 and found.schema.field("id").type == pa.string()
    rows = all_rows(found, ["id", "n"])
    check_table(found, rows)
    some = [*rows["id"].to_pylist()[:3], "no uuid", rows["id"][5].as_py().upper()]
    assert found.lookup(pa.record_batch({"k": some}), ["id"]).num_rows == 3


COLUMNS = {
    "smallint": ("7", pa.int16(), 7),
    "real": ("1.5", pa.float32(), 1.5),
    "boolean": ("true", pa.bool_(), True),
    "numeric(10,2)": ("12.50", pa.decimal128(10, 2), "12.50"),
    "numeric": ("0.1", pa.decimal128(38, 18), "0.100000000000000000"),
    "bytea": ("'\\x00ff'", pa.binary(), b"\x00\xff"),
    "timestamptz": ("'2024-01-01 12:00+02'", pa.timestamp("us", "UTC"), "2024-01-01 10:00:00+00:00"),
    "char(3)": ("'a'", pa.string(), "a  "),
    "json": ("'{\"a\": 1}'", pa.string(), '{"a": 1}'),
    "int[]": ("'{1,null}'", pa.list_(pa.int32()), [1, None]),
    "inet": ("'10.0.0.1'", pa.string(), "10.0.0.1/32"),
    "interval": ("'1 day 2 hours'", pa.string(), "1 day 02:00:00"),
    "mood": ("'glad'", pa.string(), "glad"),
}


def test_columns_of_many_types_come_through(tmp_path, shop):
    declared = ", ".join(f"c{n} {kind}" for n, kind in enumerate(COLUMNS))
    values = ", ".join(value for value, _, _ in COLUMNS.values())
    shop.run("CREATE TYPE mood AS ENUM ('glad', 'sad')", f"CREATE TABLE t (id int PRIMARY KEY, {declared})")
    shop.run(f"INSERT INTO t VALUES (1, {values})", "INSERT INTO t (id) VALUES (2)")
    found = prepared(tmp_path, shop.uri, "id").open()
    rows = found.read(0, found.schema.names).sort_by("id")
    for place, (kind, (_, arrow, expected)) in enumerate(COLUMNS.items()):
        column = rows.column(f"c{place}")
        assert column.type == arrow, kind
        value = column[0].as_py()
        assert (value if isinstance(value, type(expected)) else str(value)) == expected, kind
        assert column[1].as_py() is None, kind


@pytest.mark.parametrize("kind", ["char(5)", "json", "interval", "int[]", "mood"])
def test_keys_of_types_with_another_order_are_refused(tmp_path, shop, kind):
    shop.run("CREATE TYPE mood AS ENUM ('glad', 'sad')", f"CREATE TABLE t (k {kind})")
    with pytest.raises(TableError, match="the key k is of type"):
        prepared(tmp_path, shop.uri, "k")


def test_a_number_that_is_none_is_named(tmp_path, shop):
    shop.run("CREATE TABLE t (id int PRIMARY KEY, x numeric)", "INSERT INTO t VALUES (1, 'NaN')")
    with pytest.raises(TableError, match="column x.*cannot be read as decimal"):
        prepared(tmp_path, shop.uri, "id").open().read(0, ["x"])


def test_a_partitioned_table_in_a_schema(tmp_path, shop):
    shop.run(
        "CREATE SCHEMA IF NOT EXISTS shop",
        "DROP TABLE IF EXISTS shop.parts",
        "CREATE TABLE shop.parts (id bigint, s text) PARTITION BY RANGE (id)",
        "CREATE TABLE shop.low PARTITION OF shop.parts FOR VALUES FROM (-100) TO (50)",
        "CREATE TABLE shop.high PARTITION OF shop.parts FOR VALUES FROM (50) TO (100)",
        "CREATE INDEX ON shop.parts (id)",
        "INSERT INTO shop.parts SELECT n, 'row ' || n FROM generate_series(-99, 99) AS n",
    )
    found = prepared(tmp_path, shop.uri, "id", name="shop.parts", page_rows=30).open()
    ids = range(-99, 100)
    check_table(found, pa.table({"id": ids, "s": [f"row {n}" for n in ids]}))


def test_credentials_are_neither_shown_nor_stored(tmp_path, shop, server, monkeypatch):  # noqa: F811
    secret = "hunter%40two2"
    shop.run("DROP ROLE IF EXISTS ada", "CREATE ROLE ada LOGIN PASSWORD 'hunter@two2'")
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY)", "INSERT INTO t VALUES (1)", "GRANT SELECT ON t TO ada")
    monkeypatch.setenv("WM_SHOP", server.uri(user="ada", password=secret))
    source = prepared(tmp_path, "env:WM_SHOP", "id")
    assert travelled(source).open().read(0, ["id"]).num_rows == 1
    written = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    for word in (b"hunter", b"ada:"):
        assert written and not any(word in content for content in written)
        assert word not in pickle.dumps(source)
    with_password = prepared(tmp_path, server.uri(user="ada", password=secret), "id")
    assert "hunter" not in repr(with_password) and "ada:" not in repr(with_password)
    written = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert not any(b"hunter" in content for content in written)


def test_a_wrong_password_is_refused_at_once_and_not_shown(tmp_path, server):  # noqa: F811
    admin = open_postgresql(server)
    admin.run("DROP ROLE IF EXISTS eve", "CREATE ROLE eve LOGIN PASSWORD 'right'")
    server.allow_passwords("eve")
    admin.run("SELECT pg_reload_conf()")
    admin.close()
    started = time.monotonic()
    with pytest.raises(TableError) as caught:
        prepared(tmp_path, server.uri(user="eve", password="wr0ngpass"), "id")
    assert "authentication failed" in str(caught.value) and "wr0ngpass" not in str(caught.value)
    assert time.monotonic() - started < 10


def test_a_privilege_that_is_missing_is_named(tmp_path, shop, server):  # noqa: F811
    shop.run("DROP ROLE IF EXISTS bob", "CREATE ROLE bob LOGIN", "CREATE TABLE t (id bigint PRIMARY KEY)")
    with pytest.raises(TableError, match="permission denied"):
        prepared(tmp_path, server.uri(user="bob"), "id")


@pytest.fixture
def restartable():
    """A server of its own, which may be stopped."""
    yield from new_server()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_that_is_started_again_is_waited_for(tmp_path, restartable, end):
    admin = open_postgresql(restartable)
    admin.fill("t", pa.table({"id": range(1_000), "s": [f"row {n}" for n in range(1_000)]}))
    admin.run("CREATE INDEX ON t (id)", "CHECKPOINT")
    admin.close()
    found = prepared(tmp_path, restartable.uri(), "id", page_rows=100).open()
    pages = found.read_many(range(len(found.index)), ["id", "s"])
    read = [next(pages)[1]]
    getattr(restartable, end)()
    back = threading.Timer(1.0, restartable.start)
    back.start()
    read += [page for _, page in pages]
    back.join()
    expected = pa.table({"id": range(1_000), "s": [f"row {n}" for n in range(1_000)]})
    assert same_rows(pa.Table.from_batches(read), expected)


def test_patience_ends_with_what_to_do(tmp_path, restartable):
    admin = open_postgresql(restartable)
    admin.run("CREATE TABLE t (id bigint PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    admin.close()
    found = prepared(tmp_path, restartable.uri(), "id", patience=0.5).open()
    restartable.stop()
    with pytest.raises(
        TableError, match="(?s)cannot be reached, for 0.5 s already.*Start the database.*patience="
    ):
        found.read(0, ["id"])
    restartable.start()
    assert found.read(0, ["id"]).num_rows == 1


@pytest.mark.parametrize(
    "uri", ["postgresql://ada:s3cretpw@host:port/x", "postgresql://ada:s3cretpw@h/x?no=such"]
)
def test_a_malformed_uri_is_refused_without_its_password(tmp_path, uri):
    with pytest.raises(TableError) as caught:
        prepared(tmp_path, uri, "id")
    assert "s3cretpw" not in "".join(traceback.format_exception(caught.value))


class Away(Exception):
    pass


class Flaky:
    """A driver whose database is away for some attempts."""

    def __init__(self, failures: int):
        self.failures = failures
        self.statement_options: dict[str, str] = {}

    def connect(self, uri):
        if self.failures:
            self.failures -= 1
            raise Away(f"no answer from {uri}")
        import adbc_driver_sqlite.dbapi as sqlite

        return sqlite.connect(autocommit=True)

    def identity(self, uri):
        return None

    def is_passing(self, error):
        return isinstance(error, Away)


def test_pauses_grow_up_to_a_limit_and_stay_within_the_patience():
    pauses: list[float] = []
    address = table("postgresql://u:secret9@h/x", "id", table="t").address
    assert address is not None
    session = DatabaseSession(
        Flaky(8), address, "table t", 60, clock=lambda: sum(pauses), sleep=pauses.append
    )
    assert session.run("SELECT 1 AS one").to_pydict() == {"one": [1]}
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    pauses.clear()
    session = DatabaseSession(
        Flaky(10**6), address, "table t", 60, clock=lambda: sum(pauses), sleep=pauses.append
    )
    with pytest.raises(TableError) as caught:
        session.run("SELECT 1")
    assert 55 < sum(pauses) <= 60
    assert "secret9" not in str(caught.value)
