"""A join that is ready to run, as both drivers hand it to their tasks: picklable, immutable, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from watersmeet.engine.kept_table import TableSpec
from watersmeet.kernel.band import BandJoin
from watersmeet.kernel.equal import EquiJoin
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.kernel.multi import MultiJoin
from watersmeet.kernel.theta import ThetaJoin
from watersmeet.kernel.walk import WalkJoin
from watersmeet.log.clean import GRACE_S
from watersmeet.log.storage import STATE_MODE, Storage
from watersmeet.model.facts import BatchSpan
from watersmeet.model.keep import Keep
from watersmeet.model.limits import DEFAULT_LIMITS, RETAIN_BATCHES, Limits
from watersmeet.model.signature import InputSpec, JoinSignature
from watersmeet.schemes.budget.policy import Pushing
from watersmeet.schemes.grid.policy import GridPolicy
from watersmeet.schemes.hash import Hash
from watersmeet.schemes.scheme import Scheme

if TYPE_CHECKING:
    # It loads the parser, which the workers of a join do without.
    from watersmeet.hubs.streams import HubStreams

# The kernels that join the rows a task reads.
Join = EquiJoin | BandJoin | ThetaJoin | MultiJoin | WalkJoin

# Incoming rows that one ingest task holds before it writes a run. While they are sorted they are in memory up to three
# times: received, concatenated and sorted.
RUN_ROWS = 1_000_000
RUN_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the state is and how it is kept. Every default is here; `config.py` fills in the rest."""

    # The URI may hold a credential.
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
    # Not for users.
    limits: Limits = DEFAULT_LIMITS

    @property
    def storage(self) -> Storage:
        """The location of the state, and how to open it."""
        return Storage(self.state, self.cache, self.cache_bytes, self.fsync, self.state_mode)


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """Session settings that change the meaning of a predicate. `zone` is empty if unknown."""

    ansi: bool = True
    case_sensitive: bool = False
    zone: str = ""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session says about a join. All but `sql` is read when it is needed: a wrong setting hurts only its users.

    `has_place` says whether it is known where state would go; without a place `operator` raises ConfigError. `memory`
    is what a task may keep of a table, or touch of the history in a batch, `adapting` how a grid adapts that is not
    told its mapping, `pushing` how a join keeps to its memory, and `keeping` whether a hub keeps steps.
    """

    sql: SqlSettings
    has_place: bool
    operator: Callable[[], Settings]
    memory: Callable[[], int]
    adapting: Callable[[], GridPolicy]
    pushing: Callable[[], Pushing] = Pushing
    keeping: Callable[[], str] = lambda: Keep.AUTO


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """A join as tasks get it: `name` is its folder in the state, `instance` tells two operators of one query apart.

    `streaming` lets a task notice that Spark does not name its batch. `built_ms` is when the join was built: another
    start may have overtaken a task that hung since then. With a `table`, only the stream's rows are stored. The first
    stage of a join names the folders of all its `stages`.
    """

    name: str
    instance: str
    signature: JoinSignature
    join: Join | LookupJoin | HubStreams
    settings: Settings
    streaming: bool = True
    built_ms: int = 0
    scheme: Scheme[Any] = field(default_factory=Hash)
    table: TableSpec | None = None
    stages: tuple[str, ...] = ()

    @property
    def kernel(self) -> Join:
        """What joins the rows of a task's share. Tables and hubs have desks of their own."""
        assert isinstance(self.join, Join), "only a join of streams has a kernel for shares"
        return self.join

    @property
    def may_owe(self) -> bool:
        """Whether all inputs share one key, so that rows can be set aside by it."""
        return isinstance(self.join, Join) and self.join.on_one_key

    def arrangements(self, name: str) -> list[InputSpec]:
        """What is stored of an input: its rows, and for each further key where they are."""
        return [spec for spec in self.signature.inputs if spec.input == name]
