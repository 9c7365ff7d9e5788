"""A folder of results that appears as a whole: written under another name, and renamed once it is complete.

    FOLDER                  the results, or nothing
    FOLDER.settling-ID      a draft: what a settling writes

A draft that nobody completes stays until the next settling into this folder removes it. On a filesystem the folder is
renamed. An object store has no folders to rename: there the objects are copied one by one, the mark of a complete
folder (`_SUCCESS`) last.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from watersmeet import failpoints
from watersmeet.credentials import hide, scrub
from watersmeet.errors import StateError, UsageError
from watersmeet.log.storage import SCHEME

# A streaming file sink of Spark keeps the list of its files here. Readers of its folder see the files listed, no others.
SINK_LOG = "_spark_metadata"
_COMPLETE = "_SUCCESS"


def shown(folder: str) -> str:
    """A folder without credentials, as it is stored and printed."""
    return hide(folder)


def draft_of(folder: str, run: str) -> str:
    """The place of a settling's results until it has won."""
    return f"{folder.rstrip('/')}.{run}"


def check_apart(folder: str, *others: str) -> None:
    """Refuse a folder that is, holds or lies in one of the query's own."""
    mine = absolute(folder)
    for other in map(absolute, others):
        if f"{mine}/".startswith(f"{other}/") or f"{other}/".startswith(f"{mine}/"):
            raise UsageError(
                f"{hide(folder)} is, holds or lies in {hide(other)}, which is the checkpoint, the state or the sink of the "
                "query. Give a folder of its own: Spark's readers of a streaming file sink would not see these files"
            )


def absolute(place: str) -> str:
    """A place that means the same in every process: a relative path is one below the folder of this process."""
    text = _without_file(place)
    return text.rstrip("/") if SCHEME.match(text) else os.path.abspath(text)  # noqa: PTH100 (need not exist)


def check_free(folder: str) -> None:
    """Refuse a folder in which the results would mix with others, or be hidden from Spark's readers."""
    files, path = open_folder(folder)
    parent = path.rpartition("/")[0]
    for place, whose in (
        (path, hide(folder)),
        (parent, f"{hide(folder.rstrip('/').rpartition('/')[0])}, above {hide(folder)},"),
    ):
        if place and _kind(files, f"{place}/{SINK_LOG}") != fs.FileType.NotFound:
            raise UsageError(
                f"{whose} is the folder of a streaming file sink: it has {SINK_LOG}, and Spark's readers see only the "
                "files that are listed there. Give a folder of its own, and read both"
            )
    kind = _kind(files, path)
    if kind == fs.FileType.File:
        raise UsageError(f"{hide(folder)} is a file: give a folder that does not exist yet")
    if kind == fs.FileType.Directory and files.get_file_info(fs.FileSelector(path)):
        raise UsageError(
            f"{hide(folder)} is not empty: give a folder that does not exist yet, so that nothing in it is replaced"
        )


def place(folder: str, run: str) -> bool:
    """Give the draft of a settling its name. False if there is no draft: then it was done before."""
    files, path = open_folder(folder)
    draft = draft_of(path, run)
    if _kind(files, draft) == fs.FileType.NotFound:
        return False
    failpoints.reach("settled-before-move")
    if isinstance(files, fs.LocalFileSystem):
        _rename(draft, path)
    else:
        _move_each(files, draft, path)
    failpoints.reach("settled-moved")
    return True


def remove_draft(folder: str, run: str) -> None:
    files, path = open_folder(folder)
    with contextlib.suppress(FileNotFoundError):
        files.delete_dir(draft_of(path, run))


def _rename(draft: str, path: str) -> None:
    """Rename a folder, over an empty one too. Another process may do the same."""
    try:
        with contextlib.suppress(FileNotFoundError):
            Path(draft).rename(path)
    except OSError as error:
        raise StateError(
            f"the state is settled and its results are complete, but {path} is not empty any more "
            f"({error.strerror}): they are in {draft}. Move that folder to another place yourself, or empty {path} and "
            "settle again"
        ) from error


def _move_each(files: fs.FileSystem, draft: str, path: str) -> None:
    files.create_dir(path)
    found = files.get_file_info(fs.FileSelector(draft))
    for info in sorted(found, key=lambda info: (info.base_name == _COMPLETE, info.base_name)):
        if info.type == fs.FileType.File:
            with contextlib.suppress(FileNotFoundError):
                files.move(info.path, f"{path}/{info.base_name}")
            failpoints.reach("settled-file-moved")
    with contextlib.suppress(FileNotFoundError):
        files.delete_dir(draft)


def _kind(files: fs.FileSystem, path: str) -> fs.FileType:
    return files.get_file_info(path).type


def open_folder(folder: str) -> tuple[fs.FileSystem, str]:
    """The filesystem of a folder, and its path there."""
    text = _without_file(folder)
    if not SCHEME.match(text):
        return fs.LocalFileSystem(), str(Path(text).absolute())
    # Hadoop calls it s3a, everybody else s3.
    plain = "s3" + text[3:] if text.startswith("s3a:") else text
    try:
        files, path = fs.FileSystem.from_uri(plain)
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"the folder {hide(folder)} cannot be opened: {scrub(str(error), folder)}") from None
    return files, path.rstrip("/")


def _without_file(place: str) -> str:
    return "/" + place.removeprefix("file:").lstrip("/") if place.startswith("file:") else place
