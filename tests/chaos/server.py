"""An S3 server on loopback, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.s3 import environment

_START_S = 60.0


@contextlib.contextmanager
def s3_server() -> Iterator[None]:
    """The environment of this process and its children has what a client needs."""
    port = _free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.s3", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            os.environ.update(environment(f"http://127.0.0.1:{port}"))
            _wait_for(port, server)
            yield
        finally:
            server.kill()


def make_bucket(uri: str) -> None:
    """One for each life: the server looks at all objects of a bucket to list some."""
    import boto3

    name = uri.removeprefix("s3://").partition("/")[0]
    boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).create_bucket(Bucket=name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the S3 test server does not start")
        time.sleep(0.05)
