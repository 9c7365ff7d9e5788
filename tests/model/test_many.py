"""Random lives of joins of many inputs on the local driver, against DuckDB over the same rows."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.life import LIVES, TINY, ask_duckdb, difference, newest, restarted, run_through, start
from watersmeet import failpoints
from watersmeet.errors import PredicateError, StateMismatch, UsageError
from watersmeet.local.join import LocalJoin

SCHEMA = pa.schema({"id": pa.int64(), "k": pa.int64(), "j": pa.string(), "x": pa.int64(), "at": pa.int64()})
NAMES = "abcde"
# Every place that a join of streams on a local disk comes by.
PLACES = [
    name
    for name in failpoints.NAMES
    if not name.startswith(("table-", "put-", "fetch-"))
    and name not in ("manifest-lost", "clean-batch-removed")
]

row = st.tuples(
    st.none() | st.integers(0, 3), st.sampled_from(["", "a", "b"]), st.integers(-2, 2), st.integers(0, 30)
)


@st.composite
def lives(draw, least: int = 2):
    inputs = draw(st.integers(least, 5))
    # Joins of five inputs have many results: fewer rows then.
    rows = st.lists(row, max_size=9 - inputs)
    batches = draw(
        st.lists(
            st.tuples(st.lists(rows, min_size=inputs, max_size=inputs), st.none() | st.sampled_from(PLACES)),
            min_size=1,
            max_size=5,
        )
    )
    return inputs, batches


def table(rows: list[tuple], first: int) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return pa.table([range(first, first + len(rows)), *columns], schema=SCHEMA)


@st.composite
def graphs(draw, inputs: int):
    """Conditions that connect all inputs by different keys: a tree, cycles, composite keys, comparisons."""
    parts = []
    for number in range(1, inputs):
        one, other = NAMES[draw(st.integers(0, number - 1))], NAMES[number]
        kind = draw(st.sampled_from(["k", "j", "x", "both", "mixed", "less"]))
        parts += {
            "both": [f"{one}.k = {other}.x", f"{other}.j = {one}.j"],
            "mixed": [f"{other}.k = {one}.x"],
            "less": [f"{one}.x < {other}.k"],
        }.get(kind, [f"{one}.{kind} = {other}.{kind}"])
    if draw(st.booleans()):
        one, other = draw(st.permutations(NAMES[:inputs]))[:2]
        parts.append(draw(st.sampled_from([f"{one}.k = {other}.x", f"{one}.x <= {other}.x + 1"])))
    return " AND ".join(draw(st.permutations(parts)))


def condition(inputs: int, both_keys: bool, residual: bool) -> str:
    """Keys along a chain, written in any direction; a residual over the first and the last input."""
    pairs = list(itertools.pairwise(NAMES[:inputs]))
    parts = [f"{b}.k = {a}.k" if place % 2 else f"{a}.k = {b}.k" for place, (a, b) in enumerate(pairs)]
    parts += [f"{a}.j = {b}.j" for a, b in pairs] if both_keys else []
    parts += [f"a.x <= {NAMES[inputs - 1]}.x"] if residual else []
    return " AND ".join(parts)


def oracle(on: str, seen: dict[str, list[pa.Table]], within: int | None) -> Counter:
    times = ", ".join(f"{name}.at" for name in seen)
    near = f" AND greatest({times}) - least({times}) <= {within}" if within is not None else ""
    wanted = ", ".join(f"{name}.id" for name in seen)
    tables = {name: pa.concat_tables([SCHEMA.empty_table(), *parts]) for name, parts in seen.items()}
    return ask_duckdb(f"SELECT {wanted} FROM {', '.join(seen)} WHERE {on}{near}", **tables)


@LIVES
@given(
    lives(),
    st.sampled_from(["hash", "hypercube"]),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(1, 20),
    st.integers(1, 3),
    st.integers(1, 2),
)
def test_any_life_gives_what_one_big_join_gives(
    life, strategy, both_keys, residual, within, tasks, partitions
):
    inputs, batches = life
    on = condition(inputs, both_keys, residual)
    live(inputs, batches, on, within, tasks, partitions, strategy)


@LIVES
@given(lives(least=3), st.data(), st.none() | st.integers(1, 20), st.integers(1, 3), st.integers(1, 2))
def test_any_life_of_a_join_on_different_keys_gives_what_one_big_join_gives(
    life, data, within, tasks, partitions
):
    inputs, batches = life
    on = data.draw(graphs(inputs))
    live(inputs, batches, on, within, tasks, partitions, "auto")


def live(inputs, batches, on, within, tasks, partitions, strategy) -> None:
    names = NAMES[:inputs]
    window = {} if within is None else {"within": within, "time": dict.fromkeys(names, "at"), "lateness": 100}
    seen: dict[str, list[pa.Table]] = {name: [] for name in names}
    found: Counter = Counter()
    with tempfile.TemporaryDirectory() as state:
        join = start(
            dict.fromkeys(names, SCHEMA),
            state,
            on,
            tasks=tasks,
            settings={"run_rows": 4, "limits": TINY},
            select=[f"{name}.id AS {name}" for name in names],
            strategy=strategy,
            **window,
        )
        first = 0
        for rows_of, place in batches:
            parts = {}
            for name, rows in zip(names, rows_of, strict=True):
                seen[name].append(table(rows, first))
                first += len(rows)
                cut = len(rows) // partitions
                parts[name] = (
                    [seen[name][-1]] if partitions == 1 else [seen[name][-1][:cut], seen[name][-1][cut:]]
                )
            join, new = run_through(join, parts, place)
            found += new
    assert not difference(found, oracle(on, seen, within))


def test_a_window_over_rows_counts_back_from_the_batch_of_the_newest_row(tmp_path):
    join = LocalJoin(
        dict.fromkeys("abc", SCHEMA),
        on="a.k = b.k AND b.k = c.k",
        select=["a.id AS a", "b.id AS b", "c.id AS c"],
        state=str(tmp_path),
        within="2 rows",
    )
    one = [(1, "", 0, 0)]
    join.batch(a=table(one * 3, 0))
    join.batch(b=table(one * 3, 10))
    result = join.batch(c=table(one, 20))
    # The last two rows of a and of b, although the third of b came with a newer row than those of a.
    assert sorted(zip(*(c.to_pylist() for c in result.columns), strict=True)) == [
        (1, 11, 20),
        (1, 12, 20),
        (2, 11, 20),
        (2, 12, 20),
    ]
    # A row of an earlier batch does not bring expired rows back.
    result = join.batch(a=table(one, 30))
    assert sorted(zip(*(c.to_pylist() for c in result.columns), strict=True)) == [(30, 11, 20), (30, 12, 20)]


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        ("a.k = b.k", "nothing joins c to a, b"),
        ("a.k = b.k AND c.x > 1", "nothing joins c to a, b"),
        ("true", "nothing joins a to b, c"),
    ],
)
def test_an_input_that_nothing_joins_is_refused(tmp_path, on, problem):
    with pytest.raises(PredicateError, match=problem):
        LocalJoin(dict.fromkeys("abc", SCHEMA), on=on, state=str(tmp_path))


@pytest.mark.parametrize("strategy", ["grid", "biclique", "range"])
def test_schemes_of_two_inputs_are_refused_for_three(tmp_path, strategy):
    with pytest.raises(UsageError, match='use "hash" or "hypercube"'):
        LocalJoin(
            dict.fromkeys("abc", SCHEMA), on="a.k = b.k AND b.k = c.k", state=str(tmp_path), strategy=strategy
        )


def test_one_input_and_seventeen_inputs_are_refused(tmp_path):
    for names in ("a", [f"i{number}" for number in range(17)]):
        with pytest.raises(UsageError, match=f"2 to 16 inputs by name, got {len(names)}"):
            LocalJoin(dict.fromkeys(names, SCHEMA), on="true", state=str(tmp_path))


def test_a_function_is_refused_for_three_inputs(tmp_path):
    with pytest.raises(UsageError, match="a Python function decides over two inputs, and this join has 3"):
        LocalJoin(dict.fromkeys("abc", SCHEMA), on=lambda left, right: None, state=str(tmp_path))


def test_another_number_of_inputs_does_not_continue_a_state(tmp_path):
    on = "a.k = b.k AND b.k = c.k"
    join = LocalJoin(dict.fromkeys("abc", SCHEMA), on=on, state=str(tmp_path))
    join.batch(a=table([(1, "", 0, 0)], 0))
    other = restarted(join, schemas=dict.fromkeys("ab", SCHEMA), on="a.k = b.k")
    with pytest.raises(StateMismatch):
        other.batch(a=table([(1, "", 0, 0)], 0))


def test_sixteen_inputs_join(tmp_path):
    names = [f"i{number}" for number in range(16)]
    on = " AND ".join(f"{one}.k = {other}.k" for one, other in itertools.pairwise(names))
    join = LocalJoin(dict.fromkeys(names, SCHEMA), on=on, state=str(tmp_path), select=["i0.id", "i15.x"])
    rows = [(1, "", 7, 0)]
    join.batch(**{name: table(rows, 0) for name in names[:-1]})
    assert join.batch(i15=table(rows * 3, 5)).to_pylist() == [{"id": 0, "x": 7}] * 3


@pytest.mark.parametrize(
    ("on", "stored"),
    [
        ("a.k = b.k AND b.x = c.x", {"a": "kx", "b": "kx", "b.1": "", "c": "kx"}),
        ("a.k = b.k AND b.x = c.x AND c.k = a.x", {"a": "kx", "a.1": "", "b": "kx", "c": "kx"}),
        ("a.k = b.k AND b.x < c.x", {"a": "kx", "b": "kx", "b.1": "", "c": "kx"}),
        ("a.x < b.x AND b.x < c.x", {"a": "kx", "b": "kx", "c": "kx"}),
        (
            "abs(a.x - b.x) <= 1 AND abs(b.k - c.k) <= 1",
            {"a": "kx", "b": "kx", "b.1": "", "b.2": "", "c": "kx"},
        ),
        ("a.k = b.k AND b.x + c.x = c.k", {"a": "kx", "b": "kx", "c": "kx"}),
    ],
    ids=["path", "cycle", "key and band", "one value", "two values", "key and condition"],
)
def test_columns_are_stored_once_and_further_keys_take_16_bytes_a_row(tmp_path, on, stored):
    schema, rows = pa.schema({"k": pa.int64(), "x": pa.int64()}), 500
    join = LocalJoin(dict.fromkeys("abc", schema), on=on, state=str(tmp_path), tasks=2)
    numbers = np.arange(rows)
    # What c has of x is below all others: there are no results to wait for.
    below = {"a": 0, "b": 0, "c": -rows}
    join.batch(
        **{n: pa.table({"k": numbers, "x": numbers + less}, schema=schema) for n, less in below.items()}
    )
    (one,) = wm.status(str(tmp_path)).joins
    runs = {run.input: run for run in newest(tmp_path).live}
    assert {name: run.rows for name, run in runs.items()} == dict.fromkeys(stored, rows)
    for name, columns in stored.items():
        # The order key, and the columns or where the row is. The rest of a file is a fixed number of bytes.
        assert runs[name].bytes < rows * 8 * (1 + (len(columns) or 1)) + 3000
    assert [found.rows for found in one.inputs] == [rows] * 3


def test_every_arrangement_of_an_input_is_merged(tmp_path):
    join = LocalJoin(dict.fromkeys("abc", SCHEMA), on="a.k = b.k AND b.x = c.x", state=str(tmp_path), tasks=2)
    for batch in range(12):
        join.batch(**{name: table([(batch, "", 20 * batch, 0)] * 5, 5 * batch) for name in "abc"})
    last = newest(tmp_path)
    found = Counter(run.input for run in last.live)
    assert set(found) == {"a", "b", "b.1", "c"}
    # Twelve runs each, of which the first eight are one by now.
    assert max(found.values()) == 5
    assert not last.merges
