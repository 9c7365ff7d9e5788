"""Lives of hubs that keep steps: which ones is chosen at random, and what comes out must not depend on it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.life import LIVES
from tests.model import test_hub_lives as lives
from tests.property.hub_helpers import COUNTED, SLIDING, TUMBLING, queries, random_inputs
from watersmeet.engine import hub_desk
from watersmeet.engine.hub_kept import KeptRuns
from watersmeet.hubs.keep import Choices, keeps_of, undecided
from watersmeet.hubs.keep_choice import KeptInputs
from watersmeet.local.hub import LocalHub

CHAIN = "SELECT R.x FROM R, S, P WHERE R.k = S.k AND S.x = P.x"


def life_of(test: Any) -> Callable[..., None]:
    """What a test does with one example."""
    found: Callable[..., None] = test.hypothesis.inner_test
    return found


comes_and_goes = life_of(lives.test_answers_are_those_of_duckdb_whatever_comes_goes_and_crashes)
windows_and_late_rows = life_of(
    lives.test_answers_within_windows_are_those_of_duckdb_however_late_rows_come_and_whatever_left
)


@contextlib.contextmanager
def random_choices(seed: int) -> Iterator[Counter]:
    """Choose what templates keep at random, some of them later and some again. Counts the combinations that are kept."""
    kept: Counter = Counter()
    write = KeptRuns.write

    def choices(catalogue, streams, batch, runs) -> Choices:
        random = Random(f"{seed} {batch}")

        def inputs(one: int) -> KeptInputs:
            return KeptInputs(tuple(random_inputs(catalogue.parsed[one], random)), 1.0, 2.0)

        found: dict[int, KeptInputs | None] = {
            one: inputs(one) for one in undecided(catalogue).tolist() if random.random() < 0.7
        }
        for one in keeps_of(catalogue).nonzero()[0].tolist():
            if random.random() < 0.1:
                found[one] = random.choice([None, KeptInputs((), 0, 0), inputs(one)])
        return found

    def counted(self, rows):
        kept["rows"] += len(rows)
        write(self, rows)

    with mock.patch.object(hub_desk, "choices_of", choices), mock.patch.object(KeptRuns, "write", counted):
        yield kept
    event(f"kept: {kept['rows'] > 0}")


PLACES = st.none() | st.sampled_from([*lives.PLACES, "receipt-written", "task-done"])


@settings(LIVES, max_examples=LIVES.max_examples // 2)
@given(
    st.lists(queries(4, distinct=[False, False, True]), min_size=2, max_size=4),
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), max_size=2), PLACES, st.integers(0, 3)),
        min_size=4,
        max_size=7,
    ),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 1 << 32),
)
def test_answers_are_those_of_duckdb_whatever_is_kept(texts, script, tasks, partitions, seed):
    with random_choices(seed):
        comes_and_goes(texts, script, tasks, partitions, Random(seed))


@settings(LIVES, max_examples=LIVES.max_examples // 2)
@given(
    st.lists(queries(4, [SLIDING, TUMBLING, *COUNTED], [False, False, True]), min_size=1, max_size=3),
    st.sampled_from(["", SLIDING, TUMBLING, *COUNTED]).flatmap(lambda window: queries(4, [window])),
    st.lists(st.tuples(st.integers(0, 7), PLACES, st.integers(0, 3)), min_size=4, max_size=9),
    st.integers(0, 3),
    st.integers(0, 5),
    st.sampled_from([None, None, "0 seconds", "3 seconds", "all"]),
    st.integers(0, 1 << 32),
)
def test_answers_within_windows_are_those_of_duckdb_whatever_is_kept(
    texts, last, script, lateness, disorder, retain, seed
):
    with random_choices(seed):
        windows_and_late_rows(texts, last, script, lateness, disorder, retain, Random(seed))


@pytest.mark.parametrize("text", ["SELECT DISTINCT R.x FROM R", CHAIN], ids=["answered", "kept"])
def test_what_tasks_have_announced_is_not_made_again(tmp_path, text):
    hub = LocalHub(dict.fromkeys("RSP", lives.R), str(tmp_path), {"q": text}, keep="always")
    row = pa.table({"k": [1], "x": [1]})
    with (
        mock.patch.object(hub_desk.HubDesk, "_distinct_again") as distinct,
        mock.patch.object(hub_desk.HubDesk, "_kept_again") as kept,
    ):
        for _ in range(4):
            hub.batch(R=row, S=row, P=row)
    assert not distinct.called and not kept.called
    assert any(run.input.startswith(("~kept", "~answered")) for run in lives.newest(hub).live)
