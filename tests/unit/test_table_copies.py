"""Files are read in place while that pays: what is counted, when the sorted copy is made, and who uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import life
from tests.life import Clock
from tests.waiting import wait_until
from watersmeet import status, table
from watersmeet.engine import operator as engine
from watersmeet.engine.desk import TableDesk
from watersmeet.engine.kept_table import KeptTable
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import LocalFiles
from watersmeet.model.limits import Limits
from watersmeet.model.tally import TaskTally
from watersmeet.schemes.table.facts import Decoding, PagePlan
from watersmeet.schemes.table.in_place import count_decoding
from watersmeet.tables.catalogue import TABLES, PagesIn, copy_folder, mark_making
from watersmeet.tables.copying import Copier
from watersmeet.tables.prepare import newest_files, prepare
from watersmeet.tables.scratch import scratch_folder
from watersmeet.tables.sorted_copy import BACKGROUND_SORT_BYTES, SORT_BYTES
from watersmeet.tables.source import no_report

STREAM = pa.schema({"k": pa.int64(), "n": pa.int64()})
GROUPS, GROUP_ROWS = 8, 300
KEYS = GROUPS * GROUP_ROWS
EVERY = pa.table({"k": range(KEYS), "n": range(KEYS)}, schema=STREAM)
ONE_PAGE = EVERY.slice(0, 10)


def write_table(path, text: str = "v", groups: int = GROUPS) -> None:
    keys = list(range(groups * GROUP_ROWS))
    rows = pa.table(
        {"id": keys, "v": [f"{text}{key}" for key in keys], "unread": [str(key) * 9 for key in keys]}
    )
    pq.write_table(rows, path, row_group_size=GROUP_ROWS)


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "table"
    folder.mkdir()
    write_table(folder / "a.parquet")
    return folder


def start(files, tmp_path, *, decodes: float = 2.0, page_memory: int = 1, **of_table) -> LocalJoin:
    """Pages are not kept, so each batch decodes what it needs."""
    state = str(tmp_path / "state")
    return LocalJoin(
        {"s": STREAM, "t": table(files, key="id", **of_table)},
        on="s.k = t.id",
        select=["s.n", "t.v"],
        state=state,
        tasks=2,
        settings=Settings(state=state, tasks=2, limits=Limits(copy_reads=decodes)),
        memory=page_memory,
        clock=Clock(),
    )


def kept(join: LocalJoin) -> KeptTable:
    desk = engine._kept(join.operator.spec, life.batch_of(join), join.clock).desk
    assert isinstance(desk, TableDesk) and desk._kept is not None
    return desk._kept


def run(join: LocalJoin, rows: pa.Table, text: str = "v") -> PagePlan:
    """Run a batch, check its results, let a copy that has begun become ready, and return the plan."""
    found = join.batch(s=rows)
    pairs = zip(found["n"].to_pylist(), found["v"].to_pylist(), strict=True)
    assert sorted(pairs) == [(n, f"{text}{n}") for n in rows["n"].to_pylist()]
    kept(join).copier.wait(60)
    (seen,) = status(join.state).joins
    assert isinstance(seen.plan, PagePlan)
    return seen.plan


def shown(join: LocalJoin) -> str:
    (seen,) = status(join.state).joins
    return type(join.operator.spec.scheme).show(seen.plan, [one.name for one in seen.inputs]).summary


def kind_of(join: LocalJoin, plan: PagePlan) -> str:
    return LocalFiles(Path(join.state)).read(f"{plan.table.folder}/table.json").decode()


# --- what it does -----------------------------------------------------------------------------------------------------


def test_files_that_are_decoded_again_and_again_get_a_sorted_copy(files, tmp_path):
    join = start(files, tmp_path, decodes=1.5)
    first = run(join, EVERY)
    assert first.decoding is not None and not first.decoding.is_chosen
    assert "files read in place: 0 B decoded so far, a sorted copy pays from" in shown(join)
    # Two of three columns are read, the third is wide.
    counted = run(join, EVERY).decoding.decoded_bytes
    assert 0 < counted < first.decoding.limit_bytes / 1.5
    plans = [run(join, EVERY)]
    while plans[-1].table == first.table:
        plans.append(run(join, EVERY))
        assert len(plans) < 20
    # Chosen, made after that batch, planned for the one after the next, and used in that.
    assert [plan.decoding.is_chosen for plan in plans[-3:]] == [True] * 3
    assert not plans[-4].decoding.is_chosen
    assert plans[-1].decoding.decoded_bytes > plans[-1].decoding.limit_bytes
    assert '"form"' in kind_of(join, plans[-1])
    assert "files read from their sorted copy: decided in batch" in shown(join)
    # From now on nothing is decoded.
    before = kept(join).decoded_bytes
    run(join, EVERY)
    assert kept(join).decoded_bytes == before


def test_pages_that_few_batches_touch_stay_in_place(files, tmp_path):
    join = start(files, tmp_path)
    every = [run(join, ONE_PAGE) for _ in range(12)]
    assert {plan.table for plan in every} == {every[0].table}
    assert 0 < every[-1].decoding.decoded_bytes < every[-1].decoding.limit_bytes
    assert not copies(tmp_path)


def test_pages_that_stay_in_memory_cost_nothing_more(files, tmp_path):
    join = start(files, tmp_path, page_memory=64 << 20)
    every = [run(join, EVERY).decoding.decoded_bytes for _ in range(12)]
    assert every[1] > 0 and len(set(every[2:])) == 1
    assert not copies(tmp_path)


@pytest.mark.parametrize("how", [{"in_place": True}, {"strategy": "mesh"}])
def test_what_was_asked_for_in_place_stays_there(files, tmp_path, how):
    join = start(files, tmp_path, decodes=0.1, in_place=how.get("in_place"))
    join = life.restarted(join, strategy=how.get("strategy", "auto"))
    for _ in range(4):
        assert run(join, EVERY).decoding is None
    assert not copies(tmp_path)


def copies(tmp_path) -> list[str]:
    """The folders of prepared tables, without the one in place."""
    folders = LocalFiles(tmp_path / "state" / TABLES).folders()
    return [one for one in folders if any((tmp_path / "state" / TABLES / one).glob("part-*"))]


# --- the same version, once -------------------------------------------------------------------------------------------


def until_copied(join: LocalJoin) -> PagePlan:
    plan = run(join, EVERY)
    for _ in range(10):
        if plan.decoding and plan.decoding.copy_folder == plan.table.folder:
            return plan
        plan = run(join, EVERY)
    raise AssertionError("no copy is used")


def test_a_restart_goes_on_with_the_copy(files, tmp_path):
    join = start(files, tmp_path, decodes=0.5)
    copied = until_copied(join)
    life.forget()
    again = run(life.restarted(join), EVERY)
    assert again.table == copied.table and again.decoding == copied.decoding


def test_a_replay_of_any_batch_gives_the_same_rows_once(files, tmp_path):
    """Each batch is run, lost before its commit, and run again by a new start: in place or from the copy."""
    join = start(files, tmp_path, decodes=0.5)
    for _ in range(6):
        run(join, EVERY)
        join = life.restarted(join, at=join.number - 1)
        run(join, EVERY)
    assert copies(tmp_path)


def test_a_change_of_the_files_is_still_seen_and_is_counted_anew(files, tmp_path):
    join = start(files, tmp_path, decodes=0.5, refresh="10 seconds")
    copied = until_copied(join)
    join.clock.now += 11
    # Looked at: unchanged, so the copy stays in use.
    assert run(join, EVERY).next_table == copied.table
    write_table(files / "a.parquet", "w")
    join.clock.now += 11
    run(join, EVERY)
    plan = run(join, EVERY, "w")
    assert plan.decoding.decoded_bytes == 0 and plan.decoding.copy_folder != copied.decoding.copy_folder
    until = [run(join, EVERY, "w") for _ in range(4)]
    assert until[-1].table.folder == plan.decoding.copy_folder


def test_files_that_change_while_they_are_copied_are_not_published(files, tmp_path):
    state = LocalFiles(tmp_path / "state")
    source = prepare(table(files, key="id"), state)
    opened = source.open()

    def changed(progress) -> None:
        write_table(files / "a.parquet", "w")

    with pytest.raises(Exception, match="has changed since it was opened: it is read in place until"):
        opened.copy(changed)
    assert source.published(opened.copy_folder) is None
    # The next look finds the new files, in place.
    newer = newest_files(source, state)
    assert newer is not None and newer.folder not in (source.folder, opened.copy_folder)


KILLED = """
from pathlib import Path
from tests.unit.test_table_copies import EVERY, life, run, start

join = start(Path({files!r}), Path({place!r}), decodes=0.5)
join = life.restarted(join, at={number})
for _ in range(8):
    run(join, EVERY)
    print(join.number, flush=True)
"""


def test_a_copy_that_was_killed_halfway_is_made_by_the_next_process(files, tmp_path):
    """Processes are killed while they write the copy, one after the other; each goes on where the last one was."""
    number, tables = 0, tmp_path / "state" / TABLES
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    for place in ("table-part-written", "table-index-written", "table-published"):
        settings = {"WATERSMEET_FAILPOINTS": f"{place}=kill", "PYTHONPATH": path}
        if number:
            # What is in place is there already; the mark of the last process does not count any more.
            for mark in tables.glob("*/making-*"):
                mark.unlink()
        else:
            prepare(table(files, key="id"), LocalFiles(tmp_path / "state"))
        script = KILLED.format(files=str(files), place=str(tmp_path), number=number)
        died = subprocess.run(
            [sys.executable, "-c", script], env=os.environ | settings, capture_output=True, text=True
        )
        assert died.returncode == -9, died.stderr
        number += len(died.stdout.split())
        assert list(tables.glob("*/part-*")) and list(tables.glob("*/making-*"))
        assert len(list(tables.glob("*/table.json"))) == (2 if place == "table-published" else 1)
    assert number
    join = life.restarted(start(files, tmp_path, decodes=0.5), at=number)
    assert "part-" in str(
        [path.name for path in (tmp_path / "state" / until_copied(join).table.folder).iterdir()]
    )


# --- in the background ------------------------------------------------------------------------------------------------


def test_batches_go_on_while_the_copy_is_made(files, tmp_path, monkeypatch):
    join = start(files, tmp_path, decodes=0.5)
    begun, go_on = threading.Event(), threading.Event()
    whole = Copier._make

    def slowly(self, *what) -> None:
        begun.set()
        assert go_on.wait(60)
        whole(self, *what)

    monkeypatch.setattr(Copier, "_make", slowly)
    for _ in range(6):
        join.batch(s=EVERY)
    assert begun.wait(60)
    (seen,) = status(join.state).joins
    first = seen.plan
    assert "files read in place until their sorted copy is ready: decided in batch" in shown(join)
    go_on.set()
    assert until_copied(join).table != first.table


def test_one_process_at_a_time_makes_a_copy_and_a_dead_one_is_followed(files, tmp_path):
    state = LocalFiles(tmp_path / "state")
    opened = prepare(table(files, key="id"), state).open()
    mark = mark_making(state, opened.copy_folder)
    other = Copier()
    other.begin(opened)
    other.wait()
    assert opened.source.published(opened.copy_folder) is None
    # The one that made the mark was killed: its mark is not renewed.
    os.utime(tmp_path / "state" / opened.copy_folder / mark, (1, 1))
    other.begin(opened)
    other.wait()
    assert opened.source.published(opened.copy_folder) is not None


def test_after_two_processes_were_killed_no_other_begins_and_the_status_says_so(files, tmp_path, caplog):
    state = LocalFiles(tmp_path / "state")
    folder = prepare(table(files, key="id"), state).open().copy_folder
    join = start(files, tmp_path, decodes=0.5)
    run(join, ONE_PAGE)
    for _ in range(2):
        mark = mark_making(state, folder)
        os.utime(tmp_path / "state" / folder / mark, (1, 1))
    plans = [run(join, EVERY) for _ in range(5)]
    assert len({plan.table for plan in plans}) == 1 and not copies(tmp_path)
    assert "a sorted copy would pay since batch" in shown(join)
    assert "workers were stopped before it was ready; in_place=False" in shown(join)
    assert caplog.text.count("2 workers were stopped while they made its sorted copy") == 1


def test_a_copy_takes_less_memory_than_a_preparation(files, tmp_path, monkeypatch):
    limits = []
    connect = duckdb.connect

    def noted(*what, config, **how):
        limits.append(config["memory_limit"])
        return connect(*what, config=config, **how)

    monkeypatch.setattr(duckdb, "connect", noted)
    state = LocalFiles(tmp_path / "state")
    prepare(table(files, key="id"), state).open().copy(no_report)
    prepare(table(files, key="id", in_place=False), state)
    assert limits == [f"{BACKGROUND_SORT_BYTES}B", f"{SORT_BYTES}B"]


SORTING = """
import time
from watersmeet.tables.scratch import scratch_folder

with scratch_folder() as place:
    open(f"{place}/half", "wb").close()
    print(place, flush=True)
    time.sleep(120)
"""


def test_the_next_sort_removes_what_killed_ones_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command, environment = [sys.executable, "-c", SORTING], os.environ | {"TMPDIR": str(tmp_path)}
    sorts = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        killed, running = (Path(sort.stdout.readline().strip()) for sort in sorts)
        sorts[0].kill()
        sorts[0].wait()
        os.utime(killed.parent, (1, 1))
        os.utime(running.parent, (1, 1))
        with scratch_folder() as own:
            assert not killed.parent.exists()
            assert running.exists() and list(Path(own).iterdir()) == []
        assert list(tmp_path.iterdir()) == [running.parent]
    finally:
        for sort in sorts:
            sort.kill()
            sort.wait()
            sort.stdout.close()


def test_a_copy_that_fails_is_logged_and_not_tried_again_here(files, tmp_path, caplog, monkeypatch):
    attempts = []

    def full(*what, **how) -> None:
        attempts.append(what)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("watersmeet.tables.prepare.write_sorted_copy", full)
    join = start(files, tmp_path, decodes=0.5)
    plans = [run(join, EVERY) for _ in range(6)]
    assert len(attempts) == 1 and len({plan.table for plan in plans}) == 1
    assert "is still read in place, a sorted copy could not be made: [Errno 28]" in caplog.text


def test_the_end_of_a_process_stops_its_copy(files, tmp_path, monkeypatch):
    opened = prepare(table(files, key="id"), LocalFiles(tmp_path / "state")).open()
    copier, begun = Copier(), threading.Event()

    def endless(self, report) -> None:
        while True:
            begun.set()
            report(None)

    monkeypatch.setattr(type(opened), "copy", endless)
    copier.begin(opened)
    assert begun.wait(60)
    copier.stop()
    wait_until(lambda: not copier._thread.is_alive(), "the thread ends")
    assert not list((tmp_path / "state" / opened.copy_folder).glob("making-*"))


# --- the decision -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 100))
def test_the_cost_is_at_most_twice_that_of_the_better_choice(batches, copy_bytes):
    """What is decoded until the copy is chosen, and the copy: less than twice the best, but for the last batches."""
    before, spent, chosen = None, 0, False
    for number, decoded in enumerate(batches):
        tallies = [TaskTally(number - 1, 0, 0, 0, 0, decoded_bytes=batches[number - 1])] if number else []
        before = count_decoding(
            before, tallies, copy_folder="c", limit_bytes=copy_bytes, tasks=1, batch=number
        )
        chosen = before.is_chosen
        if chosen:
            break
        spent += decoded
    paid = spent + (copy_bytes if chosen else 0)
    best = min(sum(batches), copy_bytes)
    # The tallies of a batch are known when the next one is planned.
    assert paid <= 2 * best + max(batches, default=0)
    assert chosen == (sum(batches[:-1]) > copy_bytes)


def test_a_decision_stands_and_lost_tallies_only_delay_it():
    def count(before, tallies, batch):
        return count_decoding(before, tallies, copy_folder="c", limit_bytes=100, tasks=4, batch=batch)

    known = count(
        None, [TaskTally(1, 0, 0, 0, 0, decoded_bytes=20), TaskTally(1, 1, 0, 0, 0, decoded_bytes=10)], 2
    )
    # Two of four tasks have left a tally.
    assert known == Decoding("c", 60, 100)
    assert count(known, [], 3) == known
    chosen = count(known, [TaskTally(3, 0, 0, 0, 0, decoded_bytes=11)], 4)
    assert chosen == Decoding("c", 104, 100, chosen_in=4)
    assert count(chosen, [TaskTally(4, 0, 0, 0, 0, decoded_bytes=11)], 5) == chosen
    other = count_decoding(chosen, [], copy_folder="d", limit_bytes=100, tasks=4, batch=6)
    assert other == Decoding("d", 0, 100)


def test_names_of_copies_follow_from_the_version_in_place(files, tmp_path):
    state = LocalFiles(tmp_path / "state")
    source = prepare(table(files, key="id"), state)
    assert source.open().copy_folder == copy_folder(source.folder) != source.folder
    asked = prepare(table(files, key="id", in_place=True), state)
    assert asked.open().copy_folder == ""
    assert PagesIn.SORTED_COPY == "form"
