"""An S3 server on loopback in a process of its own: `python -m bench.loopback` prints its address and serves until killed.

It is moto's, kept in memory. One client at a time: its conditional put is not atomic.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which clients find the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server that lives as long as the context."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.loopback"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            endpoint = server.stdout.readline().strip()
            assert endpoint, "the S3 server does not start: pip install 'moto[s3,server]'"
            yield endpoint
        finally:
            server.kill()


def make_bucket(endpoint: str, name: str) -> str:
    """The URI of a new bucket."""
    import boto3

    given = environment(endpoint)
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=given["AWS_REGION"],
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=name)
    return f"s3://{name}"


def _serve() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _serve()
