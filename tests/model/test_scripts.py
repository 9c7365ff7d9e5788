"""Random lives of a join on the local driver, against DuckDB over the same rows.

A script is a list of batches; each may crash at a named place, be replayed in a new run, and have a zombie of
the old run finish late. Thresholds are made tiny, so that a few dozen rows go through several runs a
partition, merges in several parts and clean-up. The answer must be the join of all rows, as a multiset.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model.plans import check_plan
from watersmeet import failpoints
from watersmeet.engine.spec import Settings
from watersmeet.errors import StateInUse
from watersmeet.kernel.keys import mix, order_keys
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.model.facts import BatchId, Manifest
from watersmeet.model.limits import Limits
from watersmeet.schemes.grid.policy import dynamic
from watersmeet.schemes.hypercube.facts import CubePlan

# Every place that a join of two streams on a local disk comes by.
CRASHES = [
    name
    for name in failpoints.NAMES
    if not name.startswith(("table-", "put-", "fetch-"))
    and name not in ("manifest-lost", "clean-batch-removed")
]

# Before its claim is written a start is not known to anybody.
UNCLAIMED = "start-half-written"

KEYS = {
    pa.int64(): st.integers(-3, 3),
    pa.int32(): st.integers(-3, 3),
    pa.string(): st.sampled_from(["", "a", "b", "aa", "ab", "ä"]),
    pa.binary(): st.sampled_from([b"", b"a", b"\x00", b"a\x00"]),
    pa.float64(): st.sampled_from([0.0, -0.0, float("nan"), 1.5, float("inf")]),
    pa.bool_(): st.booleans(),
    pa.date32(): st.sampled_from([datetime.date(2024, 1, d) for d in (1, 2)]),
    pa.timestamp("us"): st.sampled_from([datetime.datetime(1969, 12, 31, 23), datetime.datetime(2024, 1, 1)]),
    pa.decimal128(10, 2): st.sampled_from([Decimal("1.10"), Decimal("-1.10"), Decimal("0.00")]),
    pa.decimal128(38, 4): st.sampled_from(
        [Decimal("9" * 30 + ".0001"), Decimal("1.1000"), Decimal("-1.1000")]
    ),
}


class Crash(BaseException):
    """The process is gone; nothing catches this but the script."""


@dataclass(frozen=True)
class Step:
    rows: dict[str, list[list[tuple]]]
    crash: str | None
    zombie: bool


@st.composite
def scripts(draw):
    kinds = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2))
    row = st.tuples(*(st.none() | KEYS[kind] for kind in kinds), st.integers(-2, 2))
    partitions = st.lists(st.lists(row, max_size=6), max_size=2)
    step = st.builds(
        Step,
        rows=st.fixed_dictionaries({"l": partitions, "r": partitions}),
        crash=st.none() | st.sampled_from(CRASHES),
        zombie=st.booleans(),
    )
    return kinds, draw(st.lists(step, min_size=1, max_size=8)), draw(st.integers(1, 3)), draw(st.booleans())


TINY = Limits(
    fan_in=2,
    min_part_rows=3,
    part_rows=4,
    clean_every_batches=2,
    piece_rows=3,
    output_rows=5,
    heavy_pairs=4,
    # Runs list every key, so that keys of a few rows are heavy.
    least_listed_rows=1,
)


@pytest.fixture(autouse=True)
def crashing(monkeypatch):
    def act(name):
        raise Crash(name)

    monkeypatch.setattr(failpoints, "act", act)


# Ways to share out an equality; biclique with several units a side, and with a number that does not divide evenly.
EQUALITIES = [
    {"strategy": "hash"},
    {"strategy": "hypercube"},
    {"strategy": "biclique"},
    {"strategy": "biclique", "groups": 1},
    {"strategy": "biclique", "groups": 2},
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(scripts(), st.sampled_from(EQUALITIES))
def test_any_life_of_a_join_gives_what_one_big_join_gives(script, how):
    kinds, steps, tasks, residual = script
    keys = [f"k{i}" for i in range(len(kinds))]
    schema = pa.schema(
        [*((k, kind) for k, kind in zip(keys, kinds, strict=True)), ("x", pa.int64()), ("id", pa.int64())]
    )
    on = " AND ".join([*(f"l.{k} = r.{k}" for k in keys), *(["l.x < r.x + 1"] if residual else [])])
    _live(schema, on, keys, steps, tasks, **how)


@st.composite
def skewed_scripts(draw):
    """One key has most rows, then another one; some rows have none."""
    kind = draw(st.sampled_from([pa.int64(), pa.string()]))
    values = [1, 2, 3, 4] if kind == pa.int64() else ["", "a", "b", "ab"]
    steps = []
    for number in range(draw(st.integers(1, 6))):
        hot = values[number // 3]
        key = st.sampled_from([hot] * 6 + values + [None])
        partitions = st.lists(st.lists(st.tuples(key, st.integers(-2, 2)), max_size=12), max_size=2)
        rows = {side: draw(partitions) for side in "lr"}
        steps.append(Step(rows, draw(st.none() | st.sampled_from(CRASHES)), draw(st.booleans())))
    return kind, steps, draw(st.integers(1, 4))


@settings(
    max_examples=settings().max_examples * 2 // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(skewed_scripts(), st.sampled_from(EQUALITIES[1:]), st.booleans())
def test_any_life_of_a_join_with_hot_keys(script, how, residual):
    kind, steps, tasks = script
    schema = pa.schema([("k0", kind), ("x", pa.int64()), ("id", pa.int64())])
    on = "l.k0 = r.k0 AND l.x <= r.x" if residual else "l.k0 = r.k0"
    _live(schema, on, ("k0",), steps, tasks, **how)


@settings(
    max_examples=settings().max_examples * 2 // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(scripts(), st.sampled_from(EQUALITIES[1:]), st.integers(1, 3))
def test_keys_that_share_a_hash(script, how, hashes):
    """Text and several keys are hashed; with so few hashes a heavy one stands for many keys."""
    kinds, steps, tasks, _ = script
    keys = [f"k{i}" for i in range(len(kinds))]
    if len(kinds) == 1:
        kinds = [pa.string()]
        steps = [
            Step(
                {
                    s: [[(None if r[0] is None else str(r[0]), r[-1]) for r in p] for p in step.rows[s]]
                    for s in "lr"
                },
                step.crash,
                step.zombie,
            )
            for step in steps
        ]
    schema = pa.schema(
        [*((k, kind) for k, kind in zip(keys, kinds, strict=True)), ("x", pa.int64()), ("id", pa.int64())]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "watersmeet.engine.ingest.order_keys",
            lambda columns: mix(order_keys(columns) % np.uint64(hashes)),
        )
        _live(schema, " AND ".join(f"l.{k} = r.{k}" for k in keys), keys, steps, tasks, **how)


def test_a_hot_key_is_cut_into_cells_of_several_tasks_and_so_is_the_next():
    """The scripts above are about heavy keys: here is one, and then another."""
    schema = pa.schema([("k0", pa.string()), ("x", pa.int64()), ("id", pa.int64())])
    steps = [Step({side: [[(key, 0)] * 12] for side in "lr"}, None, False) for key in "aabbbb"]
    newest = _live(schema, "l.k0 = r.k0", ("k0",), steps, 3, strategy="hypercube")
    cube = newest.plan.scheme
    assert isinstance(cube, CubePlan)
    assert {one.label for one in cube.heavy} == {"a", "b"}
    assert all(set(one.tasks) == {0, 1, 2} for one in cube.heavy)


# Conditions without an equality, for a pair of inputs with the column k0: all but the last two are bands.
BANDS = {
    pa.int64(): [
        "abs(l.k0 - r.k0) <= 1",
        "l.k0 < r.k0",
        "l.k0 BETWEEN r.k0 - 2 AND r.k0 + 1",
        "l.k0 >= r.k0 + 2",
    ],
    pa.int32(): ["abs(r.k0 - l.k0) < 2", "l.k0 > r.k0", "l.k0 - r.k0 <= 1 AND r.x <> l.x"],
    pa.float64(): ["abs(l.k0 - r.k0) <= 1.5D", "l.k0 <= r.k0", "l.k0 > r.k0"],
    pa.string(): ["l.k0 < r.k0", "l.k0 >= r.k0"],
    pa.date32(): ["l.k0 < r.k0", "l.k0 BETWEEN r.k0 - INTERVAL 1 DAY AND r.k0"],
    pa.timestamp("us"): ["l.k0 <= r.k0", "l.k0 > r.k0 - INTERVAL 1 HOUR"],
    pa.decimal128(10, 2): ["l.k0 < r.k0", "abs(l.k0 - r.k0) <= 1.10BD"],
    pa.decimal128(38, 4): ["l.k0 < r.k0"],
}
ANY = ["l.k0 <> r.k0", "true", "l.k0 < r.k0 OR l.x = 1 OR r.x = l.x"]


@st.composite
def theta_scripts(draw):
    kind = draw(st.sampled_from(list(BANDS)))
    row = st.tuples(st.none() | KEYS[kind], st.integers(-2, 2))
    partitions = st.lists(st.lists(row, max_size=6), max_size=2)
    step = st.builds(
        Step,
        rows=st.fixed_dictionaries({"l": partitions, "r": partitions}),
        crash=st.none() | st.sampled_from(CRASHES),
        zombie=st.booleans(),
    )
    on = draw(st.sampled_from(BANDS[kind] + ANY))
    how: dict = {}
    if on in ANY or draw(st.booleans()):
        how = {"strategy": "grid", "cells": draw(st.integers(1, 7))}
        if draw(st.booleans()):
            how["policy"] = dynamic(epsilon=0.5, capacity_bytes=1500, max_cells=64)
    return kind, on, draw(st.lists(step, min_size=1, max_size=8)), draw(st.integers(1, 3)), how


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(theta_scripts())
def test_any_life_of_a_join_without_an_equality(script):
    kind, on, steps, tasks, how = script
    schema = pa.schema([("k0", kind), ("x", pa.int64()), ("id", pa.int64())])
    _live(schema, on, () if on in ANY else ("k0",), steps, tasks, **how)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(scripts(), st.integers(1, 7))
def test_an_equality_on_the_grid(script, cells):
    kinds, steps, tasks, _ = script
    schema = pa.schema([("k0", kinds[0]), ("x", pa.int64()), ("id", pa.int64())])
    trimmed = [
        Step(
            {s: [[(row[0], row[-1]) for row in part] for part in step.rows[s]] for s in "lr"},
            step.crash,
            step.zombie,
        )
        for step in steps
    ]
    _live(schema, "l.k0 = r.k0", ("k0",), trimmed, tasks, strategy="grid", cells=cells)


def _live(schema, on, dropped_if_null, steps, tasks, grace_s=-1.0, **how) -> Manifest:
    """Run a script; its results must be those of one big join. Gives the last manifest."""
    keys = [name for name in schema.names if name.startswith("k")]
    ids = itertools.count()
    with tempfile.TemporaryDirectory() as state:
        join = LocalJoin(
            {"l": schema, "r": schema},
            on=on,
            select=["l.id AS a", "r.id AS b"],
            state=state,
            tasks=tasks,
            settings=Settings(
                state=state, tasks=tasks, run_rows=4, grace_s=grace_s, retain_batches=1, limits=TINY
            ),
            **how,
        )
        everything: dict[str, list[pa.Table]] = {"l": [], "r": []}
        results: Counter = Counter()
        for number, step in enumerate(steps):
            parts = {
                side: [pa.Table.from_pylist(_named(part, keys, ids), schema) for part in step.rows[side]]
                for side in "lr"
            }
            for side in "lr":
                everything[side] += parts[side]
            join, got = _process(join, number, parts, step)
            results += got
        expected = _oracle(everything, schema, on)
        difference = f"missing {expected - results}\nsurplus {results - expected}"
        assert results == expected, f"{on} {how}\n{difference}"
        return _check_invariants(state, everything, dropped_if_null)


def _named(rows, keys, ids):
    return [dict(zip([*keys, "x"], row, strict=True), id=next(ids)) for row in rows]


def _process(join: LocalJoin, number: int, parts, step: Step) -> tuple[LocalJoin, Counter]:
    """One batch; after a crash the query starts again and replays it, as Spark does."""
    failpoints._POINTS = {step.crash: ("crash", None)} if step.crash else {}
    try:
        return join, _run(join, number, parts)
    except Crash:
        failpoints._POINTS = {}
        dead = join
        join = join.restarted(at=number)
        got = _run(join, number, parts)
        if step.zombie:
            # It may find its own manifest and go on, or find that it was superseded; nobody reads its results.
            with contextlib.suppress(StateInUse):
                _run(dead, number, parts)
                if step.crash == UNCLAIMED:
                    # It claims only now, so it looks like a later start: the query fails, and starts again.
                    join = join.restarted(at=number + 1)
        return join, got
    finally:
        failpoints._POINTS = {}


def _run(join: LocalJoin, number: int, parts) -> Counter:
    batch = BatchId(join.query, join.run, number)
    descriptors = [
        join.ingest(batch, side, table, partition)
        for side in "lr"
        for partition, table in enumerate(parts[side])
    ]
    found: Counter = Counter()
    for task in range(join.tasks):
        for result in join.operator.join(batch, task, descriptors):
            found.update(zip(*(column.to_pylist() for column in result.columns), strict=True))
    check_plan(join, number)
    return found


def _oracle(everything, schema, on) -> Counter:
    tables = {side: pa.concat_tables([schema.empty_table(), *everything[side]]) for side in "lr"}
    with duckdb.connect() as con:
        con.register("l", tables["l"])
        con.register("r", tables["r"])
        on = on.replace("1.5D", "1.5").replace("1.10BD", "1.10")
        return Counter(con.execute(f"SELECT l.id, r.id FROM l JOIN r ON {on}").fetchall())


def _check_invariants(state, everything, keys) -> Manifest:
    """The newest manifest holds exactly the rows that came, and every file that it names is there."""
    files = LocalFiles(Path(state) / "join" / "local")
    newest = read_manifest(files, list_manifests(files)[-1])
    for side in "lr":
        table = pa.concat_tables(everything[side]) if everything[side] else None
        rows = 0 if table is None else len(table.filter(_no_null(table, keys)))
        assert sum(run.rows for run in newest.live if run.input == side) == rows == newest.totals[side].rows
    for path in newest.named_paths:
        assert (files.root / path).is_file(), path
    return newest


def _no_null(table, keys):
    mask = pc.is_valid(table.column("id"))
    for key in keys:
        mask = pc.and_(mask, pc.is_valid(table.column(key)))
    return mask
