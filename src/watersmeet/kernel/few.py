"""Few candidates of many pairs of pieces, tested and gathered together.

A small batch meets the history run by run, and each run has a handful of partners for it. To gather the columns of a
handful takes as long as those of a thousand: nearly all of it are calls. So the rows of few candidates are copied, those
of one pair of pieces behind those of another, and go through the emission at once.

A candidate whose rows may be large is not copied: without looking at the values, all that is known is that none is
larger than its piece.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.kernel.emit import Emission, Picked, PickedRows
from watersmeet.kernel.rows import take_rows
from watersmeet.kernel.sizes import value_bytes


class FewCandidates:
    """Holds few candidates until there are enough of them; `rest` gives out the last ones."""

    __slots__ = ("_bytes", "_emission", "_held", "_rows", "_widths")

    def __init__(self, emission: Emission) -> None:
        self._emission = emission
        self._held: list[dict[str, pa.RecordBatch]] = []
        self._rows = self._bytes = 0
        # The bytes of a row of each input; None if rows differ.
        self._widths: dict[str, int | None] = {}

    def results(self, found: PickedRows) -> Iterator[pa.RecordBatch]:
        """The results of these candidates now, or those of candidates before, or none yet."""
        limits = self._emission.limits
        rows = len(next(iter(found.values())).at)
        few = rows <= min(limits.few_rows, limits.output_rows)
        size = self._most_bytes(found, rows) if few else 0
        if not few or size > limits.output_bytes:
            yield from self._emission.results(found)
            return
        if self._rows + rows > limits.output_rows or self._bytes + size > limits.output_bytes:
            yield from self.rest()
        self._held.append({name: take_rows(picked.rows, picked.at) for name, picked in found.items()})
        self._rows += rows
        self._bytes += size

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The results of all that is held."""
        held, rows = self._held, self._rows
        self._held, self._rows, self._bytes = [], 0, 0
        if not held:
            return
        places = np.arange(rows)
        yield from self._emission.results(
            {
                name: Picked(
                    held[0][name] if len(held) == 1 else pa.concat_batches([one[name] for one in held]),
                    places,
                )
                for name in held[0]
            }
        )

    def _most_bytes(self, found: PickedRows, rows: int) -> int:
        """What copies of the candidates' rows take at most."""
        return sum(
            rows * (width if (width := self._width(name, picked.rows)) is not None else picked.rows.nbytes)
            for name, picked in found.items()
        )

    def _width(self, name: str, rows: pa.RecordBatch) -> int | None:
        if name not in self._widths:
            widths = [value_bytes(field.type) for field in rows.schema]
            # A null takes a bit more.
            self._widths[name] = None if None in widths else sum(1 + (width or 0) for width in widths)
        return self._widths[name]
