"""Tables and their form on an object store, over the S3 protocol, with a server on loopback."""

from __future__ import annotations

import uuid

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from tests.unit.table_helpers import check_table, travelled
from watersmeet.errors import TableError
from watersmeet.log.files import open_files
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import table

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def endpoint():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{uuid.uuid4().hex}"
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    return f"s3://{name}"


def numbers(low: int, high: int) -> pa.Table:
    return pa.table({"id": range(low, high), "s": [f"row {n}" for n in range(low, high)]})


def write(uri: str, rows: pa.Table, **options) -> None:
    filesystem, path = fs.FileSystem.from_uri(uri)
    pq.write_table(rows, path, filesystem=filesystem, **options)


def opened(source):
    """As on another machine."""
    return travelled(source).open()


def test_a_table_in_a_bucket_is_brought_into_its_form_in_a_bucket(bucket, tmp_path):
    shuffled = numbers(0, 1_000).take(np.random.default_rng(1).permutation(1_000))
    write(f"{bucket}/table/a.parquet", shuffled)
    cache = str(tmp_path / "cache")
    files = open_files(f"{bucket}/state", cache=cache)
    spec = table(f"{bucket.replace('s3:', 's3a:')}/table", "id", page_rows=100, in_place=False)
    source = prepare(spec, files, cache=cache)
    assert prepare(spec, files, cache=cache) == source
    found = opened(source)
    check_table(found, shuffled)
    (copy,) = (tmp_path / "cache").rglob("part-*")
    copy.write_bytes(copy.read_bytes()[:-2_000])
    # A damaged copy is fetched anew.
    check_table(opened(source), shuffled)


def test_row_groups_in_a_bucket_are_pages_and_new_files_are_seen(bucket, tmp_path):
    write(f"{bucket}/table/b.parquet", numbers(500, 1_000), row_group_size=100)
    cache = str(tmp_path / "cache")
    files = open_files(f"{bucket}/state", cache=cache)
    source = prepare(table(f"{bucket}/table", "id", in_place=True), files, cache=cache)
    found = opened(source)
    assert len(found.index) == 5
    check_table(found, numbers(500, 1_000))
    assert found.newest() is None
    write(f"{bucket}/table/a.parquet", numbers(0, 500))
    newer = found.newest()
    assert newer is not None
    check_table(opened(newer), numbers(0, 1_000))


def test_a_bucket_that_is_not_there_is_named(bucket, tmp_path):
    files = open_files(tmp_path / "state")
    with pytest.raises(TableError, match="s3://no-such-bucket/x is not there"):
        prepare(table("s3://no-such-bucket/x", "id"), files)
