"""nextKey: where a query is indexed next (section 6), and the two variations of section 8."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from papers.rjoin.messages import Rate
from papers.rjoin.query import Column, Key


class Rule(Enum):
    """By the lowest rate, as RJoin does; at random; by the highest rate; or the first of the where clause, as in examples."""

    RATE = "rate"
    RANDOM = "random"
    WORST = "worst"
    FIRST = "first"

    @property
    def asks(self) -> bool:
        return self in (Rule.RATE, Rule.WORST)


def choose(rule: Rule, keys: Sequence[Key], known: Mapping[Key, Rate], draw: Callable[[int], int]) -> Key:
    """One of the keys. `draw` picks one of a number of keys; of equal rates a triple goes before a pair, then the first."""
    match rule:
        case Rule.RATE:
            return min(keys, key=lambda key: (known[key].rows, isinstance(key, Column)))
        case Rule.WORST:
            return max(keys, key=lambda key: known[key].rows)
        case Rule.RANDOM:
            return keys[draw(len(keys))]
        case Rule.FIRST:
            return keys[0]
