"""Clean-ups of manifests with bases: what a retained manifest names stays, and nothing else."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.unit.bases_helpers import SMALL, Counting, Life, clean_old
from watersmeet.log.clean import Cleaner
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import open_manifest, read_manifest
from watersmeet.log.names import ManifestName
from watersmeet.log.seen import Seen
from watersmeet.log.statistics import complete
from watersmeet.model.facts import Elsewhere


@pytest.fixture
def files(tmp_path) -> LocalFiles:
    return LocalFiles(tmp_path / "state")


def test_only_what_no_retained_manifest_names_is_removed(files):
    life = Life(files, 7)
    cleaner = Cleaner(files)
    for number in range(40):
        life.batch(number)
        for folder in ("bases", "statistics", "runs/l"):
            for info in files.entries(folder):
                os.utime(files.root / folder / info.name, (0, 0))
        if number % 5 == 4:
            cleaner.clean(life.last, retain=3, now_s=2e9)
            kept = [name for name in life.agreed if (files.root / name.path).exists()]
            assert [name.batch for name in kept] == list(range(number - 3, number + 1))
            for name in kept:
                assert read_manifest(files, name) == life.agreed[name]
    named = set()
    for name in kept:
        seen = Seen()
        found = open_manifest(files, name, seen)
        base = seen.manifests.get(name).base
        named |= {base.path} if base else set()
        named |= {one.stats.file for one in found.live if isinstance(one.stats, Elsewhere)}
        named |= {one.stats.file for merge in found.merges for part in merge.parts for one in part.output or ()
                  if isinstance(one.stats, Elsewhere)}  # fmt: skip
    # Of the last batch everything stays.
    left = {f"{kind}/{info.name}" for kind in ("bases", "statistics") for info in files.entries(kind)}
    assert {path for path in left if "-000000000039-" not in path} <= named


def test_a_file_of_a_later_start_is_not_removed_by_an_old_one(files):
    life = Life(files, 7)
    for number in range(4):
        life.batch(number, fresh=4)
    paths = [f"{kind}/{start:06d}-000000000001-{'0' * 16}.arrow" for kind in BATCH_FILES for start in (0, 1)]
    for path in paths:
        files.publish(path, b"")
        os.utime(files.root / path, (0, 0))
    Cleaner(files).clean(life.last, retain=3, now_s=2e9)
    assert [path for path in paths if files.exists(path)] == paths[1::2]


BATCH_FILES = ("bases", "statistics", "descriptors")


def test_a_clean_up_reads_each_manifest_once(files):
    life = Life(files, 7)
    reads = Counting(files)
    cleaner = Cleaner(reads)
    for number in range(30):
        life.batch(number)
        if number % 2:
            cleaner.clean(life.last, retain=20, now_s=2e9)
    of_manifests = [path for path in reads.read_paths if path.startswith("manifests/")]
    assert len(of_manifests) == len(set(of_manifests)) == 30
    # What it published or read before counts too.
    own = Counting(files)
    Cleaner(own, life.seen).clean(life.last, retain=20, now_s=2e9)
    assert not [path for path in own.read_paths if path.startswith("manifests/")]


@pytest.mark.parametrize("seed", range(6))
def test_a_process_that_only_looked_on_can_plan_later(files, seed):
    """Statistics were put together meanwhile, and the files that they were in at first are gone."""
    life, onlooker = Life(files, seed, replace(SMALL, inline_values=0, least_file_values=10_000)), Seen()
    for number in range(25):
        name = life.batch(number, fresh=3)
        found = open_manifest(files, name, onlooker)
        clean_old(files, life)
    assert complete(files, onlooker, found) == life.last
    life.seen = onlooker
    for number in range(25, 30):
        name = life.batch(number, fresh=3)
        clean_old(files, life)
        assert read_manifest(files, name) == life.last


def test_the_runs_of_every_retained_manifest_stay_and_no_others(files):
    """A base may have a run that one manifest has removed and an older one still reads."""
    life = Life(files, 9)
    for number in range(40):
        life.batch(number)
        for path in life.last.named_paths:
            files.publish(path, b"")
        clean_old(files, life, retain=4)
        kept = [life.agreed[ManifestName(0, n, "r")] for n in range(max(0, number - 4), number + 1)]
        named = {path for manifest in kept for path in manifest.named_paths}
        left = {f"runs/l/{info.name}" for info in files.entries("runs/l")}
        assert named <= left, "a run that is needed was removed"
        assert {path for path in left - named if f"/{number:010d}-" not in path} == set()
