"""Which answers of DISTINCT queries come out, against the rule said in plain Python."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.hubs import distinct
from watersmeet.hubs.catalogue import ADD, Command, HubCatalogue, apply_commands
from watersmeet.hubs.distinct import Answers, distinct_part, distinct_parts, first_seen, gather, seen_rows
from watersmeet.hubs.forest_builder import build_forest
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.templates import TemplateReader
from watersmeet.model.types import INT

SCHEMAS = {"R": {"a": INT}}
SECOND = 1_000_000
WINDOWS = ("", " WINDOW 3 SECONDS", " WINDOW TUMBLING 4 SECONDS")
TEXTS = [f"SELECT DISTINCT R.a FROM R{window}" for window in WINDOWS]


def catalogue_of(texts: list[str]) -> HubCatalogue:
    commands = [Command(ADD, f"q{at}", text) for at, text in enumerate(texts)]
    return apply_commands(HubCatalogue(), commands, 3, TemplateReader(SCHEMAS)).catalogue


CATALOGUE = catalogue_of(TEXTS)
QUERIES = build_forest(CATALOGUE, Attributes.of(SCHEMAS)).queries
START = CATALOGUE.queries.column("start").to_numpy()

# Query, values, newest time in seconds, and how much older the oldest row is.
ANSWER = st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(-9, 9), st.integers(0, 2))


def answers_of(rows: list[tuple[int, str, int, int]]) -> Answers:
    query, text, newest, age = zip(*rows, strict=True)
    times = np.array(newest, np.int64) * SECOND
    return Answers(
        np.array(query, np.int64), times - np.array(age) * SECOND, times, pa.array(text, pa.string())
    )


def plain(found: Answers) -> list[tuple[int, str, int, int]]:
    rows = zip(
        found.query.tolist(),
        found.text.to_pylist(),
        (found.newest // SECOND).tolist(),
        ((found.newest - found.oldest) // SECOND).tolist(),
        strict=True,
    )
    return sorted(rows)


def expected_of(rows: list[tuple[int, str, int, int]], came_out: set[tuple[int, str, int]]) -> list:
    found = []
    for query, text, newest, age in sorted(rows, key=lambda row: (row[2], -row[3])):
        others = [time for q, t, time in came_out if (q, t) == (query, text)]
        if query == 0:
            repeated = bool(others)
        elif query == 1:
            repeated = any(abs(time - newest) <= 3 for time in others)
        else:
            repeated = any(time // 4 == newest // 4 for time in others)
        if not repeated:
            came_out.add((query, text, newest))
            found.append((query, text, newest, age))
    return sorted(found)


@given(
    st.lists(st.lists(ANSWER, min_size=1, max_size=12), min_size=1, max_size=4),
    st.integers(1, 5),
    st.booleans(),
)
def test_answers_come_out_once_in_each_window(batches, piece, equal_hashes):
    seen, came_out = [], set()
    hashes = mock.Mock(side_effect=lambda columns: np.zeros(len(columns[0]), np.uint64))
    with mock.patch.object(distinct, "order_keys", hashes if equal_hashes else distinct.order_keys):
        for rows in batches:
            pieces = [answers_of(rows[low : low + piece]) for low in range(0, len(rows), piece)]
            with mock.patch.object(distinct, "_GATHERED_ROWS", 3):
                gathered = gather(pieces, QUERIES)
            assert gathered is not None
            found = first_seen(gathered, seen, QUERIES, START)
            assert plain(found) == expected_of(rows, came_out)
            if len(found):
                seen.append(seen_rows(found, QUERIES, START))


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_every_distinct_query_is_in_one_part(parts):
    catalogue = catalogue_of(
        [
            *TEXTS,
            "SELECT R.a FROM R",
            "SELECT DISTINCT R.a AS b FROM R",
            "SELECT DISTINCT R.a AS c FROM R WHERE R.a = 1",
        ]
    )
    ids = [
        id_
        for part in distinct_parts(catalogue, parts)
        for id_ in distinct_part(catalogue, part, parts).queries.column("id").to_pylist()
    ]
    assert sorted(ids) == ["q0", "q1", "q2", "q4", "q5"]
