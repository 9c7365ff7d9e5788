"""The facts of a running join: runs, merges, plans and the manifest of one committed micro-batch.

All of it is immutable and says exactly what it holds. `log/manifests.py` writes it as checked JSON;
`plan/` decides over it; nothing here touches a file or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from watersmeet.model.window import Window

# Order keys are unsigned 64-bit; a range is half open, so its end may be one past the last key.
KEY_SPACE = 1 << 64

# The format of manifests and runs. Raised when an older reader would misread; unknown formats are refused.
FORMAT = 5


class SchemePlan:
    """What a scheme decided for one batch. Each scheme has a frozen dataclass of its own; `kind` names it in JSON."""

    __slots__ = ()
    kind: ClassVar[str]


class RunStats:
    """What a scheme has recorded about a run, for its later plans; as `SchemePlan`."""

    __slots__ = ()
    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class BatchId:
    """Which micro-batch this is: the query (stable over restarts), its run (new at each start), the number."""

    query: str
    run: str
    number: int


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the query: its number, which grows with every start, and the first batch that reached the operator.

    From that batch on every batch of the start leaves a manifest. The first batch is None where an older format did not
    record it.
    """

    number: int
    run: str
    first_batch: int | None


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """Batches from `first` to `last`, both included."""

    first: int
    last: int

    def __contains__(self, batch: int) -> bool:
        return self.first <= batch <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Order keys from `low` up to, not including, `high`."""

    low: int
    high: int

    def overlaps(self, run: Run) -> bool:
        return run.rows > 0 and run.low < self.high and self.low <= run.high


FULL_RANGE = KeyRange(0, KEY_SPACE)


@dataclass(frozen=True, slots=True)
class Run:
    """An immutable sorted file. `low` and `high` are its smallest and largest order key, both inclusive.

    Files that share a `group` were cut from one sorted sequence and count as one where the number of sequences
    matters: a key is in one of them, or in several only where it fills them all. `row_bytes` is the size of the rows
    without what the file adds for each section. `sections` are the rows of each section, by number, of a run that is
    cut into sections, each sorted in itself. `marks` are keys that cut the rows into equal shares, from the lowest
    to the highest, where order keys say something about the values. `times` do the same by window time, where the join
    has a window; `base` is what they have more than the stored ones (rows are numbered when their batch is planned).
    `stats` is what the scheme recorded.
    """

    input: str
    path: str
    group: str
    batch: int
    rows: int
    bytes: int
    low: int
    high: int
    checksum: str
    row_bytes: int = 0
    sections: tuple[int, ...] = ()
    marks: tuple[int, ...] = ()
    times: tuple[int, ...] = ()
    base: int = 0
    stats: RunStats | None = None


@dataclass(frozen=True, slots=True)
class MergePart:
    """One key range of a merge: the unit of work. `output` is None until a receipt for it was accepted.

    `rows` is an estimate, for sharing out the work; `dropped_rows` is exact.
    """

    range: KeyRange
    output: tuple[Run, ...] | None = None
    rows: int = 0
    dropped_rows: int = 0


@dataclass(frozen=True, slots=True)
class Merge:
    """Replace `runs` (by path) with the outputs of all parts, once every part is there.

    Rows whose window time is below `floor` are dropped on the way. It is fixed when the merge is planned: a part may
    be done in one life of a query and used in another that has gone back some batches.
    """

    id: str
    input: str
    runs: tuple[str, ...]
    rows: int
    parts: tuple[MergePart, ...]
    floor: int | None = None

    @property
    def pending_rows(self) -> int:
        """An estimate, as the parts' rows are."""
        return sum(part.rows for part in self.parts if part.output is None)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Record that one part of a merge is durable: its columns and the number of rows it dropped."""

    merge: str
    part: int
    output: tuple[Run, ...]
    columns: tuple[str, ...] = ()
    dropped_rows: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """Task `task` shall do part `part` of merge `merge` in this batch."""

    task: int
    merge: str
    part: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Who joins what in one batch, and who merges what."""

    scheme: SchemePlan
    assignments: tuple[Assignment, ...] = ()


# Orders of runs: by a hash of the keys (equality), by the value itself (bands), by arrival (any condition), by the
# page of the table that the key is in.
BY_HASH, BY_VALUE, BY_ARRIVAL, BY_PAGE = "hash", "value", "arrival", "page"


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A stored column and its SQL type, as text."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What is kept of one input, and which of the arriving columns make its order key.

    `keys` arrive with every batch; they are stored only if they are also in `stored`. `hashed`, if
    given, is an arriving column that Spark computed from keys that Arrow cannot hash. `order` says how the
    order key comes about: a hash of the keys, the one key's value, the row's place in the stream, or the page of a
    table. `time` is the arriving column that a window over time goes by. `keeps_all` says that rows whose key is null
    or nowhere in the table come out too.
    """

    name: str
    stored: tuple[StoredColumn, ...]
    keys: tuple[str, ...]
    hashed: str | None = None
    order: str = BY_HASH
    time: str | None = None
    keeps_all: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """How runs are cut into sections: the cells of each storage group at the start, and the parts of each."""

    groups: tuple[int, ...]
    parts: int


@dataclass(frozen=True, slots=True)
class JoinSignature:
    """What must stay the same between restarts, because the history was written under it.

    `scheme` names the way in which the join is shared, `compared` how keys are compared. `sides` says from which
    expressions the order keys are made, in their order. `zone` is the session's time zone if what is stored of a row
    depends on it, and else empty. `code` is the fingerprint of a condition in Python: another one is worth a warning,
    and no more.
    """

    inputs: tuple[InputSpec, ...]
    predicate: str
    key_types: tuple[str, ...]
    compared: str
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
        return tuple(column.name for spec in self.inputs if spec.name == name for column in spec.stored)


@dataclass(frozen=True, slots=True)
class InputTotals:
    """What has come in so far: rows kept, rows dropped at once because a key (or the time) was null, and late ones.

    `evicted_rows` were kept once, and have left the window since. `absent_rows` were dropped at once, because no page
    of the table can hold their key.
    """

    rows: int = 0
    null_rows: int = 0
    late_rows: int = 0
    evicted_rows: int = 0
    absent_rows: int = 0


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What one ingest task says of its partition: the runs that it wrote and the rows that it dropped.

    `watermark` is the one that it judged rows late by, `table` the version of the table that it located keys in. `start`
    tells the join tasks which start this is, so that none of them has to claim one. `digest` is that of all rows that
    arrived, in a batch join.
    """

    input: str
    partition: int
    runs: tuple[Run, ...]
    null_rows: int
    late_rows: int = 0
    watermark: int | None = None
    absent_rows: int = 0
    table: str = ""
    start: Start | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The agreed facts of one micro-batch. `history` was there before it; `fresh` came with it.

    `arrived` counts the rows that each input brought, those with null keys and late ones included. `newest` is the
    latest window time that each input has shown up to and including this batch; `watermark`, which never falls,
    is the one that the rows of the next batch will be judged by. `gaps` are the batches whose rows are missing because
    the user accepted their loss.
    """

    batch: BatchId
    run_seq: int
    instance: str
    parent: BatchId | None
    signature: JoinSignature
    history: tuple[Run, ...]
    fresh: tuple[Run, ...]
    merges: tuple[Merge, ...]
    plan: Plan
    totals: dict[str, InputTotals] = field(default_factory=dict)
    arrived: dict[str, int] = field(default_factory=dict)
    gaps: tuple[BatchSpan, ...] = ()
    written_ms: int = 0
    newest: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None
    format: int = FORMAT

    @property
    def live(self) -> tuple[Run, ...]:
        return self.history + self.fresh

    @property
    def named_paths(self) -> frozenset[str]:
        """Every run file that this manifest keeps alive."""
        outputs = (run for merge in self.merges for part in merge.parts for run in part.output or ())
        return frozenset(run.path for run in (*self.live, *outputs))
