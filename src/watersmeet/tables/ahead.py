"""Fetch the next thing while one is being used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def one_ahead(fetch: Callable[[int], T], numbers: Sequence[int]) -> Iterator[tuple[int, T]]:
    """`fetch(number)` for each number, in order. One thread calls it, one call ahead of who uses the results.

    A caller that stops early waits for the call under way, so that nothing is fetched behind its back.
    """
    if len(numbers) < 2:
        yield from ((number, fetch(number)) for number in numbers)
        return
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(fetch, numbers[0])
        for number, following in zip(numbers, [*numbers[1:], None], strict=True):
            here = coming.result()
            if following is not None:
                coming = pool.submit(fetch, following)
            yield number, here
