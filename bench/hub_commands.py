"""What commands cost a running hub of 10,000 queries: 1,000 of them in one batch, batches without any, bytes per query.

The cost of added queries is all that they take of two batches: the one that they come in reads their texts and writes the
catalogue, and the next one puts the steps of all queries together again. An ordinary batch is subtracted from each.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from bench.hub_load import (
    GROUPS,
    JOINED,
    SEED,
    VARIANTS,
    Load,
    domain_for,
    shape_queries,
    template_queries,
    told,
)
from bench.hub_local import MeasuredHub, Timed
from bench.hub_resident import Resident
from bench.many_state import scratch
from bench.report import Finding
from watersmeet.engine.hub_status import open_hub
from watersmeet.log.storage import Storage

ROUNDS, HISTORY = 3, 3
MOST_ADDING_S, MOST_PLAN_S, MOST_BYTES = 1.0, 0.05, 2_000
# The name of a run of catalogues begins with this.
_CATALOGUES = "runs/~catalogue"
_MS = 1_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Added:
    """CPU seconds that some new queries took, and whether the batch after theirs had all of them."""

    adding_s: float
    next_s: float
    in_force: bool

    @property
    def cpu_s(self) -> float:
        return self.adding_s + self.next_s


def commands(quick: bool, say: Say) -> list[Finding]:
    templates, more, rounds = (5, 2, 2) if quick else (100, 10, ROUNDS)
    rows = 1_000 if quick else 20_000
    queries = template_queries(templates)
    load = Load(domain_for(rows, templates / GROUPS, rows, rows * (HISTORY + rounds // 2)), rows, True)
    # Little else to do, so that what commands cost stands out.
    few = replace(load, batch_rows=rows // 10)
    added = {
        "known": [template_queries(templates, more, VARIANTS + more * number) for number in range(rounds)],
        "new": [
            shape_queries(templates * more, SEED + number, JOINED, f"n{number}-") for number in range(rounds)
        ],
    }
    with scratch() as folder:
        plans, plain = _plain(folder / "plain", load, queries, rounds)
        found = {name: _added(folder / name, few, queries, batches) for name, batches in added.items()}
    count = templates * more
    say(
        f"commands: a hub of {len(queries):,} queries of {templates} templates, batches of {rows:,} rows; commands come in "
        f"batches of {rows // 100:,} rows, {rounds} times {count:,}. Medians of CPU ms: "
        + "; ".join(
            f"{name} templates {_MS * statistics.median(one.adding_s for one in each):,.0f} in the batch of the commands "
            f"and {_MS * statistics.median(one.next_s for one in each):,.0f} in the next"
            for name, each in found.items()
        )
    )
    say(
        f"commands: planning without commands, CPU ms by batch: {', '.join(f'{_MS * one:.0f}' for one in plans)} (with "
        f"merges of the first task); a whole batch {_MS * statistics.median(plain):,.0f}"
    )
    plan_s = statistics.median(plans)
    return [
        *(_adding(f"{count:,} queries added, of {name} templates", found[name]) for name in ("known", "new")),
        Finding(
            f"planning a batch without commands, {len(queries):,} queries",
            f"< {_MS * MOST_PLAN_S:.0f} ms",
            f"{_MS * plan_s:.0f} ms of CPU (most {_MS * max(plans):.0f})",
            plan_s < MOST_PLAN_S,
        ),
        *_sizes(quick, say),
    ]


def _plain(
    folder: Path, load: Load, queries: Mapping[str, str], rounds: int
) -> tuple[list[float], list[float]]:
    """CPU seconds of planning, and of whole batches."""
    hub = MeasuredHub(folder, load, queries)
    hub.history(HISTORY)
    hub.short()
    batches = [hub.timed() for _ in range(rounds)]
    return [one.plan_s for one in batches], [one.cpu_s for one in batches]


def _added(
    folder: Path, load: Load, queries: Mapping[str, str], batches: list[dict[str, str]]
) -> list[Added]:
    """Add queries, some at a time. A round is an ordinary batch, one with commands, and the next."""
    hub = MeasuredHub(folder, load, queries)
    hub.history(HISTORY)
    hub.short()
    found = []
    for some in batches:
        ordinary = hub.short()
        at = hub.hub.number
        adding, following = hub.short(told(some)), hub.short()
        found.append(
            Added(
                adding.cpu_s - ordinary.cpu_s,
                following.cpu_s - ordinary.cpu_s,
                set(some) <= _added_by(folder, at) and _refused(adding) == 0,
            )
        )
    return found


def _added_by(folder: Path, batch: int) -> set[str]:
    """The queries that see rows from the batch after `batch` on."""
    return {one.id for one in open_hub(Storage(str(folder))).queries() if one.first_batch == batch + 1}


def _refused(batch: Timed) -> int:
    return batch.answers.column("event").to_pylist().count("refused")


def _adding(demand: str, found: list[Added]) -> Finding:
    costs = [one.cpu_s for one in found]
    cost, in_force = statistics.median(costs), all(one.in_force for one in found)
    return Finding(
        demand,
        f"in force in the next batch, < {MOST_ADDING_S:g} s",
        f"{'in' if in_force else 'NOT in'} force; {cost:.2f} s of CPU ({min(costs):.2f} to {max(costs):.2f})",
        in_force and cost < MOST_ADDING_S,
    )


def _sizes(quick: bool, say: Say) -> list[Finding]:
    """Bytes of a query in the stored catalogue, and of anonymous memory in processes of their own."""
    findings = []
    for name, queries in (
        ("templates", template_queries(5 if quick else 100)),
        ("shapes", shape_queries(500 if quick else 10_000)),
    ):
        with scratch() as folder:
            load = Load(1_000_000, 200, name == "templates")
            hub = MeasuredHub(folder / "state", load, queries)
            hub.short()
            stored = _bytes_of(folder / "state") / len(queries)
            held = {
                who: _in_a_process(Resident(str(folder / place), name, len(queries)))
                for who, place in (("planner", "new"), ("worker", "state"))
            }
        say(
            f"commands: {len(queries):,} queries of {name}, bytes of a query: {stored:,.0f} in the catalogue, "
            f"{held['worker']:,.0f} in a worker that reads it, {held['planner']:,.0f} in one that also read the texts"
        )
        findings += [
            Finding(
                f"bytes of a query in the catalogue, {name}",
                f"< {MOST_BYTES:,}",
                f"{stored:,.0f}",
                stored < MOST_BYTES,
            ),
            Finding(
                f"bytes of a query in a worker, {name}",
                f"< {MOST_BYTES:,}",
                f"{held['worker']:,.0f}; {held['planner']:,.0f} where the texts were read",
                max(held.values()) < MOST_BYTES,
            ),
        ]
    return findings


def _bytes_of(state: Path) -> int:
    """Bytes of the newest catalogue."""
    found = [path for path in state.rglob("*") if path.is_file() and _CATALOGUES in str(path)]
    return max(path.stat().st_size for path in found)


def _in_a_process(run: Resident) -> float:
    """Bytes of anonymous memory for each query."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.hub_resident", json.dumps(asdict(run))],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise typer.BadParameter(f"a run failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return float(found["bytes"]) / run.queries
