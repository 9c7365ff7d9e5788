"""The clean-up phase of the paper: all that a range of keys owes after a batch, given out at once (section 4.2).

The package pays in the batches of the query (engine/payment.py) or divides the debts among tasks (engine/owed.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.payment import Debts
from watersmeet.engine.spec import Join
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import KeyRange, Manifest
from watersmeet.model.generations import generations_of
from watersmeet.model.limits import Limits
from watersmeet.model.ranges import intersected, joined
from watersmeet.model.tally import Tally


def pay_all(
    reader: RunReader, manifest: Manifest, join: Join, range_: KeyRange, tally: Tally, limits: Limits
) -> Iterator[pa.RecordBatch]:
    """Yield all that keys in a range owe after a batch, its own rows included. Nothing is changed.

    Ranges that cover all keys and do not overlap give every owed result once.
    """
    generations = generations_of(
        manifest.live, manifest.pushes, [range_, *(cells.range for cells in manifest.paying)]
    )
    debts = Debts(reader, manifest.signature, generations, manifest.pushes, join, tally, limits)
    owing = joined(one for push in manifest.pushes for one in push.ranges)
    mine = intersected(owing, (range_,))
    debts.expect(mine)
    left = [
        replace(cells, first=cells.end, end=cells.of)
        for cells in manifest.paying
        if cells.range.low in range_
    ]
    for cells in left:
        yield from debts.pay_cells(cells)
    yield from debts.pay_ranges(mine, left)
