"""A life: the batches of one query, its state, its sink and its checkpoint, over any number of starts.

The driver is the local one. The sink is idempotent by batch: it keeps the rows that it got for a batch first. A batch
is committed after that. A start goes on with the first batch that is not committed, as Spark does. The life is right if
the rows of all batches in the sink are those of one big join.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import random
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.chaos.cases import CASES, SCHEMA, Batch, Case, Row, expected, make_batches, make_table, to_tables
from tests.chaos.hubs import expected_of_hub, shown, start_hub, with_commands
from tests.life import TINY, Driven, batch_of, difference, forget_merges, run_batch, start
from tests.s3 import make_bucket
from watersmeet import failpoints, table
from watersmeet.engine import operator
from watersmeet.local.join import LocalJoin
from watersmeet.log.storage import Files
from watersmeet.model.limits import Limits
from watersmeet.tables import copying

BATCHES = 9
WEEK_S = 7 * 86_400.0
# The driver's own places, beside those of the state.
SINK_BEFORE, SINK_WRITTEN = "sink-before-write", "sink-written"

# With windows and tables too.
SMALL = replace(TINY, min_rewrite_rows=2, min_budget_rows=8, page_read_rows=3)
# Descriptors in the shuffle or in files, bases and statistics always or never: a life draws one of each.
_DESCRIPTOR_BYTES, _BASE_RUNS, _VALUES = (0, 0, 1200, 1 << 20), (1, 3, 6, 1000), (0, 4, 1000)


# Imported late by what we call, half a second each time: once before the forks is enough.
WARM = (
    "boto3",
    "duckdb",
    "obstore",
    "obstore.store",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.fs",
    "watersmeet.engine.hub_desk",
    "watersmeet.log.remote",
)


def make_ready() -> None:
    """Import what this process and its children need."""
    for name in WARM:
        importlib.import_module(name)
    # What is there now stays: collecting it in a child would copy all its pages.
    gc.freeze()


@dataclass
class Life:
    """`state` is a path or a URI; `began_s` is the time when the life began, by every clock in it."""

    folder: Path
    case_name: str
    seed: int
    state: str
    tasks: int = 2
    batches: int = BATCHES
    fsync: bool = False
    grace_s: float = 600.0
    retain: int = 2
    cache_name: str = "cache"
    # A batch join over the same rows at each start, and a table that no query reads: both leave garbage.
    batch_joins: bool = False
    spare_tables: bool = False
    # The table is read in place until a copy of it is ready, which is made beside some of the batches.
    in_place: bool = False
    # Descriptors, bases and statistics are in files, whatever the life would draw.
    in_files: bool = False
    began_s: float = field(default_factory=time.time)

    @property
    def case(self) -> Case:
        return CASES[self.case_name]

    @cached_property
    def rows(self) -> list[Batch]:
        batches = make_batches(self.case, self.seed, self.batches)
        return with_commands(batches, self.seed) if self.case.is_hub else batches

    @property
    def limits(self) -> Limits:
        rng = random.Random(f"limits {self.seed}")
        drawn: dict[str, Any] = {
            "inline_descriptor_bytes": rng.choice(_DESCRIPTOR_BYTES),
            "least_base_runs": rng.choice(_BASE_RUNS),
            "inline_values": rng.choice(_VALUES),
        }
        if self.in_files:
            drawn = {"inline_descriptor_bytes": 0, "least_base_runs": 2, "inline_values": 0}
        if self.in_place:
            # As soon as anything was decoded.
            drawn |= {"copy_reads": 0.0}
        return replace(SMALL, **drawn)

    @property
    def is_remote(self) -> bool:
        return "://" in self.state

    @property
    def root(self) -> Path:
        """The state's directory, where it is one."""
        return Path(self.state)

    def prepare(self) -> None:
        for name in ("sink", "commits"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if self.case.has_table:
            pq.write_table(make_table(self.seed), self.folder / "table.parquet")
        if self.is_remote:
            make_bucket(self.state.removeprefix("s3://").partition("/")[0])

    # --- what a start does, in a child ---------------------------------------------------------------------------

    def drive(self, until: int | None = None, *, run: str | None = None, jitter_s: float = 0.0) -> None:
        """Start the query and process what is not committed, up to batch `until`."""
        self.spare()
        join = self.join(run=run, jitter_s=jitter_s)
        for number in range(self.committed(), self.batches if until is None else until):
            self.commit(number, self.results(join, number))
            if self.in_place and number % 3 == 2:
                # It would take longer than these batches.
                copying.wait()

    def spare(self) -> None:
        """Leave garbage for the clean-up: a table without a query, the state of a batch join."""
        if self.spare_tables:
            other = self.folder / f"table-{uuid.uuid4().hex}.parquet"
            pq.write_table(make_table(random.randrange(1 << 30)), other)
            self.join(source=other)
        if self.batch_joins:
            whole = {
                side: [[row for batch in self.rows for part in batch[side] for row in part]]
                for side in self.rows[0]
            }
            batch_join = self.join(query=f"batch-{uuid.uuid4().hex}")
            found = Counter(self.results(batch_join, 0, whole))
            assert found == self.expected(), "a batch join over all rows is wrong"

    def join(
        self,
        *,
        run: str | None = None,
        jitter_s: float = 0.0,
        query: str = "local",
        source: Path | None = None,
        state: str | None = None,
    ) -> Driven:
        """One start. Clocks of two starts differ: `jitter_s` is what this one's is ahead."""
        state = state or self.state
        settings = {
            "cache": str(self.folder / self.cache_name),
            "fsync": self.fsync,
            "run_rows": 4,
            "grace_s": self.grace_s,
            "retain_batches": self.retain,
            "limits": self.limits,
        }
        ready = False
        begins = self.furthest()
        join: Driven
        how: dict[str, Any] = {
            "tasks": self.tasks,
            "settings": settings,
            "run": run or uuid.uuid4().hex,
            "query": query,
            "clock": lambda: self._now_s(join.number if ready else begins) + jitter_s,
        }
        if self.case.is_hub:
            join = start_hub(self.case, self.seed, state, **how)
        else:
            join = self._start_join(state, source or self.folder / "table.parquet", how)
        ready = True
        return join

    def _start_join(self, state: str, table_path: Path, how: dict[str, Any]) -> LocalJoin:
        inputs: dict[str, Any] = dict.fromkeys(self.case.inputs, SCHEMA)
        select = [f"{side}.id AS {side}" for side in self.case.inputs]
        if self.case.has_table:
            inputs["t"] = table(table_path, key="k", page_rows=4, in_place=None if self.in_place else False)
            select.append("t.y")
        return start(inputs, state, self.case.on, select=select, **how, **self.case.how)

    def files(self) -> Files:
        """The files of the query, as its tasks open them."""
        join = self.join()
        return operator._kept(join.operator.spec, batch_of(join), join.clock).files

    def _now_s(self, number: int) -> float:
        """Two seconds a batch; then enough for every row that waits."""
        return self.began_s + 2 * number + 10 * max(0, number - (self.batches - 4))

    def at(self, join: Driven, number: int) -> Driven:
        """The start at a batch. The last batch has no budget, so that it pays all that is owed."""
        if (
            isinstance(join, LocalJoin)
            and self.case.owes
            and number == self.batches - 1
            and join.memory is not None
        ):
            join = replace(join, memory=None)
        join.number = number
        return join

    def results(self, join: Driven, number: int, rows: Batch | None = None) -> list[Row]:
        join = self.at(join, number)
        forget_merges()
        return list(run_batch(join, to_tables(rows or self.rows[number])).elements())

    def commit(self, number: int, rows: list[Row]) -> None:
        """Hand rows to the sink, then commit the batch. The first to do either wins."""
        failpoints.reach(SINK_BEFORE)
        create_whole(self.folder / "sink" / f"{number:06d}", pickle.dumps(rows))
        failpoints.reach(SINK_WRITTEN)
        create_whole(self.folder / "commits" / f"{number:06d}", b"")
        self.went_to(number + 1)

    # --- what the outside sees -----------------------------------------------------------------------------------

    def furthest(self) -> int:
        """The batch that follows the last one ever committed, also where commits were taken back since."""
        path = self.folder / "furthest"
        return max(self.committed(), int(path.read_text()) if path.exists() else 0)

    def went_to(self, number: int) -> None:
        """A start may be built at any later time: clocks do not go back with the commits."""
        draft = self.folder / f"furthest-{uuid.uuid4().hex}"
        draft.write_text(str(max(self.furthest(), number)))
        draft.rename(self.folder / "furthest")

    def committed(self) -> int:
        names = sorted(os.listdir(self.folder / "commits"))
        return int(names[-1]) + 1 if names else 0

    def collected(self) -> Counter[Row]:
        files = sorted((self.folder / "sink").iterdir())
        return self.counted([row for path in files for row in pickle.loads(path.read_bytes())])  # noqa: S301

    def counted(self, rows: Sequence[Row]) -> Counter[Row]:
        """Results as they are compared."""
        return shown(rows) if self.case.is_hub else Counter(rows)

    def expected(self) -> Counter[Row]:
        if self.case.is_hub:
            return expected_of_hub(self.case, self.rows, self.seed)
        return expected(self.case, self.rows, self.seed)

    def difference(self) -> str:
        """What the sink has too little or too much, in words; empty if it is right."""
        return difference(self.collected(), self.expected())

    def age(self) -> None:
        """A week passes, in which no process touched the state: no grace period protects anything any more."""
        for path in self.root.rglob("*"):
            if path.is_file():
                at = path.stat().st_mtime - WEEK_S
                os.utime(path, (at, at))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def create_whole(path: Path, content: bytes) -> bool:
    """Create a file with all its content, unless it is there already."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    # Outside the folder, whose files are counted.
    draft = path.parent.parent / draft.name
    draft.write_bytes(content)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    return True


Hook = Callable[[str], bool]


def hook(reach: Hook, act: Callable[[str], None] | None = None) -> None:
    """Let `reach` decide what happens at every failpoint of this process."""
    setattr(failpoints, "reach", reach)  # noqa: B010
    if act is not None:
        setattr(failpoints, "act", act)  # noqa: B010
