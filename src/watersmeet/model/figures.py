"""Format counts and sizes for display."""

from __future__ import annotations

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def count(number: float) -> str:
    """
    >>> count(1234567.8)
    '1,234,568'
    """
    return f"{number:,.0f}"


def counted(number: int, one: str, more: str = "") -> str:
    """A number and its noun.

    >>> counted(1, "part"), counted(1200, "part"), counted(2, "query", "queries")
    ('1 part', '1,200 parts', '2 queries')
    """
    return f"{count(number)} {one if number == 1 else more or one + 's'}"


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


def duration(milliseconds: float) -> str:
    """A time in the unit that needs at most three digits before the point.

    >>> [duration(n) for n in (0, 999, 1500, 90_000, 7_200_000, 1_000_000_000)]
    ['0 ms', '999 ms', '1.5 s', '90.0 s', '120.0 min', '277.8 h']
    """
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds <= 7200 else f"{seconds / 3600:.1f} h"
