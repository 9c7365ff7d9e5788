"""Joins with a table while rows wait for it: workers and drivers are killed, and a real database goes away.

Every row of the stream must be answered once, by the oracle's left join with the whole table.
"""

from __future__ import annotations

import signal
from functools import partial

import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.faults.checks import check, check_traces
from tests.faults.harness import POINTS, TABLE, Scene, feed, newest, run, start, waiting_rows
from tests.faults.processes import Driver, driver
from tests.postgres import PostgresServer
from tests.unit.database_helpers import new_server, open_postgresql
from tests.waiting import check_stays, wait_until
from watersmeet.schemes.table.facts import PagePlan

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

# Nothing is merged, and cleaning is as with other joins.
STRUCK = [
    point
    for point in POINTS
    if point.name in ("run-half-written", "run-written", "manifest-written", "task-done")
]
JOIN = ("--join", TABLE.name)


@pytest.mark.parametrize("point", STRUCK, ids=lambda point: point.says)
def test_a_python_worker_is_killed_while_rows_wait(spark, tmp_path, point):
    """The query is stopped in order while rows wait, and struck in the first batch after that."""
    scene = Scene(tmp_path, join=TABLE)
    feed(scene, 2)
    query = start(spark, scene)
    wait_until(partial(waiting_rows, scene), "rows wait")
    query.stop()
    feed(scene, 2)
    run(spark, scene, f"{point.name}=kill@{scene.once}")
    check_traces(scene, point)
    check(scene)


def test_the_driver_is_killed_while_rows_wait(tmp_path):
    """At any moment first; then when the next start has said what it will answer, and has not answered it."""
    scene = Scene(tmp_path, join=TABLE)
    feed(scene, 2)
    with driver(tmp_path, *JOIN) as first:
        wait_until(partial(_waits, scene, first), "rows wait", 120)
        first.kill()
    waited = newest(scene)
    feed(scene, 2)
    blow = f"manifest-written=kill-driver:{tmp_path / 'pids'}@{scene.once}"
    with driver(tmp_path, *JOIN, "--failpoints", blow) as second:
        assert second.wait() == -signal.SIGKILL, second.said()
    assert scene.once.exists() and newest(scene).instance != waited.instance
    assert scene.committed_batches() <= newest(scene).batch.number
    with driver(tmp_path, *JOIN) as third:
        assert third.wait() == 0, third.said()
    check(scene)


def _waits(scene: Scene, life: Driver) -> int:
    assert life.process.poll() is None, life.said()
    return waiting_rows(scene)


PASSWORD = "hunter2-and-more"


@pytest.fixture
def server():
    yield from new_server()


def test_the_database_is_stopped_and_started_again(tmp_path, server, monkeypatch):
    """Stopped for longer than the patience lasts: a clear end, and the next start goes on. Stopped for less: the
    stream waits. The credentials are in the environment first, in the address then.
    """
    scene = Scene(tmp_path, join=TABLE)
    feed(scene, 2)
    _fill(server, scene)
    address = server.uri(user="ada", password=PASSWORD)
    monkeypatch.setenv("WM_SHOP", address)
    with driver(tmp_path, *JOIN, "--table", "env:WM_SHOP", "--patience", "2") as first:
        wait_until(partial(_waits, scene, first), "rows wait", 120)
        server.stop()
        assert first.wait() not in (0, -signal.SIGKILL)
        said = first.log.read_text()
    assert "table products of env:WM_SHOP cannot be reached, for 2 s already" in said
    assert "Start the database" in said and "nothing is lost" in said
    failed = newest(scene)
    assert failed.plan.scheme.pages_read and scene.committed_batches() <= failed.batch.number
    _check_secret(scene, said)

    server.start()
    feed(scene, 2)
    with driver(tmp_path, *JOIN, "--table", address) as second:
        wait_until(
            lambda: _waits(scene, second) and newest(scene).instance != failed.instance, "rows wait", 120
        )
        server.kill()
        wait_until(partial(_reads, scene), "a page is needed", 30)
        check_stays(partial(_reads, scene), "the batch waits for its pages", 1)
        server.start()
        assert second.wait() == 0, second.said()
        _check_secret(scene, second.log.read_text())
    check(scene)


def _reads(scene: Scene) -> bool:
    """Whether the batch under way reads pages."""
    manifest = newest(scene)
    pages = manifest.plan.scheme
    assert isinstance(pages, PagePlan)
    return pages.pages_read > 0 and scene.committed_batches() <= manifest.batch.number


def _fill(server: PostgresServer, scene: Scene) -> None:
    """The table of the scene, for a user that must give a password."""
    database = open_postgresql(server)
    database.fill("products", pq.read_table(scene.table))
    database.run("CREATE INDEX ON products (k)", f"CREATE ROLE ada LOGIN PASSWORD '{PASSWORD}'")
    database.run("GRANT SELECT ON products TO ada", "CHECKPOINT")
    server.allow_passwords("ada")
    database.run("SELECT pg_reload_conf()")
    database.close()


def _check_secret(scene: Scene, said: str) -> None:
    """The password is in no file of the query, in no message and not in the status."""
    shown = repr(wm.status(scene.state))
    assert "waiting_rows" in shown
    assert PASSWORD not in said and PASSWORD not in shown
    written = [path for path in scene.folder.rglob("*") if path.is_file() and "scratch" not in path.parts]
    assert any(path.is_relative_to(scene.state) for path in written)
    holding = [path for path in written if PASSWORD.encode() in path.read_bytes()]
    assert not holding, f"the password is in {holding}"
