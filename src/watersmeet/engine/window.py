"""A window for a compiled join: the column that it is kept in, and the test that every pair must pass.

A window over time is tested pair by pair: the kernels of keys and bands have a test of their own, which costs less than
the evaluation of an expression; a join by any condition compares matrices, and gets the window as two conjuncts of its
residual. A window over rows needs no test: of the history only the rows from the floor on are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from watersmeet.engine.spec import Join, JoinSpec
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.kernel.sorted import Sorted, take_rows
from watersmeet.kernel.theta import ThetaJoin
from watersmeet.kernel.window import Times
from watersmeet.log.runs import RunReader
from watersmeet.model.expression import Call, Column, Expression, Literal, conjunction, conjuncts_of
from watersmeet.model.facts import Column as StoredColumn
from watersmeet.model.facts import KeyRange, Manifest, Run
from watersmeet.model.types import BIGINT, BOOLEAN, Schema
from watersmeet.model.window import AT, Window, over_time
from watersmeet.plan.window import all_within, reachable, reading_floors

if TYPE_CHECKING:
    # Not for a worker, which compiles nothing: the parser behind it takes as long to load as all that a task needs.
    from watersmeet.engine.compile import CompiledJoin


def add_window(
    compiled: CompiledJoin, window: Window, times: Mapping[str, str], schemas: Mapping[str, Schema]
) -> CompiledJoin:
    """The same join under a window; `times` names the column of each input that a window over time goes by."""
    at = StoredColumn(AT, str(BIGINT))
    inputs = tuple(
        replace(spec, stored=(*spec.stored, at), time=times.get(spec.name))
        for spec in compiled.signature.inputs
    )
    arriving = {
        name: tuple(
            column for column in schema if column in compiled.arriving[name] or column == times.get(name)
        )
        for name, schema in schemas.items()
    }
    join = compiled.join
    if over_time(window):
        join = _with_test(join, (inputs[0].name, inputs[1].name), window.width)
    signature = replace(compiled.signature, inputs=inputs, window=window)
    return replace(compiled, signature=signature, join=join, arriving=arriving)


def _with_test(join: Join, inputs: tuple[str, str], width: int) -> Join:
    if not isinstance(join, ThetaJoin):
        return replace(join, within=width)
    if isinstance(join.residual, Literal):
        if join.residual.value is not True:
            return join
        return replace(join, residual=_test(inputs, width))
    found = conjuncts_of(join.residual) if join.residual is not None else []
    return replace(join, residual=conjunction([*conjuncts_of(_test(inputs, width)), *found]))


def _test(inputs: tuple[str, str], width: int) -> Expression:
    """Each side with the width added is computed once for a row, so that pairs are compared only."""
    left, right = (Column(name, AT, BIGINT) for name in inputs)
    return Call("and", (_not_after(left, right, width), _not_after(right, left, width)), BOOLEAN)


def _not_after(one: Column, other: Column, width: int) -> Expression:
    return Call("<=", (one, Call("+", (other, Literal(width, BIGINT)), BIGINT)), BOOLEAN)


def _without_test(join: Join, inputs: tuple[str, str], width: int) -> Join:
    if not isinstance(join, ThetaJoin):
        return replace(join, within=None)
    tests = conjuncts_of(_test(inputs, width))
    found = conjuncts_of(join.residual) if join.residual is not None else []
    return replace(join, residual=conjunction([part for part in found if part not in tests]))


def for_batch(manifest: Manifest, spec: JoinSpec) -> tuple[Manifest, JoinSpec]:
    """What the join of this batch has to look at: runs that may hold a partner, and no test that all pairs pass."""
    window = spec.signature.window
    if window is None:
        return manifest, spec
    if over_time(window) and all_within(manifest) and not isinstance(spec.join, LookupJoin):
        left, right = (one.name for one in spec.signature.inputs)
        spec = replace(spec, join=_without_test(spec.join, (left, right), window.width))
    return replace(manifest, history=reachable(manifest)), spec


@dataclass(frozen=True, slots=True)
class WindowReader:
    """Reads runs as `RunReader`, but leaves out what is below the floor of its input.

    Only the run, or the few, in which the floor lies are looked through.
    """

    reader: RunReader
    floors: Mapping[str, int]

    def read(
        self, run: Run, range_: KeyRange, columns: tuple[str, ...], sections: Sequence[range] | None = None
    ) -> dict[int, Sorted]:
        found = self.reader.read(run, range_, columns, sections)
        floor = self.floors.get(run.input)
        return found if floor is None else from_floor(run, found, floor)


def reader_for(reader: RunReader, manifest: Manifest) -> RunReader | WindowReader:
    floors = reading_floors(manifest)
    return WindowReader(reader, floors) if floors else reader


def from_floor(run: Run, found: dict[int, Sorted], floor: int) -> dict[int, Sorted]:
    """The rows whose window time is at least `floor`, by section; sections that have none are left out."""
    if run.times[0] >= floor:
        return found
    kept = {number: _from(part, floor - run.base) for number, part in found.items()}
    return {number: part for number, part in kept.items() if len(part)}


def _from(part: Sorted, floor: int) -> Sorted:
    keep = np.flatnonzero(stored_times(part) >= floor)
    if len(keep) == len(part):
        return part
    return Sorted(part.keys[keep], take_rows(part.rows, keep))


def stored_times(part: Sorted) -> Times:
    times: Times = part.rows.column(AT).to_numpy()
    return times


def numbered(part: Sorted, base: int) -> Sorted:
    """The rows with `base` added to what is stored of their window time."""
    if not base:
        return part
    place = part.rows.schema.get_field_index(AT)
    return Sorted(part.keys, part.rows.set_column(place, AT, pa.array(stored_times(part) + base)))
