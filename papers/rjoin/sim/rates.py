"""What nodes know of the rates of arrival (sections 6 and 7): the candidate tables of all nodes as one array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from papers.rjoin.sim.ring import Ring
from papers.rjoin.sim.traffic import Traffic
from papers.rjoin.sim.workload import Ints, Rows, Schema

# A cell is the time when the rate was learned, plus one, above the rate; so the newest is the largest. 0: never asked.
_RATE_BITS = 12
MOST_RATE = (1 << _RATE_BITS) - 1


class Arrivals:
    """The true rates: tuples of each key among the last `window` of all. `time` counts tuples published."""

    def __init__(self, schema: Schema, rows: Rows, window: int) -> None:
        pairs, triples = rows.keys(schema)
        self._keys = np.concatenate([pairs, triples], axis=1)
        self._window = min(window, MOST_RATE)
        self.rates = np.zeros(schema.keys, np.int64)
        self.time = 0

    def publish(self) -> Ints:
        """The next tuple arrives under all its keys, which are returned."""
        keys = self._keys[self.time]
        self.rates[keys] += 1
        if self.time >= self._window:
            self.rates[self._keys[self.time - self._window]] -= 1
        self.time += 1
        return keys


@dataclass
class Candidates:
    """The candidate tables, with the rules of asking, of passing on, and of age."""

    ring: Ring
    arrivals: Arrivals
    traffic: Traffic
    valid: int

    def __post_init__(self) -> None:
        self._cells = np.zeros((self.ring.nodes, len(self.arrivals.rates)), np.int32)

    def ask(self, node: Ints, keys: Ints) -> None:
        """Each node learns the rates of its keys that it does not know, or knows from too long ago. Keys below 0 are none.

        A request visits the responsible nodes one after the other, in the order of the ring, and comes back in one hop. A node
        whose address is known is reached in one hop, too.
        """
        wanted = keys >= 0
        at = np.repeat(node, wanted.sum(axis=1))
        key = keys[wanted]
        learned = self._cells[at, key] >> _RATE_BITS
        missing = (learned == 0) | (self.arrivals.time - (learned - 1) > self.valid)
        if not missing.any():
            return
        flat = np.unique(at[missing] * self._cells.shape[1] + key[missing])
        at, key = np.divmod(flat, self._cells.shape[1])
        known = self._cells[at, key] > 0
        self._cells[at, key] = self._cell(key)
        self._count(at, key, known)

    def _cell(self, key: Ints) -> Ints:
        return ((self.arrivals.time + 1) << _RATE_BITS) | np.minimum(self.arrivals.rates[key], MOST_RATE)

    def _count(self, at: Ints, key: Ints, known: npt.NDArray[np.bool_]) -> None:
        """The messages of a request for each node that asks: a chain over all nodes that it has to find."""
        nodes = self.ring.nodes
        ring = self.ring
        for found, direct in ((~known, False), (known, True)):
            if not found.any():
                continue
            steps = (ring.around(ring.node_of[key[found]]) - ring.around(at[found])) % nodes
            asker, step = np.divmod(np.unique(at[found] * nodes + steps), nodes)
            # Its own rates cost nothing.
            asker, step = asker[step > 0], step[step > 0]
            if not len(asker):
                continue
            asked = ring.order[(ring.around(asker) + step) % nodes]
            first = np.concatenate([[True], asker[1:] != asker[:-1]])
            last = np.concatenate([first[1:], [True]])
            sender = np.where(first, asker, np.roll(asked, 1))
            if direct:
                self.traffic.ric.send_directly(sender)
            else:
                self.traffic.ric.send(sender, asked)
            self.traffic.ric.send_directly(asked[last])

    def rates(self, node: Ints, keys: Ints) -> Ints:
        """What each node believes of its keys."""
        return self._cells[node[:, None], keys] & MOST_RATE

    def settle(self, ring: Ring, changed: npt.NDArray[np.bool_]) -> None:
        """The ring changes: of these keys nobody knows where they are now."""
        self.ring = ring
        self._cells[:, changed] = 0

    def carry(self, sender: Ints, receiver: Ints, keys: Ints) -> None:
        """A query takes along what its sender knows of its candidates; the receiver keeps what is newer."""
        wanted = keys >= 0
        repeats = wanted.sum(axis=1)
        key = keys[wanted]
        known = self._cells[np.repeat(sender, repeats), key]
        to = np.repeat(receiver, repeats) * self._cells.shape[1] + key
        np.maximum.at(self._cells.ravel(), to, known)
