"""Inputs, arrangements and nested loops for tests of walks."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from watersmeet.kernel import seek, walk
from watersmeet.kernel.edges import Arranged
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.keys import joined_keys, words
from watersmeet.kernel.late import LateDeal
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Sorted
from watersmeet.kernel.walk import WalkJoin
from watersmeet.model.limits import Limits
from watersmeet.model.signature import LOCATOR
from watersmeet.model.window import AT

# A row: three numbers that keys are made of, a number for conditions, a window time.
row = st.tuples(*[st.integers(0, 2)] * 3, st.integers(-2, 2), st.integers(0, 9))
runs = st.lists(st.lists(row, min_size=1, max_size=5), max_size=2)
limits = st.builds(Limits, piece_rows=st.sampled_from([1, 4, 50]), output_rows=st.sampled_from([5, 7]))


def table(rows: list[tuple], first: int) -> pa.RecordBatch:
    columns = [pa.array(values, pa.int64()) for values in zip(*rows, strict=True)]
    ids = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.RecordBatch.from_arrays([*columns, ids], names=["x0", "x1", "x2", "v", AT, "id"])


def keys_of(batch: pa.RecordBatch, columns: tuple[str, ...], suffix: tuple[str, ...]) -> np.ndarray:
    keys = seek.order_keys([batch.column(column) for column in columns])  # type: ignore[attr-defined]
    if suffix:
        keys = joined_keys(keys, seek.order_keys([batch.column(column) for column in suffix]))  # type: ignore[attr-defined]
    return keys


def arrange(batch: pa.RecordBatch, keys: np.ndarray) -> Sorted:
    order = np.argsort(keys, kind="stable")
    return Sorted(keys[order], batch.take(pa.array(order)))


def arrangements(edges, then=lambda name, others: None, located=lambda name: False):
    """One for each edge of each input. `then` chooses the edge that it is sorted by next, or -1 for all others.

    `located` says which inputs have their columns only in the first arrangement.
    """
    found, first = [], {}
    for number, edge in enumerate(edges):
        for name in edge.inputs:
            others = [at for at, other in enumerate(edges) if at != number and name in other.inputs]
            chosen = then(name, others)
            through = first.get(name) if located(name) else None
            first.setdefault(name, f"{name}.{number}")
            found.append(
                Arranged(
                    f"{name}.{number}",
                    name,
                    number,
                    None if chosen == -1 else chosen,
                    halves=chosen is not None and bool(others),
                    through=through,
                )
            )
    return tuple(found)


def suffix_of(one, edges):
    """The columns that an arrangement is sorted by next."""
    if not one.halves:
        return ()
    then = [one.then] if one.then is not None else [n for n in range(len(edges)) if n != one.edge]
    return tuple(c for n in then if one.input in edges[n].inputs for c in edges[n].of(one.input))


def arranged_by(one, edges, batch):
    """What an arrangement is sorted by: a hash of a key, the word of a value, or a hash of all values."""
    if one.edge is None:
        mine = [edge.of(one.input) for edge in edges if one.input in edge.inputs]
        return keys_of(batch, tuple(dict.fromkeys(c for columns in mine for c in columns)), ())
    columns = edges[one.edge].of(one.input)
    if edges[one.edge].band is not None:
        return words(batch.column(columns[0]))
    return keys_of(batch, columns, suffix_of(one, edges))


def results(names, edges, conjuncts, drawn, within, bounds, arranged=None, order=(), late=None, cells=((),)):
    """Run every term of the delta rule, as the scheme would hand them out to one task, all in this order, if given.

    With `late` the rows of each term are dealt on the way to some tasks, which may bind a number of rows alike. Of each
    of the `cells` there is a task, which has all rows but joins only the keys of its cuts.
    """
    arranged = arranged or arrangements(edges)
    output = tuple(OutputColumn(name, "id", name) for name in names)
    join = WalkJoin(edges, arranged, conjuncts, output)
    stored: dict[str, tuple[list[Sorted], list[Sorted]]] = {}
    for one in arranged:
        first = 0
        primary = next(other for other in arranged if other.name == (one.through or one.name))
        slices: list[list[Sorted]] = [[], []]
        for place, part in enumerate(drawn[one.input]):
            for rows in part:
                batch = table(rows, first)
                by = arranged_by(one, edges, batch)
                if one.through:
                    there = arranged_by(primary, edges, batch)
                    batch = pa.RecordBatch.from_pydict({LOCATOR: there.view(np.int64)})
                slices[place].append(arrange(batch, by))
                first += len(rows)
        stored[one.name] = slices[0], slices[1]
    found: Counter = Counter()
    for term, start in enumerate(names):
        first = next(one for one in arranged if one.input == start)
        sides = [Side(first.name, stored[first.name][1], ())]
        for one in arranged:
            place = names.index(one.input)
            old, new = stored[one.name]
            if place != term:
                rank = order.index(one.input) if one.input in order else None
                sides.append(Side(one.name, new if place < term else (), old, rank))
        tasks, room_rows = late or (1, 0)
        batches = []
        for task, cuts in itertools.product(range(tasks), cells):
            deal = LateDeal(task, tasks, room_rows) if late else None
            batches += join.results((replace(sides[0], late=deal, cuts=cuts), *sides[1:]), within, bounds)
        assert all(0 < batch.num_rows <= bounds.output_rows for batch in batches)
        found += Counter(
            row for b in batches for row in zip(*(c.to_pylist() for c in b.columns), strict=True)
        )
    return found


def owed(names, edges, drawn, holds) -> Counter:
    listed = {
        name: [(fresh, row) for fresh, part in enumerate(drawn[name]) for rows in part for row in rows]
        for name in names
    }
    found: Counter = Counter()
    for combination in itertools.product(*(enumerate(listed[name]) for name in names)):
        rows = {name: row for name, (_, (_, row)) in zip(names, combination, strict=True)}
        keys = [
            {tuple(rows[name][int(column[1])] for column in edge.of(name)) for name in edge.inputs}
            for edge in edges
        ]
        if any(fresh for _, (fresh, _) in combination) and all(len(key) == 1 for key in keys) and holds(rows):
            found[tuple(at for at, _ in combination)] += 1
    return found


def inputs_for(names):
    return st.fixed_dictionaries({name: st.tuples(runs, runs) for name in names})


def watch_bound(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str, int]]:
    """Filled while walks run: the inputs that are bound, the one that comes next, and the combinations that it gives."""
    bound: list[tuple[list[str], str, int]] = []
    plain = walk._Walk._bound

    def note(self, found, rest, one, *late):
        bound.append((sorted(found), one.arranged.input, int(one.counts.sum())))
        return plain(self, found, rest, one, *late)

    monkeypatch.setattr(walk._Walk, "_bound", note)
    return bound
