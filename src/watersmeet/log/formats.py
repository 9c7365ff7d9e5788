"""Upgrade old formats of stored facts to the present one when they are read.

Every change of stored facts raises `FORMAT`, adds a step here and a state of the old format to `tests/formats`. Formats
from `OLDEST` on are read; a file is written again in the present format when its batch is next planned.

    3   plans and statistics of all schemes side by side, most of them null
    4   accepted gaps are named; claims of starts have a checksum and the first batch
    5   one plan and one statistics object, named by the scheme's kind; heavy keys with one side for each input
    6   manifests name a base and what differs from it; runs are columns; statistics may be in files of their own
    7   plans of many inputs have the orders of their terms and how fresh rows are shared out; those of a hypercube name
        the keys with most work, with their rows; long files of facts are compressed; a base says which statistics were
        put together
    8   pushes, payments and what merges leave in their runs
    9   payments of a key over several batches; when a push and a decision were made; plans under a budget count what is
        pushed by input, and sample the output of tasks; plans with a table say what reading files in place has cost;
        what was settled, and where
    10  where the keys of a remote run are, with their checksum; who planned a batch; rereads of files; expressions in the
        templates of a hub, counted rows in its plans, and late rows that were kept in its descriptors; how long a hub
        retains rows, which may be missing and which a batch reads, and SINCE in its catalogues; what templates of a hub
        keep, and why, and the runs of it
"""

from __future__ import annotations

from typing import Any

from watersmeet.model.facts import Manifest, Receipt

OLDEST = 3

# The order of inputs in a join by ranges.
_SORTED_BY_VALUE = "value"


def upgrade(kind: type, plain: dict[str, Any], version: int) -> dict[str, Any]:
    """Upgrade a fact of an older format to the present one."""
    # Fields that formats 6 to 10 added have defaults.
    return _to_5(kind, plain) if version < 5 else plain


def _to_5(kind: type, plain: dict[str, Any]) -> dict[str, Any]:
    if kind is Receipt:
        return plain | {"output": [_run(run) for run in plain["output"]]}
    return _manifest(plain) if kind is Manifest else plain


def _manifest(plain: dict[str, Any]) -> dict[str, Any]:
    # Format 3 had a flag that switched the check for missing batches off for good. Later formats name the gaps.
    manifest = {name: value for name, value in plain.items() if name != "skips_batches"}
    names = [spec["name"] for spec in plain["signature"]["inputs"]]
    plan = _plan(plain["plan"], plain["signature"], names)
    signature = dict(plain["signature"])
    signature["compared"] = signature.pop("scheme")
    signature["scheme"] = plan["kind"]
    return manifest | {
        "format": plain["format"],
        "signature": signature,
        "history": [_run(run) for run in plain["history"]],
        "fresh": [_run(run) for run in plain["fresh"]],
        "merges": [_merge(merge) for merge in plain["merges"]],
        "plan": {"scheme": plan, "assignments": plain["plan"].get("assignments", [])},
    }


def _merge(merge: dict[str, Any]) -> dict[str, Any]:
    parts = [
        part | {"output": part["output"] and [_run(run) for run in part["output"]]} for part in merge["parts"]
    ]
    return merge | {"parts": parts}


def _run(run: dict[str, Any]) -> dict[str, Any]:
    run = dict(run)
    hot = {name: run.pop(f"hot{name}", default) for name, default in _HOT.items()}
    if hot["_floor"]:
        run["stats"] = {
            "kind": "hot keys",
            "keys": hot[""],
            "rows": hot["_rows"],
            "labels": hot["_labels"],
            "floor": hot["_floor"],
        }
    return run


_HOT: dict[str, Any] = {"": [], "_rows": [], "_labels": [], "_floor": 0}


def _plan(plan: dict[str, Any], signature: dict[str, Any], inputs: list[str]) -> dict[str, Any]:
    ranges = plan["ranges"]
    if plan.get("pages"):
        pages = dict(plan["pages"])
        return {"kind": "table", "ranges": ranges, "reading": pages.pop("strategy", "") or "hybrid", **pages}
    if plan.get("grid"):
        return {"kind": "grid", **plan["grid"], "relocations": plan.get("relocations", [])}
    if plan.get("cube"):
        return _cube(plan["cube"], ranges, inputs)
    if plan.get("biclique"):
        return {"kind": "biclique", **plan["biclique"]}
    by_value = signature["inputs"][0].get("order") == _SORTED_BY_VALUE
    return {"kind": "range" if by_value else "hash", "ranges": ranges}


def _cube(cube: dict[str, Any], ranges: list[Any], inputs: list[str]) -> dict[str, Any]:
    def shape(old: dict[str, int]) -> list[int]:
        return [old["rows"], old["cols"]] if old["rows"] else []

    heavy = [
        {
            "key": one["key"],
            "label": one["label"],
            "rows": [one["left"], one["right"]],
            "shape": shape(one["shape"]),
            "tasks": one["tasks"],
        }
        for one in cube.get("heavy", [])
    ]
    changes = [
        {
            "batch": one["batch"],
            "label": one["label"],
            "before": shape(one["before"]),
            "after": shape(one["after"]),
            # Early files of format 3 said `moved`.
            "moved_rows": one["moved_rows"] if "moved_rows" in one else one["moved"],
        }
        for one in cube.get("changes", [])
    ]
    return {
        "kind": "hypercube",
        **cube,
        "inputs": inputs,
        "ranges": ranges,
        "heavy": heavy,
        "changes": changes,
    }
