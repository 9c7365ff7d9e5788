"""What commands make of a catalogue."""

from __future__ import annotations

import time

import pytest

from watersmeet.hubs.catalogue import (
    ADD,
    REMOVE,
    Changed,
    Command,
    HubCatalogue,
    apply_commands,
    folder_of,
)
from watersmeet.hubs.templates import TemplateReader
from watersmeet.model.types import INT

READER = TemplateReader({"R": {"a": INT, "b": INT}, "S": {"a": INT}})
ONE = "SELECT R.b FROM R, S WHERE R.a = S.a AND R.b > 1"
TWO = "SELECT R.b FROM R, S WHERE R.a = S.a AND R.b > 2"
OTHER = "SELECT R.a FROM R"


@pytest.fixture(autouse=True, params=[1, 2, 512], ids=lambda rows: f"rows of {rows}")
def plain_rows(request, monkeypatch):
    """New queries become rows at once, in pairs, or at the end."""
    monkeypatch.setattr("watersmeet.hubs.catalogue._PLAIN_ROWS", request.param)


def changed(*commands: Command, before: HubCatalogue | None = None, batch: int = 3) -> Changed:
    return apply_commands(HubCatalogue() if before is None else before, commands, batch, READER)


def events(found: Changed) -> list[tuple[str, str]]:
    return [(row["query"], row["event"]) for row in found.events.to_pylist()]


def ids(found: Changed) -> list[str]:
    return found.catalogue.queries.column("id").to_pylist()


@pytest.mark.parametrize(
    ("commands", "expected", "live"),
    [
        ([Command(ADD, "q", ONE)], [("q", "added")], ["q"]),
        ([Command(ADD, "q", ONE), Command(ADD, "q", ONE)], [("q", "added")], ["q"]),
        ([Command(ADD, "q", ONE), Command(ADD, "q", TWO)], [("q", "added"), ("q", "refused")], ["q"]),
        ([Command(REMOVE, "q"), Command(ADD, "q", ONE)], [("q", "refused"), ("q", "added")], ["q"]),
        ([Command(ADD, "q", ONE), Command(REMOVE, "q")], [("q", "added"), ("q", "removed")], []),
        (
            [Command(ADD, "q", ONE), Command(REMOVE, "q"), Command(ADD, "q", TWO)],
            [("q", "added"), ("q", "removed"), ("q", "added")],
            ["q"],
        ),
        ([Command(ADD, "q", "SELECT nonsense")], [("q", "refused")], []),
        ([Command(ADD, "q", None), Command(ADD, None, ONE)], [("q", "refused"), ("", "refused")], []),
        ([Command("drop", "q"), Command(None, "q")], [("q", "refused"), ("q", "refused")], []),
        ([Command(ADD, "q" * 250, ONE)], [("q" * 200, "refused")], []),
    ],
)
def test_commands_of_a_batch_take_effect_one_after_the_other(commands, expected, live):
    found = changed(*commands)
    assert (events(found), ids(found)) == (expected, live)


@pytest.mark.parametrize(
    ("unkept", "expected"),
    [({}, "added"), ({"R": 999_999}, "added"), ({"R": 1_000_000}, "refused"), ({"S": 10**15}, "added")],
)
def test_since_reaches_back_to_rows_that_are_kept_of_its_own_streams(unkept, expected):
    text = f"{OTHER} SINCE TIMESTAMP '1970-01-01 00:00:01Z'"
    found = apply_commands(HubCatalogue(), [Command(ADD, "q", text)], 3, READER, unkept)
    assert events(found) == [("q", expected)]
    assert found.catalogue.queries.column("since").to_pylist() == [1_000_000] * (expected == "added")
    if unkept.get("R") == 1_000_000:
        (message,) = found.events.column("message").to_pylist()
        assert "all rows of R are kept from 1970-01-01 00:00:01.000001+00:00 on only" in message


def test_a_live_query_stays_as_it_is_when_its_text_comes_again():
    first = changed(Command(ADD, "q", ONE))
    again = changed(Command(ADD, "q", f"  {ONE}\n"), before=first.catalogue, batch=9)
    assert (events(again), again.catalogue) == ([], first.catalogue)
    assert again.catalogue.queries.column("start").to_pylist() == [3]
    other = changed(Command(ADD, "q", TWO), before=first.catalogue, batch=9)
    assert (events(other), other.catalogue) == ([("q", "refused")], first.catalogue)


def test_a_removed_id_stays_removed_for_given_queries_and_not_for_commands():
    first = changed(Command(ADD, "q", ONE, given=True)).catalogue
    gone = changed(Command(REMOVE, "q"), before=first, batch=4)
    assert (ids(gone), gone.catalogue.removed, gone.catalogue.templates.num_rows) == ([], ("q",), 0)
    assert ids(changed(Command(ADD, "q", ONE, given=True), before=gone.catalogue)) == []
    back = changed(Command(ADD, "q", ONE), before=gone.catalogue, batch=7)
    assert (ids(back), back.catalogue.removed) == (["q"], ())
    assert back.catalogue.queries.column("start").to_pylist() == [7]


@pytest.mark.parametrize(
    ("commands", "removed"),
    [
        ([Command(ADD, "q", ONE), Command(REMOVE, "q")], ()),
        ([Command(ADD, "q", ONE, given=True), Command(REMOVE, "q")], ("q",)),
        # The id was given, whatever became of that.
        ([Command(ADD, "q", ONE), Command(ADD, "q", ONE, given=True), Command(REMOVE, "q")], ("q",)),
        ([Command(ADD, "q", ONE), Command(ADD, "q", TWO, given=True), Command(REMOVE, "q")], ("q",)),
        # A command brings it back, and another one removes it again.
        (
            [
                Command(ADD, "q", ONE, given=True),
                Command(REMOVE, "q"),
                Command(ADD, "q", TWO),
                Command(REMOVE, "q"),
            ],
            ("q",),
        ),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_removed_id_is_remembered_if_it_was_ever_given_at_a_start(commands, removed, together):
    found = changed(*commands) if together else None
    for command in () if together else commands:
        found = changed(command, before=found.catalogue if found else None)
    assert (found.catalogue.removed, len(found.catalogue)) == (removed, 0)


def test_a_query_counts_as_given_whether_it_was_stored_before_or_not():
    given = Command(ADD, "q", ONE, given=True)
    found = changed(Command(ADD, "q", ONE), given, Command(ADD, "r", ONE), Command(REMOVE, "q"))
    assert (ids(found), found.catalogue.removed) == (["r"], ("q",))


def test_ids_that_come_and_go_with_commands_leave_nothing():
    catalogue = changed(Command(ADD, "stays", ONE)).catalogue
    for at in range(500):
        catalogue = changed(Command(ADD, f"q{at}", OTHER), before=catalogue).catalogue
        catalogue = changed(Command(REMOVE, f"q{at}"), before=catalogue).catalogue
    assert catalogue == changed(Command(ADD, "stays", ONE)).catalogue


def test_templates_are_shared_and_leave_with_their_last_query():
    found = changed(Command(ADD, "one", ONE), Command(ADD, "other", OTHER), Command(ADD, "two", TWO))
    assert found.catalogue.templates.num_rows == 2
    assert found.catalogue.queries.column("template").to_pylist() == [0, 1, 0]
    left = changed(Command(REMOVE, "one"), Command(REMOVE, "two"), before=found.catalogue)
    assert left.catalogue.parsed == (READER.read(OTHER).template,)
    assert left.catalogue.queries.column("template").to_pylist() == [0]


@pytest.mark.parametrize(
    ("id_", "fits"),
    [
        ("q" * 249, True),
        ("q" * 250, False),
        ("é" * 124, True),
        ("é" * 125, False),
        ("/" * 83, True),
        ("/" * 84, False),
    ],
)
def test_an_id_is_no_longer_than_the_name_of_a_folder_may_be(id_, fits):
    assert (len(folder_of(id_).encode()) <= 255) == fits
    (row,) = changed(Command(ADD, id_, ONE)).events.to_pylist()
    assert row["event"] == ("added" if fits else "refused")
    assert fits or "bytes, at most 255" in row["message"]


def test_ten_thousand_commands_of_which_half_are_bad_refuse_that_half():
    commands = [
        Command(ADD, f"q{at}", ONE.replace("> 1", f"> {at}") + (" AND R.nope = 1" if at % 2 else ""))
        for at in range(10_000)
    ]
    started_s = time.process_time()
    found = changed(*commands)
    # About two seconds; one parse for each text would take ten.
    assert time.process_time() - started_s < 8
    assert (len(found.catalogue), found.catalogue.templates.num_rows) == (5_000, 1)
    assert [event for _, event in events(found)] == ["added", "refused"] * 5_000
    assert found.catalogue.queries.nbytes < 2_000 * len(found.catalogue)


def test_a_refused_megabyte_leaves_nothing_in_the_catalogue_or_the_message():
    found = changed(Command(ADD, "q", "SELECT R.a FROM R WHERE R.a = " + "1" * 1_000_000))
    assert (found.catalogue, events(found)) == (HubCatalogue(), [("q", "refused")])
    assert len(found.events.column("message")[0].as_py()) < 500
