"""Every error that Watersmeet raises on purpose. Each says what was found, where, and what to do."""

from __future__ import annotations


class WatersmeetError(Exception):
    """The base class of all errors that the library raises on purpose."""


class UsageError(WatersmeetError, ValueError):
    """An argument is wrong."""


class ConfigError(UsageError):
    """A setting or a job file is wrong."""


class PredicateError(UsageError):
    """A predicate or a selected column cannot be used; `position` is the offset in the text, if known."""

    def __init__(self, problem: str, text: str | None = None, position: int | None = None, hint: str = ""):
        self.problem = problem
        self.text = text
        self.position = position
        self.hint = hint
        super().__init__(_with_caret(problem, text, position, hint))


class ConditionError(WatersmeetError):
    """A join condition in Python raised, or did not return one boolean for each pair of rows."""


class TableError(WatersmeetError):
    """A table of a join cannot be read, or differs from its description."""


class FileError(WatersmeetError):
    """A file or the directory of an input cannot be read, has changed, or does not fit the schema."""


class StateError(WatersmeetError):
    """The durable state does not fit the query."""


class StateMissing(StateError):
    """The checkpoint says that batches were done, but their state is missing."""


class StateBehind(StateError):
    """The state is older than the checkpoint."""


class StateMismatch(StateError):
    """The state was written by a join with another predicate, keys or columns."""


class StateInUse(StateError):
    """Two joins of one query have one name, or a later start of the query has taken over."""


class CorruptFile(StateError):
    """A run or a manifest is damaged; the message names the file and the batch."""


class OldFormat(CorruptFile):
    """A file was written in a format that is no longer read."""


# Longer predicates are shown around the place of the error only.
_SHOWN_CHARS = 120


def _with_caret(problem: str, text: str | None, position: int | None, hint: str) -> str:
    lines = [problem]
    if text is not None:
        at = min(position if position is not None else 0, len(text))
        start = max(0, at - _SHOWN_CHARS // 2)
        shown = text[start : start + _SHOWN_CHARS]
        row_start = shown.rfind("\n", 0, at - start) + 1
        row_end = shown.find("\n", at - start)
        row = shown[row_start : row_end if row_end >= 0 else len(shown)]
        lines.append(f"  {row}")
        if position is not None:
            lines.append("  " + " " * (at - start - row_start) + "^")
    if hint:
        lines.append(hint)
    return "\n".join(lines)
