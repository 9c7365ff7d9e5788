"""Help texts from docstrings: paragraphs are wrapped to the terminal's width, indented blocks stay as they are.

A short line that ends with a colon is a heading. Square brackets, which typer takes for markup, are escaped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

_HEADING_WORDS = 4


def help_text(command: Callable[..., Any]) -> str:
    """The docstring of a command for typer's rich help.

    >>> def f():
    ...     '''Do
    ...     it.
    ...
    ...     Examples:
    ...
    ...       f [x]
    ...     '''
    >>> help_text(f)
    'Do it.\\n\\n[bold]Examples[/bold]\\n\\n  f \\\\[x]'
    """
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(_paragraph(text.replace("[", "\\[")) for text in paragraphs)


def _paragraph(text: str) -> str:
    if text.startswith(" "):
        return text
    filled = " ".join(text.split())
    heading = filled.endswith(":") and filled.count(" ") < _HEADING_WORDS
    return f"[bold]{filled[:-1]}[/bold]" if heading else filled
