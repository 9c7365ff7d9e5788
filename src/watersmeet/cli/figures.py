"""Format values for a terminal: times, sparklines, texts of any origin. Pure text, no colours."""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from watersmeet.model.figures import count

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*#@"


def batches(number: int) -> str:
    """
    >>> batches(1), batches(1200)
    ('1 batch', '1,200 batches')
    """
    return f"{count(number)} batch{'' if number == 1 else 'es'}"


def seconds(ms: float) -> str:
    """
    >>> seconds(1234)
    '1.23 s'
    """
    return f"{ms / 1000:.2f} s"


def clock(total_s: float) -> str:
    """
    >>> [clock(s) for s in (7, 75, 3675)]
    ['0:07', '1:15', '1:01:15']
    """
    minutes, rest = divmod(int(total_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def age(total_s: float) -> str:
    """The time passed, in one unit.

    >>> [age(s) for s in (0.3, 59, 120, 7300, 200_000)]
    ['just now', '59 s ago', '2 min ago', '2 h ago', '2 days ago']
    """
    if total_s < 1:
        return "just now"
    for limit, unit_s, word in ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h")):
        if total_s < limit:
            return f"{int(total_s // unit_s)} {word} ago"
    days = int(total_s // 86_400)
    return f"{days} day{'s' if days > 1 else ''} ago"


def moment(ms: int) -> str:
    """A time, in UTC, to the second."""
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def shortened(text: str, width: int) -> str:
    """The text cut to `width` columns of a terminal. Three dots, because not every terminal has the ellipsis.

    >>> shortened("o.id = t.id", 8), shortened("o.id", 8), shortened("東京都庁", 7)
    ('o.id ...', 'o.id', '東京...')
    """
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 3)) + "..."


# Control and format characters (escape sequences, line ends, changes of direction), lone surrogates, private and
# unassigned characters, line separators: each may change the terminal, or hide text.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def harmless(value: str, *, ascii_only: bool = False) -> str:
    """Escape a value of unknown origin for a terminal.

    >>> harmless("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    >>> harmless("Zoë", ascii_only=True)
    'Zo\\\\xeb'
    """
    return "".join(_spelled(one) if _is_harmful(one, ascii_only) else one for one in value)


def _is_harmful(one: str, ascii_only: bool) -> bool:
    return (ascii_only and not one.isascii()) or unicodedata.category(one) in _HARMFUL


def _spelled(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def sparkline(values: Sequence[float], width: int, *, ascii_only: bool = False) -> str:
    """The last `width` values as bars, the largest of them full height.

    >>> sparkline([0, 1, 2, 4], width=3)
    '▃▅█'
    """
    levels = _ASCII if ascii_only else _BLOCKS
    shown = values[-width:] if width > 0 else []
    top = max(shown, default=0)
    if top <= 0:
        return levels[0] * len(shown)
    return "".join(levels[round(max(0.0, value) / top * (len(levels) - 1))] for value in shown)
