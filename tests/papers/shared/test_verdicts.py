"""Statements and their controls, how they are counted, the load of the machine, and the document they come into."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from papers.shared.exhibit import Control, Exhibit, Verdict, summarise
from papers.shared.load import QUIET_MINUTE, QUIET_SHARE, Load, OtherLoad
from papers.shared.reproduction import write

ROOT = Path(__file__).resolve().parents[3]
ALIKE, UNLIKE = Control("a static one", True, "1 s"), Control("a hash join", False, "9 s")


def exhibit(*verdicts):
    return Exhibit("one", "One", "how", [], verdicts)


def test_a_statement_without_a_control_is_refused():
    with pytest.raises(ValueError, match="no control for: faster"):
        Verdict("faster", "1 s", True, controls=[])
    with pytest.raises(TypeError):
        Verdict("faster", "1 s", True)


@pytest.mark.parametrize(
    "agrees, controls, word, alike",
    [
        (True, [UNLIKE], "agrees", False),
        (True, [UNLIKE, ALIKE], "agrees", True),
        (False, [ALIKE], "differs", False),
        (None, [ALIKE], "not comparable", False),
    ],
)
def test_a_control_takes_its_worth_from_a_statement_that_agrees_only(agrees, controls, word, alike):
    verdict = Verdict("faster", "1 s", agrees, controls=controls)
    assert verdict.word == word and verdict.alike is alike
    assert Verdict("x", "y", True, controls=[UNLIKE, ALIKE]).control == (
        "a hash join does not: 9 s; a static one agrees too: 1 s"
    )


def test_what_cannot_be_compared_is_counted_apart():
    verdicts = [
        Verdict("a", "", True, controls=[ALIKE]),
        Verdict("b", "", True, controls=[UNLIKE]),
        Verdict("c", "", False, controls=[ALIKE]),
    ]
    assert summarise([exhibit(*verdicts)]) == (
        "2 of 3 statements agree; for 1 of these 2 a control agrees too"
    )
    apart = Verdict("d", "", None, controls=[UNLIKE])
    assert summarise([exhibit(*verdicts), exhibit(apart)]).endswith("; 1 more cannot be compared")


@pytest.mark.parametrize(
    "share, worst, quiet",
    [
        (0.02, 0.05, True),
        (QUIET_SHARE + 0.01, 0.2, False),
        (0.02, QUIET_MINUTE + 0.01, False),
    ],
)
def test_a_busy_machine_is_named(share, worst, quiet):
    load = Load(share, worst)
    assert load.quiet is quiet and ("a busy machine" in load.text) is not quiet


class Machine:
    """A machine of two cores for a hundred seconds: all is idle but for what is told."""

    def __init__(self):
        self.own_s, self.others_s, self.clock_s = {1: 0.0}, 0.0, 0.0

    def cpu_times(self):
        busy = sum(self.own_s.values()) + self.others_s
        idle = 2 * self.clock_s - busy
        return SimpleNamespace(user=busy, nice=0, system=0, irq=0, softirq=0, steal=0, idle=idle, iowait=0)

    def process(self, pid=1):
        return SimpleNamespace(
            pid=pid,
            create_time=lambda: 0.0,
            cpu_times=lambda: SimpleNamespace(user=self.own_s[pid], system=0.0),
            children=lambda recursive: [self.process(other) for other in self.own_s if other != 1],
        )


def test_work_of_this_process_and_its_children_is_not_that_of_others(monkeypatch):
    machine = Machine()
    monkeypatch.setattr("papers.shared.load.psutil.cpu_times", machine.cpu_times)
    monkeypatch.setattr("papers.shared.load.psutil.Process", machine.process)
    with OtherLoad(look_s=60.0) as watched:
        machine.clock_s, machine.own_s, machine.others_s = 100.0, {1: 40.0, 2: 90.0}, 30.0
    assert watched.load.share == pytest.approx(30 / 200)
    with OtherLoad(look_s=60.0) as watched:
        machine.clock_s, machine.own_s = 200.0, {1: 130.0, 2: 90.0}
    assert watched.load.share == 0


def test_the_document_has_the_control_and_says_how_busy_the_machine_was(tmp_path):
    class Nothing:
        title, facts = "paper", []

    write([exhibit(Verdict("a | b*", "1 s", True, controls=[ALIKE]))], Nothing(), Load(0.4, 0.5), tmp_path)
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["quiet"] is False
    document, picture = tmp_path / "reproduce-one.md", tmp_path / "img" / "one-fig1.png"
    document.write_text("before ![a](img/one-fig1.png)\n<!-- scripts/figures writes what follows -->\nold\n")
    picture.parent.mkdir()
    picture.write_text("old")
    (tmp_path / "fig1.png").write_text("new")
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "figures", tmp_path / "figures.json", document], check=True
    )
    text = document.read_text()
    assert text.startswith("before ") and "old" not in text and picture.read_text() == "new"
    assert "a busy machine. Times by the wall clock are not reliable" in text
    assert "| a \\| b\\* | 1 s | agrees; a control too |  | a static one agrees too: 1 s |" in text
