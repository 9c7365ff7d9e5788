"""Every argument of `wm.join` except the inputs, with its default and its check.

The Python API, job files and the local driver all make a `JoinOptions`. `engine/build.py` turns it into a join.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TypedDict

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


def takes_two(function: Callable[..., object]) -> bool:
    """Whether a function can be called with two arguments, as far as it says what it takes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def check_folder(name: str) -> None:
    """Refuse a `name=` that cannot be a folder of the state."""
    if name == TABLES:
        raise UsageError(f"name={name!r} is the folder of the tables in the state: take another name")
    if not is_join_name(name):
        raise UsageError(f"name={name!r} cannot be a folder name: use letters, digits, '-', '_' and '.'")


# Arguments that only a join with a table has, and those that only a join of streams or batches has.
_TABLE_ONLY = ("max_delay",)
_STREAMS_ONLY = ("within", "time", "lateness", "cells", "mapping", "groups", "pay_within", "defer")
# Arguments that a chain of joins with tables does not have: there memory= is for the tables.
_BUDGET = ("pay_within", "defer")


class JoinArguments(TypedDict, total=False):
    """The keywords that a verb takes besides `on`, for type checkers: the fields of `JoinOptions`."""

    select: Sequence[str] | None
    state: str | None
    name: str | None
    tasks: int | None
    strategy: str
    cells: int | None
    mapping: tuple[int, int] | None
    groups: int | None
    within: Length | None
    time: Mapping[str, str] | None
    lateness: Length | None
    how: str
    max_delay: Span | None
    memory: int | str | None
    pay_within: Span | None
    defer: Span | None
    options: Mapping[str, object] | None


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
    pay_within: Span | None = None
    defer: Span | None = None
    options: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.on, str) and not callable(self.on):
            raise UsageError(
                f"on= is a {type(self.on).__name__}: give the predicate as text, such as "
                '"abs(l.x - r.x) <= 5", or a function'
            )
        if callable(self.on) and not takes_two(self.on):
            raise UsageError(
                "on= is a function that does not take two arguments: it gets a record batch of each input, such as "
                'def near(l, r): return pc.less(l["x"], r["x"])'
            )
        if self.name is not None:
            check_folder(self.name)
        if isinstance(self.select, str):
            raise UsageError(f'select must be a list of columns, such as ["{self.select}"], not one string')
        if self.tasks is not None:
            check_tasks(self.tasks)
        # Check them even where they are not used: report a mistake immediately.
        _ = self.memory_bytes, self.pay_within_ms, self.defer_ms

    @classmethod
    def of_call(cls, verb: str, on: str | Condition, arguments: JoinArguments) -> JoinOptions:
        """The request of a verb that takes the arguments of `wm.join` as `**arguments`."""
        known = [field.name for field in fields(cls)]
        for name in arguments:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}{hint}")
        return cls(on=on, **arguments)

    @property
    def keeps_all(self) -> bool:
        return self.how == How.LEFT

    @property
    def max_delay_ms(self) -> int:
        return 0 if self.max_delay is None else int(1000 * read_seconds("max_delay", self.max_delay))

    @property
    def pay_within_ms(self) -> int:
        return 0 if self.pay_within is None else max(1, _milliseconds("pay_within", self.pay_within))

    @property
    def defer_ms(self) -> int | None:
        """How long a task may take before it defers: 0 for the trigger interval, None if it does not."""
        if self.defer is None:
            return None
        if self.defer == AUTO:
            return 0
        try:
            return max(1, _milliseconds("defer", self.defer))
        except UsageError as error:
            raise UsageError(f'{error}; or give "auto", which stands for the trigger interval') from None

    @property
    def budget(self) -> str | None:
        """The argument that asks for a budget, of bytes or of time; None if there is none."""
        return next((f"{name}=" for name in ("memory", "defer") if getattr(self, name) is not None), None)

    @property
    def memory_bytes(self) -> int | None:
        return None if self.memory is None else read_bytes("memory", self.memory)

    def name_for(self, inputs: Iterable[str]) -> str:
        """The operator's folder in the state."""
        return self.name or "-".join(inputs)

    def check_streams(self) -> None:
        """Refuse arguments that only a join with a table has."""
        if self.how != How.INNER:
            raise UsageError(
                f'how={self.how!r} is for a join with a wm.table: streams and batches are joined with how="inner"'
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
                    f"{name}= is for a join of streams and does not apply to a table: leave it out"
                )

    def check_chain(self, tables: Iterable[str], streams: Sequence[str]) -> None:
        """Refuse arguments that a join with tables among three or more inputs does not have."""
        for table in tables:
            if len(streams) == 1:
                self.check_table(table, streams[0])
                continue
            self._check_lookups(table, "the streams")
            for name in _BUDGET:
                if getattr(self, name) is not None:
                    raise UsageError(
                        f"{name}= is for a join of streams alone: beside tables no results are owed. Leave it out"
                    )
            if isinstance(self.time, Mapping) and table in self.time:
                raise UsageError(f"time= names {table!r}, which is a table: name the streams only")

    def _check_lookups(self, table: str, stream: str) -> None:
        if self.how not in tuple(How):
            raise UsageError(
                f'how={self.how!r} is unknown for a table: use "inner", or "left" to keep rows of {stream} without '
                f"a partner in {table}"
            )
        # Check them even where they are not used: report a mistake immediately.
        _ = self.max_delay_ms
        if not isinstance(self.on, str):
            raise UsageError(
                "a table is found by its key: give the predicate as text, such as 's.product = p.id'"
            )


def _milliseconds(what: str, given: Span) -> int:
    return int(1000 * read_seconds(what, given))


def check_tasks(tasks: object) -> None:
    """Refuse a number of tasks that is none."""
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise UsageError(f"tasks must be an integer of at least 1, not {tasks!r}")


def read_bytes(what: str, given: int | str) -> int:
    """A number of bytes, from a number or a text with a unit; `what` names the argument in messages.

    Units are powers of 1,024.

    >>> read_bytes("memory", "64 MB")
    67108864
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", str(given).strip().lower())
    if isinstance(given, bool) or not found or not int(found[1]):
        raise UsageError(f'{what}={given!r}: give a number of bytes, or one with a unit such as "64 MB"')
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[found[2]]
