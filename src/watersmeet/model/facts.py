"""The facts of a running join: runs, merges, plans and the manifest of one committed micro-batch.

All facts are immutable. `log/manifests.py` writes them as checked JSON, and `plan/` decides over them. Nothing here
touches a file or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from watersmeet.model.closed import ClosedSet
from watersmeet.model.window import Window

# The inputs of a join, at most. Every input has its own source, ingest and runs; joins of more are a design mistake.
MOST_INPUTS = 16

# Order keys are unsigned 64-bit; a range is half open, so its end may be one past the last key.
KEY_SPACE = 1 << 64

# The format of manifests and runs. Raised when an older reader would misread them. Unknown formats are refused.
FORMAT = 8


class SchemePlan:
    """A scheme's decision for one batch. Each scheme has its own frozen dataclass; `kind` names it in JSON."""

    __slots__ = ()
    kind: ClassVar[str]


class RunStats:
    """A scheme's record about a run, for its later plans. Each scheme has its own class, as for `SchemePlan`."""

    __slots__ = ()
    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Elsewhere(RunStats):
    """The place of statistics that are kept in a file of their own: only those who plan or merge read them.

    `at` is the number of the run in the file. Planners get the statistics themselves (`log/statistics.py`).
    """

    kind: ClassVar[str] = "elsewhere"
    file: str
    at: int


@dataclass(frozen=True, slots=True)
class BatchId:
    """A micro-batch: the query (stable over restarts), its run (new at each start), the number."""

    query: str
    run: str
    number: int


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the query: its number, which grows with every start, and the first batch that reached the operator.

    From that batch on every batch of the start leaves a manifest. The first batch is None if an older format did not
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

    def __contains__(self, key: int) -> bool:
        return self.low <= key < self.high


FULL_RANGE = KeyRange(0, KEY_SPACE)


@dataclass(frozen=True, slots=True)
class Frame:
    """A run file without its values: the bytes before `start` and from `end` on, and the checksum of these bytes.

    The frame has the checksum of each section (log/sections.py).
    """

    start: int
    end: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Run:
    """An immutable sorted file. `low` and `high` are its smallest and largest order key, both inclusive.

    Files that share a `group` were cut from one sorted sequence and count as one sequence: a key is in one of them, or
    in several only if it fills them. `row_bytes` is the size of the rows without the file's overhead for each section.
    `sections` has the rows of each section, by number, if the run is cut into sections, each sorted. `marks` are keys
    that cut the rows into equal shares, from the lowest to the highest, if order keys follow the values. `times` do the
    same by window time, if the join has a window; `base` is added to the stored times (rows are numbered when their
    batch is planned). `stats` is the scheme's record. The fields of `frame` are set if the sections have checksums of
    their own; otherwise the file is verified whole.
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
    frame_start: int = 0
    frame_end: int = 0
    frame_checksum: str = ""
    held: tuple[int, ...] = ()
    held_rows: int = 0

    @property
    def stored_rows(self) -> int:
        """The rows that this run stands for: all of its file's, unless others were merged into another run."""
        return self.held_rows if self.held else self.rows

    @property
    def held_ranges(self) -> tuple[KeyRange, ...]:
        """The keys of the rows that this run stands for."""
        if not self.held:
            return (FULL_RANGE,)
        return tuple(
            KeyRange(low, last + 1) for low, last in zip(self.held[::2], self.held[1::2], strict=True)
        )

    @property
    def frame(self) -> Frame | None:
        return Frame(self.frame_start, self.frame_end, self.frame_checksum) if self.frame_checksum else None


@dataclass(frozen=True, slots=True)
class Push:
    """A border: the rows of `runs` with keys in `ranges` were set aside before the rows of `batch` came.

    They are a *generation*. Later rows do not meet them, and what they owe each other is paid later. A row that several
    pushes name belongs to the first of them; a row that none names is of the current generation (plan/generations.py).
    """

    batch: int
    ranges: tuple[KeyRange, ...]
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """What a merge leaves in some of its runs because it was pushed: the keys in `ranges`, and the rows of each run."""

    ranges: tuple[KeyRange, ...]
    runs: tuple[str, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MergePart:
    """One key range of a merge: the unit of work. `output` is None until a receipt for it is accepted.

    `rows` is an estimate, for balancing the work; `dropped_rows` is exact.
    """

    range: KeyRange
    output: tuple[Run, ...] | None = None
    rows: int = 0
    dropped_rows: int = 0


@dataclass(frozen=True, slots=True)
class Merge:
    """Replace `runs` (by path) with the outputs of all parts, once every part is written.

    Rows whose window time is below `floor` are dropped. It is fixed when the merge is planned: a part may be done in
    one start of a query and used in another that has gone back some batches. So is what is `left` in the runs, and the
    ranges of keys of which it drops nothing, because they `owe` results. `rows` are those that it reads, and `batch`
    planned it: pushes of later batches also name its outputs once it is done.
    """

    id: str
    input: str
    runs: tuple[str, ...]
    rows: int
    parts: tuple[MergePart, ...]
    floor: int | None = None
    batch: int = -1
    left: tuple[Left, ...] = ()
    owe: tuple[KeyRange, ...] = ()

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
    """Task `task` does part `part` of merge `merge` in this batch."""

    task: int
    merge: str
    part: int


@dataclass(frozen=True, slots=True)
class Payment:
    """Task `task` emits in this batch what the generations of the keys in `range` owe each other."""

    task: int
    range: KeyRange


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one batch: which task joins what, merges what, and pays what is owed."""

    scheme: SchemePlan
    assignments: tuple[Assignment, ...] = ()
    payments: tuple[Payment, ...] = ()


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
        return tuple(column.name for spec in self.inputs if spec.name == name for column in spec.stored)

    def order(self, name: str) -> Order:
        """What the runs of an input are sorted by."""
        return next(spec.order for spec in self.inputs if spec.name == name)


@dataclass(frozen=True, slots=True)
class InputTotals:
    """Totals of an input: rows stored, rows dropped because a key (or the time) was null, and late rows.

    `evicted_rows` were stored and have left the window since. `absent_rows` were dropped because no page of the table
    can hold their key.
    """

    rows: int = 0
    null_rows: int = 0
    late_rows: int = 0
    evicted_rows: int = 0
    absent_rows: int = 0


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An ingest task's report on its partition: the runs that it wrote and the rows that it dropped.

    `watermark` decided which rows are late, and `table` is the table version that located the keys. `start` tells the
    join tasks which start this is, so that they need not claim one. `digest` covers all rows that arrived, in a batch
    join.
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

    @property
    def arrived_rows(self) -> int:
        """All rows of the partition, those that were dropped too. Further arrangements hold the same rows again."""
        stored = sum(run.rows for run in self.runs if run.input == self.input)
        return self.null_rows + self.late_rows + self.absent_rows + stored


@dataclass(frozen=True, slots=True)
class Manifest:
    """The agreed facts of one micro-batch. `history` was there before it; `fresh` came with it.

    `arrived` counts the rows of each input, including those with null keys and late ones. `newest` is the latest window
    time of each input up to this batch. `watermark`, which never falls, decides which rows of the next batch are late.
    `gaps` are the batches whose rows are missing because the user accepted their loss. `pushes`, oldest first, say
    which rows of the history fresh rows do not meet, in this batch and later. `paid` are the pushes that were in force
    before it for the keys of the plan's payments.
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
    pushes: tuple[Push, ...] = ()
    paid: tuple[Push, ...] = ()

    @property
    def live(self) -> tuple[Run, ...]:
        return self.history + self.fresh

    @property
    def named_paths(self) -> frozenset[str]:
        """Every run file that this manifest keeps alive."""
        outputs = (run for merge in self.merges for part in merge.parts for run in part.output or ())
        return frozenset(run.path for run in (*self.live, *outputs))
