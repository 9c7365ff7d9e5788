"""Bits flip in files of the state, and files are cut off or filled with zeros: harmless, or refused by name.

A state is grown once for a unit, with restarts and left-over drafts; then each of its copies is damaged in one place and
the query goes on from it. Its rows must be right, or it must stop with one of our own errors: no wrong row, and no other
exception. Half of the batches were committed when the damage came.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

from tests.chaos.kills import drive_to_death
from tests.chaos.lives import Life
from tests.chaos.processes import in_child
from tests.chaos.scenario import Scenario, Unit, Wrong, check_life, describe, require_done

# Of a state; all objects of a remote one are copied for each.
FLIPS, REMOTE_FLIPS = 12, 3
COMMITTED = 6
REMOTE_SHARE = 0.1


def run(unit: Unit) -> Counter[str]:
    rng = unit.rng
    life = unit.life(remote=rng.random() < REMOTE_SHARE, retain=3)
    # A start that is killed leaves a draft or an orphan; the next one goes on.
    in_child(lambda: drive_to_death(life, rng.choice(_LEFT_BEHIND), 3, until=COMMITTED))
    require_done(life, "before any damage", in_child(lambda: life.drive(COMMITTED)))
    counts: Counter[str] = Counter()
    for _ in range(REMOTE_FLIPS if life.is_remote else FLIPS):
        counts += _remote_flip(life, rng) if life.is_remote else _local_flip(life, rng)
    life.remove()
    return counts


_LEFT_BEHIND = (
    "manifest-half-written",
    "run-half-written",
    "run-written",
    "merge-written",
    "receipt-linked",
    "descriptor-written",
    "statistic-written",
    "base-written",
)


def _local_flip(life: Life, rng: random.Random) -> Counter[str]:
    copy = _copied(life)
    path = rng.choice(files_below(copy.root))
    damaged, what = damage(path.read_bytes(), rng)
    path.write_bytes(damaged)
    # The query may have been rolled back: then it reads older manifests.
    _roll_back(copy, rng.choice([0, 0, 0, 1]))
    return _judge(copy, f"{what} in {path.relative_to(copy.root)}")


def _remote_flip(life: Life, rng: random.Random) -> Counter[str]:
    """A local copy of a run is damaged, which does no harm; or an object."""
    if rng.random() < 0.3:
        return _damage_local_copy(life, rng)
    copy = _copied(life)
    copy.state = f"{life.state}-{rng.randrange(1 << 60)}"
    outcome = in_child(lambda: _copy_objects(life.state, copy.state, rng))
    if not outcome.done:
        raise Wrong(f"{describe(life)}: the objects cannot be copied: {outcome}")
    return _judge(copy, outcome.value)


def _damage_local_copy(life: Life, rng: random.Random) -> Counter[str]:
    """The state of the life itself is continued, from a batch that is replayed each time."""
    # The copies before this one have gone to the end of the same state.
    life.went_to(life.batches)
    copy = _copied(life)
    path = rng.choice(files_below(copy.folder / copy.cache_name))
    damaged, what = damage(path.read_bytes(), rng)
    path.write_bytes(damaged)
    return _judge(copy, f"{what} in the local copy {path.name}", harmless=True)


def _copy_objects(source: str, target: str, rng: random.Random) -> str:
    """Copy all objects of a state and damage one of them; says what is wrong with it."""
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    goal = target.removeprefix("s3://").partition("/")[2]
    listed = client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["Contents"]
    names = sorted(entry["Key"] for entry in listed if not entry["Key"].endswith("/"))
    chosen, what = rng.choice(names), ""
    for name in names:
        content = client.get_object(Bucket=bucket, Key=name)["Body"].read()
        if name == chosen:
            content, what = damage(content, rng)
        client.put_object(Bucket=bucket, Key=goal + name.removeprefix(prefix), Body=content)
    return f"{what} in the object {chosen.removeprefix(prefix)}"


def damage(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """The content with one thing wrong, and what that is."""
    kind = rng.random()
    if not content or kind < 0.05:
        return content + bytes([rng.randrange(256)]), "a byte too many"
    if kind < 0.15:
        size = rng.randrange(len(content))
        return content[:size], f"cut off at {size} of {len(content)} bytes"
    if kind < 0.2:
        start = rng.randrange(len(content))
        stop = min(len(content), start + rng.choice([8, 512, 4096]))
        return content[:start] + bytes(stop - start) + content[stop:], f"zeros from {start} to {stop}"
    at = rng.randrange(len(content) * 8)
    flipped = bytearray(content)
    flipped[at // 8] ^= 1 << at % 8
    return bytes(flipped), f"bit {at % 8} of byte {at // 8} of {len(content)} flipped"


def _copied(life: Life) -> Life:
    folder = life.folder.with_name(f"{life.folder.name}-copy-{random.randrange(1 << 60)}")
    shutil.copytree(life.folder, folder)
    state = life.state if life.is_remote else str(folder / "state")
    return Life(
        folder,
        life.case_name,
        life.seed,
        state,
        life.tasks,
        life.batches,
        retain=life.retain,
        grace_s=life.grace_s,
        began_s=life.began_s,
    )


def _roll_back(life: Life, batches: int) -> None:
    for number in range(COMMITTED - batches, COMMITTED):
        for name in ("sink", "commits"):
            os.unlink(life.folder / name / f"{number:06d}")


def _judge(life: Life, what: str, *, harmless: bool = False) -> Counter[str]:
    outcome = in_child(life.drive)
    try:
        if outcome.error and not harmless:
            return Counter({"flips": 1, "refused": 1, f"at {outcome.error}": 1})
        if not outcome.done:
            raise Wrong(f"{describe(life)}, {what}: {outcome}")
        check_life(life, what)
        return Counter({"flips": 1, "harmless": 1})
    finally:
        life.remove()


def files_below(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


FLIPS_SCENARIO = Scenario("flips", "bits flip, files are cut off or zeroed", "flips", 1000, run, share=2.0)
