"""Rows of several inputs in one stream of Arrow batches, so that one ingest task stores all of them.

A task of Spark costs ten milliseconds and more, however few rows it has: it is scheduled, it gets a Python worker, and
the end of its stream is awaited. A join of ten inputs would have ten such tasks for each batch. So the inputs of a join
of many are put one behind the other, and a task gets the partitions of several.

Rows side by side with nulls for the columns of all other inputs would make ten inputs ten times as wide. Instead
columns of one type share a *slot*, whatever their names and inputs:

    a (id bigint, k bigint)    input  0: bigint  1: bigint  2: string
    b (k bigint, x string)     0      id         k          null
                               1      k          null       x

So inputs of one kind are as wide as any of them, and the number of its input travels with each row. Spark puts
partitions one behind the other, so the rows of an input are neighbours. If they are not, an input has several *turns*
in a task, and each is stored like a partition of its own: nothing is held back, and no order is assumed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

T = TypeVar("T", bound=Hashable)

# Two inputs have two tasks at least, as the join has.
LEAST_TOGETHER = 3


def share_tasks(inputs: int, tasks: int) -> bool:
    """Whether the inputs of a stream share as many ingest tasks as the join has.

    They do if their tasks, at least one for each input, would not all run at once: there are about as many join tasks
    as cores. Where there are more cores than inputs, every partition keeps its task: a few tasks less would save
    little, and an input with most of the rows in many partitions would be left with few of the cores.

    >>> [share_tasks(*one) for one in ((10, 2), (3, 2), (2, 1), (3, 3), (10, 16))]
    [True, True, False, False, False]
    """
    return inputs >= LEAST_TOGETHER and inputs > tasks


@dataclass(frozen=True, slots=True)
class InputSlots:
    """The columns of one input as they are stored, and the slot in which each arrives."""

    input: str
    columns: tuple[str, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slots(Generic[T]):
    """The types of the slots, and the columns of each input. An input's number is its place in `inputs`."""

    types: tuple[T, ...]
    inputs: tuple[InputSlots, ...]

    @classmethod
    def assign(cls, arriving: Mapping[str, Sequence[tuple[str, T]]]) -> Slots[T]:
        """Give each column of each input the next free slot of its type.

        >>> slots = Slots.assign({"a": [("id", "bigint"), ("k", "bigint")], "b": [("x", "string"), ("k", "bigint")]})
        >>> slots.types, [one.slots for one in slots.inputs]
        (('bigint', 'bigint', 'string'), [(0, 1), (2, 0)])
        """
        numbers: dict[tuple[T, int], int] = {}
        inputs = []
        for name, columns in arriving.items():
            used: Counter[T] = Counter()
            slots = []
            for _, kind in columns:
                slots.append(numbers.setdefault((kind, used[kind]), len(numbers)))
                used[kind] += 1
            inputs.append(InputSlots(name, tuple(column for column, _ in columns), tuple(slots)))
        return cls(tuple(kind for kind, _ in numbers), tuple(inputs))


def separated(
    inputs: Sequence[InputSlots], arriving: Iterable[pa.RecordBatch]
) -> Iterator[tuple[str, int, Iterator[pa.RecordBatch]]]:
    """The turns of the inputs in arriving rows: the name, the number of its turn, and its rows in its own columns.

    The first column of `arriving` is the number of the input, the slots come behind it. Read the rows of a turn before
    asking for the next one.
    """
    turns: Counter[int] = Counter()
    for number, pieces in itertools.groupby(_pieces(arriving), key=itemgetter(0)):
        of = inputs[number]
        yield of.input, turns[number], (_own_columns(of, rows) for _, rows in pieces)
        turns[number] += 1


def _pieces(arriving: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Neighbouring rows of one input, and its number."""
    for batch in arriving:
        numbers = batch.column(0).to_numpy()
        ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, len(numbers)).tolist() if len(numbers) else []
        for first, end in itertools.pairwise([0, *ends]):
            yield int(numbers[first]), batch.slice(first, end - first)


def _own_columns(of: InputSlots, rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([rows.column(1 + slot) for slot in of.slots], names=list(of.columns))
