"""A comparison that fails says nothing about the rows: it must not count as right."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from tests.chaos import flips, power, scenario
from tests.chaos.power import Op
from tests.chaos.processes import Outcome
from tests.chaos.scenario import Wrong

COMPARED = [
    pytest.param(Outcome(value=""), None, id="right"),
    pytest.param(Outcome(value="1 results are missing"), "1 results are missing", id="wrong"),
    pytest.param(Outcome(raw=True, text="MemoryError"), "cannot be compared", id="raised"),
    pytest.param(Outcome(killed=True), "cannot be compared: it was killed", id="killed"),
    pytest.param(Outcome(hung=True), "cannot be compared: it hangs", id="hung"),
]


@pytest.mark.parametrize(("compared", "wrong"), COMPARED)
@pytest.mark.parametrize("name", ["flips", "power"])
def test_only_a_comparison_that_was_made_counts(monkeypatch, name, compared, wrong):
    life = SimpleNamespace(
        case_name="hash",
        tasks=1,
        is_remote=False,
        fsync=True,
        drive=lambda: Outcome(),
        difference=lambda: compared,
        remove=lambda: None,
    )
    for module in (flips, power, scenario):
        monkeypatch.setattr(module, "in_child", lambda work: work())
    monkeypatch.setattr(power, "_restored", lambda *_: life)

    def judge():
        if name == "flips":
            return flips._judge(life, "a flip")
        return power._lose_power(life, [Op("mkdir", ".")], random.Random(1), 0)

    if wrong is None:
        assert judge()[{"flips": "harmless", "power": "right"}[name]] == 1
    else:
        with pytest.raises(Wrong, match=wrong):
            judge()
