"""Check the inputs of a join by their names, before anything is opened: for the API, job files and the local driver."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from watersmeet.errors import UsageError
from watersmeet.model.signature import MOST_INPUTS

# Names stand unquoted in SQL. Without a dot no input has the name of another one's arrangement, such as `b.1`.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_number(inputs: Collection[str]) -> None:
    """Refuse too few and too many inputs.

    >>> check_number(["l", "r"])
    """
    if len(inputs) < 2:
        raise UsageError(
            f"a join takes 2 to {MOST_INPUTS} inputs by name, got {len(inputs)}: write for example "
            'wm.join({"l": left, "r": right}, on="l.k = r.k")'
        )
    if len(inputs) > MOST_INPUTS:
        raise UsageError(
            f"a join takes 2 to {MOST_INPUTS} inputs by name, got {len(inputs)}: join some of them first, write the "
            "result to a sink and read it as one input"
        )


def check_names(inputs: Collection[str]) -> None:
    """Refuse names that SQL cannot use."""
    for name in inputs:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"the input name {name!r} cannot be used in SQL: use letters, digits and '_'")


def check_tables(inputs: Collection[str], tables: Sequence[str]) -> None:
    """Refuse a join of tables alone. `tables` are the names of those inputs that are tables."""
    if len(tables) == len(inputs):
        all_of_them = "both" if len(tables) == 2 else "all"
        raise UsageError(
            f"inputs {' and '.join(tables)} are {all_of_them} tables: one of them must be a stream or a DataFrame"
        )
