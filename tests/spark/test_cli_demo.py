"""The demo as a process, and every example, copied to a place of its own, in the tests' session."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from watersmeet.cli.main import app

pytestmark = pytest.mark.spark

# Generous: the machine may be shared.
DEADLINE_S = 200

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.timeout(DEADLINE_S + 10)
def test_the_demo_runs_checks_and_cleans_up(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "watersmeet", "demo", "--seconds", "6", "--plain"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"[\d,]+ results, all equal to DuckDB's", lines[-1])
    assert int(lines[-1].split()[0].replace(",", "")) > 1_000
    assert lines[0].startswith("batch 0: 300 rows in")
    heading = next(place for place, line in enumerate(lines) if line.startswith("heavy key"))
    assert lines[heading].split()[2:] == ["rows", "of", "b", "rows", "of", "s", "grid", "tasks"]
    # Bounds of its rows on both sides, its grid and how many tasks share it.
    assert re.search(r"\S+ +[\d,.]+.* +\d+ x \d+ +\d+$", lines[heading + 1].rstrip())
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("watersmeet")]


@pytest.fixture
def examples(tmp_path) -> Path:
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("out")))


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".toml")} == {
        "close_amounts.toml",
        "orders_payments.toml",
        "views_clicks.toml",
        "stream_join.py",
        "batch_join.py",
        "sales_products.py",
        "similar_images.py",
        "triangle.py",
        "hub.py",
        "hub.toml",
    }


def test_the_job_files(spark, examples):
    runner = CliRunner()
    first = runner.invoke(app, ["run", str(examples / "orders_payments.toml")])
    assert first.exit_code == 0, first.output
    assert "17 rows in, 6 out, 2 batches" in first.stdout
    paid = {
        tuple(row)
        for row in spark.read.parquet(str(examples / "out/paid")).select("id", "customer").collect()
    }
    assert paid == {(1, "ada"), (2, "grace"), (5, "barbara"), (6, "donald"), (8, "frances")}
    again = runner.invoke(app, ["run", str(examples / "orders_payments.toml")])
    assert "done: 0 rows in, 0 out" in again.stdout

    clicked = runner.invoke(app, ["run", str(examples / "views_clicks.toml")])
    assert clicked.exit_code == 0, clicked.output
    assert "2 out" in clicked.stdout.splitlines()[-1]

    close = runner.invoke(app, ["run", str(examples / "close_amounts.toml")])
    assert close.exit_code == 0, close.output
    assert "16 rows in, 3 out" in close.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "script, printed",
    [
        ("stream_join.py", ["|  5| barbara|10.00|", "p: 8 rows kept in", "1 dropped for a null key"]),
        ("batch_join.py", ["|  /a|    1|", "[{'page': '/a', 'after': 1}]"]),
        (
            "sales_products.py",
            [
                "800 sales, 5 of them of products that the table does not have",
                " of 100 pages",
            ],
        ),
        (
            "triangle.py",
            [
                "1464 edges of 200 people: 119 circles of three",
                "a 1464 rows by 2 keys, b 1464 rows by 1 keys",
            ],
        ),
        ("hub.py", ["299 live queries of 1 template", "customer 8 has 51 answers, such as Row(batch=0"]),
        ("similar_images.py", ["18,171 pairs found of 19,151 within 0.05: 94.9%", "0 of them further apart"]),
    ],
)
def test_the_scripts(spark, examples, capsys, script, printed):
    runpy.run_path(str(examples / script), run_name="__main__")
    shown = capsys.readouterr().out
    assert all(words in shown for words in printed), shown
    assert len((examples / script).read_text().splitlines()) < 60


def test_the_hub_of_a_job_file(spark, examples):
    runner = CliRunner()
    job, state = str(examples / "hub.toml"), str(examples / "out/hub")
    first = runner.invoke(app, ["hub", "run", job, "--once"])
    assert first.exit_code == 0, first.output
    assert "commands: 4 added" in first.stdout
    assert "done: 17 rows in, 22 answers, 2 batches" in first.stdout
    text = "SELECT o.customer FROM orders o WHERE o.amount > 900"
    assert runner.invoke(app, ["hub", "add", state, "big", text]).exit_code == 0
    (Path(state) / "~commands" / "hub" / "hand.json").write_text(
        '{"op": "add", "id": "typo", "sql": "SELECT"}'
    )
    again = runner.invoke(app, ["hub", "run", job, "--once"])
    assert again.exit_code == 0, again.output
    assert "commands: 1 added, 1 refused" in again.stdout and "refused typo: " in again.stdout
    row = "99,zoe,999.00,2026-05-03 09:00:12"
    (examples / "data/orders/z.csv").write_text(f"id,customer,amount,ordered_at\n{row}\n")
    third = runner.invoke(app, ["hub", "run", job, "--once"])
    assert "done: 1 rows in, 2 answers, 1 batch" in third.stdout
    # What was told once is not told again.
    assert "commands:" not in third.stdout
    answers = spark.read.parquet(str(examples / "out/hub-answers/answers/query=big"))
    assert [row.answer for row in answers.collect()] == ['{"customer":"zoe"}']
    other = (
        examples / "hub.toml"
    ).read_text() + '[inputs.more]\nformat = "json"\npath = "data/payments"\nschema = "a INT"\n'
    (examples / "other.toml").write_text(other)
    refused = runner.invoke(app, ["hub", "run", str(examples / "other.toml"), "--once"])
    assert refused.exit_code == 2 and "was begun with 3 sources, and now there are 4" in refused.stderr
