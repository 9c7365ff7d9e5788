"""Extract one readable message from the layers that Spark wraps around an error.

An error of a join task comes back as text: a StreamingQueryException that quotes a Python traceback, error codes, the
query's offsets and its plan. People want the last line of that traceback.
"""

from __future__ import annotations

import re

from watersmeet.errors import WatersmeetError


class QueryError(WatersmeetError):
    """The running query ended with an error; the message says which."""


# Where the text of one error ends and Spark's additions, or another traceback, begin.
_END = (
    r"(?=\n? SQLSTATE: |\n=== Streaming Query|\n\s+at [\w.$]+\(|\nJVM stack"
    r"|\n\n?(?:During handling|The above exc)|\Z)"
)
_OURS = re.compile(rf"^watersmeet\.errors\.\w+: (.+?){_END}", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(
    rf"^((?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*(?:Error|Exception|Interrupt)\b.*?){_END}",
    re.MULTILINE | re.DOTALL,
)
_ANY = re.compile(rf"\A(.+?){_END}", re.DOTALL)
# Prefixes of Spark and py4j before the message itself.
_BEFORE = re.compile(
    r"^(?:\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: "
    r"|An error occurred while calling \S+\n: (?:[\w.$]+: )?)"
)
_CONDITION = re.compile(r"^\[[A-Z][A-Z0-9_.]+\] ")

# An error of another library may quote a whole plan.
_SHOWN_CHARS = 2_000


def own_message(text: str) -> str | None:
    """The message of the last Watersmeet error in Spark's text; None if there is none."""
    found = _OURS.findall(text)
    return found[-1].strip() if found else None


def plain_message(error: BaseException) -> str:
    """The message of any error: ours unchanged, of Spark's the part that says what happened."""
    text = str(error).strip()
    if isinstance(error, WatersmeetError):
        return text
    ours = own_message(text)
    if ours is not None:
        return ours
    if "Traceback (most recent call last)" in text and (raised := _PYTHON.findall(text)):
        return str(raised[-1]).strip()[:_SHOWN_CHARS]
    text = _BEFORE.sub("", text)
    match = _ANY.match(text)
    text = match[1] if match else text
    return _CONDITION.sub("", text).strip()[:_SHOWN_CHARS] or type(error).__name__
