"""Numbers for people: counts, sizes, times and sparklines. Pure text, no colours."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

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
    """At most `width` characters. Three points, because not every terminal has the ellipsis.

    >>> shortened("o.id = t.id", 8), shortened("o.id", 8)
    ('o.id ...', 'o.id')
    """
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


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
