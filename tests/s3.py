"""The S3 server of the tests, on loopback: `python -m tests.s3 -p PORT`, or in a thread of the test.

Its conditional put is atomic, as on S3. That of moto is not: it looks first and then stores, in several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer, main


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


@contextmanager
def one_put_at_a_time() -> Iterator[None]:
    turn, real = threading.Lock(), S3Response.put_object

    def put_object(response: S3Response) -> Any:
        with turn:
            return real(response)

    S3Response.put_object = put_object
    try:
        yield
    finally:
        S3Response.put_object = real


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server in a thread of this process."""
    with one_put_at_a_time():
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        server.start()
        try:
            host, port = server.get_host_and_port()
            yield f"http://{host}:{port}"
        finally:
            server.stop()


if __name__ == "__main__":
    with one_put_at_a_time():
        main()
