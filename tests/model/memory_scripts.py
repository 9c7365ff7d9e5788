"""Lives of joins under a budget of memory: what happens in one, and a model that says what must come out.

The model knows no run, no merge and no hole. It keeps every row with its generation, follows the key ranges that the
manifests say were pushed and paid, and says what must have come out after each batch: all combinations whose rows lie
in one generation. What comes out in the end, when the budget is gone, DuckDB says.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.life import (
    TINY,
    Clock,
    Crash,
    Row,
    ask_duckdb,
    batch_of,
    crash_at,
    difference,
    files_of,
    forget,
    multiset,
    newest,
    restarted,
    run_batch,
    run_through,
    start,
)
from tests.model.stream_scripts import CRASHES
from watersmeet.engine import operator as engine
from watersmeet.kernel.keys import order_keys
from watersmeet.local.join import LocalJoin
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.model.facts import Cells, KeyRange, Manifest
from watersmeet.plan.pushes import decision_of
from watersmeet.schemes.budget.facts import BudgetPlan
from watersmeet.schemes.budget.policy import Disk, Pushing, PushPolicy
from watersmeet.schemes.scheme import Decision

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64()})
NAMES = "abc"
WIDTH = 8
CURRENT = -1
LIMITS = replace(TINY, min_rewrite_rows=2, min_budget_rows=8)
KEYS = 9
ORDER_OF = dict(enumerate(order_keys([pa.array(range(KEYS), pa.int64())]).tolist()))
# Each file of a few rows has some 700 bytes: from no active state at all to enough for everything.
BUDGETS = [1, 1500, 4000, 9000, 1 << 20]


@dataclass(frozen=True)
class Step:
    """A batch: the keys of each input, the crash in it, and what changes before it, if the query starts again."""

    rows: tuple[tuple[int, ...], ...]
    crash: str | None = None
    zombie: bool = False
    starts: bool = False
    back: int = 0
    memory: int | None = None
    tasks: int = 2
    idle_s: float = 1.0
    # Before this batch the query has ended and is settled, by a process that is killed at a place, and by another.
    settles: bool = False
    killed: str | None = None


# Where a settling may be killed, its claim and the mark included.
SETTLING_PLACES = [
    "start-half-written",
    "start-linked",
    "start-written",
    "mark-before-write",
    "manifest-half-written",
    "manifest-linked",
    "mark-written",
    "settled-before-move",
    "settled-moved",
]


@dataclass(frozen=True)
class Script:
    inputs: int
    window: bool
    pushing: Pushing
    memory: int | None
    steps: tuple[Step, ...]
    pay_within: float | None = None
    # A thousandth of a second is always too short, an hour never.
    defer: float | None = None

    @property
    def names(self) -> str:
        return NAMES[: self.inputs]


steps = st.builds(
    Step,
    rows=st.tuples(*[st.lists(st.sampled_from([*range(KEYS), 0, 0, 1]), max_size=6).map(tuple)] * 3),
    crash=st.one_of(st.none(), st.none(), st.sampled_from(CRASHES)),
    zombie=st.booleans(),
    starts=st.integers(0, 3).map(lambda n: n == 0),
    back=st.sampled_from([0, 0, 0, 0, 0, 1, 2]),
    memory=st.sampled_from([None, *BUDGETS, *BUDGETS]),
    tasks=st.integers(1, 3),
    idle_s=st.sampled_from([1.0, 100.0]),
    settles=st.integers(0, 5).map(lambda n: n == 0),
    killed=st.one_of(st.none(), st.sampled_from(SETTLING_PLACES)),
)
scripts = st.builds(
    Script,
    inputs=st.integers(2, 3),
    window=st.booleans(),
    pushing=st.builds(
        Pushing,
        groups=st.integers(1, 12),
        share=st.sampled_from([0.1, 0.3, 0.9]),
        policy=st.sampled_from(PushPolicy),
        paid_share=st.sampled_from([0.1, 0.9]),
        disk=st.sampled_from(Disk),
        # No moves, the paper's, and one whenever the tasks are not quite even.
        balanced_share=st.sampled_from([0.0, 0.8, 1.0]),
        move_every_ms=st.sampled_from([0, 45_000]),
    ),
    memory=st.sampled_from(BUDGETS),
    steps=st.lists(steps, min_size=2, max_size=9).map(tuple),
    pay_within=st.sampled_from([None, 50.0]),
    defer=st.sampled_from([None, None, 0.001, 3600.0]),
)


@dataclass(frozen=True)
class Stored:
    """A row, and its generation: the batch that pushed it. Rows of another generation have not met it."""

    input: str
    k: int
    t: int
    id: int
    generation: int = CURRENT


def inside(key: int, ranges: tuple[KeyRange, ...]) -> bool:
    return any(ORDER_OF[key] in one for one in ranges)


@dataclass
class Model:
    """What must be known of a join's rows after each batch."""

    names: str
    window: bool
    rows: list[Stored] = field(default_factory=list)

    def follow(self, manifest: Manifest, fresh: list[Stored]) -> None:
        """Pay, push, then take in the rows of a batch."""
        number = manifest.batch.number
        decided = decision_of(manifest)
        assert decided is not None
        self.rows = [self._decided(row, decided, number) for row in self.rows] + fresh

    def _decided(self, row: Stored, decided: Decision, batch: int) -> Stored:
        row = self._as_one(row, [cells for cells in decided.parts if cells.is_last])
        if inside(row.k, decided.paid):
            row = replace(row, generation=CURRENT)
        if row.generation == CURRENT and inside(row.k, decided.pushed):
            row = replace(row, generation=batch)
        return row

    def _as_one(self, row: Stored, paid: Sequence[Cells]) -> Stored:
        """A row of a key whose cells are all paid: the generations up to the border are one."""
        for cells in paid:
            if inside(row.k, (cells.range,)) and CURRENT < row.generation <= cells.border:
                row = replace(row, generation=cells.border)
        return row

    def once_paid(self, paying: Sequence[Cells]) -> Model:
        """As if all cells that are being paid were."""
        return replace(self, rows=[self._as_one(row, paying) for row in self.rows])

    def results(self) -> Counter[Row]:
        """All combinations of rows of one key and one generation."""
        found: Counter[Row] = Counter()
        by: dict[tuple[int, int], dict[str, list[Stored]]] = {}
        for row in self.rows:
            by.setdefault((row.k, row.generation), {name: [] for name in self.names})[row.input].append(row)
        for inputs in by.values():
            for combination in itertools.product(*inputs.values()):
                times = [row.t for row in combination]
                if not self.window or max(times) - min(times) <= WIDTH:
                    found[tuple(row.id for row in combination)] += 1
        return found

    def owed_rows(self, groups: tuple[KeyRange, ...]) -> int:
        """The rows in groups that have rows of two generations."""
        in_group: dict[KeyRange, list[Stored]] = {}
        for row in self.rows:
            (group,) = (one for one in groups if ORDER_OF[row.k] in one)
            in_group.setdefault(group, []).append(row)
        return sum(len(rows) for rows in in_group.values() if len({row.generation for row in rows}) > 1)

    def pushed_rows(self) -> int:
        return sum(row.generation != CURRENT for row in self.rows)

    def copy(self) -> Model:
        return replace(self, rows=list(self.rows))


def arriving(script: Script, step: Step, number: int) -> dict[str, list[Stored]]:
    return {
        name: [
            Stored(name, key, 10 * number + (3 * place) % 10, 1000 * number + place)
            for place, key in enumerate(step.rows[input_])
        ]
        for input_, name in enumerate(script.names)
    }


def table(rows: list[Stored]) -> pa.Table:
    return pa.table(
        [[row.k for row in rows], [row.t for row in rows], [row.id for row in rows]], schema=SCHEMA
    )


def begin(script: Script, state: str) -> LocalJoin:
    names = script.names
    how: dict[str, Any] = {}
    if script.window:
        # None is late: a batch has the times of ten ticks, and the watermark is that far behind.
        how = {"within": WIDTH, "time": dict.fromkeys(names, "t"), "lateness": 10}
    return start(
        dict.fromkeys(names, SCHEMA),
        state,
        " AND ".join(f"{one}.k = {other}.k" for one, other in itertools.pairwise(names)),
        select=[f"{name}.id AS {name}" for name in names],
        settings={"limits": LIMITS},
        memory=script.memory,
        pushing=script.pushing,
        pay_within=script.pay_within,
        defer=script.defer,
        clock=Clock(),
        **how,
    )


def live(script: Script, state: str) -> None:
    join, model = begin(script, state), Model(script.names, script.window)
    # What was known before each batch.
    known: list[Model] = []
    rows: list[dict[str, list[Stored]]] = []
    emitted: list[Counter[Row]] = []
    # The batches that are settled: a start further back is refused.
    settled = 0
    for step in script.steps:
        join.clock.now += step.idle_s  # type: ignore[attr-defined]
        again: list[dict[str, list[Stored]]] = []
        if step.settles and len(emitted) > settled:
            settled = len(emitted)
            join = restarted(join)
            emitted[-1] += settle(join, f"{state}-settled-{settled}", step.killed)
            model.rows = [replace(row, generation=CURRENT) for row in model.rows]
            assert sum(emitted, Counter()) == everything(script, rows)
            assert not join.owed()
            assert not newest(state).pushes and not newest(state).paying
        if step.starts or step.back or step.settles:
            number = max(settled, len(emitted) - step.back)
            join = restarted(join, at=number, memory=step.memory, tasks=step.tasks)
            if number < len(emitted):
                model, again = known[number].copy(), rows[number:]
                del emitted[number:], known[number:], rows[number:]
        fresh = arriving(script, step, len(rows) + len(again))
        for mine in (*again, fresh):
            known.append(model.copy())
            before = join
            parts = {name: [table(found)] for name, found in mine.items()}
            join, results = run_through(
                join, parts, step.crash if mine is fresh else None, zombie=step.zombie
            )
            manifest = of_batch(state, join.number - 1)
            model.follow(manifest, [row for found in mine.values() for row in found])
            emitted.append(results)
            rows.append(mine)
            total = sum(emitted, Counter())
            least, most = model.results(), model.once_paid(manifest.paying).results()
            # Of a key that is paid in cells some have come out.
            assert least <= total <= most, difference(total, least)
            check_status(manifest, model)
            check_bounds(manifest, model, total)
            check_touched(join, manifest, replayed=join is not before or bool(again))
            check_repeated(state, join.number - 1)
    expected = everything(script, rows)
    owed = multiset(join.owed())
    assert owed == multiset(join.owed()), "what is owed changes nothing"
    total = sum(emitted, Counter())
    assert total + owed == expected, difference(total + owed, expected)
    # The budget is gone: everything is paid in the first batch that is no replay.
    join = restarted(join, memory=None, defer=None)
    emitted += [run_batch(join, {name: [] for name in script.names}) for _ in range(2)]
    assert not newest(state).pushes
    total = sum(emitted, Counter())
    assert total == expected, difference(total, expected)


def settle(join: LocalJoin, folder: str, killed: str | None) -> Counter[Row]:
    """Settle in a process that is killed at a place, and then in another."""
    if killed:
        with contextlib.suppress(Crash), crash_at(killed):
            join.settle(folder)
        forget()
    done = join.settle(folder)
    found = multiset(pq.read_table(folder))
    assert done.rows == sum(found.values())
    assert done.batch == join.number - 1
    return found


def of_batch(state: str, batch: int) -> Manifest:
    """The manifest of a batch that the next one builds on: that of the last start."""
    files = files_of(state)
    return read_manifest(files, max(name for name in list_manifests(files) if name.batch == batch))


def everything(script: Script, rows: list[dict[str, list[Stored]]]) -> Counter[Row]:
    names = script.names
    tables = {name: table([row for batch in rows for row in batch[name]]) for name in names}
    times = ", ".join(f"{name}.t" for name in names)
    near = f"greatest({times}) - least({times}) <= {WIDTH}" if script.window else "true"
    keys = " AND ".join(f"{one}.k = {other}.k" for one, other in itertools.pairwise(names))
    ids = ", ".join(f"{name}.id" for name in names)
    return ask_duckdb(f"SELECT {ids} FROM {', '.join(names)} WHERE {keys} AND {near}", **tables)


def check_status(manifest: Manifest, model: Model) -> None:
    """The rows that are owed and pushed are reported exactly. Under a window some may have expired before a push."""
    plan = manifest.plan.scheme
    if not isinstance(plan, BudgetPlan):
        return
    owed, pushed = (sum(getattr(load, name) for load in plan.loads) for name in ("owed_rows", "pushed_rows"))
    if model.window:
        assert owed <= model.owed_rows(plan.groups), (owed, model.owed_rows(plan.groups))
        assert pushed <= model.pushed_rows(), (pushed, model.pushed_rows())
    else:
        assert (owed, pushed) == (model.owed_rows(plan.groups), model.pushed_rows())


def check_bounds(manifest: Manifest, model: Model, emitted: Counter[Row]) -> None:
    """The bound of what is owed holds for what a clean-up would emit now."""
    plan = manifest.plan.scheme
    if isinstance(plan, BudgetPlan):
        met = replace(model, rows=[replace(row, generation=CURRENT) for row in model.rows])
        owed = met.results().total() - emitted.total()
        assert 0 <= owed <= sum(load.most_owed for load in plan.loads)
        assert sum(plan.most_owed) == sum(load.most_owed for load in plan.loads)
        assert sum(plan.owed_rows) == sum(load.owed_rows for load in plan.loads)


def check_touched(join: LocalJoin, manifest: Manifest, *, replayed: bool) -> None:
    """No task touched more than its budget and the rows of the batch."""
    if join.memory is None or replayed:
        return
    assert isinstance(join.memory, int)
    own = sum(run.bytes for run in manifest.fresh)
    tallies = engine._kept(join.operator.spec, batch_of(join), join.clock).tallies
    for tally in tallies.values():
        assert tally.batch != manifest.batch.number or tally.touched_bytes <= join.memory + own


def check_repeated(state: str, batch: int) -> None:
    """All attempts of a batch on one parent pushed and paid the same keys."""
    files, decided = files_of(state), dict[Any, Any]()
    for name in list_manifests(files):
        if name.batch == batch:
            manifest = read_manifest(files, name)
            found = decision_of(manifest)
            assert decided.setdefault(manifest.parent, found) == found


def parts_of(script: Script, number: int) -> dict[str, list[pa.Table]]:
    return {name: [table(mine)] for name, mine in arriving(script, script.steps[0], number).items()}
