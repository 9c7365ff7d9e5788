"""A join, ready to run: what both drivers hand to their tasks. Picklable, immutable, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from watersmeet.engine.kept_table import TableSpec
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.kernel.match import BandJoin, EquiJoin
from watersmeet.kernel.theta import ThetaJoin
from watersmeet.log.clean import GRACE_S
from watersmeet.log.storage import STATE_MODE, Storage
from watersmeet.model.facts import BatchSpan, InputSpec, JoinSignature
from watersmeet.schemes.grid.policy import GridPolicy
from watersmeet.schemes.hash import Hash
from watersmeet.schemes.scheme import Scheme

# What a kernel does with the rows that a task reads.
Join = EquiJoin | BandJoin | ThetaJoin

# Incoming rows that one ingest task holds before it writes a run. They are in memory up to three times while
# they are sorted: received, put together, and in order.
RUN_ROWS = 1_000_000
RUN_BYTES = 32 << 20

# As Spark's spark.sql.streaming.minBatchesToRetain: a checkpoint can be rolled back so far.
RETAIN_BATCHES = 100


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the state is and how it is kept. One place for every default; `config.py` fills it in."""

    # It may hold a credential.
    state: str = field(repr=False)
    tasks: int
    cache: str | None = None
    cache_bytes: int | None = None
    fsync: bool = False
    state_mode: int = STATE_MODE
    retain_batches: int = RETAIN_BATCHES
    run_rows: int = RUN_ROWS
    run_bytes: int = RUN_BYTES
    grace_s: float = GRACE_S
    accept_gap: tuple[BatchSpan, ...] = ()

    @property
    def storage(self) -> Storage:
        """Where the state is, and how it is opened there."""
        return Storage(self.state, self.cache, self.cache_bytes, self.fsync, self.state_mode)


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """What the text of a predicate means depends on these. `zone` is empty where it is unknown."""

    ansi: bool = True
    case_sensitive: bool = False
    zone: str = ""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session says about a join. All but `sql` is read when it is needed: a wrong setting hurts only its users.

    `has_place` says whether it is known where state would go; without a place `operator` raises ConfigError. `memory` is
    what a task may keep of a table, `adapting` how a grid adapts that is not told its mapping.
    """

    sql: SqlSettings
    has_place: bool
    operator: Callable[[], Settings]
    memory: Callable[[], int]
    adapting: Callable[[], GridPolicy]


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """`name` is the operator's place inside the state; `instance` tells two operators of one query apart.

    `streaming` says what the inputs are, so that a task can tell when Spark does not say which batch it is in.
    `built_ms` is when the join was built: a task that hung since then may have been overtaken by another start.
    With a `table` there is one input that leaves rows behind.
    """

    name: str
    instance: str
    signature: JoinSignature
    join: Join | LookupJoin
    settings: Settings
    streaming: bool = True
    built_ms: int = 0
    scheme: Scheme[Any] = field(default_factory=Hash)
    table: TableSpec | None = None

    def input(self, name: str) -> InputSpec:
        return next(spec for spec in self.signature.inputs if spec.name == name)
