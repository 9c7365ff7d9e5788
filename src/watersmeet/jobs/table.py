"""Read one table of a TOML file strictly: unknown keys are refused, missing and mistyped ones are named."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from watersmeet.errors import ConfigError

# Least similarity for "did you mean": difflib's default lets "pth" find "path".
_ALIKE = 0.6


class TomlTable:
    """The values of one table. `where` is its name in messages: `job.toml: [inputs.l]`."""

    def __init__(self, where: str, values: Any, known: Sequence[str], also: Mapping[str, str] | None = None):
        """Check the keys. `also` maps likely wrong keys to the right ones."""
        if not isinstance(values, dict):
            raise ConfigError(f"{where} must be a table of keys and values, not {describe(values)}")
        self.where = where
        self._values = values
        refuse_unknown(where, values, known, also or {})

    def text(self, key: str) -> str:
        found = self.optional_text(key)
        if found is None:
            raise ConfigError(f"{self.where} lacks the key {key!r}")
        return found

    def optional_text(self, key: str) -> str | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{self.where}: {key} must be a text, not {describe(value)}")
        return value

    def pair(self, key: str) -> tuple[int, int] | None:
        match self._values.get(key):
            case None:
                return None
            case [int(first), int(second)]:
                return first, second
            case other:
                raise ConfigError(
                    f"{self.where}: {key} must be two numbers, such as [2, 4], not {describe(other)}"
                )

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            example = f'["{value}"]' if isinstance(value, str) else '["id", "price * 2 AS double"]'
            raise ConfigError(f"{self.where}: {key} must be a list of texts, such as {example}")
        return tuple(value)

    def count(self, key: str) -> int | None:
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{self.where}: {key} must be an integer of at least 1, not {describe(value)}")
        return value

    def flag(self, key: str) -> bool | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"{self.where}: {key} must be true or false, not {describe(value)}")
        return value

    def length(self, key: str) -> str | int | None:
        """A length of time: a text with a unit, or a number if times are numbers."""
        return self._text_or_number(key, "10 minutes")

    def size(self, key: str) -> str | int | None:
        """A number of bytes, or a text with a unit."""
        return self._text_or_number(key, "64 MB")

    def _text_or_number(self, key: str, example: str) -> str | int | None:
        value = self._values.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(
                f'{self.where}: {key} must be a text, such as "{example}", or a number, not {describe(value)}'
            )
        return value

    def names(self, key: str) -> dict[str, str] | None:
        """A table of texts by name."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise ConfigError(
                f'{self.where}: {key} must be a table of texts, such as {{ o = "ts", p = "ts" }}, not {describe(value)}'
            )
        return value

    def options(self, key: str) -> dict[str, str]:
        """A table of free keys. `a.b = 1` and `"a.b" = 1` are the same option."""
        value = self._values.get(key, {})
        where = f"{self.where}: {key}"
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be a table, such as {{ header = true }}, not {describe(value)}")
        return flatten(where, value)


def flatten(where: str, values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested tables to dotted keys, with every value as Spark's text."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(where, value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            flat[prefix + key] = str(value).lower()
        elif isinstance(value, (str, int, float)):
            flat[prefix + key] = str(value)
        else:
            raise ConfigError(
                f"{where}: {prefix}{key} must be a text, number or true/false, not {describe(value)}"
            )
    return flat


def refuse_unknown(where: str, found: Iterable[str], known: Sequence[str], also: Mapping[str, str]) -> None:
    for key in found:
        if key not in known:
            raise ConfigError(f"{where} has no key {key!r}{did_you_mean(key, known, also)}")


def did_you_mean(word: str, known: Sequence[str], also: Mapping[str, str] | None = None) -> str:
    """The end of a message that refuses `word`: the most similar word, or all of them."""
    close = (also or {}).get(word.lower()) or next(
        iter(difflib.get_close_matches(word.lower(), known, n=1, cutoff=_ALIKE)), None
    )
    return f"; did you mean {close!r}?" if close else f"; it takes {', '.join(known)}"


def describe(value: object) -> str:
    """A short description of a value for a message; never the content of a table, which may hold a credential."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if value == "":
        return "an empty one"
    return f"{value!r}"
