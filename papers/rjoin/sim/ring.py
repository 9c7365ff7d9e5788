"""A Chord ring at rest, as arrays: who is responsible for a key, and the way of a message from any node to any other.

The same rules as `papers.rjoin.chord`, whose nodes act one by one; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from papers.rjoin.chord import BITS, hash_key
from papers.rjoin.sim.workload import Ints

Idents = npt.NDArray[np.uint64]


class Ring:
    """`ids` of the nodes, and the identifiers of all keys. Node numbers stay when identifiers move."""

    def __init__(self, ids: Idents, keys: Idents) -> None:
        self.ids, self.keys = ids, keys
        self.order: Ints = np.argsort(ids).astype(np.int64)
        self._rank = np.empty_like(self.order)
        self._rank[self.order] = np.arange(len(ids))

    @property
    def nodes(self) -> int:
        return len(self.ids)

    @cached_property
    def node_of(self) -> Ints:
        """The successor of each key."""
        return self.order[np.searchsorted(self.ids[self.order], self.keys) % self.nodes]

    @cached_property
    def next_hop(self) -> Ints:
        """By sender and destination: whom the sender passes the message on to.

        That is the farthest finger before the destination, or the destination if it is the next node. It depends on the
        destination's key only through the destination: no node lies between the key and its successor.
        """
        ordered = self.ids[self.order]
        # The finger of bit b is the successor of the node's identifier plus 2^b; uint64 wraps as the ring does.
        starts = ordered[:, None] + (np.uint64(1) << np.arange(BITS, dtype=np.uint64))
        fingers = np.searchsorted(ordered, starts) % self.nodes
        ahead = np.sort((fingers - np.arange(self.nodes)[:, None]) % self.nodes, axis=1)
        found = np.empty((self.nodes, self.nodes), np.int64)
        distance = np.arange(self.nodes)
        for place in range(self.nodes):
            # Strictly before the destination; distance 1 has nobody before it. A finger may be the node itself: 0.
            at = np.searchsorted(ahead[place], distance) - 1
            step = np.maximum(np.where(at >= 0, ahead[place][at], 0), 1)
            ahead_of = self.order[(place + distance) % self.nodes]
            found[self.order[place], ahead_of] = self.order[(place + step) % self.nodes]
        np.fill_diagonal(found, np.arange(self.nodes))
        return found

    @cached_property
    def hops(self) -> Ints:
        """By sender and destination: the number of messages on the way."""
        at, hops = (
            np.tile(np.arange(self.nodes)[:, None], self.nodes),
            np.zeros((self.nodes, self.nodes), np.int64),
        )
        goal = np.arange(self.nodes)[None, :]
        while (moving := at != goal).any():
            hops += moving
            at = self.next_hop[at, goal]
        return hops

    def sent_by(self, flows: Ints) -> Ints:
        """By node: the messages that it sends, its own and those that it routes. `flows` counts sender by destination."""
        sent = np.zeros(self.nodes, np.int64)
        sender, goal = np.nonzero(flows)
        weight = flows[sender, goal]
        while len(sender):
            moving = sender != goal
            sender, goal, weight = sender[moving], goal[moving], weight[moving]
            sent += np.bincount(sender, weight, self.nodes).astype(np.int64)
            sender = self.next_hop[sender, goal]
        return sent

    def around(self, node: Ints) -> Ints:
        """The place of each node in the order of the ring."""
        return self._rank[node]


def hashed(names: Sequence[str]) -> Idents:
    return np.array([hash_key(name) for name in names], np.uint64)
