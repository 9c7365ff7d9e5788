"""Templates: texts that differ only in their constants are parsed once.

A text is cut into pieces, and the constants are taken out. The words that are left name the template. Only the first
text of a template goes through the parser. For all others only the constants are looked at: whether the columns hold
them, and their place in the text if not. A text that the parser refuses is refused for all of its template: what is
wrong with it does not depend on the constants.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from watersmeet.errors import PredicateError
from watersmeet.hubs.constants import Constant, Words, exact_text, find_constants, to_text
from watersmeet.hubs.language import HubQuery, Template, read_template, with_shared_parts
from watersmeet.hubs.since import check_since, cut_since
from watersmeet.hubs.window import cut_window
from watersmeet.model.types import Schema
from watersmeet.predicate.lex import Piece, pieces_of
from watersmeet.predicate.literals import brief

# Bytes of templates that a process keeps, with those that were refused: 50,000 of forty words. What a word costs at most in
# the parts of its template, beside its letters: the words themselves are not kept.
_MOST_KNOWN_BYTES: Final = 128 << 20
_WORD_BYTES: Final = 64


@dataclass
class TemplateReader:
    """Reads texts over some streams, and keeps the templates that it has parsed.

    >>> from watersmeet.model.types import INT
    >>> reader = TemplateReader({"R": {"a": INT, "b": INT}, "S": {"a": INT}})
    >>> one = reader.read("SELECT R.b FROM R, S WHERE R.a = S.a AND R.b > 5 WINDOW 1 MINUTE")
    >>> other = reader.read("SELECT R.b FROM R, S  WHERE R.a = S.a AND R.b > 77")
    >>> one.template is other.template, one.constants, other.constants, one.window.width
    (True, ('5',), ('77',), 60000000)
    """

    streams: Mapping[str, Schema]
    ansi: bool = True
    case_sensitive: bool = False
    # By a digest of the words, which take more than the template.
    _known: dict[bytes, Template | _Refused] = field(default_factory=dict)
    _known_bytes: int = 0
    # Parts of templates, each once: most templates have the same ones.
    _parts: dict[Any, Any] = field(default_factory=dict)

    def read(self, text: str) -> HubQuery:
        """A query; PredicateError if it cannot be used.

        Whatever goes wrong with a text is a refusal of that text. Texts come in while the hub runs, and an error would
        end the batch, and each replay of it, for all other queries too.
        """
        try:
            return self._read(text)
        except (PredicateError, MemoryError):
            raise
        except Exception as error:
            raise PredicateError(
                f"this text cannot be read ({type(error).__name__}: {brief(str(error))})",
                hint="write the condition in another way",
            ) from error

    def _read(self, text: str) -> HubQuery:
        pieces, since = cut_since(text, pieces_of(text))
        pieces, window = cut_window(text, pieces)
        check_since(text, since, window)
        found = find_constants(text, pieces)
        words = _digest(found.words)
        template = self._known.get(words)
        if template is None:
            self._known_bytes += sum(_WORD_BYTES + len(word) for word in found.words)
            if self._known_bytes > _MOST_KNOWN_BYTES:
                self._known.clear()
                self._parts.clear()
                self._known_bytes = 0
            template = self._known[words] = self._parsed(text, pieces, found)
        if isinstance(template, _Refused):
            raise template.at(text, found)
        return HubQuery(template, self._texts(text, template, found.constants), window, since)

    def _parsed(self, text: str, pieces: list[Piece], found: Words) -> Template | _Refused:
        try:
            template = read_template(
                text,
                pieces,
                found.constants,
                self.streams,
                ansi=self.ansi,
                case_sensitive=self.case_sensitive,
            )
            return with_shared_parts(template, self._shared)
        except PredicateError as error:
            at = error.position if error.position is not None else 0
            word = bisect.bisect_right(found.starts, at) - 1 if at < len(text.rstrip()) else None
            return _Refused(error.problem, error.hint, word)

    def _shared(self, one: Any) -> Any:
        """The first of equal words or parts."""
        return self._parts.setdefault(one, one)

    def _texts(self, text: str, template: Template, constants: Sequence[Constant]) -> tuple[str, ...]:
        """The constants as they are kept: compared with a column, or part of an output column."""
        texts: list[str | None] = [None] * len(constants)
        for one in template.filters:
            column = self.streams[template.streams[one.input]][one.column]
            name = f"{template.aliases[one.input]}.{one.column}"
            for slot in one.slots:
                texts[slot] = to_text(constants[slot], column, name, text)
        for slot, constant in enumerate(constants):
            if constant.exact:
                texts[slot] = exact_text(constant, text)
        known = tuple(one for one in texts if one is not None)
        assert len(known) == len(constants), "the parser takes constants in comparisons and outputs only"
        return known


def _digest(words: tuple[str, ...]) -> bytes:
    return hashlib.blake2b(repr(words).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class _Refused:
    """What is wrong with the texts of a template, and at which word; None is the end."""

    problem: str
    hint: str
    word: int | None

    def at(self, text: str, found: Words) -> PredicateError:
        place = len(text.rstrip()) if self.word is None else found.starts[max(0, self.word)]
        return PredicateError(self.problem, text, place, self.hint)
