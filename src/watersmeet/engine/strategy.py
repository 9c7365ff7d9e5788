"""Which strategy a join takes, and why: what `strategy="auto"` means, and what fits which predicate.

    kind of join        streams        batches
    equality            hypercube      Spark's own join
    band, inequality    range          range, if there is a place for its files; else Spark's own join
    anything else       grid           Spark's own join; grid for a Python function

What `auto` takes is the fastest by docs/benchmarks.md; each can be asked for by name.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, replace

from watersmeet.engine.compile import CompiledJoin
from watersmeet.engine.kept_table import HYBRID, INDEX, MESH
from watersmeet.errors import UsageError
from watersmeet.kernel.match import BandJoin, EquiJoin, right_range
from watersmeet.kernel.theta import ThetaJoin
from watersmeet.model.facts import Layout
from watersmeet.plan.biclique import layout_of, plan_biclique
from watersmeet.plan.grid import GridPolicy, fixed
from watersmeet.plan.placement import (
    BicliqueStrategy,
    CubeStrategy,
    GridStrategy,
    HashStrategy,
    RangeStrategy,
    Strategy,
)

AUTO, HASH, CUBE, BICLIQUE = "auto", "hash", "hypercube", "biclique"
LOOKUPS = (AUTO, HYBRID, MESH, INDEX)
RANGE, GRID, SPARK = "range", "grid", "spark"
STRATEGIES = (AUTO, HASH, CUBE, BICLIQUE, RANGE, GRID, SPARK)


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy's name, and the reason in one sentence."""

    name: str
    why: str


def choose(requested: str, compiled: CompiledJoin, *, streaming: bool, has_place: bool) -> Choice:
    """What to take for this join. UsageError if what was asked for does not fit it."""
    if requested not in STRATEGIES:
        raise UsageError(f"strategy={requested!r} is not known: use one of {', '.join(STRATEGIES)}")
    if requested == AUTO:
        return _automatic(compiled, streaming, has_place)
    join = compiled.join
    if requested == SPARK and streaming:
        raise UsageError('strategy="spark" is for batch inputs: leave it out for streams')
    if requested == SPARK and isinstance(join, ThetaJoin) and join.condition is not None:
        raise UsageError('strategy="spark" cannot call a Python function as a condition: use "grid"')
    if requested in (HASH, CUBE, BICLIQUE) and not isinstance(join, EquiJoin):
        raise UsageError(
            f'strategy="{requested}" needs an equality between the two inputs, and the predicate has none (text under a '
            'collation other than UTF8_BINARY cannot be a key): use "grid"'
        )
    if requested == RANGE and not isinstance(join, BandJoin):
        other = '"hash" or "grid"' if isinstance(join, EquiJoin) else '"grid"'
        raise UsageError(
            'strategy="range" needs an inequality or a band between the two inputs, such as '
            f"abs(l.x - r.x) <= 5, and no equality: use {other}"
        )
    return Choice(requested, "it was asked for")


def choose_lookup(requested: str) -> str:
    """How a table is read. UsageError if what was asked for is not for tables."""
    if requested not in LOOKUPS:
        raise UsageError(f"strategy={requested!r} is not for a table: use one of {', '.join(LOOKUPS)}")
    return HYBRID if requested == AUTO else requested


def _automatic(compiled: CompiledJoin, streaming: bool, has_place: bool) -> Choice:
    join = compiled.join
    if isinstance(join, EquiJoin):
        if streaming:
            return Choice(
                CUBE,
                "the predicate has an equality: tasks share out the keys, and the pairs of a key with many rows",
            )
        return Choice(SPARK, "a batch keeps no state, and Spark's own equality join is the fastest")
    if isinstance(join, BandJoin):
        if streaming or has_place:
            return Choice(
                RANGE, "the predicate bounds the distance or order of two values: runs are sorted by them"
            )
        return Choice(SPARK, "a batch without state= is left to Spark's own join, which compares all pairs")
    if streaming or join.condition is not None:
        return Choice(
            GRID, "the predicate says nothing that could be looked up: all pairs, on an adaptive grid"
        )
    return Choice(SPARK, "all pairs must be compared, and for a batch Spark does that itself")


def settle(
    choice: Choice,
    compiled: CompiledJoin,
    *,
    tasks: int,
    cells: int | None,
    mapping: tuple[int, int] | None,
    policy: GridPolicy,
    groups: int | None = None,
) -> tuple[CompiledJoin, Strategy]:
    """The strategy as the operator runs it, and the join with the layout that it needs."""
    check_arguments(choice, cells, mapping, groups)
    if choice.name == HASH:
        return compiled, HashStrategy()
    if choice.name == CUBE:
        return compiled, CubeStrategy()
    if choice.name == BICLIQUE:
        plan = plan_biclique(tasks, groups)
        return _laid_out(compiled, layout_of(plan)), BicliqueStrategy(plan)
    if isinstance(compiled.join, BandJoin) and choice.name == RANGE:
        return compiled, RangeStrategy(functools.partial(right_range, join=compiled.join))
    if mapping is not None:
        rows, cols = _mapping(mapping)
        policy, cells = fixed(rows, cols), rows * cols if cells is None else cells
    strategy = GridStrategy(_cells(cells, tasks), policy)
    return _laid_out(compiled, strategy.layout), strategy


def _laid_out(compiled: CompiledJoin, layout: Layout | None) -> CompiledJoin:
    return replace(compiled, signature=replace(compiled.signature, layout=layout))


def check_arguments(
    choice: Choice, cells: int | None, mapping: tuple[int, int] | None, groups: int | None
) -> None:
    if choice.name != BICLIQUE and groups is not None:
        raise UsageError(
            f'groups= belongs to strategy="biclique"; this join takes "{choice.name}": {choice.why}'
        )
    if choice.name != GRID and (cells is not None or mapping is not None):
        raise UsageError(
            f'cells= and mapping= belong to strategy="grid"; this join takes "{choice.name}": {choice.why}'
        )


# Cells for each task where their number is no power of two: so many that the last ones make little difference.
_CELLS_PER_TASK = 4


def default_cells(tasks: int) -> int:
    """A power of two: with any other number the smallest group of cells would set the pace.

    >>> [default_cells(tasks) for tasks in (1, 2, 3, 4, 6)]
    [1, 2, 16, 4, 32]
    """
    if tasks & (tasks - 1) == 0:
        return tasks
    return 1 << (_CELLS_PER_TASK * tasks - 1).bit_length()


def _cells(cells: int | None, tasks: int) -> int:
    if cells is None:
        return default_cells(tasks)
    if isinstance(cells, bool) or not isinstance(cells, int) or cells < 1:
        raise UsageError(f"cells={cells!r}: a grid has at least one cell")
    return cells


def _mapping(mapping: tuple[int, int]) -> tuple[int, int]:
    try:
        rows, cols = (operator.index(side) for side in mapping)
    except (TypeError, ValueError):
        raise UsageError(f"mapping={mapping!r}: give rows and columns of the grid, such as (2, 4)") from None
    return rows, cols
