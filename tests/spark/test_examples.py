"""The Python examples run, and find what they say."""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path

import pytest

import watersmeet as wm

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Shared:
    """A builder that gives the session of the tests, whose settings the example would change."""

    def __init__(self, spark):
        self.getOrCreate = lambda: spark


def test_the_triangle_of_three_streams(spark, monkeypatch):
    monkeypatch.setattr(wm, "configure", lambda builder: Shared(spark))
    done = runpy.run_path(str(EXAMPLES / "triangle.py"))
    edges = set(done["edges"])
    wanted = sorted(
        (a, b, c)
        for (a, b), c in itertools.product(edges, range(done["PEOPLE"]))
        if a < b and a < c and (b, c) in edges and (c, a) in edges
    )
    assert wanted and done["found"] == wanted
    # Each edge is stored as each of the three inputs.
    assert {one.rows for one in done["join"].inputs} == {len(edges)}
