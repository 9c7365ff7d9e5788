"""A processor whose sort leaves equal values in any order, unless a stable sort is asked for."""

from __future__ import annotations

import numpy as np
import pytest


def sort_unstably(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    sort = np.argsort

    def any_order(values, *args, kind=None, **more):
        if kind == "stable":
            return sort(values, *args, kind=kind, **more)
        return np.lexsort((rng.random(len(values)), values))

    monkeypatch.setattr(np, "argsort", any_order)
