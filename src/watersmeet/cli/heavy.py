"""Heavy keys on a terminal: a table of the heaviest, the planned balance, the latest changes.

A key's label is a value of the user's data. It is made harmless and cut to the room that there is, so that no value
can move the cursor, change colours, break a line or push figures off the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import bounds, count, harmless, shortened
from watersmeet.log.status_cube import BicliqueStatus, CubeStatus, HeavyStatus, KeyChange

# A label is cut before a figure is, but not to less than this.
_LEAST_LABEL = 8
_GAP = 2
_LONGEST_INPUT = 12


def cube_words(cube: CubeStatus) -> str:
    """Such as: 3 heavy keys, planned balance 1.04 (busiest / mean), 2 changes."""
    keys = len(cube.heavy)
    words = f"{keys} heavy key{'' if keys == 1 else 's'}, planned balance {balance_words(cube)}"
    return f"{words}, {count(cube.epoch)} change{'' if cube.epoch == 1 else 's'}" if cube.epoch else words


def balance_words(cube: CubeStatus) -> str:
    return "-" if cube.balance is None else f"{cube.balance:.2f} (busiest / mean)"


def biclique_words(biclique: BicliqueStatus) -> str:
    groups = biclique.groups
    return f"biclique of {biclique.units} units in {groups} group{'' if groups == 1 else 's'}"


def heavy_table(
    heavy: Sequence[HeavyStatus], inputs: Sequence[str], width: int, *, ascii_only: bool, lines: int = 0
) -> Table:
    """One line for each key below a heading; filled up with empty ones to `lines`, so that nothing jumps."""
    heads = ["heavy key", *(f"rows of {shortened(name, _LONGEST_INPUT)}" for name in inputs), "grid", "tasks"]
    figures = [_figures(one) for one in heavy]
    widths = [max(map(cell_len, column)) for column in zip(heads[1:], *figures, strict=True)]
    room = max(_LEAST_LABEL, width - sum(widths) - _GAP * len(widths))
    labels = [shortened(harmless(one.label, ascii_only=ascii_only), room) for one in heavy]
    table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True, min_width=len(heads[0]))
    for least in widths:
        table.add_column(justify="right", no_wrap=True, min_width=least)
    # Text, not str: rich would take square brackets in a value for its markup.
    table.add_row(*(Text(head, style="dim") for head in heads))
    for label, cells in zip(labels, figures, strict=True):
        table.add_row(Text(label), *map(Text, cells))
    for _ in range(lines - len(heavy)):
        table.add_row("")
    return table


def _figures(one: HeavyStatus) -> list[str]:
    return [*(bounds(rows.lower, rows.upper) for rows in one.rows), shape(one.grid), str(one.tasks)]


def shape(grid: tuple[int, int]) -> str:
    """
    >>> shape((4, 2)), shape((0, 0))
    ('4 x 2', 'light')
    """
    return f"{grid[0]} x {grid[1]}" if grid[0] else "light"


def change_line(change: KeyChange, width: int, *, ascii_only: bool) -> str:
    """Such as: batch 7: BADA-17 2 x 2 -> 4 x 2, 1,234 rows moved."""
    before = f"batch {change.batch}: "
    after = f" {shape(change.before)} -> {shape(change.after)}, {count(change.moved_rows)} rows moved"
    room = max(_LEAST_LABEL, width - len(before) - len(after))
    return before + shortened(harmless(change.label, ascii_only=ascii_only), room) + after


def latest_changes(cube: CubeStatus | None, lines: int, width: int, *, ascii_only: bool) -> list[str]:
    """The latest first; always as many lines."""
    latest = cube.changes[::-1][:lines] if cube else ()
    drawn = [change_line(one, width, ascii_only=ascii_only) for one in latest]
    return drawn + [""] * (lines - len(drawn))
