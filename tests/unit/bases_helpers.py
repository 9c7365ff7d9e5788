"""Lives of manifests with bases, and files that count what is read."""

from __future__ import annotations

import os
import random

from tests.unit.log_helpers import SIGNATURE
from watersmeet.log.clean import Cleaner
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import agree, open_manifest
from watersmeet.log.names import ManifestName
from watersmeet.log.seen import Seen
from watersmeet.model.facts import FULL_RANGE, BatchId, Manifest, Merge, MergePart, Plan, Run, Start
from watersmeet.model.limits import Limits
from watersmeet.schemes.hash import HashPlan
from watersmeet.schemes.hypercube.hot_keys import HotKeys

SMALL = Limits(least_base_runs=3, inline_values=4, least_file_values=30)


def run(batch: int, number: int, rng: random.Random) -> Run:
    mark = f"{rng.randrange(1 << 64):016x}"
    path = f"runs/l/{batch:010d}-p{number:05d}-0000-{mark}.arrow"
    hot = tuple(sorted(rng.randrange(1 << 64) for _ in range(rng.choice([0, 0, 1, 5]))))
    stats = HotKeys(hot, tuple(40 + key % 7 for key in hot), ("seven",) * len(hot), 32)
    high = rng.randrange(1 << 64)
    return Run(
        "l",
        path,
        path,
        batch,
        rng.randrange(1, 99),
        100,
        rng.randrange(high + 1),
        high,
        mark,
        sections=rng.choice([(), (1, 0, 2)]),
        marks=rng.choice([(), (0, (1 << 64) - 1)]),
        times=rng.choice([(), (-5, 7)]),
        base=rng.randrange(3),
        stats=rng.choice([stats, None]),
    )


class Life:
    """A state whose batches add runs, lose some, and merge; every manifest is kept beside it."""

    def __init__(self, files: LocalFiles, seed: int, limits: Limits = SMALL):
        self.files, self.limits = files, limits
        self.rng = random.Random(seed)
        self.seen = Seen()
        self.agreed: dict[ManifestName, Manifest] = {}
        self.last: Manifest | None = None

    def batch(self, number: int, fresh: int | None = None) -> ManifestName:
        name = ManifestName(0, number, "r")
        before = self.last
        rng = self.rng

        def decide(parent: Manifest | None) -> Manifest:
            assert parent == self.last, "the parent is not what was agreed"
            history = list(parent.live) if parent else []
            gone = set(rng.sample(history, rng.randint(0, len(history)) // 4))
            history = [one for one in history if one not in gone]
            history += [run(number, 100 + place, rng) for place in range(rng.randint(0, 2))]
            new = [run(number, place, rng) for place in range(rng.randint(0, 5) if fresh is None else fresh)]
            return self.manifest(number, parent, history, new)

        found = agree(
            self.files,
            BatchId("q", "r", number),
            Start(0, "r", 0),
            "one",
            lambda: None if before is None else open_manifest(self.files, name_of(before), self.seen),
            decide,
            self.seen,
            self.limits,
        )
        self.agreed[name] = self.last = found
        return name

    def manifest(
        self, number: int, parent: Manifest | None, history: list[Run], fresh: list[Run]
    ) -> Manifest:
        rng = self.rng
        picked = rng.sample(history, min(len(history), rng.randint(0, 3)))
        outputs = tuple(run(number, 200 + place, rng) for place in range(rng.randint(0, 2)))
        parts = (MergePart(FULL_RANGE, outputs, 3, 1), MergePart(FULL_RANGE, None, 4))
        merges = (
            (Merge(f"l-{number}", "l", tuple(one.path for one in picked), 9, parts, 5),) if picked else ()
        )
        return Manifest(
            BatchId("q", "r", number),
            0,
            "one",
            parent.batch if parent else None,
            SIGNATURE,
            tuple(history),
            tuple(fresh),
            merges,
            Plan(HashPlan((FULL_RANGE,))),
            written_ms=number,
        )


def name_of(manifest: Manifest) -> ManifestName:
    return ManifestName(manifest.run_seq, manifest.batch.number, manifest.batch.run)


class Counting:
    """Counts what is read of some files."""

    def __init__(self, files):
        self._files = files
        self.read_paths: list[str] = []

    def read(self, path):
        self.read_paths.append(path)
        return self._files.read(path)

    def __getattr__(self, name):
        return getattr(self._files, name)


def clean_old(files: LocalFiles, life: Life, retain: int = 2) -> None:
    """Clean up as if all files were a week old."""
    for folder in ("bases", "statistics", "runs/l"):
        for info in files.entries(folder):
            os.utime(files.root / folder / info.name, (0, 0))
    assert life.last is not None
    Cleaner(files).clean(life.last, retain=retain, now_s=2e9)
