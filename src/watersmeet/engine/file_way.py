"""Decide how the rows of a file input reach the join: straight from the file, or as rows of Spark.

Straight, a task reads its files with Arrow and stores the rows; only the descriptor passes through the JVM. Keys that
are expressions and conditions on the input alone are then computed with Arrow (`engine/arriving.py`). That needs
expressions for which Arrow gives Spark's answer. Otherwise, and for hashes of nested keys, Spark computes them from the
user's own text: then the rows become a DataFrame first.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.engine.arriving import ArrivingRows
from watersmeet.engine.compile import Compiled
from watersmeet.model.types import Schema


@dataclass(frozen=True, slots=True)
class FileWay:
    """How the rows of one file input reach the join, the columns that are read, and the reason in words.

    `arriving` computes what arrives, if rows go straight.
    """

    columns: tuple[str, ...]
    why: str
    arriving: ArrivingRows | None = None

    @property
    def straight(self) -> bool:
        return self.arriving is not None

    def explain(self, name: str) -> str:
        how = "go straight from the files into the state" if self.straight else "pass through Spark"
        return f"rows of {name} {how}, because {self.why}"


def choose_file_way(compiled: Compiled, name: str, schema: Schema, *, ansi: bool) -> FileWay:
    """Choose the way of the rows of an input with these columns."""
    if any(keys.input == name for keys in compiled.hashed):
        # Of such keys only the text is known.
        return FileWay(tuple(schema), "Spark hashes its nested keys")
    arriving = ArrivingRows.of(compiled, name, ansi=ansi)
    needed = arriving.needed
    if not needed:
        return FileWay(tuple(schema)[:1], "the join needs only their number")
    if arriving.unsupported:
        return FileWay(needed, f"only Spark can compute {arriving.unsupported}")
    return FileWay(needed, "no part of the join needs Spark to read them", arriving)
