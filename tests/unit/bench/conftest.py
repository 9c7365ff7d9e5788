"""Tests of the benchmarks import `bench`, which stands beside the package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _bench_can_be_imported(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    monkeypatch.setenv("WATERSMEET_BENCH_DIR", str(tmp_path))
