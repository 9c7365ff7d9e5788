"""The S3 server of tests and benchmarks, on loopback: in a thread of the test, or in a process of its own.

Its conditional put is atomic, as on S3. That of moto is not: it looks first and then stores, in several threads.

`tests/conftest.py` has the fixtures: `s3_endpoint`, the address of a server, and `bucket`, a new bucket on it that this
process is set up for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which clients find the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def make_bucket(name: str | None = None, endpoint: str | None = None) -> str:
    """The URI of a new bucket, by default on the server that the environment names.

    One for each life: the server looks at all objects of a bucket to list some.
    """
    import boto3

    name = name or f"bucket-{uuid.uuid4().hex}"
    given = environment(endpoint or os.environ["AWS_ENDPOINT_URL"])
    boto3.client(
        "s3",
        endpoint_url=given["AWS_ENDPOINT_URL"],
        region_name=given["AWS_REGION"],
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
    ).create_bucket(Bucket=name)
    return f"s3://{name}"


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server in a thread of this process."""
    from moto.server import ThreadedMotoServer

    with _one_put_at_a_time():
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            yield f"http://{host}:{port}"
        finally:
            server.stop()


@contextmanager
def s3_process() -> Iterator[str]:
    """The address of the same server in a process of its own, for a process that forks: threads would be lost."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.s3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            # It says its address when it serves, and nothing if it cannot start.
            endpoint = server.stdout.readline().strip()
            assert endpoint, "the S3 server does not start: pip install 'moto[s3,server]'"
            yield endpoint
        finally:
            server.kill()


@contextmanager
def _one_put_at_a_time() -> Iterator[None]:
    from moto.s3.responses import S3Response

    turn, real = threading.Lock(), S3Response.put_object

    def put_object(response: S3Response) -> Any:
        with turn:
            return real(response)

    S3Response.put_object = put_object
    try:
        yield
    finally:
        S3Response.put_object = real


if __name__ == "__main__":
    with s3_server() as address:
        print(address, flush=True)
        # Until the parent is gone.
        sys.stdin.read()
