"""`watersmeet run`: killed and resumed as a process; checked, refused and failing in the tests' own session."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Event

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests.life import ask_duckdb
from watersmeet.cli.demo.sink import ResultFiles
from watersmeet.cli.main import app
from watersmeet.jobs.file import parse_job
from watersmeet.jobs.progress import Batches
from watersmeet.jobs.runner import Running, prepare
from watersmeet.log.status import JoinStatus

pytestmark = pytest.mark.spark

# Generous: the machine may be shared. Nothing below waits longer than it must.
DEADLINE_S = 150

FILES = 12
KEYS = 40

JOB = """
[inputs.l]
format = "parquet"
path = "left"
options = { maxFilesPerTrigger = 1 }
[inputs.r]
format = "parquet"
path = "right"
options = { maxFilesPerTrigger = 1, password = "${JOB_PASSWORD}" }
[join]
on = "l.k = r.k AND l.x <= r.y"
select = ["l.k", "l.x", "r.y"]
[sink]
format = "parquet"
path = "out"
[job]
name = "pairs"
checkpoint = "checkpoint"
[spark]
spark.master = "local[2]"
spark.ui.enabled = false
spark.driver.memory = "1g"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("JOB_PASSWORD", "hunter22")
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


def write_inputs(folder: Path, files: range) -> None:
    for side, value in (("left", "x"), ("right", "y")):
        (folder / side).mkdir(exist_ok=True)
        for number in files:
            rows = range(number * 50, number * 50 + 50)
            table = pa.table(
                {"k": [row * 7 % KEYS for row in rows], value: [row * 13 % 1_000 for row in rows]}
            )
            pq.write_table(table, folder / side / f"{number:04d}.parquet")


def expected(folder: Path) -> Counter:
    left, right = (f"'{folder}/{side}/*.parquet'" for side in ("left", "right"))
    sql = f"SELECT l.k, l.x, r.y FROM {left} l JOIN {right} r ON l.k = r.k AND l.x <= r.y"
    with duckdb.connect() as connection:
        return Counter(connection.execute(sql).fetchall())


def results(folder: Path) -> Counter:
    """Of the files that Spark's sink has committed."""
    files = ResultFiles(folder / "out")
    files.update()
    rows = pa.concat_tables(pq.read_table(path) for path in files.committed)
    return Counter(zip(*rows.to_pydict().values(), strict=True))


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "watersmeet", "run", str(folder / "job.toml"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )


def read_until(process: subprocess.Popen, pattern: str) -> list[str]:
    assert process.stdout is not None
    assert process.stderr is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return lines
    pytest.fail(f"no line like {pattern!r} in {lines}; {process.stderr.read()}")


def await_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=DEADLINE_S)
    assert not alive


@pytest.mark.timeout(2 * DEADLINE_S)
def test_interrupted_in_the_middle_it_resumes_and_every_result_comes_out_once(folder):
    write_inputs(folder, range(FILES))
    process = start(folder)
    read_until(process, r"^batch(es)? .*rows in")
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("java" in child.name() for child in children)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1].startswith("stopped: ")
    await_gone(children)
    (join,) = wm.status(folder / "checkpoint/watersmeet").joins
    assert join.batch < FILES - 1, "it was stopped in the middle"
    assert (folder / "checkpoint/watersmeet/spark-pairs.log").exists()

    change(folder, "maxFilesPerTrigger = 1,", "maxFilesPerTrigger = 6,")
    change(folder, "maxFilesPerTrigger = 1 ", "maxFilesPerTrigger = 6 ")
    process = start(folder, "--once")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    first, *_, last = out.splitlines()
    assert re.match(r"pairs: continues with batch \d+, state in ", first)
    assert last.startswith("done: ")

    assert results(folder) == expected(folder)
    (join,) = wm.status(folder / "checkpoint/watersmeet").joins
    assert (join.starts, join.rows, join.damage) == (2, 2 * FILES * 50, ())


def run(folder: Path, *arguments: str):
    return CliRunner().invoke(app, ["run", str(folder / "job.toml"), *arguments])


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / "job.toml").read_text()
    assert old in text
    (folder / "job.toml").write_text(text.replace(old, new))


def test_check_explains_and_starts_nothing(spark, folder):
    write_inputs(folder, range(1))
    done = run(folder, "--check")
    assert done.exit_code == 0, done.output
    for words in (
        "on l.k = r.k AND l.x <= r.y",
        "strategy hypercube: the predicate has an equality",
        "stored: k, x",
        "option password = ${JOB_PASSWORD}",
    ):
        assert words in done.stdout
    assert "ok: it would start from the beginning; nothing was started" in done.stdout
    assert "hunter22" not in done.output
    assert not (folder / "checkpoint").exists()


def test_changes_that_the_state_cannot_carry_are_refused_before_the_first_batch(spark, folder):
    write_inputs(folder, range(1))
    done = run(folder, "--once")
    assert done.exit_code == 0, done.output
    write_inputs(folder, range(1, 2))

    change(folder, "l.x <= r.y", "l.x < r.y")
    for arguments in (["--check"], ["--once"]):
        refused = run(folder, *arguments)
        assert refused.exit_code == 2
        assert refused.stderr.startswith("error: the state was written by another join: its predicate was")
        assert "Traceback" not in refused.output
    assert "Traceback" in run(folder, "--check", "--debug").stderr

    change(folder, "l.x < r.y", "l.x <= r.y")
    change(folder, 'name = "pairs"', f'name = "pairs"\nstate = "{folder}/moved"')
    refused = run(folder, "--once")
    assert refused.exit_code == 2
    assert "there is no state of an earlier batch in" in refused.stderr

    change(folder, f'state = "{folder}/moved"', "")
    done = run(folder, "--once")
    assert done.exit_code == 0, done.output
    assert results(folder) == expected(folder)


def test_a_failing_query_says_why(spark, folder):
    write_inputs(folder, range(1))
    assert run(folder, "--once").exit_code == 0
    (runs,) = (folder / "checkpoint/watersmeet/l-r").glob("*/runs/l")
    runs.rename(runs.with_name("moved"))
    runs.touch()
    write_inputs(folder, range(1, 2))
    done = run(folder, "--once")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: cannot write state to {runs}")
    assert "start the query again" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            'path = "left"',
            'path = "nowhere"',
            r"\[inputs.l\]: the columns of .*nowhere cannot be read from its files",
        ),
        ('path = "left"', 'path = "left"\nwhere = "zz > 1"', r"\[inputs.l\]: .*zz.* cannot be resolved"),
        ('format = "parquet"\npath = "left"', 'format = "no-such"', r"\[inputs.l\]: .*no-such"),
        ("l.k = r.k", "l.k = r.zz", r"\[join\]: .*zz"),
        ("[inputs.l]", '[inputs."my rows"]', r"\[inputs\]: the input name 'my rows' cannot be used in SQL"),
        ('[sink]\nformat = "parquet"', '[sink]\nformat = "no-such"', r"\[sink\]: .*no-such"),
    ],
    ids=[
        "no input files",
        "unknown column",
        "unknown source",
        "unknown key",
        "name of an input",
        "unknown sink",
    ],
)
def test_refusals_name_the_part_of_the_job_file(spark, folder, old, new, message):
    write_inputs(folder, range(1))
    change(folder, old, new)
    done = run(folder, "--once")
    assert done.exit_code == 2
    assert re.search(message, done.stderr)
    assert "Traceback" not in done.output


def test_a_mistake_in_sql_is_told_once_without_sparks_traces(folder):
    """In a process and a session of its own: Python's loggers of Spark print to the terminal."""
    write_inputs(folder, range(1))
    change(folder, 'path = "left"', 'path = "left"\nwhere = "zz > 1"')
    process = start(folder, "--check")
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert errors.startswith("error: job.toml: [inputs.l]: ")
    assert "zz" in errors and len(errors) < 500


def test_inputs_can_be_projected_and_filtered(spark, folder):
    """One of them by Spark, the other one read by the tasks themselves."""
    write_inputs(folder, range(2))
    change(folder, 'path = "left"', 'path = "left"\nnative = true\nwhere = "x > 20"')
    change(folder, 'path = "right"', 'path = "right"\nwhere = "y > 500"\ncolumns = ["k + 0 AS k", "y"]')
    done = run(folder, "--once")
    assert done.exit_code == 0, done.output
    assert results(folder) == Counter(
        {row: n for row, n in expected(folder).items() if row[1] > 20 and row[2] > 500}
    )
    # Spark would count descriptors.
    values = [row * 13 % 1_000 for row in range(100)]
    arrived = sum(value > 20 for value in values) + sum(value > 500 for value in values)
    assert f"{arrived} rows in" in done.stdout


def test_a_job_joins_three_inputs_along_different_keys(spark, folder):
    write_inputs(folder, range(2))
    middle = {"k": list(range(KEYS)), "z": [key % 5 for key in range(KEYS)], "id": list(range(KEYS))}
    (folder / "middle").mkdir()
    pq.write_table(pa.table(middle), folder / "middle" / "0000.parquet")
    change(folder, "[inputs.r]", '[inputs.m]\nformat = "parquet"\npath = "middle"\n[inputs.r]')
    change(folder, "l.k = r.k AND l.x <= r.y", "l.k = m.k AND m.z = r.k AND l.x <= r.y")
    check = run(folder, "--check")
    assert check.exit_code == 0, check.output
    assert "delta" in check.stdout
    done = run(folder, "--once")
    assert done.exit_code == 0, done.output
    tables = {name: pq.read_table(folder / path) for name, path in (("l", "left"), ("r", "right"))}
    query = "SELECT l.k, l.x, r.y FROM l, m, r WHERE l.k = m.k AND m.z = r.k AND l.x <= r.y"
    assert results(folder) == ask_duckdb(query, m=pa.table(middle), **tables)
    (join,) = wm.status(folder / "checkpoint/watersmeet").joins
    assert {one.name: one.arrangements for one in join.inputs} == {"l": 1, "m": 2, "r": 1}


def test_a_query_may_begin_with_a_batch_without_input(spark, tmp_path):
    """The rate source's first batch is empty, so Spark leaves the join out of it."""
    text = JOB.replace(
        '"parquet"\npath = "left"\noptions = { maxFilesPerTrigger = 1 }',
        '"rate"\ncolumns = ["value AS k", "1 AS x"]',
    )
    text = re.sub(
        r'"parquet"\npath = "right"\noptions = .*', '"rate"\ncolumns = ["value AS k", "1 AS y"]', text
    )
    job = parse_job(text, tmp_path / "job.toml", {})
    seen: list[Batches] = []
    stop = Event()

    def observe(new: list[Batches], state: JoinStatus | None) -> None:
        seen.extend(new)
        if sum(batch.rows_out for batch in seen) > 0:
            stop.set()

    running = Running(prepare(spark, job, {}), {})
    running.follow(observe, stop, until_s=time.monotonic() + DEADLINE_S)
    running.stop()
    assert seen[0].rows_in == 0
    written = results(tmp_path)  # a batch that ended between the last look and the stop is in it too
    assert written.total() >= sum(batch.rows_out for batch in seen) > 0
    assert written == Counter({(k, 1, 1): 1 for k in range(written.total())})
