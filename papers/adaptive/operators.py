"""The four operators of the evaluation, as strategies of `wm.join`.

Source: Elseidy et al. 2014, section 5. DYNAMIC starts with a square grid and adapts; STATICMID keeps the
square; STATICOPT is told the final sizes; SHJ sends equal keys to one joiner.
"""

from __future__ import annotations

from typing import Any

from papers.shared.exhibit import Control
from papers.shared.queries import Inputs
from watersmeet.schemes.grid.policy import GridPolicy, optimal_mapping

DYNAMIC, STATICMID, STATICOPT, SHJ = "DYNAMIC", "STATICMID", "STATICOPT", "SHJ"
OPERATORS = (SHJ, STATICMID, DYNAMIC, STATICOPT)


def arguments(operator: str, inputs: Inputs, cells: int) -> dict[str, Any]:
    """What `wm.join` is called with. SHJ needs an equality."""
    if operator == SHJ:
        return {"strategy": "hash"}
    if operator == DYNAMIC:
        return {"strategy": "grid", "cells": cells}
    expected = (1, 1) if operator == STATICMID else inputs.bytes
    shape = optimal_mapping(cells, *expected)
    return {"strategy": "grid", "mapping": (shape.rows, shape.cols)}


def static_mid() -> GridPolicy:
    """STATICMID: as square as possible, and never changed."""
    return GridPolicy(False)


def static_opt(left_bytes: int, right_bytes: int) -> GridPolicy:
    """STATICOPT: the best mapping for the known final sizes, from the start."""
    return GridPolicy(False, expected=(left_bytes, right_bytes))


def runs_with(operator: str, *, equality: bool) -> bool:
    return equality or operator != SHJ


def static(operator: str, agrees: bool, told: str) -> Control:
    """A control by an operator that never changes its mapping, and so has no policy."""
    return Control(f"a static operator ({operator})", agrees, told)
