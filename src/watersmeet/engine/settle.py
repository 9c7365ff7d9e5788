"""Settle a state: pay what it owes into a folder, and mark it, in steps that may be killed anywhere and run again.

    1  begin     find the standing; refuse it if Spark has not committed the state's last batch
                 take a number, so that every other driver of the query stops; look again
    2  pay       write the results into a draft of the folder                       (the driver does this: spark/settle)
    3  finish    publish the mark: from here on the state owes nothing
                 give the draft its name

A settling that is killed before its mark has changed nothing but the number of the next start: its draft is not used,
and the next settling pays everything again. Killed after its mark, its results are complete: the next one, of the same
or any later batch, only gives them their name. log/settlings.py says why one of two settlings, or a settling and a start
of the query, wins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watersmeet.engine.owed import Standing, files_of, find_standing
from watersmeet.engine.spec import JoinSpec
from watersmeet.errors import StateError
from watersmeet.log.checkpoint import Checkpoint
from watersmeet.log.folders import check_free, place, remove_draft, shown
from watersmeet.log.parents import is_settled
from watersmeet.log.seen import Seen
from watersmeet.log.settlings import claim_settling, publish_mark
from watersmeet.log.starts import is_settling, starts_before
from watersmeet.log.statistics import complete
from watersmeet.model.facts import Manifest, Settlement, Start
from watersmeet.plan.settled import settle_manifest


@dataclass(frozen=True, slots=True)
class Begun:
    """A settling under way: what is owed is that after `manifest`. Without a `start` it was settled before."""

    manifest: Manifest
    start: Start | None


def begin(spec: JoinSpec, read: Callable[[], Checkpoint], folder: str, run: str) -> Begun:
    """Take a start, unless the state is settled already; then give the results of that settling their name."""
    standing = _committed(spec, read())
    # A settling may have been killed between its mark and the last step, even some batches ago.
    for done in standing.manifest.settlements:
        place(_folder_of(done, folder), done.run)
    if is_settled(standing.manifest):
        return Begun(standing.manifest, None)
    check_free(folder)
    files = files_of(spec, standing.manifest.batch.query)
    start = claim_settling(files, run, standing.manifest, spec.settings.accept_gap, Seen())
    # A driver that was at work may have gone on until the claim.
    again = _committed(spec, read())
    if is_settled(again.manifest):
        return Begun(again.manifest, None)
    if again.batch != standing.batch:
        raise StateError(
            f"the query ran while the settling began: it is at batch {again.batch} now. Stop it, then settle again"
        )
    return Begun(again.manifest, start)


def finish(spec: JoinSpec, begun: Begun, settlement: Settlement, folder: str) -> None:
    """Mark the state as settled, and give the results their name."""
    assert begun.start is not None, "a state that was settled before is not settled again"
    files, seen = files_of(spec, begun.manifest.batch.query), Seen()
    before = complete(files, seen, begun.manifest)
    try:
        publish_mark(files, seen, begun.start, before, settle_manifest(before, begun.start, settlement))
    except StateError:
        remove_draft(folder, begun.start.run)
        raise
    place(folder, begun.start.run)
    # What settlings that were killed have left. Whoever comes after a settling without a mark has closed it.
    won = {done.run for done in begun.manifest.settlements}
    for one in starts_before(files, begun.start.number, ()):
        if is_settling(one.run) and one.run not in won:
            remove_draft(folder, one.run)


def settlement_of(begun: Begun, folder: str, rows: int, lost: tuple[str, ...], now_s: float) -> Settlement:
    assert begun.start is not None, "a state that was settled before is not settled again"
    batch = begun.manifest.batch.number
    return Settlement(batch, begun.start.run, shown(folder), rows, int(now_s * 1000), lost)


def _committed(spec: JoinSpec, checkpoint: Checkpoint) -> Standing:
    standing = find_standing(spec, checkpoint)
    if standing.uncommitted is not None:
        raise StateError(
            f"Spark has not committed batch {standing.uncommitted}, which the state has: its results may have reached "
            "the sink or not. Start the query once more, let it finish that batch, and stop it. Then settle"
        )
    return standing


def _folder_of(done: Settlement, given: str) -> str:
    """The folder of an earlier settling. Credentials were left out of it, so the one that is given comes first."""
    return given if shown(given) == done.folder else done.folder
