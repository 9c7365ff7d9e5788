"""Which start of the query is the newer one: every start claims the next number, once.

The number is the run sequence of all manifests of that start. It is claimed by the first ingest task to
run, with the same atomic creation that publishes manifests; all other tasks of the start find the claim.
So two starts never share a number, not even if both replay the same batch, and a checkpoint rolled back by
hand twice still finds the right parent.

Not guaranteed: the order of two starts whose first tasks run at the same moment. The driver of the older
one would have to be gone before its first task began, and the new driver up, in less than that.
"""

from __future__ import annotations

from watersmeet.errors import StateInUse
from watersmeet.log.files import Files

STARTS = "starts"


def claim_sequence(files: Files, run: str) -> int:
    """The run sequence of this start of the query: the one it has, or the next free one."""
    claimed = {int(info.name): info.name for info in files.entries(STARTS) if info.name.isdigit()}
    for number, name in sorted(claimed.items(), reverse=True):
        if files.read(f"{STARTS}/{name}").decode() == run:
            return number
    number = max(claimed, default=-1) + 1
    while not files.publish(_path(number), run.encode()):
        if files.read(_path(number)).decode() == run:
            return number
        number += 1
    return number


def check_newest(files: Files, sequence: int) -> None:
    """Refuse to go on if a later start of the same query has taken over: it may be at the same batch.

    Two drivers on one checkpoint would otherwise both publish, and the next start could build on the one
    that Spark did not commit.
    """
    later = [info.name for info in files.entries(STARTS) if info.name.isdigit() and int(info.name) > sequence]
    if later:
        raise StateInUse(
            f"another start of this query has taken over its state in {files.place}: two drivers must not run on "
            "one checkpoint. Stop this one, or stop the other and start again"
        )


def forget_starts_before(files: Files, number: int) -> None:
    """Drop the claims of starts that no retained manifest belongs to."""
    for info in files.entries(STARTS):
        if info.name.isdigit() and int(info.name) < number:
            files.delete(f"{STARTS}/{info.name}")


def _path(number: int) -> str:
    return f"{STARTS}/{number:06d}"
