"""Messages and loads, counted as section 8 defines them."""

from __future__ import annotations

import numpy as np

from papers.rjoin.sim.ring import Ring
from papers.rjoin.sim.workload import Ints


class Flows:
    """Messages of one kind. Those that are routed are kept as sender and destination until somebody asks for nodes."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._routed = np.zeros((ring.nodes, ring.nodes), np.int64)
        self._sent = np.zeros(ring.nodes, np.int64)
        self.total = 0

    def send(self, sender: Ints, receiver: Ints) -> None:
        """Through the ring, hop by hop."""
        np.add.at(self._routed, (sender, receiver), 1)
        self.total += int(self._ring.hops[sender, receiver].sum())

    def send_directly(self, sender: Ints) -> None:
        """In one hop, to a known address."""
        self._sent += np.bincount(sender, minlength=self._ring.nodes)
        self.total += len(sender)

    def by_node(self) -> Ints:
        return self._sent + self._ring.sent_by(self._routed)

    def settle(self, ring: Ring) -> None:
        """The ring changes: what was routed until now went over the old one."""
        self._sent = self.by_node()
        self._routed[:] = 0
        self._ring = ring


class Traffic:
    """Tuples to their keys, requests for rates, and queries to where they are indexed."""

    def __init__(self, ring: Ring) -> None:
        self.tuples, self.ric, self.queries = (Flows(ring) for _ in range(3))

    @property
    def kinds(self) -> tuple[Flows, ...]:
        return self.tuples, self.ric, self.queries

    @property
    def total(self) -> int:
        return sum(flows.total for flows in self.kinds)

    def by_node(self) -> Ints:
        return self.tuples.by_node() + self.ric.by_node() + self.queries.by_node()


class Load:
    """Hits or stored items: by key since the ring last changed, and by node."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._settled = np.zeros(ring.nodes)
        self.by_key = np.zeros(len(ring.keys))
        self.total = 0.0

    def add(self, keys: Ints, counts: Ints | None = None) -> None:
        found = np.bincount(keys, counts, len(self.by_key))
        self.by_key += found
        self.total += float(found.sum())

    def by_node(self) -> Ints:
        here = np.bincount(self._ring.node_of, self.by_key, self._ring.nodes)
        return (self._settled + here).astype(np.int64)

    def settle(self, ring: Ring, *, moves: bool) -> None:
        """The ring changes: what is stored moves with its keys, hits stay where they were."""
        if not moves:
            self._settled = self.by_node().astype(np.float64)
            self.by_key[:] = 0
        self._ring = ring
