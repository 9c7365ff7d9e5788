"""`watersmeet settle` in the tests' own session: what it prints, refuses and leaves."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from watersmeet.cli.main import app

pytestmark = pytest.mark.spark

JOB = """
[inputs.l]
format = "parquet"
path = "left"
options = { maxFilesPerTrigger = 1 }
[inputs.r]
format = "parquet"
path = "right"
options = { maxFilesPerTrigger = 1 }
[join]
on = "l.k = r.k"
select = ["l.k", "l.id AS a", "r.id AS b"]
memory = "1 KB"
[sink]
format = "json"
path = "out"
options = { compression = "gzip" }
[job]
name = "pairs"
checkpoint = "checkpoint"
"""
FILES = 3


def watersmeet(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_job_is_settled_once_and_says_so(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        for number in range(FILES):
            rows = {"k": pa.array([*range(20)], pa.int32()), "id": range(100 * number, 100 * number + 20)}
            pq.write_table(pa.table(rows), tmp_path / side / f"{number}.parquet")
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    assert watersmeet("settle", job, "--dry-run").exit_code == 2, "there is no finished batch"
    assert watersmeet("run", job, "--once").exit_code == 0

    for arguments, reason in (
        ((), "--to"),
        (("--to", "out"), "streaming file sink"),
        (("--to", "checkpoint/late"), "which is the checkpoint, the state or the sink"),
        (("--to", "left"), "is not empty"),
    ):
        refused = watersmeet("settle", job, *arguments)
        assert refused.exit_code == 2
        assert reason in " ".join(refused.stderr.split())

    owed = watersmeet("settle", job, "--dry-run")
    figures = re.search(r"pairs: after batch 2 (\d+) rows owe results, at most (\d+)", owed.stdout)
    assert owed.exit_code == 0 and figures, owed.output
    commit = tmp_path / "checkpoint" / "commits" / str(FILES - 1)
    content = commit.read_bytes()
    commit.unlink()
    assert "has not committed batch 2" in watersmeet("settle", job, "--dry-run").stdout
    refused = watersmeet("settle", job, "--to", "late")
    assert (refused.exit_code, (tmp_path / "late").exists()) == (2, False)
    assert "Start the query once more" in refused.stderr
    commit.write_bytes(content)

    done = watersmeet("settle", job, "--to", "late")
    assert done.exit_code == 0, done.output
    rows = int(re.search(r"settled after batch 2: (\d+) results in (\S+/late)", done.stdout)[1])
    assert 0 < rows <= int(figures[2])
    found = duckdb.sql(
        f"SELECT count(*), count(DISTINCT (a, b)) FROM read_json(['{tmp_path}/late/*.json.gz', '{tmp_path}/out/*.json.gz'])"
    ).fetchall()
    assert found == [(20 * FILES * FILES,) * 2]
    again = watersmeet("settle", job, "--to", "other")
    assert again.exit_code == 0 and "nothing is owed. Batch 2 was settled before" in again.stdout
    assert not (tmp_path / "other").exists()
    shown = watersmeet("status", tmp_path / "checkpoint" / "watersmeet")
    assert f"settled after batch 2: {rows} results in" in " ".join(shown.stdout.split())
