"""State on an object store: the same operator over the S3 protocol, with a server on loopback."""

from __future__ import annotations

import json
import logging
import threading
import traceback
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import obstore
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests import life
from watersmeet.cli.main import app
from watersmeet.errors import ConfigError, CorruptFile, StateError
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.log.objects import Objects
from watersmeet.log.probe import probe
from watersmeet.log.remote import RemoteFiles
from watersmeet.log.storage import Storage

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})


def join(place: str, cache, run: str = "a", number: int = 0, cache_bytes: int | None = None) -> LocalJoin:
    settings = {"cache": str(cache), "cache_bytes": cache_bytes}
    return life.start(SCHEMA, place, select=["l.x", "r.x AS y"], settings=settings, run=run, number=number)


def table(*rows: tuple[int, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in rows], "x": [x for _, x in rows]}, schema=SCHEMA)


def test_a_join_keeps_its_state_in_a_bucket_and_resumes_on_another_machine(bucket, tmp_path):
    first = join(f"{bucket}/state", tmp_path / "one")
    first.batch(l=table((1, 10), (2, 20)))
    assert first.batch(r=table((1, 5))).to_pylist() == [{"x": 10, "y": 5}]
    life.forget()
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
    life.forget()
    assert join(place, tmp_path, "b", 1).batch(r=table((1, 5))).to_pylist() == [{"x": 10, "y": 5}]
    files = open_files(place)
    (info,) = files.under("join", "local").entries("runs/l")
    with files.filesystem.open_output_stream(f"{files.base}/join/local/runs/l/{info.name}") as target:
        target.write(bytes(content))
    life.forget()
    copy.unlink()
    with pytest.raises(CorruptFile, match="of batch 0 in s3://"):
        join(place, tmp_path, "c", 2).batch(r=table((1, 6)))


def test_the_cache_makes_room_for_what_is_read_last(bucket, tmp_path):
    running = join(f"{bucket}/state", tmp_path / "one", cache_bytes=1)
    for number in range(4):
        running.batch(l=table((number, number)))
    life.forget()
    later = join(f"{bucket}/state", tmp_path / "other", "b", 4, cache_bytes=1)
    assert len(later.batch(r=table(*((k, 0) for k in range(4))))) == 4
    # A batch fetches several runs at once, so it may leave more than one. One after the other, only the last stays.
    files = open_files(Storage(f"{bucket}/state", str(tmp_path / "third"), 1)).under("join", "local")
    for run in files.entries("runs/l"):
        files.map(f"runs/l/{run.name}")
        assert [copy.name for copy in (tmp_path / "third").rglob("*.arrow")] == [run.name]


# --- credentials in the URI -----------------------------------------------------------------------------

KEY, SECRET = "AKIAWATER", "hunter22/slash"


@pytest.fixture
def with_credentials(bucket, s3_endpoint, monkeypatch) -> str:
    """The bucket by a URI that brings everything along: nothing in the environment says how to reach it."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name)
    host = s3_endpoint.removeprefix("http://")
    place = bucket.removeprefix("s3://")
    secret = quote(SECRET, safe="")
    return f"s3://{KEY}:{secret}@{place}/state?scheme=http&region=us-east-1&endpoint_override={quote(host)}"


def test_a_uri_with_credentials_is_used_and_shown_without_them(with_credentials, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    running = join(with_credentials, tmp_path)
    running.batch(l=table((1, 10)))
    assert running.batch(r=table((1, 5))).to_pylist() == [{"x": 10, "y": 5}]

    found = wm.status(with_credentials)
    files = open_files(with_credentials).under("join", "local")
    (run,) = files.entries("runs/l")
    files.filesystem.delete_file(f"{files.base}/runs/l/{run.name}")
    damaged = wm.status(with_credentials)
    asked = [
        CliRunner().invoke(app, ["status", with_credentials, *more]) for more in ([], ["--json"], ["--debug"])
    ]
    asked.append(
        CliRunner().invoke(app, ["status", with_credentials.replace("/state?", "/none?"), "--debug"])
    )

    assert found.joins[0].batch == 1
    assert len(damaged.damage) == 1
    assert json.loads(asked[1].stdout)["state"] == found.state
    shown = [found.state, repr(found), repr(damaged), files.place, repr(files), repr(running.operator.spec)]
    shown += [done.output for done in asked] + [caplog.text]
    for text in shown:
        assert "hunter22" not in text and KEY not in text
    assert found.state.startswith("s3://***@bucket-")
    assert open_files(files.storage).entries("manifests") == files.entries("manifests")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIAWATER:hunter22@bucket/x?bogus=1",
        "s3://AKIAWATER:hunter22/x@bucket/x",
        "s3://bucket/x?secret_key=hunter22&access_key=AKIAWATER",
        "hdfs://AKIAWATER:hunter22@host/x",
        "ftp://AKIAWATER:hunter22@host/x",
        "s3://bucket/x?endpoint_override=http%3A%2F%2FAKIAWATER%3Ahunter22%40host&bogus=1",
    ],
)
def test_a_uri_that_cannot_be_opened_is_refused_without_its_credentials(uri):
    for opening in (open_files, wm.status, lambda place: join(place, "unused")):
        with pytest.raises(ConfigError) as caught:
            opening(uri)
        said = "".join(traceback.format_exception(caught.value))
        assert "hunter22" not in said and "AKIAWATER" not in said


def test_errors_of_other_libraries_lose_the_credentials(bucket, tmp_path, monkeypatch):
    """A server that is away: both libraries say where they looked."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    place = bucket.removeprefix("s3://")
    uri = f"s3://{KEY}:hunter22@{place}/state?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:9"
    files = open_files(Storage(uri, cache=str(tmp_path)))

    def refuse(*_, **__):
        raise OSError(f"When reading {uri}: no route, tried http://{KEY}:hunter22@127.0.0.1:9/ with hunter22")

    class Away:
        def __getattr__(self, name):
            refuse()

    for name in ("get", "put", "delete"):
        monkeypatch.setattr(obstore, name, refuse)
    away = type(files)(files.storage, Away(), files.base, files.objects, files.cache)
    for call in (
        lambda: away.read("x"),
        lambda: away.entries("x"),
        away.folders,
        lambda: away.map("x"),
        lambda: away.delete("x"),
        lambda: away.publish("x", b""),
    ):
        with pytest.raises(StateError) as caught:
            call()
        assert "no route" in str(caught.value)
        assert "hunter22" not in "".join(traceback.format_exception(caught.value))


# --- what an object store must be able to do ------------------------------------------------------------


class Forgetful(BaseHTTPRequestHandler):
    """An S3 server that accepts every put, whatever its conditions."""

    puts: list[str]
    left: set[str]

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.puts.append(self.headers.get("If-None-Match", ""))
        self.left.add(self.path)
        self._say(200, ETag='"0"')

    def do_DELETE(self) -> None:
        self.left.discard(self.path)
        self._say(204)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        for key in [path for path in self.left if path.rpartition("/")[2] in body]:
            self.left.discard(key)
        answer = b'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></DeleteResult>'
        self._say(200, answer)

    def _say(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def forgetful(bucket, monkeypatch):
    handler = type("Handler", (Forgetful,), {"puts": [], "left": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    yield handler
    server.shutdown()
    serving.join()
    server.server_close()


def test_a_store_that_ignores_conditions_is_refused_when_the_join_is_built(forgetful, bucket, tmp_path):
    with pytest.raises(ConfigError, match=r"ignores If-None-Match.*results would be lost"):
        join(f"{bucket}/state", tmp_path)
    assert forgetful.puts == ["*", "*"]
    assert forgetful.left == set(), "the object of the probe was left behind"


def test_the_probe_of_a_good_store_leaves_nothing_behind(bucket, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="werkzeug")
    probe(Storage(f"{bucket}/state", cache=str(tmp_path)))
    seen = [record.getMessage() for record in caplog.records if ".watersmeet-probe-" in record.getMessage()]
    assert len([line for line in seen if "PUT" in line]) == 2
    files = open_files(f"{bucket}/state")
    assert files.entries("") == [] and files.folders() == []


def test_a_store_that_the_driver_cannot_reach_is_left_to_the_tasks(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    join(f"{bucket}/state", tmp_path)


def test_an_object_that_is_removed_while_it_is_fetched_is_missing(bucket, monkeypatch, tmp_path):
    """Between two chunks of a run another task may clean up."""
    opened = open_files(Storage(f"{bucket}/state", cache=str(tmp_path / "cache")))
    assert isinstance(opened, RemoteFiles)
    files = replace(opened, chunk_bytes=4)
    files.publish("runs/a", b"content")
    real = Objects.get_first

    def get_and_remove(objects: Objects, path: str, most: int) -> tuple[bytes, int]:
        found = real(objects, path, most)
        files.delete("runs/a")
        return found

    assert files.map("runs/a").to_pybytes() == b"content"
    files.forget_copy("runs/a")
    monkeypatch.setattr(Objects, "get_first", get_and_remove)
    with pytest.raises(FileNotFoundError, match="runs/a"):
        files.map("runs/a")
    assert not files.has_copy("runs/a")
