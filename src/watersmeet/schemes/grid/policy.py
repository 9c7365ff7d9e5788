"""The adaptive grid: which mapping, and when to change it.

Source: Elseidy et al. 2014: the input-load factor (3.3), Algorithms 1 and 2 with epsilon, padding, tuple sizes,
any number of cells, growth (4.2). Pure: the plan of a batch follows from the plan before it and from the batch's rows,
so every task and every retry computes the same plan.

The contract: `advance` is called when the rows of a batch are known and before they are joined, and its plan applies
to that batch. A batch may bring many rows at once. When a decision is due, the plan goes to the optimum of all that is
known, however many steps away. With one row a batch, this is Algorithm 2:

- ILF <= (3 + 2e) / (3 + e) of the optimum at any time, 1.25 for e = 1, while neither input is more than the
  number of cells times the other. At a decision the mapping is optimal, so a cell's shares x (left) and y
  (right) are within a factor of 2 of each other (Lemma 4.1). Until the next one, x grows to X <= (1+e)x and y to
  Y <= (1+e)y. The ratio (X+Y) / (2X+Y/2) to the neighbour mapping is largest for Y/X = 2(1+e), and the
  mapping after that is never better, since it would take Y > 8X.
- Migrating costs at most 2 + 4/e times the time that the rows took that arrived since the decision before, 6 for
  e = 1 (Lemma 4.5). Halving the rows n costs 2(R+dR)/n. Either dR >= eR, and this is at most (2 + 2/e) dR/n;
  or dS >= eS, and with R/n <= 2S/m it is at most 2dR/n + 4dS/(em).

Differences from the paper: statistics are counted, not sampled, since the batch's rows are known. A row larger than
what was left until a decision does not delay it, since the decision applies to that row. All groups decide at the same
time, by the padding of the largest group, which is never later than by their own.

The bounds do not hold within a large batch, or for a fixed mapping. More cells are not always faster if their number
is not a power of two: storage is bounded as the paper says, but fresh rows meet every group, so the cells of a small
group read more of them (those of 4 among 20 read a quarter of the right input under (1, 4)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from watersmeet.errors import UsageError
from watersmeet.schemes.grid.facts import (
    Amount,
    GridGroup,
    GridPlan,
    GridShape,
    Reason,
    Relocation,
)
from watersmeet.schemes.grid.relocation import StoredSections, count_relocation, estimate_stored

# Sections of a run file are cut by at most 16 bits of the row's hash: more would be smaller than a page.
MAX_PARTS = 1 << 16


@dataclass(frozen=True, slots=True)
class GridPolicy:
    """How a grid chooses its mapping. `dynamic` and `fixed` make the two that users can ask for.

    The first mapping is optimal for the `expected` sizes; `shape` overrides it. If the grid does not adapt, it stays.
    """

    adapts: bool
    expected: tuple[int, int] = (1, 1)
    shape: GridShape | None = None
    epsilon: float = 1.0
    min_rows: int = 0
    capacity_bytes: int | None = None
    max_cells: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 1:
            raise UsageError(f"epsilon is {self.epsilon}: it must be above 0 and at most 1")
        if self.min_rows < 0:
            raise UsageError(f"min_rows is {self.min_rows}: it must not be negative")
        if min(self.expected) < 0:
            raise UsageError(f"expected sizes are {self.expected}: they must not be negative")
        if self.capacity_bytes is not None and self.capacity_bytes < 1:
            raise UsageError(f"capacity_bytes is {self.capacity_bytes}: it must be above 0")


def dynamic(
    *, epsilon: float = 1.0, min_rows: int = 0, capacity_bytes: int | None = None, max_cells: int = 0
) -> GridPolicy:
    """DYNAMIC: adapt to what arrives. With a capacity the grid grows fourfold, up to `max_cells`, when at a
    decision a cell holds more than half of it."""
    return GridPolicy(
        True, epsilon=epsilon, min_rows=min_rows, capacity_bytes=capacity_bytes, max_cells=max_cells
    )


def fixed(rows: int, cols: int) -> GridPolicy:
    """A mapping fixed by the user."""
    if not (_is_power_of_two(rows) and _is_power_of_two(cols)):
        raise UsageError(f"mapping ({rows}, {cols}): both sides must be powers of two, such as (4, 8)")
    return GridPolicy(False, shape=GridShape(rows, cols))


def optimal_mapping(
    cells: int, left_size: int, right_size: int, *, current: GridShape | None = None, widest: int = MAX_PARTS
) -> GridShape:
    """The mapping of `cells`, a power of two, with the least input-load factor and no side above `widest`.

    Ties go to `current`, since staying is free, and otherwise to the squarest.

    >>> optimal_mapping(64, 1, 64)
    GridShape(rows=1, cols=64)
    """
    sides = [1 << bit for bit in range(cells.bit_length())]
    shapes = [GridShape(side, cells // side) for side in sides if max(side, cells // side) <= widest]
    return min(
        shapes,
        key=lambda s: (
            left_size * s.cols + right_size * s.rows,
            s != current,
            max(s.rows, s.cols),
            s.rows,
        ),
    )


def decompose(cells: int) -> tuple[int, ...]:
    """The powers of two that sum to `cells`, largest first.

    >>> decompose(20)
    (16, 4)
    """
    return tuple(1 << bit for bit in reversed(range(cells.bit_length())) if cells >> bit & 1)


def start_grid(cells: int, policy: GridPolicy) -> GridPlan:
    """The plan before the first row: square, or as the policy says."""
    if cells < 1:
        raise UsageError(f"cells is {cells}: a grid has at least one")
    if policy.shape is not None and policy.shape.cells != cells:
        shape = policy.shape
        raise UsageError(f"mapping ({shape.rows}, {shape.cols}) has {shape.cells} cells, not {cells}")
    groups = tuple(_start_group(size, policy) for size in decompose(cells))
    return GridPlan(epoch=0, parts=_parts_needed(groups, policy), groups=groups)


def _start_group(cells: int, policy: GridPolicy) -> GridGroup:
    bits = tuple(reversed(range(cells.bit_length() - 1)))
    shape = policy.shape or optimal_mapping(cells, *policy.expected)
    rows = shape.rows.bit_length() - 1
    return GridGroup(bits[:rows], bits[rows:])


def _parts_needed(groups: tuple[GridGroup, ...], policy: GridPolicy) -> int:
    """The longest side that any group can reach: all cells of the largest group in a line, after all growth.

    A fixed mapping has it too, so that the query can be restarted with another mapping or as adaptive.
    """
    cells, side = sum(group.cells for group in groups), groups[0].cells
    while policy.adapts and policy.capacity_bytes is not None and 4 * cells <= policy.max_cells:
        cells, side = 4 * cells, 4 * side
    if side > MAX_PARTS:
        raise UsageError(f"a grid with a side of up to {side} parts is too fine: the limit is {MAX_PARTS}")
    return side


def advance(
    plan: GridPlan,
    left: Amount,
    right: Amount,
    policy: GridPolicy,
    stored: StoredSections | None = None,
) -> tuple[GridPlan, Relocation | None]:
    """The plan for the batch that brings these amounts, and the relocation if its shape is new.

    `stored` has the history's amount in each section, to count the relocation exactly. Without it the amounts are
    estimated from the totals.
    """
    counted = replace(plan, left=plan.left + left, right=plan.right + right)
    if not (policy.adapts and is_due(counted, policy)):
        return counted, None
    groups = _grow(_migrate(counted.groups, counted), counted, policy)
    decided = replace(counted, groups=groups, decided_left=counted.left, decided_right=counted.right)
    if groups == plan.groups:
        return decided, None
    return _changed(plan, decided, _reason(plan, decided), stored)


def reshape(
    plan: GridPlan, shapes: tuple[GridShape, ...], stored: StoredSections | None = None
) -> tuple[GridPlan, Relocation | None]:
    """The same grid under the mappings that the user now requests."""
    if plan.shapes == shapes:
        return plan, None
    groups = tuple(group.reshaped(shape) for group, shape in zip(plan.groups, shapes, strict=True))
    return _changed(plan, replace(plan, groups=groups), Reason.ASKED, stored)


def _changed(
    before: GridPlan, after: GridPlan, reason: Reason, stored: StoredSections | None
) -> tuple[GridPlan, Relocation]:
    """A new epoch, with the rows that cells keep, newly read and drop under it."""
    after = replace(after, epoch=before.epoch + 1)
    amounts = count_relocation(before, after, stored or estimate_stored(before))
    event = Relocation(
        epoch=after.epoch,
        reason=reason,
        before=before.shapes,
        after=after.shapes,
        kept=amounts.kept,
        moved=amounts.moved,
        discarded=amounts.discarded,
        exact=stored is not None,
    )
    return after, event


def _reason(before: GridPlan, after: GridPlan) -> Reason:
    if after.cells > before.cells:
        return Reason.GROW
    return Reason.MIGRATE if before.decided_left.rows + before.decided_right.rows else Reason.FIRST


def is_due(plan: GridPlan, policy: GridPolicy) -> bool:
    """Whether a decision is due: line 2 of Algorithm 2, over padded sizes.

    Once due, it stays due until `advance` decides.
    """
    rows = plan.left.rows + plan.right.rows
    if rows == 0 or rows < policy.min_rows:
        return False
    cells = max(plan.group_cells)
    now = _padded(plan.left.bytes, plan.right.bytes, cells)
    then = _padded(plan.decided_left.bytes, plan.decided_right.bytes, cells)
    return any(new - old >= policy.epsilon * old for new, old in zip(now, then, strict=True))


def _padded(left_bytes: int, right_bytes: int, cells: int) -> tuple[int, int]:
    """Sizes in units of 1 / cells, with the smaller one padded until they differ at most by a factor of `cells`.

    Without padding, every row of a nearly empty input would make a decision due.
    """
    return max(cells * left_bytes, right_bytes), max(cells * right_bytes, left_bytes)


def _migrate(groups: tuple[GridGroup, ...], plan: GridPlan) -> tuple[GridGroup, ...]:
    left, right = plan.left.bytes, plan.right.bytes
    return tuple(
        group.reshaped(optimal_mapping(group.cells, left, right, current=group.shape, widest=plan.parts))
        for group in groups
    )


def _grow(groups: tuple[GridGroup, ...], plan: GridPlan, policy: GridPolicy) -> tuple[GridGroup, ...]:
    """Split every cell in four while some cell holds more than half its capacity and `max_cells` allows it.

    All groups grow together, so that their shares of the rows, and the sections, stay the same.
    """
    while policy.capacity_bytes is not None:
        cells = sum(group.cells for group in groups)
        room = 4 * cells <= policy.max_cells and 4 * groups[0].cells <= plan.parts
        if not room or 2 * replace(plan, groups=groups).max_load <= policy.capacity_bytes:
            break
        groups = _migrate(tuple(group.grown() for group in groups), plan)
    return groups


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
