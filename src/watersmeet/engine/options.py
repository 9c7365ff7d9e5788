"""Every argument of `wm.join` except the inputs, with its default and its check.

The Python API, job files and the local driver all make a `JoinOptions`. `engine/build.py` turns it into a join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.errors import UsageError
from watersmeet.kernel.theta import Condition
from watersmeet.log.names import is_join_name
from watersmeet.model.closed import ClosedSet
from watersmeet.predicate.window import Length
from watersmeet.tables.catalogue import TABLES
from watersmeet.tables.spec import Span, read_seconds

# Beside it, `strategy=` takes the names of the schemes (engine/choose.py).
AUTO = "auto"


class How(ClosedSet):
    """What becomes of a row of the stream that finds no partner in a table."""

    INNER = "inner"
    LEFT = "left"


# Arguments that only a join with a table has, and those that only a join of two streams or batches has.
_TABLE_ONLY = ("max_delay",)
_STREAMS_ONLY = ("within", "time", "lateness", "cells", "mapping", "groups")


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """The user's request; `wm.join` describes each argument."""

    on: str | Condition
    select: Sequence[str] | None = None
    state: str | None = None
    name: str | None = None
    tasks: int | None = None
    strategy: str = AUTO
    cells: int | None = None
    mapping: tuple[int, int] | None = None
    groups: int | None = None
    within: Length | None = None
    time: Mapping[str, str] | None = None
    lateness: Length | None = None
    how: str = How.INNER
    max_delay: Span | None = None
    memory: int | str | None = None
    options: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.on, str) and not callable(self.on):
            raise UsageError(
                f"on= is a {type(self.on).__name__}: give the predicate as text, such as "
                '"abs(l.x - r.x) <= 5", or a function'
            )
        if self.name is not None and (not is_join_name(self.name) or self.name == TABLES):
            raise UsageError(
                f"name={self.name!r} cannot be a folder name: use letters, digits, '-', '_' and '.'"
            )
        if isinstance(self.select, str):
            raise UsageError(f'select must be a list of columns, such as ["{self.select}"], not one string')

    @property
    def keeps_all(self) -> bool:
        return self.how == How.LEFT

    @property
    def max_delay_ms(self) -> int:
        return 0 if self.max_delay is None else int(1000 * read_seconds("max_delay", self.max_delay))

    def name_for(self, inputs: Iterable[str]) -> str:
        """The operator's folder in the state."""
        return self.name or "-".join(inputs)

    def check_streams(self) -> None:
        """Refuse arguments that only a join with a table has."""
        if self.how != How.INNER:
            raise UsageError(
                f'how={self.how!r} is for a join with a wm.table: two DataFrames are joined with how="inner"'
            )
        for name in _TABLE_ONLY:
            if getattr(self, name) is not None:
                raise UsageError(f"{name}= is for a join with a wm.table: leave it out")

    def check_table(self, table: str, stream: str) -> None:
        """Refuse arguments that a join of one stream with a table, or with several, does not have."""
        self._check_lookups(table, stream)
        for name in _STREAMS_ONLY:
            if getattr(self, name) is not None:
                raise UsageError(
                    f"{name}= is for a join of two streams and does not apply to a table: leave it out"
                )

    def check_chain(self, tables: Iterable[str], streams: Sequence[str]) -> None:
        """Refuse arguments that a join with tables among three or more inputs does not have."""
        for table in tables:
            if len(streams) == 1:
                self.check_table(table, streams[0])
                continue
            self._check_lookups(table, "the streams")
            if isinstance(self.time, Mapping) and table in self.time:
                raise UsageError(f"time= names {table!r}, which is a table: name the streams only")

    def _check_lookups(self, table: str, stream: str) -> None:
        if self.how not in tuple(How):
            raise UsageError(
                f'how={self.how!r} is unknown for a table: use "inner", or "left" to keep rows of {stream} without '
                f"a partner in {table}"
            )
        # Also where it will not matter: a mistake is told at once.
        _ = self.max_delay_ms
        if not isinstance(self.on, str):
            raise UsageError(
                "a table is found by its key: give the predicate as text, such as 's.product = p.id'"
            )
