"""Tables and their sorted copies on an object store, over the S3 protocol, with a server on loopback."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs
from pyiceberg.catalog.sql import SqlCatalog

from tests.unit.table_helpers import check_table, numbers, travelled
from watersmeet.errors import TableError
from watersmeet.log.files import open_files
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import table

pytestmark = pytest.mark.s3


def write(uri: str, rows: pa.Table, **options) -> None:
    filesystem, path = fs.FileSystem.from_uri(uri)
    pq.write_table(rows, path, filesystem=filesystem, **options)


def opened(source):
    """As on another machine."""
    return travelled(source).open()


def test_a_table_in_a_bucket_is_brought_into_its_form_in_a_bucket(bucket, tmp_path):
    shuffled = numbers(*range(1_000)).take(np.random.default_rng(1).permutation(1_000))
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
    write(f"{bucket}/table/b.parquet", numbers(*range(500, 1_000)), row_group_size=100)
    cache = str(tmp_path / "cache")
    files = open_files(f"{bucket}/state", cache=cache)
    source = prepare(table(f"{bucket}/table", "id", in_place=True), files, cache=cache)
    found = opened(source)
    assert len(found.index) == 5
    check_table(found, numbers(*range(500, 1_000)))
    assert found.newest() is None
    write(f"{bucket}/table/a.parquet", numbers(*range(500)))
    newer = found.newest()
    assert newer is not None
    check_table(opened(newer), numbers(*range(1_000)))


def test_a_bucket_that_is_not_there_is_named(bucket, tmp_path):
    files = open_files(tmp_path / "state")
    with pytest.raises(TableError, match="s3://no-such-bucket/x is not there"):
        prepare(table("s3://no-such-bucket/x", "id"), files)


def with_options(uri: str, endpoint: str) -> str:
    """The URI with all that is needed in itself."""
    host = endpoint.removeprefix("http://")
    return f"{uri.replace('s3://', 's3://test:test@')}?scheme=http&region=us-east-1&endpoint_override={host}"


def only_options(monkeypatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name)


def test_a_delta_table_on_an_object_store(bucket, s3_endpoint, tmp_path, monkeypatch):
    uri = f"{bucket}/lake/t"
    write_deltalake(uri, numbers(*range(9)))
    DeltaTable(uri).delete("id < 5")
    files = open_files(tmp_path / "state")
    check_table(prepare(table(uri.replace("s3:", "s3a:"), "id"), files).open(), numbers(*range(5, 9)))
    for wrong, reason in (
        (f"{bucket}/lake", "contains the Delta table t"),
        (f"{uri}/x", "inside the Delta table"),
    ):
        with pytest.raises(TableError, match=reason):
            prepare(table(wrong, "id"), files)
    only_options(monkeypatch)
    check_table(prepare(table(with_options(uri, s3_endpoint), "id"), files).open(), numbers(*range(5, 9)))


def test_an_iceberg_table_on_an_object_store(bucket, s3_endpoint, tmp_path, monkeypatch):
    catalogue = SqlCatalog(
        "lake",
        uri=f"sqlite:///{tmp_path}/catalogue.db",
        warehouse=bucket,
        **{"s3.endpoint": s3_endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"},
    )
    catalogue.create_namespace("shop")
    made = catalogue.create_table("shop.t", numbers(*range(1)).schema)
    made.append(numbers(*range(9)))
    made.delete("id < 5")
    files = open_files(tmp_path / "state")
    with pytest.raises(TableError, match="only the catalogue knows"):
        prepare(table(made.location(), "id"), files)
    check_table(prepare(table(made.metadata_location, "id"), files).open(), numbers(*range(5, 9)))
    filesystem, base = fs.FileSystem.from_uri(f"{made.location()}/metadata")
    newest = made.metadata_location.rpartition("/")[2]
    filesystem.copy_file(f"{base}/{newest}", f"{base}/v3.metadata.json")
    for info in filesystem.get_file_info(fs.FileSelector(base)):
        # Manifests have random names, which may start with a zero too.
        if info.base_name.startswith("0") and info.base_name.endswith(".metadata.json"):
            filesystem.delete_file(info.path)
    only_options(monkeypatch)
    check_table(
        prepare(table(with_options(made.location(), s3_endpoint), "id"), files).open(), numbers(*range(5, 9))
    )
