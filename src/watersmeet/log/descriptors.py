"""What ingest tasks tell the join tasks: descriptors in the shuffle, or in files that the shuffle names.

A descriptor goes to every join task. With 200 partitions and 200 tasks that is 40,000 copies, and each can have 100 KB
of statistics. Only a task that plans the batch needs them. So a large descriptor is published to the log, and a
`Notice` of some 70 bytes is shuffled: what a task needs to find the batch, its start and its manifest, and to check
that no row got lost. A small descriptor travels whole, which saves a request.

    descriptors/<start>-<batch>-<input>-<partition>-<checksum>.arrow

Name and content follow from the rows alone, as those of runs do (`log/runs.py` says why): an ingest task that runs
again publishes the same file and shuffles the same notice. The file is whole before anything refers to it. It serves
until its batch has a manifest: every later task uses that. Another start ingests again and publishes its own.

A task of such a batch plans it in its turn (log/turns.py).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import xxhash

from watersmeet import failpoints
from watersmeet.errors import CorruptFile
from watersmeet.log.codec import decode_checked, encode_checked, from_plain, to_plain
from watersmeet.log.columns import STATS_COLUMNS, count_values, from_files, load_many, store, to_file
from watersmeet.log.names import DESCRIPTORS, batch_stem
from watersmeet.log.seen import Seen
from watersmeet.log.storage import Files
from watersmeet.model.facts import BatchId, Descriptor, Run, Start

# About what a run and a value of its statistics take as JSON.
_RUN_BYTES, _VALUE_BYTES = 300, 12

# Zstandard packs better, but takes a millisecond to begin with a file, and a planner reads hundreds.
_COMPRESSION = "lz4"

_ADVICE = "Start the query again: the batch is then read again"


@dataclass(frozen=True, slots=True)
class Notice:
    """What is shuffled of a published descriptor. `arrived_rows` counts all rows of the partition, dropped ones too.

    `start_mark` is a hash of the run of the query that the start belongs to. A batch join has no start.
    """

    input: str
    partition: int
    arrived_rows: int
    batch: int
    start: int | None
    first_batch: int | None
    start_mark: int
    digest: str
    checksum: str

    @property
    def path(self) -> str:
        return f"{_stem(self.start, self.batch, self.input, self.partition)}-{self.checksum}.arrow"


# What a join task gets.
Told = Descriptor | Notice


def _stem(start: int | None, batch: int, input_name: str, partition: int) -> str:
    return f"{DESCRIPTORS}/{batch_stem(start or 0, batch)}-{input_name}-{partition:05d}"


def mark_of(run: str) -> int:
    """A hash of the run of a query: a notice need not carry its 36 letters to each task."""
    return int(xxhash.xxh3_64_intdigest(run.encode()))


def estimate_bytes(descriptor: Descriptor) -> int:
    """About the size of a descriptor in the shuffle."""
    return sum(_RUN_BYTES + _VALUE_BYTES * _values(run) for run in descriptor.runs)


def _values(run: Run) -> int:
    return (
        len(run.sections)
        + 2 * (len(run.marks) + len(run.times))
        + (count_values(run.stats) if run.stats else 0)
    )


def publish_descriptor(files: Files, batch: BatchId, descriptor: Descriptor) -> Notice:
    """Store a descriptor in the log and return what is shuffled instead."""
    start = descriptor.start
    number = None if start is None else start.number
    rest = to_plain(replace(descriptor, runs=()))
    stem = _stem(number, batch.number, descriptor.input, descriptor.partition)
    path = store(files, stem, to_file(Run, descriptor.runs, compression=_COMPRESSION, descriptor=rest))
    failpoints.reach("descriptor-written")
    return Notice(
        descriptor.input,
        descriptor.partition,
        descriptor.arrived_rows,
        batch.number,
        number,
        None if start is None else start.first_batch,
        0 if start is None else mark_of(start.run),
        descriptor.digest,
        path.removesuffix(".arrow").rpartition("-")[2],
    )


def read_descriptors(files: Files, told: Sequence[Told], seen: Seen | None = None) -> list[Descriptor]:
    """The descriptors of a batch, those that are published from the log.

    Their statistics are soon written again, with the manifest: `seen` keeps them as the columns that they are here.
    """

    def keep(runs: list[Run], columns: dict[str, pa.Array]) -> None:
        if seen is not None:
            stats = {name: array for name, array in columns.items() if name.startswith(STATS_COLUMNS)}
            seen.arrived = {run.path: row for row, run in enumerate(runs)}, stats

    paths = [one.path for one in told if isinstance(one, Notice)]
    contents = load_many(files, paths, "descriptor", _ADVICE)
    place = files.place
    where = {f"descriptor {path} in {place}": content for path, content in contents.items()}
    decoded = from_files(Run, where, keep=keep)
    found = dict(zip(contents, decoded, strict=True))
    return [_descriptor(*found[one.path]) if isinstance(one, Notice) else one for one in told]


def _descriptor(runs: list[Run], about: dict[str, Any]) -> Descriptor:
    rest: Descriptor = from_plain(Descriptor, about["descriptor"])
    return replace(rest, runs=tuple(runs))


def start_of(told: Told, run: str) -> Start | None:
    """The start that an ingest task belongs to; None if it has none. `run` is the run of the query that asks.

    The start of another run is returned with another run.
    """
    if isinstance(told, Descriptor):
        return told.start
    if told.start is None:
        return None
    return Start(told.start, run if told.start_mark == mark_of(run) else "", told.first_batch)


# --- The shuffle --------------------------------------------------------------------------------------------------

# A notice: partition, rows, batch, start, first batch, mark, checksum; then digest and input. A start of -1 is none.
_NOTICE = struct.Struct("<BIQQiqQQ16s")
_KIND = 0xA6
_NO_DIGEST = bytes(16)
_SUM = struct.Struct("<I")


def encode_told(told: Told) -> bytes:
    """A descriptor as JSON, or a notice in binary: each of them is sent to every join task."""
    if isinstance(told, Descriptor):
        return encode_checked(told)
    digest = int(told.digest, 16).to_bytes(16, "little") if told.digest else _NO_DIGEST
    body = _NOTICE.pack(
        _KIND,
        told.partition,
        told.arrived_rows,
        told.batch,
        -1 if told.start is None else told.start,
        -1 if told.first_batch is None else told.first_batch,
        told.start_mark,
        int(told.checksum, 16),
        digest,
    )
    body += told.input.encode()
    return body + _SUM.pack(xxhash.xxh32_intdigest(body))


def decode_told(content: bytes) -> Told:
    if content[:1] != bytes([_KIND]):
        return decode_checked(Descriptor, content, "a descriptor in the shuffle")
    body, sum_ = content[: -_SUM.size], content[-_SUM.size :]
    if len(body) < _NOTICE.size or _SUM.pack(xxhash.xxh32_intdigest(body)) != sum_:
        raise CorruptFile(
            "a notice in the shuffle is damaged: its checksum does not match. Start the query again"
        )
    _, partition, rows, batch, start, first, mark, checked, digest = _NOTICE.unpack(body[: _NOTICE.size])
    return Notice(
        body[_NOTICE.size :].decode(),
        partition,
        rows,
        batch,
        None if start < 0 else start,
        None if first < 0 else first,
        mark,
        f"{int.from_bytes(digest, 'little'):x}" if digest != _NO_DIGEST else "",
        f"{checked:016x}",
    )
