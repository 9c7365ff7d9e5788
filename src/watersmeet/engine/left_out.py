"""Tables that were taken out of a join while rows waited for them.

The lookup in each table of a chain has a folder of its own (engine/chain.py). Without the table no stage reads that
folder, so rows that wait there for a page would never come out. Another stage cannot take them over: they are located
in the pages of the table. So the start is refused, until the rows have come out or the folder is removed.
"""

from __future__ import annotations

from watersmeet.engine.spec import JoinSpec
from watersmeet.errors import StateMismatch
from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests, open_manifest
from watersmeet.log.names import join_of, table_of
from watersmeet.log.parents import choose_parent
from watersmeet.log.seen import Seen
from watersmeet.model.facts import BatchId
from watersmeet.schemes.table.plan import page_plan


def check_no_rows_wait(spec: JoinSpec, batch: BatchId) -> None:
    """Raise if rows of this query wait in a lookup that is no stage of the join any more.

    The first stage looks for all of them, at a start that continues a query: one listing of the state directory.
    """
    if not spec.stages or not batch.number:
        return
    state = open_files(spec.settings.storage)
    join = join_of(spec.name) or spec.name
    for folder in state.folders():
        if join_of(folder) != join or folder in spec.stages:
            continue
        files = state.under(folder, batch.query)
        newest = choose_parent(list_manifests(files), batch.number)
        pages = page_plan(open_manifest(files, newest, Seen())) if newest else None
        if pages is not None and pages.waiting_rows:
            table = table_of(folder)
            raise StateMismatch(
                f"the table {table} was taken out of the join {join} while {pages.waiting_rows} rows wait for it in "
                f"{files.place} (max_delay=): they would never come out. Put {table} back, run until `watersmeet "
                f"status` shows that no rows wait, and take it out then. To do without these rows, remove {files.place}"
            )
