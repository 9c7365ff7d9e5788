"""What a join of many inputs keeps: its live state in bytes, beside what may be kept.

Allowed are all stored rows once, with their order keys, and 16 bytes for each row and further arrangement, whatever the
size of the intermediate results. Files that no manifest needs any more are not live state: the clean-up removes them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.graphs import GraphWorkload
from bench.report import CHAIN, MB, OURS, Finding, Results
from bench.workloads import by_name
from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.model.facts import Manifest

# An order key, and where the row is.
FURTHER_ROW_BYTES = 16
# The frame of an Arrow file: 1 to 2 KB for a run, of which the smallest here has 160 KB.
OF_FRAMES = 1.01


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of all live runs, of the rows in the first arrangements, and rows in the further ones."""

    live_bytes: int
    row_bytes: int
    further_rows: int

    @property
    def allowed_bytes(self) -> int:
        return self.row_bytes + FURTHER_ROW_BYTES * self.further_rows


def stored_in(manifest: Manifest) -> Stored:
    further = {spec.name for spec in manifest.signature.inputs if spec.of}
    live = (*manifest.history, *manifest.fresh)
    return Stored(
        live_bytes=sum(run.bytes for run in live),
        row_bytes=sum(run.row_bytes for run in live if run.input not in further),
        further_rows=sum(run.rows for run in live if run.input in further),
    )


def stored_by(join: Path) -> dict[str, int] | None:
    """What a join has stored after its last batch; None if there is none."""
    if not join.exists():
        return None
    (query,) = join.iterdir()
    files = open_files(str(query))
    return asdict(stored_in(read_manifest(files, list_manifests(files)[-1])))


def rows_by_batch(join: Path) -> list[int]:
    """The rows that arrived in each batch, by the manifests, of all inputs together."""
    (query,) = join.iterdir()
    files = open_files(str(query))
    return [sum(read_manifest(files, name).arrived.values()) for name in list_manifests(files)]


def state_bytes(results: Results, workload: GraphWorkload, intermediate: int = 0) -> Finding:
    """The live state after the last batch. A chain of joins must have `intermediate` results for each answer."""
    demand = f"{workload.name}: state"
    target = "<= all rows once + 16 bytes per row and further arrangement, plus 1 % for file frames"
    found = [Stored(**run["stored"]) for run in results.timed(workload.name, OURS) if run.get("stored")]
    if not found:
        return Finding(demand, target, "-", None)
    kept = max(found, key=lambda one: one.live_bytes)
    said = [f"{kept.live_bytes / MB:.1f} MB, allowed {kept.allowed_bytes / MB:.1f} MB"]
    if intermediate:
        target += f", with {intermediate} intermediate results for each answer"
    ratio = intermediate_results(results, workload) if intermediate else None
    if ratio is not None:
        said.append(f"{ratio:.0f} intermediate results for each answer")
    if chains := results.timed(workload.name, CHAIN):
        said.append(f"a chain of our joins: {max(run['disk_bytes'] for run in chains) / MB:.0f} MB on disk")
    met = kept.live_bytes <= OF_FRAMES * kept.allowed_bytes
    if met and intermediate:
        return Finding(demand, target, "; ".join(said), None if ratio is None else ratio >= intermediate)
    return Finding(demand, target, "; ".join(said), met)


def intermediate_results(results: Results, workload: GraphWorkload) -> float | None:
    """Results of the first two inputs alone for each answer; None if the answers were not counted."""
    answers = [int(run["want"]["rows"]) for run in results.of(workload.name, OURS) if "want" in run]
    if not answers:
        return None
    run: dict[str, Any] = results.of(workload.name, OURS)[0]
    ran = by_name(run["workload"])
    assert isinstance(ran, GraphWorkload)
    return ran.pairs / max(1, answers[0])
