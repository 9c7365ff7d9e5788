"""Keep the most requested pages in memory, within a budget of bytes.

The policy is TinyLFU's admission (Einziger, Friedman, Manes 2017) over pages ordered by frequency. A page is admitted
only if it was requested clearly more often than each page that it would replace. All counts are halved after some
number of requests, so that old counts fade. Counts are exact here, not a sketch: a count takes a few bytes, a page
many thousands.

Why not the most recent pages: a batch requests its pages in key order, and most pages in every batch. A cache that
always admits the newest page then drops each page just before it is requested again, and never hits. This one keeps
some of the pages, and hits them every time.

The buffer never exceeds its budget. A page that was put in may have been replaced since.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

# Counts are halved after this many requests for each page requested at all.
_SAMPLE_FACTOR = 10
# The least number of requests between halvings: with few pages, counts would fade before they mean anything.
_MIN_SAMPLE = 1_000

# How much more often a page must have been requested than one it replaces. If all are requested in turn, a page is one
# ahead just because its turn comes first.
_LEAD = 2


@dataclass(frozen=True, slots=True)
class BufferStats:
    """Requests for held pages, pages evicted, and what is held now."""

    hits: int = 0
    evicted: int = 0
    pages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Held(Generic[T]):
    page: T
    bytes: int
    read_at: float


class PageBuffer(Generic[T]):
    """Pages by number.

    >>> buffer = PageBuffer[str](budget_bytes=100)
    >>> buffer.get(7) is None, buffer.put(7, "rows of page 7", bytes=80), buffer.get(7)
    (True, True, 'rows of page 7')
    """

    def __init__(self, budget_bytes: int):
        self._budget = budget_bytes
        self._held: dict[int, _Held[T]] = {}
        self._counts: dict[int, int] = {}
        # Held pages by count. A count may have grown since, which is noticed when the entry reaches the top.
        self._rarest: list[tuple[int, int]] = []
        self._requests = self._bytes = 0
        self._hits = self._evicted = 0

    @property
    def stats(self) -> BufferStats:
        return BufferStats(self._hits, self._evicted, len(self._held), self._bytes)

    def __contains__(self, number: int) -> bool:
        """Whether a page is held. This does not count as a request."""
        return number in self._held

    def get(self, number: int) -> T | None:
        """The page if it is held, else None. Every request counts."""
        self._counts[number] = self._counts.get(number, 0) + 1
        self._requests += 1
        if self._requests >= max(_MIN_SAMPLE, _SAMPLE_FACTOR * len(self._counts)):
            self._age()
        held = self._held.get(number)
        if held is None:
            return None
        self._hits += 1
        return held.page

    def put(self, number: int, page: T, *, bytes: int, read_at: float = 0.0) -> bool:
        """Keep a page that was just read, if it is worth the space. Return whether it is kept."""
        self.drop(number)
        leaving = self._make_room(number, bytes)
        if leaving is None:
            return False
        for other in leaving:
            self.drop(other)
        self._evicted += len(leaving)
        self._held[number] = _Held(page, bytes, read_at)
        self._bytes += bytes
        heapq.heappush(self._rarest, (self._counts.get(number, 0), number))
        return True

    def drop(self, number: int) -> None:
        held = self._held.pop(number, None)
        if held is not None:
            self._bytes -= held.bytes

    def drop_older(self, read_at: float) -> int:
        """Drop the pages that were read before a time, and return their number."""
        old = [number for number, held in self._held.items() if held.read_at < read_at]
        for number in old:
            self.drop(number)
        return len(old)

    def clear(self) -> None:
        """Drop all pages and counts, for another table or another version of it."""
        self._held.clear()
        self._counts.clear()
        self._rarest.clear()
        self._bytes = self._requests = 0

    def _make_room(self, number: int, bytes: int) -> list[int] | None:
        """The pages that this one would replace; None if one was requested about as often, or if it never fits."""
        if bytes > self._budget:
            return None
        asked = self._counts.get(number, 0)
        leaving: dict[int, int] = {}
        free = self._budget - self._bytes
        while free < bytes:
            count, other = self._pop_rarest()
            # A page that left and came back may be listed twice.
            free += 0 if other in leaving else self._held[other].bytes
            leaving[other] = count
            if asked < count + _LEAD:
                for page, known in leaving.items():
                    heapq.heappush(self._rarest, (known, page))
                return None
        return list(leaving)

    def _pop_rarest(self) -> tuple[int, int]:
        while True:
            count, number = heapq.heappop(self._rarest)
            if number not in self._held:
                continue
            now = self._counts.get(number, 0)
            if count == now:
                return count, number
            heapq.heappush(self._rarest, (now, number))

    def _age(self) -> None:
        self._requests = 0
        self._counts = {number: count // 2 for number, count in self._counts.items() if count > 1}
        self._rarest = [(self._counts.get(number, 0), number) for number in self._held]
        heapq.heapify(self._rarest)
