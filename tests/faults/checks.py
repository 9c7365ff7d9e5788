"""What must hold of a scene after a fault: all results once, a whole state, and traces of the blow itself.

The oracle is DuckDB over the same input files; neither it nor the checks need Spark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import duckdb

from tests.faults.harness import (
    BAND,
    GRID,
    GRID_SHAPES,
    LONG_PATH,
    PATH,
    TABLE,
    Point,
    Scene,
    newest,
    rows_to_keep,
    waiting_rows,
)
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.names import run_batch
from watersmeet.log.receipts import list_receipts, read_receipts
from watersmeet.log.runs import RUNS, RunReader
from watersmeet.model.facts import FULL_RANGE, Manifest
from watersmeet.schemes.grid.facts import GridPlan
from watersmeet.schemes.range.facts import RangePlan
from watersmeet.testing import assert_same_rows


def check(scene: Scene) -> None:
    """Nothing missing, nothing twice, and a state that is whole."""
    check_results(scene)
    check_state(scene)


def check_results(scene: Scene) -> None:
    expected = expected_rows(scene)
    assert len(expected) > 100, "a join with few results shows little"
    assert_same_rows(shown_rows(scene), expected)


def expected_rows(scene: Scene) -> list[tuple[Any, ...]]:
    places = {side: f"{scene.inputs(side)}/*.parquet" for side in scene.join.streams}
    if scene.join is TABLE:
        places["r"] = str(scene.table)
    sides = ", ".join(f"{side} AS (FROM read_parquet('{place}'))" for side, place in places.items())
    join = scene.join
    wanted = ", ".join(join.select)
    among = f"l {join.how.upper()} JOIN r ON" if len(join.inputs) == 2 else f"{', '.join(join.inputs)} WHERE"
    with duckdb.connect() as con:
        return con.execute(f"WITH {sides} SELECT {wanted} FROM {among} {join.on}").fetchall()


def shown_rows(scene: Scene) -> list[tuple[Any, ...]]:
    """The rows that a reader of the sink sees: those in the files that the sink's log names."""
    paths = [str(path) for path in _shown_files(scene.out / "_spark_metadata")]
    columns = ", ".join(item.rpartition(" ")[2] for item in scene.join.select)
    with duckdb.connect() as con:
        return con.execute(f"SELECT {columns} FROM read_parquet($1)", [paths]).fetchall() if paths else []


def _shown_files(log: Path) -> list[Path]:
    """Every tenth entry of the log repeats all before it."""
    entries = {int(path.stem): path for path in log.iterdir() if path.name[0].isdigit()}
    first = max((number for number, path in entries.items() if path.suffix == ".compact"), default=0)
    lines = [
        line
        for number in sorted(entries)
        if number >= first
        for line in entries[number].read_text().splitlines()[1:]
    ]
    return [Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]


def check_plans(scene: Scene) -> None:
    """The plan did change between the batches, and on the grid with every batch that was to turn it."""
    agreed = {name.batch: read_manifest(scene.files, name) for name in list_manifests(scene.files)}
    plans = [agreed[number].plan.scheme for number in sorted(agreed)]
    if scene.join is BAND:
        ranges = {plan.ranges for plan in plans if isinstance(plan, RangePlan)}
        assert len(ranges) > 1, "the ranges never changed"
    if scene.join is GRID:
        shapes = [
            (shape.rows, shape.cols) for plan in plans if isinstance(plan, GridPlan) for shape in plan.shapes
        ]
        assert shapes == GRID_SHAPES


def check_state(scene: Scene) -> None:
    """The newest manifest holds each row that came once, in runs that are all there and undamaged.

    An input on two keys is stored once for each. With a table, rows that were answered are held no more.
    """
    manifest = newest(scene)
    verify_runs(scene, manifest)
    arrived = {side: rows_to_keep(scene, side) for side in scene.join.streams}
    if scene.join is TABLE:
        assert manifest.totals["l"].rows == arrived["l"]
        assert not waiting_rows(scene)
        return
    stored = {spec.name: arrived[spec.input] for spec in manifest.signature.inputs}
    assert {name: sum(run.rows for run in manifest.live if run.input == name) for name in stored} == stored
    assert {name: manifest.totals[name].rows for name in stored} == stored
    if scene.join in (PATH, LONG_PATH):
        assert set(stored) == {"l", "m", "m.1", "n", "n.1", "r"}


def verify_runs(scene: Scene, manifest: Manifest) -> None:
    """Read every run that the manifest names; CorruptFile if one is not what was written."""
    reader = RunReader(scene.files)
    for run in manifest.live:
        assert sum(map(len, reader.read(run, FULL_RANGE, ()).values())) == run.rows


def orphans(scene: Scene) -> set[str]:
    """Run files that no manifest and no receipt names."""
    named = {
        path for name in list_manifests(scene.files) for path in read_manifest(scene.files, name).named_paths
    }
    receipts = read_receipts(scene.files, lambda merge, part: True)
    named |= {run.path for receipt in receipts for run in receipt.output}
    return run_files(scene) - named


def run_files(scene: Scene) -> set[str]:
    names = newest(scene).signature.names
    return {f"{RUNS}/{name}/{info.name}" for name in names for info in scene.files.entries(f"{RUNS}/{name}")}


def drafts(scene: Scene, half: str) -> list[Path]:
    """What was begun and never published: `manifest-half-written` lies in manifests/, its name with a dot."""
    return list((scene.files.root / f"{half.partition('-')[0]}s").glob(".*"))


def check_traces(scene: Scene, point: Point) -> None:
    """The blow fell where it was meant to: each place leaves its own kind of litter."""
    assert scene.once.exists(), f"{point.name} was never reached"
    if point.name in ("run-half-written", "merge-written"):
        assert orphans(scene), "no run was left behind"
    if point.name in ("start-half-written", "manifest-half-written", "receipt-half-written"):
        assert drafts(scene, point.name), "nothing half written was left behind"
    if point.name.startswith("merge"):
        assert any("-m0" in run.path for run in newest(scene).live), "the merge was not done after all"
    if point.name.startswith("clean"):
        check_cleaned(scene)


def _batch_of(path: str) -> int:
    batch = run_batch(path.rpartition("/")[2])
    assert batch is not None, path
    return batch


def check_cleaned(scene: Scene) -> None:
    """Old manifests are gone, and with them every run that only they named.

    Except merged runs: their receipts went in this clean-up, so that they themselves go in the next one.
    """
    last = list_manifests(scene.files)[-1].batch
    cleaned = last - (last + 1) % 16
    left = [path for path in orphans(scene) if _batch_of(path) < cleaned and "-p0" in path]
    assert not left, f"not removed: {left}"
    assert min(name.batch for name in list_manifests(scene.files)) >= cleaned - 2
    used = [name for name in list_receipts(scene.files) if int(name.split("-")[1]) < cleaned - 2]
    assert not used, f"receipts not removed: {used}"
