"""The facts of a running join: runs, merges, plans and the manifest of one committed micro-batch.

All facts are immutable. `log/manifests.py` writes them as checked JSON, and `plan/` decides over them. Nothing here
touches a file or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from watersmeet.model.signature import JoinSignature

# Order keys are unsigned 64-bit; a range is half open, so its end may be one past the last key.
KEY_SPACE = 1 << 64

# The format of manifests and runs. Raised when an older reader would misread them. Unknown formats are refused.
FORMAT = 10


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
    their own; otherwise the file is verified whole. The order keys begin at byte `keys_at` of the file and have a
    checksum of their own if the state is remote and the run is neither small nor cut into sections: a planner fetches
    them alone (log/key_bytes.py).
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
    keys_at: int = 0
    keys_checksum: str = ""

    @property
    def stored_rows(self) -> int:
        """The rows that this run stands for: all of its file's, unless others were merged into another run."""
        return self.held_rows if self.held else self.rows

    @property
    def held_ranges(self) -> tuple[KeyRange, ...]:
        """The keys of the rows that this run stands for."""
        return ranges_between(self.held) if self.held else (FULL_RANGE,)

    @property
    def frame(self) -> Frame | None:
        return Frame(self.frame_start, self.frame_end, self.frame_checksum) if self.frame_checksum else None


@lru_cache(maxsize=128)
def ranges_between(bounds: tuple[int, ...]) -> tuple[KeyRange, ...]:
    """The ranges between pairs of a first and a last key. Kept: a plan asks often, and most runs have the same bounds.

    >>> ranges_between((2, 4, 6, 6))
    (KeyRange(low=2, high=5), KeyRange(low=6, high=7))
    """
    return tuple(KeyRange(low, last + 1) for low, last in zip(bounds[::2], bounds[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class Push:
    """A border: the rows of `runs` with keys in `ranges` were set aside before the rows of `batch` came.

    They are a *generation*. Later rows do not meet them, and what they owe each other is paid later. A row that several
    pushes name belongs to the first of them; a row that none names is of the current generation (model/generations.py).
    `at_ms` is when the batch was planned: debts have no older rows to wait for.
    """

    batch: int
    ranges: tuple[KeyRange, ...]
    runs: tuple[str, ...]
    at_ms: int = 0


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
class Cells:
    """A part of what one key owes: its cells from `first` up to, not including, `end`, of `of` (model/cells.py).

    The rows of the key that pushes up to the batch `border` have set aside are cut into blocks of `block_rows`. Those
    pushes and blocks stay as they are until all cells are paid. Then they are one generation, still set aside.

    `runs` are those with such rows, and `rows` how many each has. So the blocks of a run are known even if it cannot be
    read any more. Early states of format 9 do not have them.
    """

    range: KeyRange
    border: int
    block_rows: int
    first: int
    end: int
    of: int
    runs: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()

    @property
    def is_last(self) -> bool:
        return self.end >= self.of


@dataclass(frozen=True, slots=True)
class Payment:
    """Task `task` emits in this batch what the generations of the keys in `range` owe each other, or only `cells`.

    If both are paid for one key in one batch, the cells come first, and the generations that they are of are one then.
    """

    task: int
    range: KeyRange
    cells: Cells | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one batch: which task joins what, merges what, and pays what is owed.

    `decided_ms` is when its first attempt was planned, if it pushes or pays something.
    """

    scheme: SchemePlan
    assignments: tuple[Assignment, ...] = ()
    payments: tuple[Payment, ...] = ()
    decided_ms: int = 0


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
    join. `newest` has the latest publication times that the task knows of, by stream, in a hub, and `late_kept_rows` are
    the late rows that it stored all the same.
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
    newest: dict[str, int] = field(default_factory=dict)
    late_kept_rows: int = 0

    @property
    def arrived_rows(self) -> int:
        """All rows of the partition, those that were dropped too. Further arrangements hold the same rows again."""
        stored = sum(run.rows for run in self.runs if run.input == self.input)
        return self.null_rows + self.late_rows + self.absent_rows + stored


@dataclass(frozen=True, slots=True)
class Settlement:
    """What rows owed after `batch` was paid outside of the query: `rows` results, in files of `folder`.

    `run` is the start that settled. `lost` are damaged runs that took no part: what their rows owed is lost.
    """

    batch: int
    run: str
    folder: str
    rows: int
    at_ms: int
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """The agreed facts of one micro-batch. `history` was there before it; `fresh` came with it.

    `arrived` counts the rows of each input, including those with null keys and late ones. `newest` is the latest window
    time of each input up to this batch. `watermark`, which never falls, decides which rows of the next batch are late.
    `gaps` are the batches whose rows are missing because the user accepted their loss. `pushes`, oldest first, say
    which rows of the history fresh rows do not meet, in this batch and later. `paid` are the pushes that were in force
    before it for the keys of the plan's payments. `paying` are the last cells that were paid, in this batch or before,
    of each key that is paid over several batches. `settlements` are all that the query had, oldest first. `planner` is
    the machine and the process that planned it, if the state is remote: it has looked into most live runs.
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
    paying: tuple[Cells, ...] = ()
    settlements: tuple[Settlement, ...] = ()
    planner: str = ""

    @property
    def live(self) -> tuple[Run, ...]:
        return self.history + self.fresh

    @property
    def named_paths(self) -> frozenset[str]:
        """Every run file that this manifest keeps alive."""
        outputs = (run for merge in self.merges for part in merge.parts for run in part.output or ())
        return frozenset(run.path for run in (*self.live, *outputs))
