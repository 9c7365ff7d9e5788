"""The model of a disk that the simulated power losses rest on."""

from __future__ import annotations

import random

import pytest

from tests.chaos.power import Disk, Op

STATE = "state"
WRITTEN = (Op("create", "a"), Op("data", "a", content=b"content"))
SYNCED = (*WRITTEN, Op("sync", "a"))

# For each trace: what a file `a` or `b` of the state may be afterwards. None is that there is none.
ZEROS, EMPTY = bytes(7), b""
TRACES = [
    pytest.param([], "a", {None}, id="nothing was done"),
    pytest.param(WRITTEN, "a", {None, b"content", ZEROS, EMPTY}, id="written and not synced"),
    pytest.param(SYNCED, "a", {None, b"content"}, id="synced, but not its directory"),
    pytest.param([*SYNCED, Op("sync", ".")], "a", {b"content"}, id="synced with its directory"),
    pytest.param(
        [*WRITTEN, Op("sync", ".")], "a", {b"content", ZEROS, EMPTY}, id="only its directory is synced"
    ),
    pytest.param(
        [*SYNCED, Op("link", "a", "b"), Op("sync", "."), Op("unlink", "a")],
        "b",
        {b"content"},
        id="linked, and the draft removed",
    ),
    pytest.param(
        [*SYNCED, Op("sync", "."), Op("rename", "a", "b")], "b", {None, b"content"}, id="renamed, not synced"
    ),
]


@pytest.mark.parametrize(("ops", "name", "possible"), TRACES)
def test_after_a_power_loss_a_file_is(ops, name, possible):
    seen = set()
    for seed in range(300):
        content = _lost(ops, seed).get(f"{STATE}/{name}")
        # A prefix stands for all prefixes, with zeros behind or not.
        seen.add(content if content in (None, b"content", ZEROS, EMPTY) else EMPTY)
    assert seen == possible


def test_a_rename_leaves_one_name():
    for seed in range(300):
        found = _lost([*SYNCED, Op("sync", "."), Op("rename", "a", "b")], seed)
        assert (f"{STATE}/a" in found) != (f"{STATE}/b" in found)


def test_a_lost_directory_takes_along_what_is_in_it():
    ops = [
        Op("mkdir", "d"),
        Op("create", "d/a"),
        Op("data", "d/a", content=b"x"),
        Op("sync", "d/a"),
        Op("sync", "d"),
    ]
    found = [_lost(ops, seed) for seed in range(300)]
    assert {f"{STATE}/d/a" in one for one in found} == {True, False}
    assert all((f"{STATE}/d/a" in one) == (f"{STATE}/d" in one) for one in found)


def _lost(ops, seed: int) -> dict[str, bytes | None]:
    disk = Disk()
    for op in [Op("mkdir", "."), Op("sync", ".."), *ops]:
        disk.apply(op)
    return disk.survivors(random.Random(seed))
