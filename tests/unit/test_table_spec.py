"""What `table()` takes, refuses and shows."""

from __future__ import annotations

import datetime
import pickle

import pytest

from tests.unit.table_helpers import Frame, travelled
from watersmeet.credentials import hide
from watersmeet.errors import TableError, UsageError
from watersmeet.tables.spec import Address, table


@pytest.mark.parametrize(
    "given, seconds",
    [
        ("10 minutes", 600.0),
        ("1 day 12 hours", 129_600.0),
        (90, 90.0),
        (0.5, 0.5),
        (datetime.timedelta(seconds=3), 3.0),
        (0, 0.0),
        (None, None),
    ],
)
def test_refresh_is_a_length_of_time(given, seconds):
    assert table("p.parquet", "id", refresh=given).refresh_s == seconds


@pytest.mark.parametrize("wrong", ["ten minutes", "10", "1 month", -1, "-5 seconds", True, float("inf"), []])
def test_what_is_no_length_of_time_is_refused(wrong):
    with pytest.raises(UsageError, match="refresh must be"):
        table("p.parquet", "id", refresh=wrong)


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"source": "p.parquet", "key": []}, "name a column"),
        ({"source": "p.parquet", "key": ["a", "a"]}, "twice"),
        ({"source": "", "key": "a"}, "needs a place"),
        ({"source": 5, "key": "a"}, "not int"),
        ({"source": Frame(streaming=True), "key": "a"}, "does not stream"),
        ({"source": "p.parquet", "key": "a", "page_rows": 0}, "page_rows must be.*got 0"),
        ({"source": "p.parquet", "key": "a", "page_bytes": 1.5}, "page_bytes must be.*got 1.5"),
        ({"source": "p.parquet", "key": "a", "table": "t"}, "is not one"),
        ({"source": "sqlite:///x.db", "key": "a"}, "say which table"),
        ({"source": "postgresql://h/x", "key": "a"}, "say which table"),
        ({"source": "env:SHOP", "key": "a"}, "say which table"),
        (
            {"source": "sqlite:///x.db", "key": "a", "table": "t", "in_place": True},
            "in_place= is for Parquet",
        ),
        ({"source": Frame(), "key": "a", "in_place": True}, "in_place= is for Parquet"),
        (
            {"source": Frame(), "key": "a", "refresh": 0},
            "refresh= is for files and databases.*leave refresh out",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_arguments_are_refused(arguments, word):
    with pytest.raises(UsageError, match=word):
        table(**arguments)


def test_a_table_says_what_it_is_without_its_credentials():
    spec = table(
        "postgresql://ada:pa@ss@db:5432/shop?sslpassword=abc&user=x", ["a", "b"], table="t", refresh=5
    )
    for text in (repr(spec), str(spec), spec.label, f"{spec.source}", repr(travelled(spec))):
        assert "pa@ss" not in text and "abc" not in text and "ada" not in text
        assert "db:5432/shop" in text
    assert travelled(spec) == spec


def test_a_uri_from_the_environment_is_looked_up_where_it_is_used(monkeypatch):
    spec = table("env:WM_TEST_URI", "id", table="t")
    assert spec.address is not None
    with pytest.raises(TableError, match="WM_TEST_URI is not set"):
        _ = spec.address.uri
    monkeypatch.setenv("WM_TEST_URI", "postgresql://ada:hunter22@db/shop")
    assert spec.address.uri.endswith("hunter22@db/shop")
    assert spec.address.scheme == "postgresql"
    assert b"hunter22" not in pickle.dumps(spec) and "hunter22" not in repr(spec)
    assert spec.address.scrub("cannot log in as ada with hunter22") == "cannot log in as ada with ***"


@pytest.mark.parametrize(
    "text, shown",
    [
        ("s3://key:secret@bucket/path", "s3://***@bucket/path"),
        ("postgresql://h/x?password=a%20b&x=1", "postgresql://h/x?password=***&x=1"),
        ("host=h password='a b' user=x", "host=h password=*** user=x"),
        ("two: http://u:p@a/ and http://u:q@b/", "two: http://***@a/ and http://***@b/"),
        ("nothing to hide: a@b.c", "nothing to hide: a@b.c"),
        ("postgresql://ada:s3#cret@h/db", "postgresql://***@h/db"),
        ("postgresql://ada:s3?cret@h/db", "postgresql://***@h/db"),
        ("postgres://ada:s3 c;re@t@h/db", "postgres://***@h/db"),
        ("postgresql://ada:s3/cret@h/db", "postgresql://***@h/db"),
        ("mysql://ada:s3#cr\net@h/db", "mysql://***@h/db"),
        ("postgresql://ada:p@h/db?password=a b;c#d&x=1", "postgresql://***@h/db?password=***&x=1"),
        ("postgresql://h/x?x=1&sslpassword=a;b", "postgresql://h/x?x=1&sslpassword=***"),
        ("host=h password=a;b#c&d user=x", "host=h password=*** user=x"),
        (r"host=h password=a\ b user=x", "host=h password=*** user=x"),
        ("file:///data/a@b/c d@e.parquet", "file:///data/a@b/c d@e.parquet"),
        ("sqlite:////data/a@b.db", "sqlite:////data/a@b.db"),
        ("postgresql://h/x?password=se@cret", "postgresql://h/x?password=***"),
        (
            "postgresql://h:5432,[::1]:5433/x?password=se@cret",
            "postgresql://h:5432,[::1]:5433/x?password=***",
        ),
        (
            "postgresql:///shop?host=/tmp&password=p@ss&user=a",
            "postgresql:///shop?host=/tmp&password=***&user=a",
        ),
        ("postgresql://h/x?sslpassword=a@b&x=1", "postgresql://h/x?sslpassword=***&x=1"),
        ("postgresql://ada:p@h/x?x=1&password=se@cr/et", "postgresql://***@h/x?x=1&password=***"),
        # Where it cannot be told what is what, all is hidden.
        ("postgresql://h?password=se@cret", "postgresql://***"),
        ("postgresql://h?password=se@cr/et", "postgresql://***"),
        ("postgresql://ada:s3?token=x@h/db", "postgresql://***"),
        ("postgresql://ada:s3/?token=x@h/db", "postgresql://***"),
        ("https://h/p?sv=1&sig=a%2Fb%3D&se=2", "https://h/p?sv=1&sig=***&se=2"),
        ("abfss://box@account.dfs.core.windows.net/p", "abfss://box@account.dfs.core.windows.net/p"),
        ("abfss://box:key@account.dfs.core.windows.net/p", "abfss://***@account.dfs.core.windows.net/p"),
        (
            "s3://k:s@b/x?scheme=http&endpoint_override=http%3A%2F%2Fu%3Ap%40h%3A90&region=r",
            "s3://***@b/x?scheme=http&endpoint_override=http%3A%2F%2F***%40h%3A90&region=r",
        ),
        ("s3://b/x?endpoint_override=http://u:p@h:90", "s3://b/x?endpoint_override=http://***@h:90"),
        ("abfs://box/p?sas=a@b&x=1", "abfs://box/p?sas=***&x=1"),
        ("https://h/p?X-Amz-Signature=0af", "https://h/p?X-Amz-Signature=***"),
        ("https://h/p?design=1&asig=2", "https://h/p?design=1&asig=2"),
        ("s3://key:sec/ret@bucket/path", "s3://***@bucket/path"),
        ("s3://key:se@c/ret@bucket/path", "s3://***@bucket/path"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("postgresql://ada:s3@cr/et@h/db", "postgresql://***@h/db"),
    ],
)
def test_credentials_are_hidden_in_any_text(text, shown):
    assert hide(text) == shown


def test_an_escaped_password_is_hidden_as_written_and_as_meant():
    address = Address("postgresql://ada:p%40ss%20w@db/shop")
    assert address.scrub("p%40ss%20w or p@ss w") == "*** or ***"


@pytest.mark.parametrize(
    "text", ["", "a:b@c", "postgresql://h/x?password=se@cret", "s3://a:b@c and password=x y"]
)
def test_hiding_twice_changes_nothing(text):
    assert hide(hide(text)) == hide(text)


@pytest.mark.parametrize("secret", ["s3#cret", "s3?cret", "s3 cr;et", "s3@cr/et"])
def test_what_a_driver_says_is_kept_but_for_the_secret(secret):
    for uri in (f"postgresql://ada:{secret}@h/db", f"postgresql://h/db?password={secret}"):
        said = Address(uri).scrub(f'cannot open "{uri}": {secret} is wrong')
        assert said.endswith('": *** is wrong') and "cret" not in said and "et@" not in said
