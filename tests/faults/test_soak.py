"""Some minutes of random murder: drivers and Python workers of one query, over forty batches.

The seed fixes who is struck after how many batches; when exactly within the batch is up to the machine. A
batch that was planned but not begun when the driver died is put together with the next one by Spark's file
source, so that there may be a few less than forty in the end.
"""

from __future__ import annotations

import contextlib
import random
import time
from functools import partial

import psutil
import pytest

from tests.faults.checks import check, check_cleaned
from tests.faults.harness import Scene, feed
from tests.faults.processes import Driver, driver
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SEED = 20_240_917
BATCHES = 40
# A start costs more than a few batches: this many keep the whole within minutes.
MOST_BATCHES_A_LIFE = 5
WORKER_SHARE = 0.5


def test_forty_batches_under_random_kills(tmp_path):
    rng = random.Random(SEED)
    scene = Scene(tmp_path, seed=SEED)
    feed(scene, BATCHES)
    drivers = workers = 0
    while True:
        with driver(tmp_path) as life:
            workers += _strike_workers(rng, scene, life)
            if life.process.poll() == 0:
                break
            life.kill()
            drivers += 1
        assert drivers < BATCHES, f"no progress: {life.said()}"
    assert drivers >= 5, f"only {drivers} drivers were killed"
    assert workers >= 3, f"only {workers} workers were killed"
    check(scene)
    check_cleaned(scene)


def _strike_workers(rng: random.Random, scene: Scene, life: Driver) -> int:
    """Let the driver do a few batches, killing Python workers on the way; returns how many."""
    killed = 0
    first = scene.committed_batches()
    for target in range(first + 1, first + 2 + rng.randrange(MOST_BATCHES_A_LIFE)):
        wait_until(partial(_is_done, scene, life, target), f"batch {target - 1} is committed", 120)
        # Not to wait for anything: the next kill strikes at a random moment of the batch under way.
        time.sleep(rng.random() * 0.5)
        if rng.random() < WORKER_SHARE:
            killed += _kill_one(rng, life.workers())
    return killed


def _is_done(scene: Scene, life: Driver, batches: int) -> bool:
    return life.process.poll() is not None or scene.committed_batches() >= batches


def _kill_one(rng: random.Random, workers: list[psutil.Process]) -> int:
    if not workers:
        return 0
    with contextlib.suppress(psutil.NoSuchProcess):
        rng.choice(workers).kill()
        return 1
    return 0
