"""Manifests with bases and statistics apart: what is read is what was agreed, whoever reads it and whenever."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace

import pytest

from tests.unit.bases_helpers import SMALL, Counting, Life, clean_old, name_of, run
from watersmeet.errors import CorruptFile
from watersmeet.log.bases import difference, from_spans, is_due, to_spans, without
from watersmeet.log.clean import Cleaner
from watersmeet.log.columns import from_file, to_file
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import agree, open_manifest, read_if_there, read_manifest
from watersmeet.log.names import ManifestName
from watersmeet.log.seen import BaseRef, Seen
from watersmeet.log.statistics import complete
from watersmeet.log.status import join_status
from watersmeet.model.facts import BatchId, Elsewhere, Manifest, Run, Start
from watersmeet.model.limits import Limits
from watersmeet.schemes.hypercube.hot_keys import HotKeys


@pytest.fixture
def files(tmp_path) -> LocalFiles:
    return LocalFiles(tmp_path / "state")


@pytest.mark.parametrize("seed", range(12))
def test_what_is_read_is_what_was_agreed(files, seed):
    """By a process that has seen all, one that sees some, one that plans now and then, and one that has seen nothing."""
    life, rng = Life(files, seed), random.Random(seed)
    always, sometimes = Seen(), Seen()
    for number in range(40):
        if rng.random() < 0.2:
            # Another process plans.
            life.seen = rng.choice([Seen(), always, sometimes])
        name = life.batch(number)
        readers = [Seen(), always, *([sometimes] if rng.random() < 0.4 else [])]
        for seen in readers:
            found = open_manifest(files, name, seen)
            assert complete(files, seen, found) == life.last
    for name, agreed in life.agreed.items():
        assert read_manifest(files, name) == agreed
    assert len(files.entries("bases")) > 2
    assert len(files.entries("statistics")) > 2


def test_a_task_that_does_not_plan_reads_no_statistics(files):
    life = Life(files, 3)
    for number in range(10):
        name = life.batch(number, fresh=5)
    reads = Counting(files)
    found = open_manifest(reads, name, Seen())
    assert [path.split("/")[0] for path in reads.read_paths] == ["manifests", "bases"]
    assert any(isinstance(one.stats, Elsewhere) for one in found.live)


@pytest.mark.parametrize("least_file_values", [0, 10_000], ids=["statistics stay", "statistics move"])
def test_a_process_that_saw_the_last_manifest_reads_only_the_next(files, least_file_values):
    """Also where a new base came with it, and statistics were put together for that."""
    life, seen = Life(files, 5, replace(SMALL, least_file_values=least_file_values)), Seen()
    reads = Counting(files)
    rebased = 0
    for number in range(30):
        before = len(files.entries("bases"))
        name = life.batch(number)
        reads.read_paths.clear()
        open_manifest(reads, name, seen)
        assert reads.read_paths == [name.path]
        cold = open_manifest(files, name, Seen())
        assert open_manifest(files, name, seen).live == cold.live, "statistics are where they are by the base"
        rebased += len(files.entries("bases")) > before
    assert rebased > 2


def test_a_manifest_is_small_though_many_runs_live(files):
    life = Life(files, 1, Limits(least_base_runs=20))
    life.batch(0, fresh=2000)
    sizes = []
    for number in range(1, 60):
        life.rng.seed(number)
        parent = life.last
        history = [*parent.live, run(number, 0, life.rng)]
        name = ManifestName(0, number, "r")
        life.last = agree(
            files,
            BatchId("q", "r", number),
            Start(0, "r", 0),
            "one",
            lambda number=number: open_manifest(files, ManifestName(0, number - 1, "r"), life.seen),
            lambda parent, number=number, history=history: replace(
                life.manifest(number, parent, history, []), merges=()
            ),
            life.seen,
            life.limits,
        )
        sizes.append(len(files.read(name.path)))
        assert read_manifest(files, name) == life.last
    assert max(sizes[1:]) < 20_000
    assert 1 <= len(files.entries("bases")) <= 3


@pytest.mark.parametrize(
    "base, repeated, due",
    [
        (None, 9, False),
        (None, 10, True),
        ((100, 0), 24, False),
        ((100, 0), 25, True),
        ((100, 10), 15, True),
        ((100, 10), 14, False),
        ((100, 95), 9, False),
    ],
    ids=[
        "few runs need no base",
        "the first one",
        "less than a quarter of the base is repeated",
        "a quarter at once",
        "a quarter in all",
        "not yet",
        "a small manifest waits",
    ],
)
def test_when_a_base_is_due(base, repeated, due):
    known = base and BaseRef("bases/x", 1, ManifestName(0, 0, "r"), base[0], base[1])
    assert is_due(known, repeated, least_runs=10) is due


@pytest.mark.parametrize("seed", range(50))
def test_base_and_difference_are_the_history_whatever_it_is(seed):
    rng = random.Random(seed)
    runs = [run(0, place, rng) for place in range(12)]
    base, history = rng.sample(runs, 6), rng.sample(runs, rng.randint(0, 9))
    removed, added = difference(base, history)
    assert [*without(base, frozenset(removed)), *added] == history
    assert from_spans(to_spans(removed)) == removed


@pytest.mark.parametrize("kind", ["bases", "statistics"])
@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_damage_is_named(files, kind, harm):
    life = Life(files, 2)
    for number in range(8):
        life.batch(number, fresh=4)
    newest = max((files.root / kind).iterdir())
    content = newest.read_bytes()
    if harm == "gone":
        newest.unlink()
    else:
        newest.write_bytes(content[:-9] if harm == "cut" else content[:40] + b"x" + content[41:])
    last = name_of(life.last)
    with pytest.raises(CorruptFile, match=newest.name):
        _read_all(files, life)
    assert complete(files, life.seen, read_if_there(files, last, life.seen)) == life.last


def _read_all(files: LocalFiles, life: Life) -> None:
    for name in life.agreed:
        read_manifest(files, name)


def test_a_file_of_another_machine_that_lost_power_is_replaced(files):
    one, other = (Life(LocalFiles(files.root / name), 4) for name in "ab")
    for number in range(8):
        one.batch(number, fresh=4)
    for kind in ("bases", "statistics"):
        for path in (files.root / "a" / kind).iterdir():
            place = files.root / "b" / kind / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(bytes(len(path.read_bytes())))
    for number in range(8):
        name = other.batch(number, fresh=4)
    assert read_manifest(other.files, name) == one.last


def test_the_status_names_lost_statistics(tmp_path):
    files = LocalFiles(tmp_path / "j" / "q")
    life = Life(files, 2)
    for number in range(8):
        life.batch(number, fresh=4)
    gone = max((files.root / "statistics").iterdir())
    gone.unlink()
    damage = join_status(LocalFiles(tmp_path), "j", "q", now_s=0.0).damage
    assert any(f"file of statistics statistics/{gone.name}" in one and "missing" in one for one in damage)


def test_facts_survive_an_arrow_file():
    rng = random.Random(1)
    runs = [run(3, place, rng) for place in range(30)]
    assert from_file(Run, to_file(Run, runs, more=[1]), "x") == (runs, {"more": [1]})
    alike = [replace(one, stats=HotKeys((1 << 63, 5), (1, 2), ("a", ""), 3)) for one in runs]
    assert from_file(Run, to_file(Run, alike), "x")[0] == alike
    assert from_file(Run, to_file(Run, []), "x")[0] == []
    nothing = [replace(one, stats=HotKeys()) for one in runs]
    assert from_file(Run, to_file(Run, nothing), "x")[0] == nothing


class Watching(Counting):
    """Checks, when a manifest is published, that all files that it names are there."""

    def publish(self, path, content):
        if path.startswith("manifests/"):
            body = json.loads(content.partition(b"\n")[2])
            named = [*body["statistics"], *([body["base"]["path"]] if body["base"] else [])]
            missing = [name for name in named if not self._files.exists(name)]
            assert not missing, f"{path} would name {missing}"
            self.read_paths += named
        return self._files.publish(path, content)


def test_all_that_a_manifest_names_is_published_before_it(files):
    watching = Watching(files)
    life = Life(watching, 6)
    for number in range(20):
        life.batch(number, fresh=4)
    assert any(path.startswith("bases/") for path in watching.read_paths)
    assert any(path.startswith("statistics/") for path in watching.read_paths)


def test_a_planner_that_lost_uses_the_places_of_the_winner(files):
    """Its own file of statistics is garbage: a manifest that named it would lose them."""
    life = Life(files, 8)
    for number in range(4):
        life.batch(number, fresh=4)
    loser = Seen()
    before = name_of(life.last)
    batch = BatchId("q", "r", 4)

    def decide(parent):
        # The winner publishes meanwhile, with other runs.
        life.batch(4, fresh=3)
        return life.manifest(
            4, parent, list(parent.live), [run(4, 900 + n, random.Random(n)) for n in range(5)]
        )

    found = agree(
        files,
        batch,
        Start(0, "r", 0),
        "one",
        lambda: open_manifest(files, before, loser),
        decide,
        loser,
        SMALL,
    )
    assert complete(files, loser, found) == life.last
    life.seen = loser
    for number in range(5, 12):
        life.batch(number, fresh=2)
        for info in files.entries("statistics"):
            os.utime(files.root / "statistics" / info.name, (0, 0))
        Cleaner(files).clean(life.last, retain=2, now_s=2e9)
        assert read_manifest(files, name_of(life.last)) == life.last


def test_a_planner_that_lost_forgets_its_own_places(files):
    """The winner kept the statistics in its manifest. The loser's file is removed: no later manifest may name it."""
    life = Life(files, 8)
    for number in range(4):
        life.batch(number, fresh=4)
    loser, before = Seen(), name_of(life.last)
    same = [run(4, 900 + n, random.Random(n)) for n in range(9)]
    assert sum(one.stats is not None for one in same) > 2

    def publish(seen: Seen, limits: Limits, decide) -> Manifest:
        found = lambda: open_manifest(files, before, seen)  # noqa: E731
        return agree(files, BatchId("q", "r", 4), Start(0, "r", 0), "one", found, decide, seen, limits)

    def win(parent: Manifest) -> Manifest:
        return life.manifest(4, parent, list(parent.live), same)

    def lose(parent: Manifest) -> Manifest:
        life.last = life.agreed[ManifestName(0, 4, "r")] = publish(Seen(), Limits(), win)
        return replace(life.last, written_ms=99)

    assert complete(files, loser, publish(loser, SMALL, lose)) == life.last
    life.seen, life.limits = Seen(), Limits()
    for number in range(5, 7):
        life.batch(number, fresh=1)
        clean_old(files, life)
    life.seen = loser
    life.batch(7, fresh=1)
    clean_old(files, life)
    assert read_manifest(files, name_of(life.last)) == life.last
