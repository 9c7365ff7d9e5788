"""Settlings that meet others, by name of the place where they meet; what later starts find; what damage costs.

tests/model/test_memory.py settles in the middle of any life, with kills at every place.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.life import (
    TINY,
    Clock,
    Crash,
    Row,
    ask_duckdb,
    crash_at,
    files_of,
    forget,
    manifests,
    multiset,
    newest,
    restarted,
    run_batch,
    start,
)
from watersmeet import failpoints
from watersmeet.engine.owed import check_owes, divide, find_standing, survey
from watersmeet.engine.owed import forget as forget_owed
from watersmeet.errors import CorruptFile, StateError, StateInUse, UsageError
from watersmeet.local.join import LocalJoin
from watersmeet.log.checkpoint import Checkpoint
from watersmeet.log.files import open_files
from watersmeet.log.folders import check_free, open_folder
from watersmeet.log.runs import RunReader
from watersmeet.log.status import read_status
from watersmeet.model.facts import FULL_RANGE
from watersmeet.schemes.budget.policy import Pushing

SCHEMA = pa.schema({"k": pa.int64(), "id": pa.int64()})
NAMES = "ab"


def rows(number: int) -> pa.Table:
    """Key 0 has more than half of the rows."""
    keys = [0] * 5 + [1, 2, 3, 4]
    return pa.table([keys, [100 * number + place for place in range(len(keys))]], schema=SCHEMA)


def owing(place: Path | str, batches: int = 4, **more: Any) -> tuple[LocalJoin, Counter[Row]]:
    """A join that owes results after some batches, and what has come out."""
    join = start(
        dict.fromkeys(NAMES, SCHEMA),
        f"{place}/state",
        "a.k = b.k",
        select=["a.id AS a", "b.id AS b"],
        settings={"limits": TINY, "cache": more.pop("cache", None)},
        memory=1500,
        pushing=Pushing(groups=4),
        clock=Clock(),
        **more,
    )
    found: Counter[Row] = Counter()
    for number in range(batches):
        found += run_batch(join, parts(number))
    assert newest(open_files(join.settings.storage).under("join", "local")).pushes  # type: ignore[union-attr]
    return join, found


def parts(number: int) -> dict[str, list[pa.Table]]:
    return {name: [rows(number)] for name in NAMES}


def everything(batches: int) -> Counter[Row]:
    table = pa.concat_tables(rows(number) for number in range(batches))
    return ask_duckdb("SELECT a.id, b.id FROM a JOIN b ON a.k = b.k", a=table, b=table)


def read(folder: Path) -> Counter[Row]:
    return multiset(pq.read_table(folder))


@contextlib.contextmanager
def once_at(place: str, act: Callable[[], Any]) -> Iterator[None]:
    """Do something when a process reaches a place for the first time."""
    waiting = [act]

    def reach(name: str) -> bool:
        if name == place and waiting:
            waiting.pop()()
        return False

    with mock.patch.object(failpoints, "reach", reach):
        yield


# Between the claim of a settling and its mark.
AT_WORK = ["start-written", "mark-before-write", "manifest-linked"]


@pytest.mark.parametrize("place", AT_WORK[:2])
def test_a_start_that_comes_while_a_settling_is_at_work_wins(tmp_path, place):
    join, emitted = owing(tmp_path)

    def go_on() -> None:
        later = restarted(join, memory=None)
        for number in (4, 5):
            emitted.update(run_batch(later, parts(number)))

    with once_at(place, go_on), pytest.raises(StateError, match="took over|the query ran|has not committed"):
        join.settle(str(tmp_path / "late"))
    assert not list(tmp_path.glob("late*")), "a settling that lost left results"
    assert emitted == everything(6)
    assert not newest(tmp_path / "state").settlements


@pytest.mark.parametrize("place", AT_WORK[:2])
def test_of_two_settlings_at_once_one_wins(tmp_path, place):
    join, emitted = owing(tmp_path)
    with (
        once_at(place, lambda: join.settle(str(tmp_path / "second"))),
        pytest.raises(StateInUse, match="another settling, took over")
        if place == AT_WORK[1]
        else contextlib.nullcontext(),
    ):
        join.settle(str(tmp_path / "first"))
    found = sorted(path.name for path in tmp_path.iterdir() if path.name != "state")
    assert found == ["second"]
    assert emitted + read(tmp_path / "second") == everything(4)


def test_two_settlings_into_one_folder_write_it_once(tmp_path):
    join, emitted = owing(tmp_path)
    with once_at("settled-before-move", lambda: join.settle(str(tmp_path / "late"))):
        join.settle(str(tmp_path / "late"))
    assert emitted + read(tmp_path / "late") == everything(4)
    assert [path.name for path in tmp_path.glob("late*")] == ["late"]


def test_an_earlier_driver_that_is_at_work_stops_before_its_first_result(tmp_path):
    """It has looked for later starts, and publishes its next batch after the settling has looked for that."""
    join, emitted = owing(tmp_path)
    done = []
    with (
        once_at("manifest-before-write", lambda: done.append(join.settle(str(tmp_path / "late")))),
        pytest.raises(StateInUse),
    ):
        run_batch(restarted_later(join), parts(4))
    assert done and emitted + read(tmp_path / "late") == everything(4)
    emitted += read(tmp_path / "late")
    forget()
    again = restarted(join, memory=None)
    emitted += run_batch(again, parts(4))
    assert emitted == everything(5), "the batch that stopped was not replayed exactly"


def restarted_later(join: LocalJoin) -> LocalJoin:
    """The same start, as a process of its own would go on with it."""
    forget()
    return join


def test_a_batch_of_an_earlier_driver_that_spark_did_not_commit_is_refused(tmp_path):
    join, emitted = owing(tmp_path, 5)
    join.number -= 1
    with pytest.raises(StateError, match="Spark has not committed batch 4"):
        join.settle(str(tmp_path / "late"))
    assert not newest(tmp_path / "state").settlements
    # What is owed leaves that batch out.
    before = Counter({row: n for row, n in emitted.items() if max(row) < 400})
    # Its payments have not happened either, and its results are no older combinations here.
    assert before + multiset(join.owed()) == everything(4)


def test_a_start_behind_what_was_settled_is_refused_and_one_after_it_pays_nothing_again(tmp_path):
    join, emitted = owing(tmp_path)
    done = join.settle(str(tmp_path / "late"))
    with pytest.raises(StateError, match=f"{done.rows} results are in .*late.*come out again"):
        run_batch(restarted(join, at=2), parts(2))
    emitted += read(tmp_path / "late")
    # Twice, as after a crash in the first batch.
    for _ in range(2):
        later = restarted(join, memory=None)
        found = run_batch(later, parts(4))
    assert emitted + found == everything(5)
    assert newest(tmp_path / "state").settlements[0].rows == done.rows


def test_a_batch_that_came_between_is_replayed_with_its_decisions(tmp_path):
    """A driver does a whole batch just before the settling claims. That is refused, and its claim changes nothing."""
    join, emitted = owing(tmp_path)
    found = []
    settling = restarted(join)
    with (
        once_at("start-half-written", lambda: found.append(run_batch(join, parts(4)))),
        pytest.raises(StateError, match="has not committed batch 4"),
    ):
        settling.settle(str(tmp_path / "late"))
    forget()
    replay = restarted(join, at=4, memory=None)
    assert found == [run_batch(replay, parts(4))], "the replay paid other debts than the first attempt"
    assert emitted + found[0] + run_batch(replay, parts(5)) == everything(6)


def test_a_settling_that_was_killed_leaves_the_state_to_the_next_start(tmp_path):
    join, emitted = owing(tmp_path)
    with pytest.raises(Crash), crash_at("mark-before-write"):
        join.settle(str(tmp_path / "late"))
    (status,) = read_status(tmp_path / "state").joins
    assert (status.unsettled, status.settled, status.is_settled) == (3, (), False)
    later = restarted(join, memory=None)
    assert emitted + run_batch(later, parts(4)) + run_batch(later, parts(5)) == everything(6)
    (status,) = read_status(tmp_path / "state").joins
    assert status.unsettled is None


@pytest.mark.parametrize("killed", ["settled-before-move", "settled-file-moved"])
def test_a_state_on_an_object_store_is_settled_into_a_bucket(tmp_path, bucket, killed):
    join, emitted = owing(bucket, 3, cache=str(tmp_path / "cache"))
    with pytest.raises(Crash), crash_at(killed):
        join.settle(f"{bucket}/late")
    done = join.settle(f"{bucket}/late")
    files, path = open_folder(f"{bucket}/late")
    settled = multiset(pq.read_table(path, filesystem=files))
    assert (done.rows, emitted + settled) == (settled.total(), everything(3))
    with pytest.raises(UsageError, match="is not empty"):
        check_free(f"{bucket}/late")


def test_the_status_says_what_was_settled(tmp_path):
    join, _ = owing(tmp_path)
    done = join.settle(str(tmp_path / "late"))
    (status,) = read_status(tmp_path / "state").joins
    (settled,) = status.settled
    assert (settled.batch, settled.rows, settled.folder) == (3, done.rows, str(tmp_path / "late"))
    assert status.is_settled and status.damage == () and status.starts == 1
    assert sum(load.owed_rows for load in status.plan.loads) == 0
    run_batch(restarted(join), parts(4))
    (status,) = read_status(tmp_path / "state").joins
    assert status.settled == (settled,) and not status.is_settled


def test_a_damaged_run_costs_its_own_rows_and_is_not_settled(tmp_path):
    join, _ = owing(tmp_path)
    whole = multiset(join.owed())
    run = next(run for run in newest(tmp_path / "state").live if run.input == "b" and run.batch == 0)
    (stored,) = RunReader(files_of(tmp_path / "state")).slices(run, FULL_RANGE, ("id",))
    gone = set(stored.among(run.held_ranges).rows.column(0).to_pylist())
    path = files_of(tmp_path / "state").root / run.path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    forget_owed()
    rest = multiset(join.owed())
    assert rest == Counter({row: n for row, n in whole.items() if row[1] not in gone}) and rest != whole
    with pytest.raises(CorruptFile, match=r"is damaged.*its \d+ rows of input b take no part"):
        join.settle(str(tmp_path / "late"))
    assert not newest(tmp_path / "state").settlements


def test_a_join_that_owes_nothing_says_so(tmp_path):
    theta = start(SCHEMA, tmp_path, "l.id < r.id")
    with pytest.raises(UsageError, match="owes nothing"):
        check_owes(theta.operator.spec)
    fresh = start(SCHEMA, tmp_path, "l.k = r.k", memory=1000)
    with pytest.raises(StateError, match="no finished batch"):
        fresh.owed()
    with pytest.raises(StateError, match="no query has started with this checkpoint: correct the path"):
        find_standing(fresh.operator.spec, Checkpoint(None, 0))


@pytest.mark.parametrize("tasks", [1, 3, 16])
def test_shares_are_even_and_hold_every_key_once(tmp_path, tasks):
    """Also where one key has nearly all results: its cells are shared out."""
    join, _ = owing(tmp_path, 6)
    spec = join.operator.spec
    manifest = find_standing(spec, Checkpoint(join.query, join.number)).manifest
    debts = divide(spec, manifest, list(survey(spec, manifest)), tasks)
    work = np.array([share.work for share in debts.shares])
    least = max(TINY.debt_work, work.sum() / (tasks * 4))
    assert work.max() <= 2 * least + 40, "a share has far more than the others"
    assert len(debts.shares) >= min(4 * tasks, 4)
    whole = [range_ for share in debts.shares if not share.of > 1 for range_ in share.ranges]
    assert all(one.high <= other.low for one, other in itertools.pairwise(sorted(whole, key=lambda r: r.low)))
    owed = sum(multiset(join.owed()).values())
    assert 0 < owed <= debts.most_results
    assert len(manifests(tmp_path / "state")) == 6
