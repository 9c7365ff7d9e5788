"""The lines of a text file, in blocks of bounded size.

Lines end with `\n`, `\r\n` or `\r`, and a mark of the byte order is skipped, as in Spark. Lines of blanks alone are
left out. A value with a line end inside is not one value here, nor in Spark without its option `multiLine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from watersmeet.errors import FileError

# A file without line ends is no text file; to look for them further would fill the memory.
MOST_LINE_BYTES: Final = 256 << 20

_NEW_LINE: Final = 10
# All characters up to the blank count as blanks for Java.
_BLANK: Final = 32
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

T = TypeVar("T")


class Malformed(ValueError):
    """A line is not a row; the message says why."""


class _Stream(Protocol):
    def read(self, nbytes: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines of a file, each ended by a new line, and the number of each in the file, from 1."""

    content: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """The places of the line ends."""
        return np.flatnonzero(self.content == _NEW_LINE)

    def part(self, first: int, behind: int) -> Lines:
        """The lines from one place to before another."""
        bounds = np.concatenate([[0], self.ends + 1])
        return Lines(self.content[bounds[first] : bounds[behind]], self.numbers[first:behind])


def read_lines(stream: _Stream, what: str, block_bytes: int) -> Iterator[Lines]:
    """The lines that are not blank, in blocks of at most about `block_bytes`. `what` names the file in messages."""
    rest = b""
    first = 1
    at_start = True
    while chunk := stream.read(block_bytes):
        if at_start:
            chunk, at_start = chunk.removeprefix(_BYTE_ORDER_MARK), False
        whole, rest = _cut(rest + chunk)
        if whole:
            lines, count = _numbered(whole, first)
            first += count
            if len(lines):
                yield lines
        if len(rest) > MOST_LINE_BYTES:
            raise FileError(
                f"{what} has a line of more than {MOST_LINE_BYTES >> 20} MB, line {first}: check that it is a text file"
            )
    if rest:
        lines, _ = _numbered(rest, first)
        if len(lines):
            yield lines


def _cut(text: bytes) -> tuple[bytes, bytes]:
    """Whole lines, and what follows them. A `\r` at the end may be half of a line end."""
    end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, len(text) - 1)) + 1
    return text[:end], text[end:]


def _numbered(text: bytes, first: int) -> tuple[Lines, int]:
    """The lines of a text that are not blank, and how many there are in all."""
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not text.endswith(b"\n"):
        text += b"\n"
    content = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(content == _NEW_LINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    numbers = np.arange(first, first + len(ends))
    kept = np.maximum.reduceat(content, starts) > _BLANK
    if kept.all():
        return Lines(content, numbers), len(ends)
    return Lines(content[np.repeat(kept, ends - starts + 1)], numbers[kept]), len(ends)


def parse_lines(lines: Lines, parse: Callable[[Lines], T], what: str, remedy: str) -> T:
    """Parse some lines of the file `what`. A FileError names the first line that is not a row, and the remedy."""
    try:
        return parse(lines)
    except Malformed as whole:
        number, error = _first_failing(lines, parse, whole)
        raise FileError(
            f"{what}, line {number}: {error}. Spark would read null here. Correct the file, or {remedy}"
        ) from error


def _first_failing(lines: Lines, parse: Callable[[Lines], T], whole: Malformed) -> tuple[int, Malformed]:
    """The number of the first line that cannot be parsed, and why. `whole` was raised for all lines together."""
    good, bad = 0, len(lines)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            parse(lines.part(good, middle))
            good = middle
        except Malformed:
            bad = middle
    try:
        parse(lines.part(good, bad))
    except Malformed as error:
        return int(lines.numbers[good]), error
    return int(lines.numbers[0]), whole
