"""Numbers and values for people: counts, sizes, times, sparklines, texts of any origin. Pure text, no colours."""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*#@"

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def count(number: float) -> str:
    """
    >>> count(1234567.8)
    '1,234,568'
    """
    return f"{number:,.0f}"


def batches(number: int) -> str:
    """
    >>> batches(1), batches(1200)
    ('1 batch', '1,200 batches')
    """
    return f"{count(number)} batch{'' if number == 1 else 'es'}"


def rough(number: int) -> str:
    """A count in at most seven characters.

    >>> [rough(n) for n in (999_999, 1_234_567, 123_456_789, 12_345_678_901)]
    ['999,999', '1.23M', '123M', '12.3G']
    """
    if number < 1_000_000:
        return count(number)
    unit, value = ("M", number / 1e6) if number < 999_500_000 else ("G", number / 1e9)
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}{unit}"


def bounds(lower: int, upper: int) -> str:
    """
    >>> bounds(1200, 1200), bounds(1200, 1300), bounds(1_000_001, 1_000_007)
    ('1,200', '1,200 to 1,300', '1.00M')
    """
    low, high = rough(lower), rough(upper)
    return low if low == high else f"{low} to {high}"


def size(number: float) -> str:
    """Bytes in the unit that needs at most three digits before the point.

    >>> [size(n) for n in (0, 999, 1000, 12_345_678)]
    ['0 B', '999 B', '1.0 KB', '12.3 MB']
    """
    unit = 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number /= 1000
        unit += 1
    return f"{number:.0f} B" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


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
    """How long ago, in one unit.

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
    """At most `width` columns of a terminal. Three points, because not every terminal has the ellipsis.

    >>> shortened("o.id = t.id", 8), shortened("o.id", 8), shortened("東京都庁", 7)
    ('o.id ...', 'o.id', '東京...')
    """
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 3)) + "..."


# Control and format characters (escape sequences, line ends, changes of direction), lone surrogates, characters of
# private use or none at all, separators of lines: each may do something to a terminal, or hide.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def harmless(value: str, *, ascii_only: bool = False) -> str:
    """A value of unknown origin, fit for a terminal: what is not to be printed is spelled out.

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


def bar(value: float, top: float, width: int, *, ascii_only: bool = False) -> str:
    """A bar of `width` characters where value = top; anything above zero gets one.

    >>> bar(1, 2, 8), bar(0.001, 2, 8), bar(0, 2, 8)
    ('████', '█', '')
    """
    if value <= 0 or top <= 0 or width <= 0:
        return ""
    return ("#" if ascii_only else "█") * max(1, round(value / top * width))
