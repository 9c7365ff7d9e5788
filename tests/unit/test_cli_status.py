"""`watersmeet status`, the version and refusals, through typer's runner."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import watersmeet
from watersmeet.cli.main import app
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.model.facts import BatchSpan

SCHEMA = pa.schema({"k": pa.int64()})


@pytest.fixture
def state(tmp_path):
    join = LocalJoin({"l": SCHEMA, "r": SCHEMA}, on="l.k = r.k", state=str(tmp_path / "state"), query="q1")
    join.batch(l=pa.table({"k": [1, 2, None]}), r=pa.table({"k": [1]}))
    return tmp_path / "state"


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_tables_for_people(state):
    done = invoke("status", state)
    assert done.exit_code == 0
    for words in (
        "join  query q1",
        "batch 0, started 1 time, last batch",
        "null keys dropped",
        "merging debt: none",
    ):
        assert words in done.stdout
    assert done.stderr == ""


def test_inputs_of_a_path_are_shown_once_with_the_number_of_their_keys(tmp_path):
    schema = pa.schema({"k": pa.int64(), "x": pa.int64(), "t": pa.int64()})
    join = LocalJoin(
        dict.fromkeys("abc", schema),
        on="a.k = b.k AND abs(b.x - c.x) <= 1",
        state=str(tmp_path),
        within=5,
        time=dict.fromkeys("abc", "t"),
    )
    rows = pa.table({"k": [1], "x": [2], "t": [7]})
    join.batch(a=rows, b=rows, c=rows)
    lines = invoke("status", tmp_path).stdout.splitlines()
    assert "delta: new rows of any of 3 inputs are looked up in the others" in lines
    assert [line.split()[:3] for line in lines if line[:2] in ("a ", "b ", "c ")] == [
        ["a", "1", "1"],
        ["b", "1", "2"],
        ["c", "1", "1"],
    ]
    (heading,) = (line for line in lines if line.startswith("input "))
    assert heading.split()[:4] == ["input", "rows", "keys", "bytes"]
    assert "found: a by k; b by k, or by the value of x; c by the value of x" in lines
    # The arrangement b.1 is not an input.
    assert any(line.endswith("newest: a 7, b 7, c 7") for line in lines)


def test_accepted_gaps_are_shown(tmp_path):
    accepted = Settings(state=str(tmp_path), tasks=2, accept_gap=(BatchSpan(0, 3),))
    join = LocalJoin(
        {"l": SCHEMA, "r": SCHEMA}, on="l.k = r.k", state=str(tmp_path), settings=accepted, number=4
    )
    join.batch(l=pa.table({"k": [1]}))
    assert "without the rows of batches 0-3 (acceptGap)" in invoke("status", tmp_path).stdout
    assert json.loads(invoke("status", tmp_path, "--json").stdout)["joins"][0]["gaps"] == ["0-3"]


def test_json_has_the_documented_keys(state):
    done = invoke("status", state, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert set(found) == {"version", "state", "joins", "damage"}
    (join,) = found["joins"]
    documented = invoke("status", "--help").stdout
    assert all(key in documented for key in (*found, *join, *join["inputs"][0]))
    assert join["inputs"][0] == {
        "name": "l",
        "runs": 1,
        "rows": 2,
        "bytes": join["inputs"][0]["bytes"],
        "arrived_rows": 2,
        "null_rows": 1,
        "late_rows": 0,
        "evicted_rows": 0,
        "absent_rows": 0,
        "found_by": ["k"],
        "arrangements": 1,
    }
    assert (found["version"], join["batch"], join["starts"], join["damage"]) == (2, 0, 1, [])


EVIL = "\x1b[2J[red]evil\n"


@pytest.fixture
def skewed_state(tmp_path):
    """Two batches with one key that has most of the rows."""
    schema = pa.schema({"k": pa.string()})
    join = LocalJoin(
        {"l": schema, "r": schema}, on="l.k = r.k", state=str(tmp_path), strategy="hypercube", tasks=2
    )
    for _ in range(2):
        table = pa.table({"k": [EVIL] * 900 + [f"light {n}" for n in range(600)]})
        join.count(l=table, r=table)
    return tmp_path


def test_heavy_keys_for_people(skewed_state):
    done = invoke("status", skewed_state)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert any(line.startswith("hypercube: 1 heavy key, planned balance 1.") for line in lines)
    (key,) = (line for line in lines if line.startswith("\\x1b[2J[red]evil\\n "))
    assert key.split()[1:3] == ["1,800", "1,800"]
    assert any(line.startswith("batch 0: \\x1b[2J[red]evil\\n light -> ") for line in lines)
    assert "\x1b" not in done.stdout


def test_heavy_keys_in_the_json(skewed_state):
    (join,) = json.loads(invoke("status", skewed_state, "--json").stdout)["joins"]
    cube = join["plan"]
    assert (join["strategy"], cube["kind"], cube["inputs"]) == ("hypercube", "hypercube", ["l", "r"])
    (key,) = cube["heavy"]
    assert key["label"] == EVIL, "programs get the value as it is"
    assert key["rows"] == [{"lower": 1_800, "upper": 1_800}] * 2
    assert len(key["shape"]) == 2
    assert (cube["changes"][0]["batch"], cube["changes"][0]["before"]) == (0, [])
    documented = invoke("status", "--help").stdout
    assert all(name in documented for name in (*cube, *key, *key["rows"][0], *cube["changes"][0]))


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_damage_is_told_and_gives_exit_code_1(state, arguments):
    (manifest,) = (state / "join/q1/manifests").iterdir()
    manifest.write_bytes(manifest.read_bytes()[:50])
    done = invoke("status", state, *arguments)
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    told = json.loads(done.stdout)["damage"][0] if arguments else done.stderr
    assert manifest.name in told


def test_no_state_is_one_sentence_and_exit_code_2(tmp_path):
    done = invoke("status", tmp_path / "nothing")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert (
        done.stderr
        == f"error: there is no state in {tmp_path / 'nothing'}: the directory is missing or empty\n"
    )


@pytest.mark.parametrize("above", ["checkpoint/watersmeet", "market/checkpoint/watersmeet", "market/state"])
def test_a_folder_above_a_state_names_the_state(state, tmp_path, above):
    """Such as that of `watersmeet demo`, or a checkpoint."""
    place = tmp_path / "above" / above
    shutil.copytree(state, place)
    (place.parent / "offsets").mkdir()
    top = tmp_path / "above" / above.partition("/")[0]
    done = invoke("status", top)
    assert done.exit_code == 2
    assert done.stderr.replace("\n", " ").strip() == (
        f"error: {top} is not a state directory, but holds one: give {place}"
    )
    assert invoke("status", place).exit_code == 0


def test_debug_shows_the_traceback(tmp_path):
    done = invoke("status", tmp_path / "nothing", "--debug")
    assert "Traceback" in done.stderr
    assert done.exit_code == 2


def test_version():
    assert invoke("--version").stdout == f"watersmeet {watersmeet.__version__}\n"


def test_a_bad_job_file_is_refused_before_spark_starts(tmp_path):
    (tmp_path / "bad.toml").write_text("[input.x]")
    done = invoke("run", tmp_path / "bad.toml")
    assert done.exit_code == 2
    assert done.stderr == "error: bad.toml has no key 'input'; did you mean 'inputs'?\n"


def test_the_demo_refuses_a_directory_with_something_in_it(tmp_path):
    (tmp_path / "mine").touch()
    done = invoke("demo", "--keep", tmp_path)
    assert done.exit_code == 2
    assert "give a new directory" in done.stderr
