"""Rows of several inputs that go through one task: each input gets its own rows back, in its own columns and order."""

from __future__ import annotations

import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.engine.together import Slots, separated

KINDS = {"int": pa.int64(), "text": pa.string(), "list": pa.list_(pa.int8())}
VALUES = {
    "int": st.integers(-5, 5),
    "text": st.text(max_size=3),
    "list": st.lists(st.integers(0, 9), max_size=2),
}


@st.composite
def arrivals(draw):
    """The columns of some inputs, and turns of rows of them in any order, cut into batches anywhere."""
    names = [f"i{number}" for number in range(draw(st.integers(1, 4)))]
    column = st.tuples(st.sampled_from(["k", "x.y", "`z`"]), st.sampled_from(list(KINDS)))
    columns = {
        name: draw(st.lists(column, min_size=1, max_size=3, unique_by=lambda one: one[0])) for name in names
    }
    turns = [
        (name, draw(st.lists(st.tuples(*(VALUES[kind] for _, kind in columns[name])), max_size=4)))
        for name in draw(st.lists(st.sampled_from(names), max_size=6))
    ]
    return columns, turns, draw(st.lists(st.integers(0, 24), max_size=4))


@given(arrivals())
def test_every_input_gets_its_own_rows_back(arrived):
    columns, turns, cuts = arrived
    slots = Slots.assign(columns)
    # As wide as the inputs need: of each type as many as the input with most columns of it has.
    assert len(slots.types) == sum(
        max(sum(of == kind for _, of in mine) for mine in columns.values()) for kind in KINDS
    )
    schema = pa.schema(
        [("input", pa.int32()), *((f"c{n}", KINDS[kind]) for n, kind in enumerate(slots.types))]
    )
    rows = [
        {"input": number} | {f"c{slot}": value for slot, value in zip(of.slots, row, strict=True)}
        for name, given_rows in turns
        for number, of in enumerate(slots.inputs)
        if of.input == name
        for row in given_rows
    ]
    whole = pa.RecordBatch.from_pylist(rows, schema)
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut <= len(rows))})
    batches = [whole.slice(low, high - low) for low, high in itertools.pairwise(ends)] or [whole]
    found: dict[str, list[tuple]] = {name: [] for name in columns}
    seen: dict[str, list[int]] = {name: [] for name in columns}
    for name, turn, parts in separated(slots.inputs, batches):
        seen[name].append(turn)
        for part in parts:
            assert part.schema == pa.schema([(column, KINDS[kind]) for column, kind in columns[name]])
            found[name] += [tuple(row.values()) for row in part.to_pylist()]
    assert found == {name: [row for of, mine in turns if of == name for row in mine] for name in columns}
    # Turns of one input have different numbers: each becomes a partition.
    assert all(numbers == list(range(len(numbers))) for numbers in seen.values())


def test_rows_that_are_not_read_are_left_out():
    """A reader that stops in the middle of a turn does not get the rest with the next."""
    slots = Slots.assign({"a": [("k", "int")], "b": [("k", "int")]})
    batch = pa.RecordBatch.from_pydict({"input": pa.array([0, 0, 1], pa.int32()), "c0": [1, 2, 3]})
    (_, _, first), *_ = found = [
        (name, turn, next(rows).to_pylist()) for name, turn, rows in separated(slots.inputs, [batch, batch])
    ]
    assert first == [{"k": 1}, {"k": 2}]
    assert [(name, turn) for name, turn, _ in found] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
