"""A plan on a terminal: its table, such as the heaviest keys, and its latest changes.

The first cell of a row is a value of the user's data. It is escaped and cut to the available room, so that no value can
move the cursor, change colours, break a line or push figures off the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from watersmeet.cli.figures import harmless, shortened
from watersmeet.schemes.scheme import Shown

# A label is cut before a figure, but not below this width.
_LEAST_LABEL = 8
_GAP = 2
# A heading holds the name of an input, which may be long.
_LONGEST_HEADING = 20


def plan_table(shown: Shown, most: int, width: int, *, ascii_only: bool, lines: int = 0) -> Table:
    """The first `most` rows below a heading, padded to `lines` lines, so that the display does not jump."""
    heads = [shortened(head, _LONGEST_HEADING) for head in shown.columns]
    rows = shown.rows[:most]
    widths = [
        max(map(cell_len, column)) for column in zip(heads[1:], *(row[1:] for row in rows), strict=True)
    ]
    room = max(_LEAST_LABEL, width - sum(widths) - _GAP * len(widths))
    table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True, min_width=len(heads[0]))
    for least in widths:
        table.add_column(justify="right", no_wrap=True, min_width=least)
    # Text, not str: rich would read square brackets in a value as markup.
    table.add_row(*(Text(head, style="dim") for head in heads))
    for label, *figures in rows:
        table.add_row(Text(shortened(harmless(label, ascii_only=ascii_only), room)), *map(Text, figures))
    for _ in range(lines - len(rows)):
        table.add_row("")
    return table


def event_line(event: tuple[str, str, str], width: int, *, ascii_only: bool) -> str:
    before, label, after = event
    room = max(_LEAST_LABEL, width - len(before) - len(after))
    return before + shortened(harmless(label, ascii_only=ascii_only), room) + after


def latest_events(shown: Shown | None, lines: int, width: int, *, ascii_only: bool) -> list[str]:
    """The latest events first, padded to `lines` lines."""
    latest: Sequence[tuple[str, str, str]] = shown.events[:lines] if shown else ()
    drawn = [event_line(one, width, ascii_only=ascii_only) for one in latest]
    return drawn + [""] * (lines - len(drawn))
