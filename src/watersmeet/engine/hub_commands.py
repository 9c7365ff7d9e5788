"""The command folder of a hub: each command is a file of one line, which appears whole.

    {"op": "add", "id": "q1", "sql": "SELECT ...", "at": 1767225600000000000}

`at` is when the command was given, in nanoseconds since 1970. The commands of a batch take effect in its order: Spark
reads the files of a batch by size. Files of others may leave `at` out; then the time of the file counts.

The folder lies in the state, beside the folders of joins, where nothing is cleaned up. Files stay: a hub with a new
checkpoint and a new state finds all its queries again.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from watersmeet.errors import ConfigError, UsageError
from watersmeet.hubs.catalogue import ADD, Command, problem_with
from watersmeet.hubs.templates import TemplateReader
from watersmeet.log.files import LocalFiles, open_files
from watersmeet.log.names import COMMAND_FOLDERS
from watersmeet.log.storage import Storage

COMMAND_FIELDS = "op string, id string, sql string, at bigint"


def default_folder(state: Storage | str | os.PathLike[str], name: str) -> Path | None:
    """The command folder of a hub in a local state; None if the state is on an object store.

    Spark reads an object store through a filesystem of its own, which may not know the address of the state.
    """
    files = open_files(state)
    return files.root / COMMAND_FOLDERS / name if isinstance(files, LocalFiles) else None


def command_folder(state: Storage | str | os.PathLike[str], name: str | None) -> Path:
    """The command folder of a hub that has been started in a local state; ConfigError if there is none, or several."""
    files = open_files(state)
    if not isinstance(files, LocalFiles):
        raise ConfigError(f"{files.place} is on an object store: name the command folder with --commands")
    folders = files.root / COMMAND_FOLDERS
    found = sorted(folder.name for folder in folders.iterdir()) if folders.is_dir() else []
    if name is not None or len(found) == 1:
        return folders / (name or found[0])
    if not found:
        raise ConfigError(
            f"there is no command folder in {files.place}: start the hub once, or name its folder with --commands"
        )
    raise ConfigError(f"{files.place} holds the hubs {', '.join(found)}: name one with --name")


def make_folder(folder: Path, state: Storage | None = None) -> None:
    """Make a command folder if it is missing. The state around it gets its own mode."""
    if state is not None:
        open_files(state).make()
    folder.mkdir(parents=True, exist_ok=True)


def check_command(op: str, id_: str, sql: str | None, reader: TemplateReader | None = None) -> None:
    """Raise UsageError or PredicateError for a command that the hub would refuse for its id or its text."""
    problem = problem_with(Command(op, id_, sql))
    if problem is not None:
        raise UsageError(problem)
    if op == ADD and reader is not None:
        reader.read(sql or "")


def write_command(
    folder: Path,
    op: str,
    id_: str,
    sql: str | None = None,
    *,
    unique: str | None = None,
    clock_ns: Callable[[], int] = time.time_ns,
) -> Path:
    """Put a command into a folder. It appears whole, and a hub that runs takes it in its next batch.

    Who writes a command once more gives the same `unique`.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"there is no command folder {folder}: start the hub once. If it reads another folder, name that one "
            "(--commands, or commands= of wm.hub)"
        )
    unique = unique or uuid.uuid4().hex
    at = clock_ns()
    command = {"op": op, "id": id_, "sql": sql, "at": at}
    # Spark's file source passes over names with a leading dot.
    draft = folder / f".{unique}.json"
    with draft.open("w", encoding="utf-8") as file:
        file.write(json.dumps({key: value for key, value in command.items() if value is not None}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return draft.rename(folder / draft.name[1:])
