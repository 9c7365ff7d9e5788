"""The definition of a join: its inputs, how they are stored and how their rows are compared.

A join's *signature* must stay the same between restarts, because the history was written under it (`plan/compatible.py`
says what may change). It is part of every manifest.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.model.closed import ClosedSet
from watersmeet.model.window import Window

# The inputs of a join, at most. Every input has its own source, ingest and runs; joins of more are a design mistake.
MOST_INPUTS = 16


class Order(ClosedSet):
    """What runs are sorted by: a hash of the keys (equality), the value itself (bands), arrival (any condition), or the
    page of the table that holds the key.
    """

    HASH = "hash"
    VALUE = "value"
    ARRIVAL = "arrival"
    PAGE = "page"


class Compared(ClosedSet):
    """How rows are found to be partners.

    By their keys: the 64-bit word of one key, a hash and then the keys themselves, or a hash that Spark computes and
    checks. Or by a band of values, along several keys, by the key of a table (`LEFT_TABLE` keeps rows without a
    partner), or pair by pair.
    """

    WORD = "word"
    HASH = "hash"
    SPARK_HASH = "spark-hash"
    BAND = "band"
    WALK = "walk"
    TABLE = "table"
    LEFT_TABLE = "left table"
    ALL_PAIRS = "any"


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A stored column and its SQL type, as text."""

    name: str
    type: str


# How the names of the inputs begin that a hub stores for itself (hubs/stored.py). No stream can have such a name.
OWN = "~"

# The stored column that holds a row's order key in another arrangement.
LOCATOR = "__wm_row"


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The stored columns of one input, and the arriving columns that make its order key.

    `keys` arrive with every batch; they are stored only if they are also in `stored`. `hashed`, if given, is an
    arriving column that Spark computed from keys that Arrow cannot hash. `order` says what the order key is: a hash of
    the keys, the one key's value, the row's place in the stream, or the page of a table. `time` is the arriving column
    of a window over time. `keeps_all` says that rows with a null key, or a key that is not in the table, are emitted.
    An *arrangement* stores the rows of the input `of` once more, sorted by another key; rows with a null in any of
    `required` are in none of them. With a `suffix`, half of the order key is of the keys and half of the suffix, so
    that rows are found by the keys alone or by both; without keys, all of it is of the suffix, and only locators lead
    there. A `located` arrangement holds of each row only the order key that
    it has in the first arrangement, in the column `LOCATOR`.
    """

    name: str
    stored: tuple[StoredColumn, ...]
    keys: tuple[str, ...]
    hashed: str | None = None
    order: Order = Order.HASH
    time: str | None = None
    keeps_all: bool = False
    of: str = ""
    required: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    located: bool = False

    @property
    def input(self) -> str:
        """The name of the input that the user gave, whose rows these are."""
        return self.of or self.name

    @property
    def is_given(self) -> bool:
        """Whether the user gave this input: it is no arrangement of another, and nothing that a hub stores for itself."""
        return not self.of and not self.name.startswith(OWN)


@dataclass(frozen=True, slots=True)
class Layout:
    """How runs are cut into sections: the cells of each storage group at the start, and the parts of each."""

    groups: tuple[int, ...]
    parts: int


@dataclass(frozen=True, slots=True)
class JoinSignature:
    """The definition of a join that must stay the same between restarts, because the history was written under it.

    `scheme` names the scheme, `compared` how keys are compared. `sides` are the expressions of the order keys, in
    order. `zone` is the session's time zone if stored data depends on it, otherwise empty. `code` is the fingerprint of
    a Python condition: if it changes, there is only a warning.
    """

    inputs: tuple[InputSpec, ...]
    predicate: str
    key_types: tuple[str, ...]
    compared: Compared
    scheme: str = ""
    layout: Layout | None = None
    sides: tuple[str, ...] = ()
    window: Window | None = None
    zone: str = ""
    code: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.inputs)

    def columns(self, name: str) -> tuple[str, ...]:
        """The stored columns of an input."""
        return tuple(column.name for column in self.stored(name))

    def stored(self, name: str) -> tuple[StoredColumn, ...]:
        """The stored columns of an input, with their types."""
        return tuple(column for spec in self.inputs if spec.name == name for column in spec.stored)

    def order(self, name: str) -> Order:
        """What the runs of an input are sorted by."""
        return next(spec.order for spec in self.inputs if spec.name == name)
