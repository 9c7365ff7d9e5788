"""State on an object store: the same operator over the S3 protocol, with a server on loopback."""

from __future__ import annotations

import threading
import uuid

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

from watersmeet.engine.operator import _KEPT
from watersmeet.engine.spec import Settings
from watersmeet.errors import CorruptFile
from watersmeet.local.join import LocalJoin
from watersmeet.log import remote
from watersmeet.log.files import open_files

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})


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


def join(place: str, cache, run: str = "a", number: int = 0) -> LocalJoin:
    settings = Settings(state=place, tasks=2, cache=str(cache))
    return LocalJoin(
        {"l": SCHEMA, "r": SCHEMA},
        on="l.k = r.k",
        select=["l.x", "r.x AS y"],
        state=place,
        settings=settings,
        run=run,
        number=number,
    )


def table(*rows: tuple[int, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in rows], "x": [x for _, x in rows]}, schema=SCHEMA)


def test_a_join_keeps_its_state_in_a_bucket_and_resumes_on_another_machine(bucket, tmp_path):
    first = join(f"{bucket}/state", tmp_path / "one")
    first.batch(l=table((1, 10), (2, 20)))
    assert first.batch(r=table((1, 5))).to_pylist() == [{"x": 10, "y": 5}]
    _KEPT.clear()
    second = join(f"{bucket}/state", tmp_path / "two", run="b", number=2)
    assert second.batch(r=table((2, 6))).to_pylist() == [{"x": 20, "y": 6}]
    assert list((tmp_path / "two").rglob("*.arrow")), "history was not cached"


def test_publish_never_replaces_an_object(bucket):
    files = open_files(f"{bucket}/p").under("n", "q")
    start, won = threading.Barrier(6), []

    def task(number: int) -> None:
        start.wait()
        if files.publish("manifests/a", str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=task, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert files.read("manifests/a") == str(won[0]).encode()
    assert [info.name for info in files.entries("manifests")] == ["a"]
    assert open_files(f"{bucket}/p").folders() == ["n"]


def test_a_damaged_local_copy_is_fetched_anew_and_a_damaged_object_is_an_error(bucket, tmp_path):
    place = f"{bucket}/state"
    join(place, tmp_path).batch(l=table((1, 10)))
    (copy,) = tmp_path.rglob("*.arrow")
    content = bytearray(copy.read_bytes())
    content[len(content) // 2] ^= 1
    copy.write_bytes(bytes(content))
    _KEPT.clear()
    assert join(place, tmp_path, "b", 1).batch(r=table((1, 5))).to_pylist() == [{"x": 10, "y": 5}]
    files = open_files(place)
    (info,) = files.under("join", "local").entries("runs/l")
    with files.filesystem.open_output_stream(f"{files.base}/join/local/runs/l/{info.name}") as target:
        target.write(bytes(content))
    _KEPT.clear()
    copy.unlink()
    with pytest.raises(CorruptFile, match="of batch 0 in s3://"):
        join(place, tmp_path, "c", 2).batch(r=table((1, 6)))


def test_the_cache_makes_room_for_what_is_read_last(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "CACHE_BYTES", 1)
    running = join(f"{bucket}/state", tmp_path)
    for number in range(4):
        running.batch(l=table((number, number)))
    _KEPT.clear()
    later = join(f"{bucket}/state", tmp_path / "other", "b", 4)
    assert len(later.batch(r=table(*((k, 0) for k in range(4))))) == 4
    assert len(list((tmp_path / "other").rglob("*.arrow"))) == 1
