"""Spark's socket to a worker acknowledges at once when it is told to."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("pyspark")

from watersmeet.spark.sockets import acknowledge_at_once

needs_linux = pytest.mark.skipif(
    not hasattr(socket, "TCP_QUICKACK"), reason="only Linux delays and has the option"
)


@needs_linux
def test_every_connection_of_the_process_acknowledges_at_once() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        other, _ = server.accept()
        with other:
            for connection in (one, other):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            acknowledge_at_once()
            for connection in (one, other):
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            other.sendall(b"still open")
            assert one.recv(10) == b"still open"


def test_other_files_and_sockets_are_left_alone(tmp_path) -> None:
    left, right = socket.socketpair()
    with left, right, (tmp_path / "f").open("w") as file:
        acknowledge_at_once()
        left.sendall(b"x")
        assert right.recv(1) == b"x"
        assert file.write("x") == 1
