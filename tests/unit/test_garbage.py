"""A worker's modules are left out of its garbage collections; garbage is not."""

from __future__ import annotations

import gc
import sys
import types
import weakref

import pytest

pytest.importorskip("pyspark")

from watersmeet.spark import garbage


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(garbage, "_modules_frozen", 0)
    yield
    gc.unfreeze()


def test_what_is_loaded_is_frozen_once() -> None:
    garbage.keep_modules()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    kept: list[list[int]] = [[] for _ in range(1000)]
    garbage.keep_modules()
    assert gc.get_freeze_count() < frozen + len(kept)


def test_a_module_loaded_later_is_frozen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    garbage.keep_modules()
    frozen = gc.get_freeze_count()
    module = types.ModuleType("loaded_later")
    module.content = [[] for _ in range(1000)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "loaded_later", module)
    garbage.keep_modules()
    assert gc.get_freeze_count() >= frozen + 1000


def test_modules_that_come_and_go_are_not_frozen_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comes_and_goes", types.ModuleType("comes_and_goes"))
    garbage.keep_modules()
    frozen = gc.get_freeze_count()
    monkeypatch.delitem(sys.modules, "comes_and_goes")
    kept: list[list[int]] = [[] for _ in range(1000)]
    garbage.keep_modules()
    assert gc.get_freeze_count() < frozen + len(kept)


def test_cycles_of_later_tasks_are_still_collected() -> None:
    class Node:
        pass

    garbage.keep_modules()
    node = Node()
    node.itself = node  # type: ignore[attr-defined]
    gone = weakref.ref(node)
    del node
    garbage.keep_modules()
    gc.collect()
    assert gone() is None
