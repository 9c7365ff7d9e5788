"""Run files: write sorted rows once, read them back verified and mapped.

A run is one uncompressed Arrow IPC file of one record batch, the order key first. It is sorted, or, if it is cut for
the grid, each section is, and the sections lie one behind the other. (Up to format 5 each section was a record batch.)
The file name has the batch, the partition, the number within it, and the checksum of the content. Batch and partition
alone are not unique: Spark may run a task twice, and a zombie may finish late. A file that no manifest names does not
exist.

A cell of the grid reads many neighbouring sections, and a search in each would cost more than the rows: at 64 tasks and
inputs of 1:64, 64 sections of the smaller input are the cell's row. So neighbours are read as one slice. Where all
pairs are compared it is a view. Where keys are searched, the keys of all sections are merged when the run is first
read, and kept as long as it is mapped: 12 bytes a row, up to `Limits.merged_bytes`. The rows stay mapped.

Why not a random name: the data that a task sends through a shuffle must be the same each time it runs. Otherwise Spark
(from 4.2 on, by its order-independent checksums) fails the job when an executor is lost after the first result task has
ended: https://issues.apache.org/jira/browse/SPARK-53575. So two attempts over the same rows write the same file and the
same description.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.errors import CorruptFile
from watersmeet.kernel.keys import Keys
from watersmeet.kernel.rows import (
    ORDER,
    Keyed,
    Sections,
    Sorted,
    merge_sections,
    open_sections,
    open_sorted,
    position,
)
from watersmeet.log.advice import NORMAL, RANDOM, Addresses, addresses_of, advise, read_ahead
from watersmeet.log.cache import CacheFull
from watersmeet.log.codec import checksum
from watersmeet.log.kept_keys import KeptKeys
from watersmeet.log.key_bytes import KeyReader
from watersmeet.log.sections import SECTIONS, SectionChecks, frame_is_intact, with_checksums
from watersmeet.log.storage import Files
from watersmeet.model.facts import FULL_RANGE, KeyRange, Run, RunStats
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.ranges import Ranges

RUNS = "runs"

# Shares into which the marks cut a run's rows: enough to place a bound within a few per cent.
MARK_SHARES = 32
# A planner searches a run for the bounds of all groups. That touches most pages of the keys of a run with fewer bytes of
# them, so they are read at once.
SEARCHED_BYTES = 1 << 20
# Keys sampled for the marks of one section.
_MARK_SAMPLE = 1024


def attempt_id() -> str:
    return uuid.uuid4().hex[:16]


def write_run(
    files: Files,
    input: str,
    batch: int,
    label: str,
    rows: Sorted | Sections,
    group: str | None = None,
    *,
    marked: bool = False,
    stats: RunStats | None = None,
) -> Run:
    """Store sorted rows, or sections of sorted rows. There must be some.

    `label` says where the run came from (partition or merge). No two runs of one task may share it, because they may
    hold the same rows. `marked` runs carry `marks`; `stats` is the scheme's record.
    """
    stem = f"{RUNS}/{input}/{batch:010d}-{label}"
    schema = pa.schema([pa.field(ORDER, pa.uint64(), nullable=False), *rows.rows.schema], metadata=None)
    stored_rows = pa.RecordBatch.from_arrays([pa.array(rows.keys), *rows.rows.columns], schema=schema)
    sizes: tuple[int, ...] = ()
    parts: Sequence[Sorted]
    if isinstance(rows, Sections):
        sizes, parts = rows.sizes, tuple(rows.parts().values())
        schema = with_checksums(schema, stored_rows, sizes)
    else:
        parts = [rows]
    stored = files.write(stem, schema, [stored_rows])
    run = Run(
        input=input,
        path=stored.path,
        group=group or stored.path,
        batch=batch,
        rows=len(rows),
        bytes=stored.bytes,
        low=min(int(part.keys[0]) for part in parts),
        high=max(int(part.keys[-1]) for part in parts),
        checksum=stored.checksum,
        row_bytes=rows.rows.nbytes + rows.keys.nbytes,
        sections=sizes,
        marks=_marks(parts) if marked else (),
        stats=stats,
    )
    if stored.keys is not None and not sizes:
        run = replace(run, keys_at=stored.keys.at, keys_checksum=stored.keys.checksum)
    frame = stored.frame
    if frame is None:
        return run
    return replace(run, frame_start=frame.start, frame_end=frame.end, frame_checksum=frame.checksum)


def _marks(parts: Sequence[Sorted]) -> tuple[int, ...]:
    """Keys that cut the rows into equal shares, the lowest and the highest included."""
    sampled = [
        part.keys[np.linspace(0, len(part) - 1, min(len(part), _MARK_SAMPLE)).astype(int)] for part in parts
    ]
    keys = np.sort(np.concatenate(sampled))
    return tuple(keys[np.linspace(0, len(keys) - 1, MARK_SHARES + 1).astype(int)].tolist())


class RunReader:
    """Verified, mapped runs, kept open between batches. One per process and state directory."""

    def __init__(self, files: Files, limits: Limits = DEFAULT_LIMITS):
        self._files = files
        self._open: dict[str, _Mapped] = {}
        # Live runs that were found to be intact as a whole. What was unmapped meanwhile is not verified again.
        self._intact: set[str] = set()
        # Runs that will be read soon, and fetched runs that were not read yet.
        self._expected: Callable[[], Iterable[Run]] | None = None
        # Runs whose keys will be looked at soon, and the reader of those that can be had alone.
        self._expected_keys: Callable[[], Iterable[Run]] = _none
        self._alone = KeyReader(files)
        self._fetched: dict[str, pa.Buffer] = {}
        # Runs of which only some rows are read, and what of each was asked for in this batch and in the one before.
        self._partial: frozenset[str] = frozenset()
        self._ahead: dict[_Ahead, Addresses] = {}
        self._ahead_before: dict[_Ahead, Addresses] = {}
        self._limits = limits
        self._merged = KeptKeys(limits.merged_bytes)

    def expect(self, runs: Callable[[], Iterable[Run]]) -> None:
        """Say which runs are read from now on. The first of them that is not on this machine makes all be fetched.

        One by one they would take a request each, and a batch of many partitions has hundreds. A run that was expected
        and is not read costs its bytes; one that was not expected is fetched alone.
        """
        self._expected = runs

    def expect_keys(self, runs: Callable[[], Iterable[Run]]) -> None:
        """The same for a planner, which asks for `keys_alone` of most: only runs without such keys are fetched whole."""
        self._expected_keys = runs
        self._expected = lambda: (run for run in runs() if not run.keys_checksum)

    def read(
        self, run: Run, range_: KeyRange, columns: tuple[str, ...], sections: Sequence[range] | None = None
    ) -> dict[int, Sorted]:
        """The rows of a run within a key range, with only the named columns, by section. Nothing is copied.

        A run without sections is one section, number 0. `sections` selects some of them; None is all.
        """
        found = {}
        for number, section in self._verified(run, sections).parts(sections).items():
            part = section.between(range_)
            if len(part):
                found[number] = Sorted(part.keys, part.rows.select(list(columns)))
        return found

    def slices(
        self,
        run: Run,
        range_: KeyRange,
        columns: tuple[str, ...],
        sections: Sequence[range] | None = None,
        *,
        sort: bool = True,
    ) -> Iterator[Keyed]:
        """The same rows in as few slices as possible. Without `sort`, keys ascend only inside a section."""
        mapped = self._verified(run, sections)
        whole = mapped.whole
        if whole is None or (not sort and range_ != FULL_RANGE):
            yield from self.read(run, range_, columns, sections).values()
            return
        rows = mapped.select(columns)
        if not sort:
            for start, stop in mapped.stretches(sections):
                yield Sorted(whole.keys[start:stop], rows.slice(start, stop - start))
            return
        wanted = run.path, None if sections is None else tuple(sections), range_
        merged = self._merged.get(wanted)
        if merged is None:
            found = mapped.within(range_, sections)
            if len(found) < 2 or not self._merged.has_room(sum(stop - start for start, stop in found)):
                yield from (
                    Sorted(whole.keys[start:stop], rows.slice(start, stop - start)) for start, stop in found
                )
                return
            merged = self._merged.keep(wanted, merge_sections(whole.keys, found))
        yield merged.over(rows)

    def schema(self, run: Run) -> pa.Schema:
        """The columns of a run that is not cut into sections."""
        return self._verified(run, None).parts(None)[0].rows.schema

    def keys(self, run: Run) -> Keys:
        """All order keys of a run that is not cut into sections, ascending."""
        mapped = self._verified(run, None)
        keys = mapped.parts(None)[0].keys if mapped.whole is None else mapped.whole.keys
        if run.path in self._partial and keys.nbytes <= SEARCHED_BYTES:
            places = np.array([0]), np.array([len(keys)])
            self._ask((run.path, 0, 0, 0, ()), lambda: addresses_of([pa.array(keys)], *places))
        return keys

    def keys_alone(self, run: Run) -> Keys:
        """The same, for a planner: it does not need the rows, so of a remote run only the keys are fetched."""
        if run.keys_checksum and run.path not in self._open and not self._files.has_copy(run.path):
            keys = self._alone.read(run, self._expected_keys)
            if keys is not None:
                return keys
        return self.keys(run)

    def read_ahead(self, run: Run, ranges: Ranges, columns: tuple[str, ...]) -> None:
        """Have some rows of a run that is open read from the disk, if the kernel does not do so by itself.

        Once in a batch: memory may have been short since the last one.
        """
        mapped = self._open.get(run.path)
        if run.path not in self._partial or mapped is None or mapped.whole is None or not ranges:
            return
        keys, rows = mapped.whole.keys, mapped.select(columns)

        def addresses() -> Addresses:
            ends = np.array([one.high - 1 for one in ranges], np.uint64)
            return addresses_of(
                [pa.array(keys), *rows.columns],
                np.searchsorted(keys, np.array([one.low for one in ranges], np.uint64)),
                np.searchsorted(keys, ends, side="right"),
            )

        self._ask((run.path, ranges[0].low, ranges[-1].high, len(ranges), columns), addresses)

    def _ask(self, wanted: _Ahead, addresses: Callable[[], Addresses]) -> None:
        if wanted not in self._ahead:
            known = self._ahead_before.get(wanted)
            self._ahead[wanted] = addresses() if known is None else known
            read_ahead(self._ahead[wanted])

    def forget_all_but(
        self, paths: Iterable[str], unused: Iterable[str] = (), partial: Iterable[str] = ()
    ) -> None:
        """Unmap runs that are no longer live or have left the cache: only that frees their disk space.

        Live runs that are `unused` for now are unmapped too: a process may have no address space for all of them. A
        payment may open them again. Of these, and of runs that are `partial`, some rows must not become resident, so the
        kernel is told to read no page that nobody asked for.
        """
        alive = frozenset(paths)
        unused = frozenset(unused)
        used = alive - unused
        for path in [p for p in self._open if p not in used or not self._files.has_copy(p)]:
            del self._open[path]
        self._intact &= alive
        self._read_in_part(frozenset((*unused, *partial)))
        self._expected, self._expected_keys = None, _none
        self._fetched.clear()
        self._merged.forget_all_but(alive)
        self._alone.forget_all_but(alive)

    def _read_in_part(self, partial: frozenset[str]) -> None:
        """Advise on the mappings of runs that are read in part from now on, and of those that are no longer."""
        for path in partial ^ self._partial:
            mapped = self._open.get(path)
            if mapped is not None:
                advise(mapped.content, RANDOM if path in partial else NORMAL)
        self._partial = partial
        self._ahead_before, self._ahead = self._ahead, {}

    def _verified(self, run: Run, sections: Sequence[range] | None) -> _Mapped:
        """The mapped run, after these sections were found to be intact."""
        mapped = self._checked(run, sections)
        if isinstance(mapped, str) and self._files.forget_copy(run.path):
            self._open.pop(run.path, None)
            mapped = self._checked(run, sections)
        if isinstance(mapped, str):
            raise CorruptFile(
                f"run {run.path} of batch {run.batch} in {self._files.place} {mapped}. {_ADVICE}"
            )
        return mapped

    def _checked(self, run: Run, sections: Sequence[range] | None) -> _Mapped | str:
        """The mapped run if its frame and these sections are intact, else what is wrong with it."""
        mapped = self._open.get(run.path)
        if mapped is None:
            opened = self._opened(run)
            if isinstance(opened, str):
                return opened
            mapped = self._open[run.path] = opened
        damaged = mapped.damaged(sections)
        return mapped if damaged is None else f"is damaged: the checksum of section {damaged} does not match"

    def _opened(self, run: Run) -> _Mapped | str:
        """The mapped run if it can be parsed safely, else what is wrong with it."""
        try:
            content = self._map(run.path)
        except FileNotFoundError:
            return "is missing"
        if content.size != run.bytes:
            return f"is truncated or padded: {content.size} bytes instead of {run.bytes}"
        frame = run.frame
        if frame is None and run.path not in self._intact:
            if checksum(content) != run.checksum:
                return "is damaged: its checksum does not match"
            self._intact.add(run.path)
        if frame is not None and not frame_is_intact(content, frame):
            return "is damaged: the checksum of its frame does not match"
        if run.path in self._partial:
            # Now that it was read as a whole, or need not be.
            advise(content, RANDOM)
            # It is mapped elsewhere now.
            for known in (self._ahead, self._ahead_before):
                for wanted in [one for one in known if one[0] == run.path]:
                    del known[wanted]
        return _Mapped(run, content, self._limits.bytes_per_section)

    def _map(self, path: str) -> pa.Buffer:
        if not self._files.has_copy(path):
            # A new copy is verified like any other.
            self._intact.discard(path)
            if self._expected is not None:
                self._fetch_expected(path)
        content = self._fetched.pop(path, None)
        if content is not None:
            return content
        try:
            return self._files.map(path)
        except CacheFull:
            # Dropped copies take up space as long as they are mapped here. Those in use stay.
            self._open.clear()
            self._fetched.clear()
            self._alone.forget_all()
        return self._files.map(path)

    def _fetch_expected(self, path: str) -> None:
        """Fetch all expected runs that are not on this machine, if `path` is among them, and keep them mapped: a small
        cache may have dropped the first copy by the time that the last one is made."""
        assert self._expected is not None
        paths = list(dict.fromkeys(run.path for run in self._expected()))
        if path not in paths:
            return
        self._expected = None
        missing = [one for one in paths if one not in self._open and not self._files.has_copy(one)]
        contents = self._files.each(self._map_if_possible, missing)
        self._fetched.update(
            {one: content for one, content in zip(missing, contents, strict=True) if content is not None}
        )

    def _map_if_possible(self, path: str) -> pa.Buffer | None:
        """A run's bytes; None if it is missing or has no room. If it is read after all, that is reported then."""
        try:
            return self._files.map(path)
        except (FileNotFoundError, CacheFull):
            return None


class _Mapped:
    """A run that is mapped, and the checksums of its sections if it was not verified whole.

    `whole` is None for a run of format 5 or older, which has a record batch for each section.
    """

    def __init__(self, run: Run, content: pa.Buffer, bytes_per_section: int):
        file = pa.ipc.open_file(content)
        self.content = content
        sizes = run.sections or (run.rows,)
        self.whole: Sections | None = None
        self._checks: SectionChecks | None = None
        self._parts: dict[int, Sorted] = {}
        self._selected: dict[tuple[str, ...], pa.RecordBatch] = {}
        if file.num_record_batches > 1:
            numbers = [number for number, rows in enumerate(sizes) if rows]
            self._parts = {n: open_sorted(file.get_batch(place)) for place, n in enumerate(numbers)}
            return
        batch = file.get_batch(0).replace_schema_metadata()
        self.whole = open_sections(batch, sizes)
        self._starts = self.whole.starts
        if run.frame is not None:
            expected = file.schema.metadata[SECTIONS].decode()
            self._checks = SectionChecks(
                batch, self._starts, expected, content, run.checksum, bytes_per_section
            )

    def damaged(self, sections: Sequence[range] | None) -> int | None:
        """The first of these sections that is damaged; None if all are intact."""
        return None if self._checks is None else self._checks.damaged(self._numbers(sections))

    def parts(self, sections: Sequence[range] | None) -> dict[int, Sorted]:
        """Some sections, or all, by number."""
        if self.whole is not None:
            return self.whole.parts(self._numbers(sections))
        if sections is None:
            return self._parts
        return {n: part for n, part in self._parts.items() if any(n in wanted for wanted in sections)}

    def select(self, columns: tuple[str, ...]) -> pa.RecordBatch:
        """All rows, with only the named columns."""
        assert self.whole is not None
        if columns not in self._selected:
            self._selected[columns] = self.whole.rows.select(list(columns))
        return self._selected[columns]

    def stretches(self, sections: Sequence[range] | None) -> list[tuple[int, int]]:
        """The first row and the end of each stretch of neighbouring sections."""
        most = len(self._starts) - 1
        ranges = [range(most)] if sections is None else sections
        ends = [(self._starts[min(one.start, most)], self._starts[min(one.stop, most)]) for one in ranges]
        return [(start, stop) for start, stop in ends if start < stop]

    def within(self, range_: KeyRange, sections: Sequence[range] | None) -> list[tuple[int, int]]:
        """The first row and the end of the rows within a key range, for each section that has some."""
        assert self.whole is not None
        ends = [(self._starts[n], self._starts[n + 1]) for n in self._numbers(sections)]
        if range_ != FULL_RANGE:
            keys = self.whole.keys
            ends = [
                (
                    start + position(keys[start:stop], range_.low),
                    start + position(keys[start:stop], range_.high),
                )
                for start, stop in ends
            ]
        return [(start, stop) for start, stop in ends if start < stop]

    def _numbers(self, sections: Sequence[range] | None) -> Sequence[int]:
        most = len(self._starts) - 1
        if sections is None:
            return range(most)
        return [number for wanted in sections for number in range(wanted.start, min(wanted.stop, most))]


def _none() -> Iterable[Run]:
    return ()


# A run, the lowest key of some ranges, the end of the highest, their number, and the columns.
_Ahead = tuple[str, int, int, int, tuple[str, ...]]

_ADVICE = "Restore the file from a copy, or start the query with a new checkpoint to rebuild the state"
