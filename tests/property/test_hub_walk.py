"""The answers of a hub are those of DuckDB, for any queries, rows, additions and removals."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from random import Random
from unittest import mock

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.property.hub_helpers import Asked, MemoryHub, ask_duckdb, queries, rows_from
from watersmeet.hubs import forest_builder, walk
from watersmeet.hubs.catalogue import ADD, REMOVE, Command
from watersmeet.hubs.keep import numbered, with_choices
from watersmeet.hubs.keep_choice import KeptInputs


# Every example asks DuckDB once for each query.
@settings(max_examples=settings().max_examples // 4)
@given(
    st.lists(queries(), min_size=2, max_size=5),
    st.lists(st.lists(st.integers(0, 5), max_size=2), min_size=3, max_size=5),
    st.integers(1, 2),
    st.sampled_from([1, 7, 1000]),
    st.integers(0, 1 << 32).map(Random),
    st.sampled_from([False, False, True]),
)
def test_answers_are_those_of_duckdb_whatever_comes_and_goes(
    texts, script, parts, piece_rows, random, equal_hashes
):
    with without_hashes() if equal_hashes else contextlib.nullcontext():
        check_answers(texts, script, parts, piece_rows, random)


@settings(max_examples=settings().max_examples // 4)
@given(
    st.lists(queries(4, least=3), min_size=2, max_size=3),
    st.lists(st.lists(st.integers(0, 5), max_size=1), min_size=4, max_size=6),
    st.integers(1, 2),
    st.sampled_from([7, 1000]),
    st.integers(0, 1 << 32).map(Random),
    st.sampled_from([False, False, True]),
)
def test_answers_are_those_of_duckdb_whatever_steps_are_kept(
    texts, script, parts, piece_rows, random, equal_hashes
):
    with without_hashes() if equal_hashes else contextlib.nullcontext():
        check_answers(texts, script, parts, piece_rows, random, keeps=True)


def test_combinations_that_wait_for_one_column_at_two_edges_are_told_apart():
    text = (
        "SELECT o.id AS o_id, k.id AS k_id, l.id AS l_id, p.id AS p_id FROM R AS o, S AS k, P AS l, R AS p "
        "WHERE o.a = k.a AND k.b = l.b AND l.a = p.a"
    )
    hub = MemoryHub()
    random, found = Random(5), []
    for number in range(5):
        answers, _ = hub.batch(rows_from(random), [Command(ADD, "q", text)] if number == 0 else [])
        found.append(answers)
        if number == 1:
            chosen = with_choices(hub.catalogue, {0: KeptInputs((1, 2), 1.0, 2.0)}, 1)
            hub.catalogue = numbered(chosen, 1)
    assert hub.kept
    assert sum(found, start=Counter()) == ask_duckdb([Asked("q", text, 0, 5)], hub.tables())


@contextlib.contextmanager
def without_hashes() -> Iterator[None]:
    """Give all branches and constants equal hashes: they only save work."""

    def zeros(values, *_):
        return np.zeros(len(values), np.uint64)

    with contextlib.ExitStack() as stack:
        for module in (forest_builder, walk):
            for name in ("branch_keys", "value_hashes", "tag_keys"):
                stack.enter_context(mock.patch.object(module, name, zeros))
        yield


def check_answers(texts, script, parts, piece_rows, random, *, keeps=False):
    # One query more than texts: a query may have the text of another one that began earlier.
    texts = [*texts, texts[0]]
    hub = MemoryHub(piece_rows, random=random if keeps else None)
    found, asked = [], []
    # The queries that are live, with the batch that brought them. Most are live from the start.
    live: dict[int, int] = {}
    for number, toggled in enumerate(script):
        commands = []
        for which in [*range(0 if number else len(texts) - 1), *toggled]:
            query = which % len(texts)
            op = REMOVE if query in live else ADD
            commands.append(Command(op, f"q{query}", texts[query]))
            if op == REMOVE:
                asked.append(Asked(f"q{query}", texts[query], live.pop(query), number))
            else:
                live[query] = number
        answers, events = hub.batch(rows_from(random), commands, parts)
        assert events.num_rows == len(commands)
        found.append(answers)
    asked += [Asked(f"q{query}", texts[query], start, len(script)) for query, start in live.items()]
    expected = ask_duckdb([one for one in asked if one.end > one.start], hub.tables())
    event(f"answers: {min(3, len(str(expected.total())))} digits")
    event(f"kept: {bool(hub.kept)}")
    assert sum(found, start=Counter()) == expected
