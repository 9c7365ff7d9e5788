"""What the user asks of a join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watersmeet.engine.strategy import AUTO
from watersmeet.kernel.theta import Condition
from watersmeet.predicate.window import Length
from watersmeet.tables.spec import Span


@dataclass(frozen=True)
class Request:
    """The arguments; see `wm.join`."""

    on: str | Condition
    select: Sequence[str] | None = None
    strategy: str = AUTO
    state: str | None = None
    name: str | None = None
    tasks: int | None = None
    cells: int | None = None
    mapping: tuple[int, int] | None = None
    groups: int | None = None
    options: Mapping[str, object] | None = None
    within: Length | None = None
    time: Mapping[str, str] | None = None
    lateness: Length | None = None
    how: str = "inner"
    max_delay: Span | None = None
    memory: int | str | None = None
