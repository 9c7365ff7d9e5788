"""Lives of hubs that keep steps: which ones is chosen at random, and what comes out must not depend on it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.life import LIVES, TINY
from tests.model import test_hub_lives as lives
from tests.property.hub_helpers import COUNTED, SLIDING, TUMBLING, queries, random_inputs
from watersmeet.engine import hub_desk
from watersmeet.engine import operator as engine
from watersmeet.engine.hub_kept import KeptRuns
from watersmeet.engine.spec import Settings
from watersmeet.hubs.catalogue import ADD, REMOVE
from watersmeet.hubs.keep import Choices, keeps_of, undecided
from watersmeet.hubs.keep_choice import KeptInputs
from watersmeet.hubs.kept import KEPT, TAG
from watersmeet.hubs.language import MOST_INPUTS
from watersmeet.local.hub import LocalHub
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import FULL_RANGE, BatchId

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

    # A part writes several runs.
    few = Random(seed).choice([1, 3, 1 << 16])
    with (
        mock.patch.object(hub_desk, "choices_of", choices),
        mock.patch.object(KeptRuns, "write", counted),
        mock.patch("watersmeet.hubs.kept._HELD_BINDINGS", few),
        mock.patch("watersmeet.hubs.kept.HELD_ROWS", few),
    ):
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


STREAMS = dict.fromkeys("RSP", lives.R)
WINDOWED = f"{CHAIN} WINDOW 10 SECONDS"


def rows_of(number: int) -> dict[str, pa.Table]:
    return dict.fromkeys("RSP", pa.table({"k": [1, number], "x": [number, 1]}))


def kept(hub: LocalHub) -> int:
    return sum(run.stored_rows for run in lives.newest(hub).live if run.input == KEPT)


def answers(hub: LocalHub, number: int, *more: tuple[str, str, str | None]) -> Counter:
    return answers_in(hub.batch(lives.commands(*more), lives.at(number), **rows_of(number)))


def answers_in(table: pa.Table) -> Counter:
    return Counter((row["query"], row["answer"]) for row in table.to_pylist() if row["event"] == "answer")


@pytest.mark.parametrize("done", [(), (0,), (1,), (0, 1)], ids=["none", "the first", "the last", "damaged"])
@pytest.mark.parametrize("cut", [1, 2, 4], ids=["old ones", "the first", "later ones"])
def test_what_a_task_kept_is_made_again_if_its_receipt_is_missing(tmp_path, done, cut):
    """Tasks of one batch never run to their end: that in which it is begun to keep, the next one, or a later one."""
    texts = {"q": CHAIN, "d": CHAIN.replace("SELECT", "SELECT DISTINCT")}
    whole = LocalHub(STREAMS, str(tmp_path / "whole"), texts, keep="never")
    hub = LocalHub(STREAMS, str(tmp_path / "cut"), texts, keep="always")
    for number in range(7):
        expected = answers(whole, number)
        if number != cut:
            assert answers(hub, number) == expected
            continue
        batch = BatchId(hub.query, hub.run, number)
        told = hub.ingest(batch, rows_of(number), None, lives.at(number))
        for task in range(2):
            manifest = hub.operator.agree_and_merge(batch, task, told)
            if task in done:
                _ = [*hub.operator.results(manifest, task)]
        if len(done) == 2:
            for path in Path(tmp_path / "cut").rglob("receipts/~*"):
                path.chmod(0o600)
                path.write_text("{}")
        hub.number += 1
        # Another number of tasks shares the rows of the batch before out as that batch did.
        hub = lives.restarted(hub, tasks=3) if cut == 4 else hub
    assert kept(hub) > 0


def test_what_is_kept_is_freed_with_the_last_query_that_needs_it(tmp_path):
    hub = LocalHub(STREAMS, str(tmp_path), {"q": CHAIN, "r": f"{CHAIN} AND R.x >= 0"}, keep="always")
    for number in range(4):
        answers(hub, number)
    assert kept(hub) > 0
    answers(hub, 4, (REMOVE, "q", None))
    answers(hub, 5)
    assert kept(hub) > 0
    answers(hub, 6, (REMOVE, "r", None))
    answers(hub, 7)
    assert {run.input for run in lives.newest(hub).live} == {"~catalogue"}


def test_merges_drop_what_was_kept_for_a_query_that_is_gone(tmp_path):
    texts = {"stays": f"{CHAIN} AND S.k = 1", "goes": f"{CHAIN} AND S.k >= 0"}
    settings = Settings(state=str(tmp_path), tasks=2, limits=TINY, retain_batches=2, grace_s=-1.0)
    hub = LocalHub(STREAMS, str(tmp_path), texts, keep="always", settings=settings)
    for number in range(4):
        answers(hub, number)
    numbers = set(lives_numbers(hub))
    assert len(numbers) == 2
    answers(hub, 4, (REMOVE, "goes", None))
    for number in range(5, 16):
        answers(hub, number)
    assert len(lives_numbers(hub)) == 1


def lives_numbers(hub: LocalHub) -> set[int]:
    """The kept numbers in the merged runs of the state."""
    found: set[int] = set()
    manifest = lives.newest(hub)
    files = engine._kept(hub.operator.spec, BatchId(hub.query, hub.run, 0), hub.clock).files
    oldest = min((run for run in manifest.live if run.input == KEPT), key=lambda run: run.batch)
    for run in manifest.live:
        if run.input == KEPT and (run.group != run.path or run is oldest):
            rows = RunReader(files).read(run, FULL_RANGE, (TAG,))[0].rows
            found |= {tag // MOST_INPUTS for tag in rows.column(TAG).to_pylist()}
    return found


def test_what_is_kept_leaves_with_its_window_though_another_query_keeps_all(tmp_path):
    texts = {"windowed": WINDOWED, "all": f"{CHAIN} AND R.x < 0"}
    settings = Settings(state=str(tmp_path), tasks=2, limits=TINY, retain_batches=2, grace_s=-1.0)
    hub = LocalHub(STREAMS, str(tmp_path), texts, keep="always", settings=settings)
    whole = LocalHub(STREAMS, str(tmp_path / "whole"), texts, keep="never")
    most = 0
    for number in range(40):
        assert answers(hub, number) == answers(whole, number)
        most = max(most, kept(hub)) if number < 20 else most
    assert 0 < kept(hub) <= 2 * most


def test_a_template_that_reaches_back_keeps_nothing_more(tmp_path):
    hub = LocalHub(STREAMS, str(tmp_path), {"q": CHAIN}, keep="always", retain="all")
    whole = LocalHub(STREAMS, str(tmp_path / "whole"), {"q": CHAIN}, keep="never", retain="all")
    back = (ADD, "back", f"{CHAIN} SINCE TIMESTAMP '1970-01-01 00:00:00Z'")
    for number in range(7):
        more = [back] if number == 3 else []
        assert answers(hub, number, *more) == answers(whole, number, *more)
        assert (kept(hub) > 0) == (2 <= number <= 3)


def test_a_hub_that_is_told_to_keep_nothing_drops_what_it_kept(tmp_path):
    hub = LocalHub(STREAMS, str(tmp_path), {"q": CHAIN}, keep="always")
    whole = LocalHub(STREAMS, str(tmp_path / "whole"), {"q": CHAIN}, keep="never")
    for number in range(9):
        if number in (3, 6):
            hub = lives.restarted(hub, keep="never" if number == 3 else "always")
        assert answers(hub, number) == answers(whole, number)
        if number == 5:
            assert kept(hub) == 0
    assert kept(hub) > 0


def test_a_hub_chooses_by_itself_once_rows_have_met(tmp_path):
    text = f"{CHAIN} AND R.x = 7"
    hub = LocalHub(STREAMS, str(tmp_path), {f"q{n}": text.replace("7", str(n)) for n in range(3)})
    random = Random(7)
    with mock.patch("watersmeet.hubs.keep_choice.LEAST_SAVED_LOOKUPS", 1.0):
        for number in range(8):
            rows = {
                name: pa.table(
                    {c: [random.randrange(300 if c == "x" else 60) for _ in range(600)] for c in "kx"}
                )
                for name in "RSP"
            }
            hub.batch(at=lives.at(number), **rows)
            assert (kept(hub) > 0) == (number >= 6)


def test_what_is_kept_stays_when_the_columns_of_a_stream_change(tmp_path):
    hubs = [LocalHub(STREAMS, str(tmp_path / keep), {"q": CHAIN}, keep=keep) for keep in ("always", "never")]
    wider = pa.schema([pa.field("new", pa.string()), *lives.R])
    for number in range(8):
        if number == 4:
            hubs = [lives.restarted(hub, schemas={**STREAMS, "R": wider}) for hub in hubs]
        rows = rows_of(number)
        if number >= 4:
            rows["R"] = rows["R"].append_column("new", pa.array(["a", "b"])).select(wider.names)
        found = [answers_in(hub.batch(at=lives.at(number), **rows)) for hub in hubs]
        assert found[0] == found[1] and found[0]
    assert kept(hubs[0]) > 0
