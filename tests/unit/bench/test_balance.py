"""The benchmark of balance: its distributions of keys, and what misses the demand."""

from __future__ import annotations

import json

import numpy as np
import pytest


def test_every_distribution_of_the_balance_is_drawn_alike_each_time():
    from bench.balance import DISTRIBUTIONS

    for distribution in DISTRIBUTIONS.values():
        first, second = distribution.draw(0.01), distribution.draw(0.01)
        assert all(
            np.array_equal(a, b)
            for pair in zip(first, second, strict=True)
            for a, b in zip(*pair, strict=True)
        )
        assert all(len(side) for pair in first for side in pair)


def test_hot_keys_come_when_they_should():
    from bench.balance import DISTRIBUTIONS

    def hottest(name: str) -> list[tuple[int, float]]:
        counts = [np.bincount(left) for left, _ in DISTRIBUTIONS[name].draw(0.3)]
        return [(int(count.argmax()), count.max() / count.sum()) for count in counts]

    turns = hottest("keys take turns")
    assert [key for key, _ in turns] == [0, 1, 2]
    assert all(share == pytest.approx(0.1, rel=0.1) for _, share in turns)
    middle = hottest("hot from the middle")
    assert all(share < 0.001 for _, share in middle[:2])
    assert [key for key, _ in middle[2:]] == [7, 7]
    # A run lists keys of at least 32 rows: in a partition this one has fewer.
    new = hottest("32 partitions")
    assert [key for key, _ in new] == [0, 1]
    rows = len(DISTRIBUTIONS["32 partitions"].draw(1.0)[0][0])
    assert 0.03 * rows / 32 < 32


@pytest.mark.parametrize(
    "name, scheme",
    [("Zipf 1", "hypercube"), ("one key", "range"), ("32 partitions", "hash"), ("hot values in a band", "range"),
     ("inputs of 64:1", "biclique"), ("no equality, no band", "grid")],
)  # fmt: skip
def test_a_case_of_the_balance_has_the_results_that_its_keys_give(name, scheme):
    from bench.balance import Case, measure

    found = measure(Case(name, scheme, 3), 0.02)
    assert found["emitted"] == found["want"] > 0
    ratios = [1, found["run"], found["batch_by_batch"], found["worst_batch"], 3]
    assert (np.diff(ratios) > -1e-9).all(), "a run cannot be less even than its batches"


def balance_case(scheme: str, **changes):
    from bench.balance import Case

    result = {"run": 1.1, "judged": 1.2, "units": 5000, "emitted": 7, "want": 7, "rows": 3, "probed": 3}
    return {Case("Zipf 1", scheme, 200): result | changes}


@pytest.mark.parametrize(
    "results, problem",
    [
        (balance_case("hypercube"), None),
        (balance_case("hypercube", judged=1.26), "hypercube, Zipf 1, 200 tasks: 1.26"),
        (balance_case("grid", judged=1.26), "grid, Zipf 1, 200 tasks: 1.26"),
        (balance_case("hypercube", run=1.26), None),
        (balance_case("hash", judged=90.0), None),
        (balance_case("hash", emitted=6), "hash, Zipf 1, 200 tasks: 6 results instead of 7"),
        (balance_case("range", judged=None), "no batch has 1,000 units"),
    ],
    ids=[
        "even",
        "uneven in a batch",
        "uneven on the grid",
        "uneven over the run, which no batch is",
        "an uneven control",
        "a control with wrong results",
        "too little work",
    ],
)
def test_what_misses_the_demand_of_balance(results, problem):
    from bench.balance import problems, section

    found = problems(results)
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]
    assert ("NOT MET" in section(results, "2026-01-01", "x.svg")) == (problem is not None)


def test_a_batch_with_little_work_is_not_judged():
    from bench.balance import LEAST_UNITS, judged

    work = np.array([[0, 2 * LEAST_UNITS - 2], [LEAST_UNITS, LEAST_UNITS]])
    assert judged(work) == {"judged": 1.0, "judged_batches": 1, "units": LEAST_UNITS}
    assert judged(work[:1])["judged"] is None


def test_the_balance_is_printed_and_kept(tmp_path):
    from typer.testing import CliRunner

    from bench.__main__ import app
    from bench.balance import load

    chosen = ["--only", "one key", "--scheme", "hypercube", "--scheme", "hash", "--tasks", "4"]
    done = CliRunner().invoke(app, ["balance", "--quick", "--jobs", "1", *chosen])
    assert done.exit_code == 0, done.output
    assert "4.00 (4.00)" in done.output, "one task of the hash join does everything"
    assert len(load(tmp_path / "results" / "balance-quick")) == 2


def test_a_section_without_some_of_its_cases_is_not_written(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from bench import balance
    from bench.__main__ import app

    monkeypatch.setattr(balance, "run_cases", lambda *_: iter(()))
    monkeypatch.setattr(balance, "write", lambda *_: (tmp_path / "written").touch())
    home = tmp_path / "results" / "balance"
    home.mkdir(parents=True)
    for case in balance.cases():
        if case != balance.Case("Zipf 0", "hash", 2):
            ratios = balance_case(case.scheme).popitem()[1]
            found = {"case": [case.distribution, case.scheme, case.tasks], "result": ratios}
            (home / f"{case.scheme}.{case.distribution}.{case.tasks}.json").write_text(json.dumps(found))
    command = ["balance", "--date", "2026-01-01", "--only"]
    done = CliRunner().invoke(app, [*command, "one key"])
    assert done.exit_code == 2 and "no results yet: hash, Zipf 0, 2 tasks." in " ".join(
        done.output.replace("│", " ").split()
    )
    assert not (tmp_path / "written").exists()
    done = CliRunner().invoke(app, [*command, "Zipf 0"])
    assert done.exit_code == 0 and (tmp_path / "written").exists(), "the missing case is measured now"
