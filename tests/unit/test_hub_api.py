"""`Hub.add` and `Hub.remove`: a command in the folder, checked before it is written."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet.engine.hub import HubOptions
from watersmeet.engine.spec import Settings
from watersmeet.errors import ConfigError, PredicateError, UsageError
from watersmeet.hubs.templates import TemplateReader
from watersmeet.model.types import BIGINT
from watersmeet.spark import hub_delivery
from watersmeet.spark.hub import Hub

TEXT = "SELECT R.k FROM R WHERE R.k > 5"


def hub_with(folder) -> Hub:
    """A hub without Spark: only where it runs is asked of a stream."""
    stream: Any = SimpleNamespace(sparkSession=SimpleNamespace())
    texts = TemplateReader({"R": {"k": BIGINT}})
    streams: Any = {"R": stream}
    return Hub(streams, None, folder and str(folder), HubOptions(), Settings(state=".", tasks=2), texts)


def test_commands_are_files_in_the_folder_in_the_order_of_their_times(tmp_path):
    hub = hub_with(tmp_path)
    hub.add("q", TEXT)
    hub.remove("q")
    hub.remove("never there")
    # One file each, all of them whole.
    commands = sorted(
        (json.loads(file.read_text()) for file in tmp_path.iterdir()), key=lambda one: one["at"]
    )
    assert [{key: one[key] for key in one if key != "at"} for one in commands] == [
        {"op": "add", "id": "q", "sql": TEXT},
        {"op": "remove", "id": "q"},
        {"op": "remove", "id": "never there"},
    ]


@pytest.mark.parametrize(
    ("query", "sql", "error", "message"),
    [
        (
            "q",
            "SELECT R.nope FROM R",
            PredicateError,
            "nope is not a column of R\n  SELECT R.nope FROM R\n           ^",
        ),
        ("q", " ", UsageError, "query q has no sql"),
        ("", TEXT, UsageError, "a command needs the id of a query"),
        ("q" * 300, TEXT, UsageError, "the id makes a folder name of 306 bytes, at most 255"),
    ],
)
def test_what_the_hub_would_refuse_is_refused_here_and_leaves_no_file(tmp_path, query, sql, error, message):
    with pytest.raises(error) as refused:
        hub_with(tmp_path).add(query, sql)
    assert message in str(refused.value)
    assert not [*tmp_path.iterdir()]


def test_an_id_is_checked_when_a_query_is_removed_too(tmp_path):
    with pytest.raises(UsageError, match="no text can hold"):
        hub_with(tmp_path).remove("a\0b")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("folder", "source"), [(None, "no local folder"), ("s3://bucket/commands", "s3://bucket/commands")]
)
def test_commands_that_come_from_elsewhere_cannot_be_written(folder, source):
    for command in (lambda hub: hub.add("q", TEXT), lambda hub: hub.remove("q")):
        with pytest.raises(UsageError, match=f"this hub reads its commands from {source}"):
            command(hub_with(folder))


def test_a_hub_that_was_never_started_has_no_folder_yet(tmp_path):
    with pytest.raises(ConfigError, match="start the hub once"):
        hub_with(tmp_path / "not there").remove("q")


def test_a_query_of_the_start_that_will_be_refused_is_warned_of(tmp_path, caplog):
    texts = {"good": TEXT, "typo": "SELECT R.nope FROM R", "empty": ""}
    hub = dataclasses.replace(hub_with(tmp_path), options=HubOptions(texts))
    with caplog.at_level("WARNING", logger="watersmeet"):
        assert hub.with_warnings() is hub
    assert [one.getMessage().split("\n")[0] for one in caplog.records] == [
        "the hub will refuse the query typo: nope is not a column of R",
        "the hub will refuse the query empty: query empty has no sql",
    ]
    assert caplog.records[0].name.startswith("watersmeet.")


def test_a_hub_is_shown_without_its_queries_and_settings(tmp_path):
    shown = repr(dataclasses.replace(hub_with(tmp_path), options=HubOptions({"q": TEXT})))
    assert shown.startswith("Hub(streams={'R': ") and len(shown) < 200 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ({"answers/query=q"}, "answers/query=q"),
        ({"query-id"}, "none"),
        ({"answers"}, "none"),
        (set(), None),
    ],
    ids=["answered", "delivered", "delivered in a thread that Spark knows no query of", "another place"],
)
def test_no_answers_are_no_rows_only_where_something_was_delivered(monkeypatch, there, found):
    def read_if_there(spark: object, folder: str, *_: object) -> str | None:
        part = folder.removeprefix("/out/")
        return part if part in there else None

    monkeypatch.setattr(hub_delivery, "_read_if_there", read_if_there)
    spark: Any = SimpleNamespace(createDataFrame=lambda rows, schema: "none")
    if found is not None:
        assert hub_delivery._delivered(spark, "/out", "q", "parquet") == found
    else:
        with pytest.raises(UsageError, match="nothing was delivered to /out: give the place"):
            hub_delivery._delivered(spark, "/out", "q", "parquet")
