"""The reproduction of HYBRIDJOIN as a whole, in small: its steps, its page, how it is stopped."""

from __future__ import annotations

import dataclasses
from threading import Event

import pytest
from typer.testing import CliRunner

from papers.__main__ import app
from papers.hybrid.cases import QUICK
from papers.hybrid.figures import Hybrid
from papers.shared.reproduction import Session, Stopped

TINY = dataclasses.replace(
    QUICK,
    rows=4000,
    budget_bytes=400_000,
    relations=(2000, 4000),
    budgets=(200_000, 400_000),
    pages=(64, 1000),
    rates=(125, 2000, 8000),
    seeks=(0.005,),
    slow_rows=50,
    readings=2,
    reading_s=0.0,
    use_pages=400,
    calibration_pages=(64, 128, 256),
    read_pages=(256,),
)


class Watch:
    def __init__(self):
        self.steps = []

    def step(self, text):
        self.steps.append(text)

    def batch(self, done, of):
        assert 0 < done <= of


def run_tiny(names, tmp_path, stop=None):
    watch = Watch()
    armed = []
    exhibits = Hybrid(TINY).run(
        names, Session(tmp_path, tmp_path, watch, stop or Event(), lambda: armed.append(True))
    )
    assert armed
    return exhibits, watch


def test_all_figures_in_small_with_as_many_steps_as_announced(tmp_path):
    names = list(Hybrid.exhibits)
    exhibits, watch = run_tiny(names, tmp_path)
    assert [exhibit.name for exhibit in exhibits] == names
    assert len(watch.steps) == Hybrid(TINY).count_steps(names)
    for exhibit in exhibits:
        assert exhibit.verdicts and exhibit.charts
        assert all(verdict.control for verdict in exhibit.verdicts)
        for table in exhibit.tables:
            assert all(len(row) == len(table.columns) for row in table.rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "products-1000.db",
        "products-2000.db",
        "products-4000.db",
    ]


def test_a_stopped_reproduction_says_so(tmp_path):
    stop = Event()
    stop.set()
    with pytest.raises(Stopped):
        run_tiny(["fig10c"], tmp_path, stop)


def test_the_command_writes_page_pictures_and_figures(tmp_path):
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["hybrid", "--only", "fig8", "--only", "fig9", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "3 of 4 statements agree" in done.output
    assert sorted(path.name for path in out.iterdir()) == [
        *("fig8-1.png", "fig8-2.png", "fig9-1.png", "fig9-2.png"),
        *("figures.json", "index.html"),
    ]
    assert "Figure 9" in (out / "index.html").read_text()


def test_an_exhibit_that_is_not_there_is_refused_before_anything_is_done(tmp_path):
    done = CliRunner().invoke(app, ["hybrid", "--only", "fig7", "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "there is no such exhibit; use fig3, fig6" in " ".join((done.output + done.stderr).split())
    assert not (tmp_path / "out").exists()
