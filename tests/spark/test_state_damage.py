"""Files of the state that are not what was written: named with their batch, never believed, replaceable."""

from __future__ import annotations

from pathlib import Path

import pytest

import watersmeet as wm
from tests.spark.state_helpers import failure, newest, renew_workers, state_files
from watersmeet.log.manifests import list_manifests
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, x int"


def truncate(path: Path) -> None:
    _replace(path, path.read_bytes()[:-9])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    _replace(path, bytes(content))


def remove(path: Path) -> None:
    path.unlink()


def _replace(path: Path, content: bytes) -> None:
    """As a new file: a process that has the old one mapped must not be pulled its ground from under its feet."""
    path.unlink()
    path.write_bytes(content)


def _newest_manifest(state: Path) -> tuple[str, int]:
    name = list_manifests(state_files(state))[-1]
    return name.path, name.batch


def _oldest_run(state: Path) -> tuple[str, int]:
    run = min(newest(state).live, key=lambda run: run.batch)
    return run.path, run.batch


KINDS = [
    pytest.param("manifest", _newest_manifest, id="manifest"),
    pytest.param("run", _oldest_run, id="run"),
]


@pytest.mark.parametrize(("kind", "choose"), KINDS)
def test_damage_is_named_and_can_be_repaired(spark, tmp_path, kind, choose):
    """Each damage befalls the query while it runs; then the file is restored and the query started again."""
    damages = {truncate: "is truncated or padded", flip_a_bit: "is damaged"}
    if kind == "run":
        damages[remove] = "is missing"
    state = tmp_path / "state"
    left, right = [(1, 1), (2, 2), (3, 3)], []
    with StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as script:
        script.start(
            lambda l, r: wm.join(
                {"l": l, "r": r}, on="l.k = r.k", select=["l.x", "r.x AS y"], state=str(state)
            )
        )
        script.batch(l=left)
        for number, (damage, says) in enumerate(damages.items()):
            path, batch = choose(state)
            whole = (state_files(state).root / path).read_bytes()
            damage(state_files(state).root / path)
            renew_workers()
            new = [(1 + number, 10 * number)]
            right += new
            script.add(r=new)
            message = failure(script.process)
            assert f"CorruptFile: {kind} {path} of batch {batch} in {state}" in message
            assert says in message
            assert "Restore the file from a copy" in message
            (state_files(state).root / path).write_bytes(whole)
            script.restart().process()
            assert_same_rows(script.results(), [(x, y) for k, x in left for j, y in right if k == j])
