"""`watersmeet hub add|remove|list|show`, and a hub in `watersmeet status`, through typer's runner."""

from __future__ import annotations

import datetime
import io
import json

import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

from watersmeet.cli.hub_job import HubLines
from watersmeet.cli.main import app
from watersmeet.engine.hub_commands import default_folder, make_folder
from watersmeet.engine.hub_status import open_hub
from watersmeet.jobs.progress import Batches
from watersmeet.local.hub import LocalHub

R = pa.schema({"k": pa.int64(), "x": pa.int64()})
PAIR = "SELECT a.x FROM R a, R b WHERE a.k = b.k"


@pytest.fixture
def state(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path), {"pair": PAIR, "one": "SELECT R.x FROM R WHERE R.x > 5"})
    hub.batch(
        pa.table({"op": ["add"], "id": ["bad"], "sql": ["SELECT R.nope FROM R"]}),
        R=pa.table({"k": [1, 1, 2], "x": [4, 9, 6]}),
    )
    folder = default_folder(str(tmp_path), "hub")
    assert folder is not None
    make_folder(folder)
    return tmp_path


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def commands(state) -> list[dict[str, str]]:
    found = [json.loads(path.read_text()) for path in (state / "~commands" / "hub").iterdir()]
    return [
        {key: value for key, value in command.items() if key != "at"}
        for command in sorted(found, key=lambda one: one["at"])
    ]


def test_commands_are_files_in_the_folder_of_the_state(state):
    added = invoke("hub", "add", state, "new", PAIR)
    assert (added.exit_code, added.stdout) == (0, "new: command written: the next batch reads it\n")
    removed = invoke("hub", "remove", state, "one")
    assert (removed.exit_code, removed.stdout) == (0, "one: command written: the next batch reads it\n")
    assert commands(state) == [{"op": "add", "id": "new", "sql": PAIR}, {"op": "remove", "id": "one"}]


def test_what_the_hub_will_refuse_is_said_but_left_to_it(state):
    said = invoke("hub", "add", state, "one", PAIR).stdout
    assert said.splitlines() == [
        "one: command written: the next batch reads it",
        "note: it will be refused: another text is live. Remove it first",
    ]
    assert "changes nothing: the same text is live" in invoke("hub", "add", state, "pair", PAIR).stdout
    assert "it will be refused: no such query is live" in invoke("hub", "remove", state, "other").stdout
    assert len(commands(state)) == 3


def test_what_is_retained_is_shown_and_what_is_gone_is_said_to_be_refused(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path), retain="90 seconds")
    at = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
    hub.batch(at=at, R=pa.table({"k": [1], "x": [4]}))
    make_folder(tmp_path / "~commands" / "hub")
    for shown in (invoke("hub", "show", tmp_path).stdout, invoke("status", tmp_path).stdout):
        assert (
            "rows are kept 90 seconds longer than queries need them: R from 2026-01-31 11:58:30+00:00 on"
            in shown
        )
    plain = json.loads(invoke("hub", "show", tmp_path, "--json").stdout)
    assert (plain["retain"], plain["streams"][0]["kept_from"]) == ("90 seconds", "2026-01-31 11:58:30+00:00")
    text = "SELECT R.x FROM R SINCE TIMESTAMP '2026-01-31 11:58:{}Z'"
    said = invoke("hub", "add", tmp_path, "gone", text.format(29)).stdout
    assert "note: it will be refused: SINCE reaches back to 2026-01-31 11:58:29+00:00" in said
    assert "note" not in invoke("hub", "add", tmp_path, "kept", text.format(30)).stdout
    hub = LocalHub({"R": R}, str(tmp_path / "all"), retain="all")
    hub.batch(R=pa.table({"k": [1], "x": [4]}))
    assert "rows are kept for ever: R from the first row on" in invoke("hub", "show", tmp_path / "all").stdout


def test_what_only_a_case_sensitive_session_can_use_is_left_to_the_hub(state):
    done = invoke("hub", "add", state, "q", "SELECT a.k, A.x FROM R a, R A WHERE a.k = A.k")
    assert done.exit_code == 0, done.output
    assert "not checked: only a session with spark.sql.caseSensitive can use it" in done.stdout


@pytest.mark.parametrize(
    ("id_", "sql", "message"),
    [
        ("q", "SELECT R.nope FROM R", "nope"),
        ("q", "SELECT R.x FROM nowhere AS R", "nowhere"),
        ("q", " ", "query q has no sql"),
        ("é" * 200, PAIR, "bytes, at most 255"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused_at_once(state, id_, sql, message):
    done = invoke("hub", "add", state, id_, sql)
    assert done.exit_code == 2 and message in done.stderr, done.output
    assert commands(state) == []


def test_a_hub_that_has_not_begun_takes_commands_unchecked(tmp_path):
    done = invoke("hub", "add", tmp_path, "q", "SELECT R.nope FROM R")
    assert done.exit_code == 2 and "there is no command folder" in done.stderr
    (tmp_path / "~commands" / "hub").mkdir(parents=True)
    done = invoke("hub", "add", tmp_path, "q", "SELECT R.nope FROM R")
    assert done.exit_code == 0 and "not checked: no batch of the hub has run yet" in done.stdout
    (tmp_path / "~commands" / "other").mkdir()
    done = invoke("hub", "add", tmp_path, "q", PAIR)
    assert done.exit_code == 2 and "holds the hubs hub, other: name one with --name" in done.stderr
    assert invoke("hub", "add", tmp_path, "q", PAIR, "--name", "other").exit_code == 0
    (tmp_path / "mine").mkdir()
    assert invoke("hub", "remove", tmp_path, "q", "--commands", tmp_path / "mine").exit_code == 0
    assert len([*(tmp_path / "mine").iterdir()]) == 1


def test_queries_are_listed_and_shown(state):
    done = invoke("hub", "list", state)
    assert done.exit_code == 0 and PAIR in done.stdout and "from batch" in done.stdout
    plain = json.loads(invoke("hub", "list", state, "--json").stdout)
    assert [(one["id"], one["first_batch"]) for one in plain] == [("pair", 0), ("one", 0)]
    shown = invoke("hub", "show", state, "pair").stdout
    assert "batch 0: 5 answers, " in shown and PAIR in shown
    assert "not among" not in shown
    missing = invoke("hub", "show", state, "nothing")
    assert missing.exit_code == 2 and "there is no query 'nothing' in the hub hub" in missing.stderr


def test_each_query_is_one_line_where_no_terminal_is(tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "SELECT R.x, R.k, R.x AS again, R.k AS once_more FROM R WHERE R.x < 20 AND R.k > 3 AND R.x > 1"
    LocalHub({"R": R}, str(tmp_path), {"long": long}).batch(R=pa.table({"k": [1], "x": [2]}))
    heading, _, line = invoke("hub", "list", tmp_path).stdout.splitlines()
    assert heading.startswith("query") and line.endswith(long)
    assert "1 query of 1 template; 0 answers" in invoke("hub", "show", tmp_path).stdout


def test_a_query_that_answers_nothing_is_shown_with_the_reason_for_no_figures(tmp_path):
    queries = {f"q{number:02d}": f"SELECT R.x FROM R WHERE R.x < {20 - number}" for number in range(12)}
    LocalHub({"R": R}, str(tmp_path), queries).batch(R=pa.table({"k": range(20), "x": range(20)}))
    shown = invoke("hub", "show", tmp_path, "q11").stdout
    assert "batch 0: not among the ten that answer or cost most" in shown


def test_a_hub_is_shown_with_what_answers_costs_and_was_refused(state):
    for shown in (invoke("hub", "show", state), invoke("status", state)):
        assert shown.exit_code == 0
        for words in (
            "2 queries of 2 templates; 7 answers in the last batch",
            "queries that answer most",
            "k (",
        ):
            assert words in shown.stdout
        assert "refused bad: nope is not a column" in shown.stdout


def test_a_hub_as_json(state):
    plain = json.loads(invoke("hub", "show", state, "--json").stdout)
    assert (plain["queries"], plain["templates"], plain["answers"]) == (2, 2, 7)
    assert plain["streams"][0]["indexes"][0] | {"bytes": 0} == {"column": "k", "rows": 3, "bytes": 0}
    assert plain["top_answers"][0]["query"] == "pair"
    (join,) = json.loads(invoke("status", state, "--json").stdout)["joins"]
    assert join["hub"]["refused"] == plain["refused"]
    assert [one["name"] for one in join["inputs"]] == ["R"]


def test_what_became_of_commands_is_told_once_and_not_again_after_a_restart(state):
    said = io.StringIO()
    found, batch = open_hub(str(state)), Batches(0, 0, 4, 7, 500)
    lines = HubLines(Console(file=said, width=200))
    for _ in range(2):
        lines.observe([batch], found)
    assert said.getvalue().splitlines()[:3] == [
        "batch 0: 4 rows in (8/s), 2 queries live, 7 answers (14/s), 0.50 s a batch",
        "commands: 2 added, 1 refused",
        "refused bad: nope is not a column of R",
    ]
    assert said.getvalue().count("refused bad") == 1
    said.truncate(0)
    HubLines(Console(file=said, width=200), found.version).observe([batch], found)
    assert "commands" not in said.getvalue()


def test_a_state_without_a_hub_is_refused(tmp_path):
    for command in ("list", "show"):
        done = invoke("hub", command, tmp_path)
        assert done.exit_code == 2 and "there is no hub in" in done.stderr
