"""What the status of a hub says: queries, templates, rows and indexes of streams, refusals, and what queries cost."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tests.model.test_hub_lives import restarted
from watersmeet.cli.hub_view import print_hub
from watersmeet.engine.hub_commands import default_folder, make_folder, write_command
from watersmeet.engine.hub_status import HubStatus, hub_status, open_hub
from watersmeet.errors import ConfigError, PredicateError, StateError
from watersmeet.local.hub import LocalHub
from watersmeet.log.status import read_status
from watersmeet.model.tally import QueryTally

R = pa.schema({"k": pa.int64(), "x": pa.int64()})
S = pa.schema({"k": pa.int64()})
PAIR = "SELECT R.x FROM R, S WHERE R.k = S.k"


def status_of(state) -> HubStatus:
    return hub_status(open_hub(str(state)))


@pytest.fixture
def hub(tmp_path) -> LocalHub:
    given = {
        "pair": PAIR,
        "large": f"{PAIR} AND R.x > 5",
        "larger": f"{PAIR} AND R.x > 6",
        "s": "SELECT S.k FROM S",
    }
    return LocalHub({"R": R, "S": S}, str(tmp_path), given)


def test_it_shows_which_templates_keep_what_and_why(tmp_path, capsys):
    text = "SELECT R.x FROM R, S AS t, R AS u WHERE R.k = t.k AND t.k = u.k AND R.x = 1"
    hub = LocalHub({"R": R, "S": S}, str(tmp_path), {"q": text, "s": "SELECT S.k FROM S"}, keep="always")
    for _ in range(4):
        hub.batch(R=pa.table({"k": [1, 1, 2], "x": [1, 9, 1]}), S=pa.table({"k": [1, 1]}))
    found = status_of(tmp_path)
    (template,) = found.keeps
    assert (template.inputs, template.since_batch) == (("R", "t"), 1)
    assert template.stored_lookups > template.stored_rows > 0 and template.saved_lookups > 0
    # Rows with x = 1 and the two rows of the other stream, of three batches: those of the last are announced next.
    ((stream, column, rows),) = ((one.stream, one.column, one.rows) for one in found.kept)
    assert (stream, column, rows) == ("R", "k", 3 * 2 * 3)
    print_hub(found)
    shown = capsys.readouterr().out
    assert "steps are kept for 1 template;" in shown and "R.k" in shown and "R, t" in shown


def test_it_counts_rows_indexes_answers_and_what_was_looked_at_for_each_query(hub, tmp_path):
    hub.batch(R=pa.table({"k": [1, 1, 2], "x": [4, 9, 6]}))
    hub.batch(S=pa.table({"k": [1, 1]}))
    found = status_of(tmp_path)
    assert [(one.id, one.first_batch) for one in found.queries] == [
        ("pair", 0),
        ("large", 0),
        ("larger", 0),
        ("s", 0),
    ]
    assert (found.batch, found.templates, found.answers) == (1, 3, 10)
    r, s = found.streams
    assert (r.name, r.rows, r.arrived_rows, [(one.column, one.rows) for one in r.indexes]) == (
        "R",
        3,
        3,
        [("k", 3)],
    )
    assert (s.name, s.rows, [(one.column, one.rows) for one in s.indexes]) == ("S", 2, [("k", 2)])
    assert {one.query: one.answers for one in found.top_answers} == {
        "pair": 4,
        "large": 2,
        "larger": 2,
        "s": 2,
    }
    # Two fresh rows, and for a pair the two rows of R that the index has for each of them.
    assert {one.query: one.looked_rows for one in found.top_costs} == {
        "pair": 6,
        "large": 6,
        "larger": 6,
        "s": 2,
    }
    assert found.top_costs[0] == QueryTally("large", 2, 6)
    assert found.answers_per_s is not None and found.answers_per_s > 0


def test_the_ten_queries_that_answer_most_are_told(tmp_path):
    given = {f"q{at:02d}": f"SELECT R.x FROM R WHERE R.x >= {at}" for at in range(30)}
    hub = LocalHub({"R": R}, str(tmp_path), given)
    hub.batch(R=pa.table({"k": [0] * 30, "x": list(range(30))}))
    found = status_of(tmp_path)
    assert [(one.query, one.answers) for one in found.top_answers] == [
        (f"q{at:02d}", 30 - at) for at in range(10)
    ]
    assert found.answers == sum(range(1, 31))


def test_of_many_tasks_all_are_counted_though_they_take_turns_to_tell(tmp_path):
    hub = LocalHub({"R": R}, str(tmp_path), {"all": "SELECT R.x FROM R"}, tasks=12)
    rows = pa.table({"k": [0] * 120, "x": list(range(120))})
    for _ in range(3):
        hub.batch(R=rows)
    found = status_of(tmp_path)
    assert (found.answers, found.top_answers[0].answers) == (120, 120)


def test_refusals_are_told_until_the_next_command(hub, tmp_path):
    hub.batch(pa.table({"op": ["add"], "id": ["bad"], "sql": ["SELECT R.nope FROM R"]}))
    hub.batch(R=pa.table({"k": [1], "x": [1]}))
    (refused,) = status_of(tmp_path).refused
    assert refused.query == "bad" and "nope" in refused.message
    hub.batch(pa.table({"op": ["remove"], "id": ["s"], "sql": pa.array([None], pa.string())}))
    assert (status_of(tmp_path).refused, status_of(tmp_path).removed) == ((), 1)


@pytest.mark.parametrize("replayed", [False, True], ids=["the batch is new", "the batch is replayed"])
def test_queries_that_are_refused_at_a_restart_are_told_with_reason_and_place(tmp_path, replayed):
    """The first batch that no earlier start has published brings them."""
    bad = {"typo": "SELECT R.x FROM R\nWHERE R.nope > 5", "cut off": "SELECT R.x FROM"}
    hub = LocalHub({"R": R}, str(tmp_path), {"q": "SELECT R.x FROM R"})
    rows = pa.table({"k": [1], "x": [1]})
    hub.batch(R=rows)
    assert status_of(tmp_path).refused == ()
    hub = restarted(hub, queries={**hub.queries, **bad}, number=0 if replayed else 1)
    for _ in range(2 if replayed else 1):
        hub.batch(R=rows)
    for _ in range(2):
        found = status_of(tmp_path)
        assert [one.id for one in found.queries] == ["q"]
        typo, cut_off = found.refused
        assert (typo.query, cut_off.query) == ("typo", "cut off")
        # The reason, the line of the text that is wrong, and a mark below the place.
        assert typo.message.startswith("nope is not a column of R\n  WHERE R.nope > 5\n          ^")
        assert cut_off.message.startswith(
            "the name of an input is missing\n  SELECT R.x FROM\n                 ^"
        )
        hub.batch(R=rows)


def test_queries_that_are_refused_at_the_first_start_are_told_too(tmp_path):
    LocalHub({"R": R}, str(tmp_path), {"bad": "SELECT R.nope FROM R"}).batch(R=pa.table({"k": [1], "x": [1]}))
    (refused,) = status_of(tmp_path).refused
    assert refused.query == "bad" and "SELECT R.nope FROM R\n           ^" in refused.message


def test_texts_are_read_over_the_stored_columns(hub, tmp_path):
    hub.batch(R=pa.table({"k": [1], "x": [1]}))
    reader = open_hub(str(tmp_path)).reader()
    assert reader.read("SELECT R.x FROM R").template.streams == ("R",)
    with pytest.raises(PredicateError, match="nope"):
        reader.read("SELECT R.nope FROM R")
    # What the hub stores for itself is no stream.
    with pytest.raises(PredicateError, match="commands"):
        reader.read("SELECT `~commands`.op FROM `~commands`")


def test_a_state_without_a_hub_or_with_two_is_refused(tmp_path):
    with pytest.raises(StateError, match="there is no hub in"):
        open_hub(str(tmp_path))
    for name in ("one", "two"):
        LocalHub({"R": R}, str(tmp_path), name=name).batch(R=pa.table({"k": [1], "x": [1]}))
    with pytest.raises(StateError, match="holds the hubs one, two: name one"):
        open_hub(str(tmp_path))
    assert open_hub(str(tmp_path), "two").name == "two"


def test_the_status_of_joins_hides_what_a_hub_stores_for_itself(hub, tmp_path):
    hub.batch(R=pa.table({"k": [1], "x": [1]}))
    (found,) = read_status(tmp_path).joins
    assert [one.name for one in found.inputs] == ["R", "S"]
    assert {one.name: one.arrangements for one in found.inputs} == {"R": 2, "S": 1}


def test_a_command_appears_whole_in_a_folder_that_no_status_and_no_cleaner_sees(hub, tmp_path):
    folder = default_folder(str(tmp_path), "hub")
    assert folder is not None
    with pytest.raises(ConfigError, match="there is no command folder"):
        write_command(folder, "add", "q", PAIR)
    make_folder(folder)
    written = write_command(folder, "add", "q", PAIR, clock_ns=lambda: 7)
    assert [*folder.iterdir()] == [written]
    assert json.loads(written.read_text()) == {"op": "add", "id": "q", "sql": PAIR, "at": 7}
    for _ in range(20):
        hub.batch(R=pa.table({"k": [1], "x": [1]}))
    assert [one.name for one in read_status(tmp_path).joins] == ["hub"]
    assert written.exists()
