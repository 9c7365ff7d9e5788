"""The names of all files and folders of a state: one pattern for each kind.

A state directory may hold foreign files: `.nfs0001` while a removed file is still open somewhere, `.DS_Store`, the
`_SUCCESS` of a Spark job, `lost+found`, `.snapshot`. A name that fits no pattern is not ours: it is neither read nor
removed, and it is no error.

    starts/000003                                          start_number
    manifests/000003-000000000017-RUN.json                 manifest_parts
    bases/000003-000000000017-CHECKSUM.arrow               batch_file
    statistics/000003-000000000017-CHECKSUM.arrow          batch_file
    descriptors/000003-000000000017-INPUT-00000-CHECKSUM.arrow   batch_file
    receipts/MERGE.00000.ATTEMPT.json                      receipt_part
    tallies/000003-000000000017-00000.json                 tally_parts
    runs/INPUT/0000000017-LABEL-CHECKSUM.arrow             run_batch
    tables/FINGERPRINT, tables/frame-ID                    is_table_folder
    tables/FINGERPRINT/{table.json, pages-, part-, used-, making-}  is_table_file
    ~files/ID/intakes/000000000007.json                    intake_number
    ~files/ID/seen/000000000100.json                       intake_number
    ~files/ID/rereads/000000000001.json                    intake_number
    ~commands/HUB/*.json                                   written by anybody, read by Spark (engine/hub_commands.py)
    JOIN, JOIN~TABLE                                       is_join_folder
    .NAME.ID                                               is_draft: NAME must fit its folder's pattern
    CACHE/HASH/.../NAME.arrow                              is_copy_folder, is_copy, is_copy_draft
    CACHE/HASH/.../NAME.keys.arrow                         keys_copy, is_copy: the keys of a run, without its rows

A draft is a file before it gets its name. A run's draft has a longer ID in place of its checksum.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MANIFESTS = "manifests"
BASES = "bases"
STATISTICS = "statistics"
DESCRIPTORS = "descriptors"
RECEIPTS = "receipts"
RUNS = "runs"
TALLIES = "tallies"

# The logs of file inputs. No join can have this name.
FILE_LOGS = "~files"
INTAKES = "intakes"
SEEN_NAMES = "seen"
REREADS = "rereads"

# The command folders of hubs, by name. No join can have this name either.
COMMAND_FOLDERS = "~commands"

# The state directory of a job that names none: a folder in the checkpoint, so that deleting or moving the checkpoint
# includes the state.
STATE_IN_CHECKPOINT = "watersmeet"

# Test files of `log/probe.py`.
PROBE = ".watersmeet-probe-"

_HASH = r"[0-9a-f]{16}"
_ID = r"[0-9a-f]{32}"

# A user cannot give this sign in a name. It needs no escape in a path or a URI.
_OF_JOIN = "~"
_JOIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LOOKUP = re.compile(rf"({_JOIN.pattern}){_OF_JOIN}([A-Za-z0-9_]+)")
_START = re.compile(r"[0-9]{6,}")
_MANIFEST = re.compile(r"([0-9]{6,})-([0-9]{12,})-([\w.-]+)\.json")
_BATCH_FILE = re.compile(rf"([0-9]{{6,}})-([0-9]{{12,}})-(?:[\w.-]+-)?{_HASH}\.arrow")
# A merge is named after an arrangement, which has a dot in its name if its input has several, or after what a hub stores
# for itself, as are the receipts of what join tasks add to it.
_RECEIPT = re.compile(r"(~?\w[\w.-]*)\.([0-9]{5,})\.([\w-]+)\.json")
_TALLY = re.compile(r"([0-9]{6,})-([0-9]{12,})-([0-9]{5,})\.json")
_RUN = re.compile(rf"([0-9]{{10,}})-[\w.-]+-(?:{_HASH}|{_ID})\.arrow")
_TABLE_FOLDER = re.compile(rf"{_HASH}|frame-[0-9a-f]+")
_TABLE_FILE = re.compile(
    rf"table\.json|pages-{_HASH}\.arrow|part-[0-9]{{5,}}-{_HASH}\.arrows|(?:used|making)-[0-9a-f]+"
)
_COPY = re.compile(r"[\w.-]+\.arrows?")
_INTAKE = re.compile(r"([0-9]{12,})\.json")
_DRAFT = re.compile(rf"\.(.+)\.{_ID}")


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    run_seq: int
    batch: int
    run: str

    @property
    def path(self) -> str:
        return f"{MANIFESTS}/{batch_stem(self.run_seq, self.batch)}-{self.run}.json"


def draft_of(name: str, unique: str) -> str:
    """The name of a file while it is written; `unique` has 32 hexadecimal digits."""
    return f".{name}.{unique}"


def is_join_name(name: str) -> bool:
    """Whether a user may give a join this name. Names with a leading dot, and `lost+found`, are refused."""
    return _JOIN.fullmatch(name) is not None


def is_join_folder(name: str) -> bool:
    """Whether a join, one of its lookups or a query has this name."""
    return is_join_name(name) or _LOOKUP.fullmatch(name) is not None


def lookup_folder(join: str, table: str) -> str:
    """The folder of a lookup that is a stage of a join.

    >>> lookup_folder("s-c-p", "p"), join_of("s-c-p~p"), join_of("s-c-p")
    ('s-c-p~p', 's-c-p', None)
    """
    return f"{join}{_OF_JOIN}{table}"


def join_of(folder: str) -> str | None:
    """The join whose lookup has this folder; None if it is the folder of a join."""
    found = _LOOKUP.fullmatch(folder)
    return found[1] if found else None


def table_of(folder: str) -> str | None:
    """The table of the lookup that has this folder; None if it is the folder of a join."""
    found = _LOOKUP.fullmatch(folder)
    return found[2] if found else None


def start_number(name: str) -> int | None:
    return int(name) if _START.fullmatch(name) else None


def manifest_parts(name: str) -> tuple[int, int, str] | None:
    """Run sequence, batch and run of a manifest."""
    found = _MANIFEST.fullmatch(name)
    return (int(found[1]), int(found[2]), found[3]) if found else None


def batch_stem(run_seq: int, batch: int) -> str:
    """The first part of the name of a file that belongs to one batch of one start."""
    return f"{run_seq:06d}-{batch:012d}"


def batch_file(name: str) -> tuple[int, int] | None:
    """Run sequence and batch of a base, of statistics or of a published descriptor."""
    found = _BATCH_FILE.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def receipt_part(name: str) -> tuple[str, int] | None:
    """The merge and the number of the part that a receipt is for."""
    found = _RECEIPT.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def tally_parts(name: str) -> tuple[int, int, int] | None:
    """Run sequence, batch and task of a tally."""
    found = _TALLY.fullmatch(name)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def run_batch(name: str) -> int | None:
    """The batch of a run, or of a run's draft."""
    found = _RUN.fullmatch(name)
    return int(found[1]) if found else None


def intake_path(number: int) -> str:
    return f"{INTAKES}/{number:012d}.json"


def seen_path(number: int) -> str:
    return f"{SEEN_NAMES}/{number:012d}.json"


def reread_path(number: int) -> str:
    return f"{REREADS}/{number:012d}.json"


def intake_number(name: str) -> int | None:
    """The number of an intake, of the last intake whose names a file has, or of a reread."""
    found = _INTAKE.fullmatch(name)
    return int(found[1]) if found else None


def is_table_folder(name: str) -> bool:
    return _TABLE_FOLDER.fullmatch(name) is not None


def is_table_file(name: str) -> bool:
    """Whether this is a file of a table's folder, or a draft of one."""
    found = _DRAFT.fullmatch(name)
    return _TABLE_FILE.fullmatch(found[1] if found else name) is not None


def is_draft(name: str, kind: Callable[[str], object]) -> bool:
    """Whether this is the draft of a file of some kind: `start_number`, `manifest_parts`, `batch_file`, ..."""
    found = _DRAFT.fullmatch(name)
    return found is not None and kind(found[1]) is not None


def is_copy_folder(name: str) -> bool:
    """Whether a folder of the cache may hold copies."""
    return re.fullmatch(_HASH, name) is not None


def is_copy(name: str) -> bool:
    """Whether this is a local copy of a run or of its keys, or of a part or the index of a table."""
    return _COPY.fullmatch(name) is not None


def keys_copy(path: str) -> str:
    """The local copy of the keys of a run.

    >>> keys_copy("runs/l/0000000017-p0-0123456789abcdef.arrow")
    'runs/l/0000000017-p0-0123456789abcdef.keys.arrow'
    """
    return path.removesuffix(".arrow") + ".keys.arrow"


def is_copy_draft(name: str) -> bool:
    found = _DRAFT.fullmatch(name)
    return found is not None and is_copy(found[1])
