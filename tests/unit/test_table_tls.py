"""A database over TLS: the options of the URI reach the driver, and what cannot be trusted is refused at once."""

from __future__ import annotations

import traceback

import pyarrow as pa
import pytest

from tests.tls import HOST, make_certificate, proxy
from tests.unit.database_helpers import open_postgresql, server  # noqa: F401
from tests.unit.table_helpers import check_table
from watersmeet.errors import TableError
from watersmeet.log.files import open_files
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import table
from watersmeet.tables.sql import is_refused

SECRET = "s3cret"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})
# Who waits instead of failing at once is ended by the time limit of the tests.
LONG_S = 3600


@pytest.fixture(scope="module")
def products(server):  # noqa: F811
    database = open_postgresql(server)
    database.fill("products", ROWS)
    database.run("CREATE INDEX ON products (id)")
    database.close()
    return server.home / ".s.PGSQL.5432"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    return {name: make_certificate(folder, name) for name in ("ours", "other")}


def opened(tmp_path, port: int, options: str, host: str = HOST):
    uri = f"postgresql://watersmeet:{SECRET}@{host}:{port}/postgres?{options}"
    source = table(uri, "id", table="products", patience=LONG_S)
    return prepare(source, open_files(tmp_path / "state")).open()


class Lost(Exception):
    """What libpq says, of a server that it did or did not reach."""


@pytest.mark.parametrize(
    "said, refused",
    [
        ('could not translate host name "certificate-db" to address: Try again', False),
        (
            'connection to server at "certificates.shop" (10.0.0.1), port 5432 failed: Connection refused',
            False,
        ),
        ('connection to server at "root-certificate" failed: timeout expired', False),
        ('connection to server at "sslmode-db" failed: Connection refused', False),
        ("SSL error: certificate verify failed", True),
        ('server certificate for "db" does not match host name "127.0.0.1"', True),
        ("could not get server's host name from server certificate", True),
        ('could not read root certificate file "/x": no such file', True),
        ('could not read certificate file "/x": no such file', True),
        ("SSL error: sslv3 alert bad certificate", True),
        ("SSL error: tlsv13 alert certificate required", True),
        ("SSL error: tlsv1 alert unknown ca", True),
        ("server does not support SSL, but SSL was required", True),
        ('weak sslmode "require" may not be used with sslrootcert=system', True),
    ],
)
def test_what_ends_the_waiting_is_what_tls_says_not_the_name_of_a_host(said, refused):
    assert is_refused(Lost(said)) == refused


def test_a_server_that_is_verified_is_read(tmp_path, products, certificates):
    with proxy(products, certificates["ours"]) as port:
        found = opened(tmp_path, port, f"sslmode=verify-full&sslrootcert={certificates['ours']}")
        check_table(found, ROWS)
        found.close()


@pytest.mark.parametrize(
    "tls, options, host, reason",
    [
        (True, "sslmode=verify-full&sslrootcert={other}", HOST, "certificate verify failed"),
        (True, "sslmode=verify-full&sslrootcert={ours}", "127.0.0.1", "does not match host name"),
        (
            True,
            "sslmode=verify-full&sslrootcert=/not/there.pem",
            HOST,
            "root certificate file .* does not exist",
        ),
        (False, "sslmode=require", HOST, "server does not support SSL"),
        (True, "sslmode=wrong", HOST, "invalid sslmode value"),
    ],
    ids=["another authority", "another host", "no root certificate", "no TLS", "no such mode"],
)
def test_what_cannot_be_trusted_is_refused_at_once(
    tmp_path, products, certificates, tls, options, host, reason
):
    with proxy(products, certificates["ours"] if tls else None) as port:
        with pytest.raises(TableError, match=f"(?s){reason}.*Check sslmode= and sslrootcert=") as caught:
            opened(tmp_path, port, options.format(**certificates), host)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
