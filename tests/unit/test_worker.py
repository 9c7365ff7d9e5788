"""What a Python worker is told: its modules are left out of garbage collections, its socket acknowledges at once."""

from __future__ import annotations

import gc
import socket
import sys
import types
import weakref

import pytest

pytest.importorskip("pyspark")

from watersmeet.spark import worker


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "_modules_frozen", 0)
    yield
    gc.unfreeze()


def test_what_is_loaded_is_frozen_once() -> None:
    worker.keep_modules()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    kept: list[list[int]] = [[] for _ in range(1000)]
    worker.keep_modules()
    assert gc.get_freeze_count() < frozen + len(kept)


def test_a_module_loaded_later_is_frozen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    worker.keep_modules()
    frozen = gc.get_freeze_count()
    module = types.ModuleType("loaded_later")
    module.content = [[] for _ in range(1000)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "loaded_later", module)
    worker.keep_modules()
    assert gc.get_freeze_count() >= frozen + 1000


def test_modules_that_come_and_go_are_not_frozen_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comes_and_goes", types.ModuleType("comes_and_goes"))
    worker.keep_modules()
    frozen = gc.get_freeze_count()
    monkeypatch.delitem(sys.modules, "comes_and_goes")
    kept: list[list[int]] = [[] for _ in range(1000)]
    worker.keep_modules()
    assert gc.get_freeze_count() < frozen + len(kept)


def test_cycles_of_later_tasks_are_still_collected() -> None:
    class Node:
        pass

    worker.keep_modules()
    node = Node()
    node.itself = node  # type: ignore[attr-defined]
    gone = weakref.ref(node)
    del node
    worker.keep_modules()
    gc.collect()
    assert gone() is None


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
            worker.acknowledge_at_once()
            for connection in (one, other):
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            other.sendall(b"still open")
            assert one.recv(10) == b"still open"


def test_other_files_and_sockets_are_left_alone(tmp_path) -> None:
    left, right = socket.socketpair()
    with left, right, (tmp_path / "f").open("w") as file:
        worker.acknowledge_at_once()
        left.sendall(b"x")
        assert right.recv(1) == b"x"
        assert file.write("x") == 1
