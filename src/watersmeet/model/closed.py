"""Closed sets of words: enums that are stored, shown and compared as their text."""

from __future__ import annotations

from enum import Enum


class ClosedSet(str, Enum):
    """A word out of a fixed list. As text and in JSON it is the word itself.

    >>> class Side(ClosedSet):
    ...     LEFT = "left"
    >>> f"{Side.LEFT}", Side("left") is Side.LEFT
    ('left', True)
    """

    def __str__(self) -> str:
        return str.__str__(self)

    def __format__(self, spec: str) -> str:
        return str.__format__(self, spec)
