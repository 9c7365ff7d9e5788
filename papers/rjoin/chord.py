"""Chord: a ring of nodes, each with a successor list, a predecessor and fingers (Stoica et al. 2001; RJoin, section 2).

A peer knows only what it has been told. When others join or fail, its pointers are stale until it stabilises, and
messages still arrive if no peer has lost its whole successor list. `settle` makes all pointers right at once: Theorem 1
assumes that nodes compute Successor() correctly.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

BITS = 64
RING = 1 << BITS
# Enough that no node loses all of its list if half of them fail at once (Stoica et al.: a small multiple of log N).
SUCCESSORS = 8


def hash_key(text: str) -> int:
    """The identifier of a key or an address.

    >>> hash_key("R0.A0") == hash_key("R0.A0") < RING
    True
    """
    return int.from_bytes(hashlib.sha1(text.encode()).digest()[: BITS // 8], "big")


def is_between(ident: int, low: int, high: int) -> bool:
    """Whether an identifier lies in (low, high], clockwise; (x, x] is the whole ring."""
    return (ident - low - 1) % RING < (high - low) % RING or low == high


class RouteLost(Exception):
    """A peer knows no living node that brings a message closer."""


@dataclass
class Peer:
    """What one node knows. Entries may be of nodes that have failed."""

    ident: int
    address: str
    predecessor: int | None = None
    successors: list[int] = field(default_factory=list)
    fingers: list[int] = field(default_factory=list)


class Chord:
    """The living peers by identifier. Methods act for one peer and read others only as a message would."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self.peers: dict[int, Peer] = {}
        for address in addresses:
            peer = Peer(hash_key(address), address)
            self.peers[peer.ident] = peer
        self.settle()

    def peer(self, address: str, ident: int | None = None) -> Peer:
        return self.peers[hash_key(address) if ident is None else ident]

    def join(self, address: str, via: Peer | None = None, ident: int | None = None) -> Peer:
        """A new peer asks one that it knows for its successor; the others learn of it as they stabilise."""
        peer = Peer(hash_key(address) if ident is None else ident, address)
        if peer.ident in self.peers:
            raise ValueError(f"{address}: identifier {peer.ident} is taken")
        if via is not None:
            following = self.lookup(via, peer.ident)[-1]
            peer.successors = [following.ident, *following.successors][:SUCCESSORS]
        self.peers[peer.ident] = peer
        return peer

    def fail(self, peer: Peer) -> None:
        """Gone without a word."""
        del self.peers[peer.ident]

    def leave(self, peer: Peer) -> None:
        """Gone, after its neighbours were told."""
        following = self._successor(peer)
        before = self.peers.get(peer.predecessor) if peer.predecessor is not None else None
        del self.peers[peer.ident]
        if following.predecessor == peer.ident:
            following.predecessor = peer.predecessor
        if before is not None:
            others = [ident for ident in before.successors if ident not in (peer.ident, following.ident)]
            before.successors = [following.ident, *others]

    def is_responsible(self, peer: Peer, ident: int) -> bool:
        """Whether the peer takes itself for the successor of an identifier."""
        return peer.predecessor is not None and is_between(ident, peer.predecessor, peer.ident)

    def next_hop(self, peer: Peer, ident: int) -> Peer | None:
        """Whom a peer passes a message for this identifier on to; None if the message is where it belongs."""
        if self.is_responsible(peer, ident):
            return None
        following = self._successor(peer)
        if is_between(ident, peer.ident, following.ident):
            return following if following is not peer else None
        closest = following.ident
        for known in peer.fingers:
            ahead = is_between(known, closest, ident) and known != ident
            if known in self.peers and ahead and is_between(known, peer.ident, ident):
                closest = known
        return self.peers[closest]

    def lookup(self, peer: Peer, ident: int) -> list[Peer]:
        """The peers that a message for an identifier visits, the first and the responsible one included."""
        path = [peer]
        while (following := self.next_hop(path[-1], ident)) is not None:
            # The successor of an identifier that lies between two neighbours may not know its predecessor yet.
            arrived = is_between(ident, path[-1].ident, following.ident)
            path.append(following)
            if arrived:
                break
            if len(path) > 2 * BITS + len(self.peers):
                raise RouteLost(f"no way from {peer.address} to {ident}")
        return path

    def stabilise(self, peer: Peer) -> None:
        """One round of a peer: ask the successor for its predecessor, tell it of oneself, look all fingers up again."""
        if peer.ident not in self.peers:
            return
        following = self._successor(peer)
        nearer = self.peers.get(following.predecessor) if following.predecessor is not None else None
        if (
            nearer is not None
            and nearer is not peer
            and is_between(nearer.ident, peer.ident, following.ident)
        ):
            following = nearer
        others = [ident for ident in following.successors if ident in self.peers and ident != peer.ident]
        peer.successors = list(dict.fromkeys([following.ident, *others]))[:SUCCESSORS]
        self._notify(following, peer)
        if peer.predecessor is not None and peer.predecessor not in self.peers:
            peer.predecessor = None
        starts = ((peer.ident + (1 << bit)) % RING for bit in range(BITS))
        peer.fingers = list(dict.fromkeys(self.lookup(peer, start)[-1].ident for start in starts))

    def _notify(self, peer: Peer, other: Peer) -> None:
        if peer is other:
            return
        known = peer.predecessor
        if (
            known is None
            or known not in self.peers
            or known == peer.ident
            or is_between(other.ident, known, peer.ident)
        ):
            peer.predecessor = other.ident

    def _successor(self, peer: Peer) -> Peer:
        for ident in peer.successors:
            if ident in self.peers:
                return self.peers[ident]
        if len(self.peers) == 1 or not peer.successors:
            return peer
        raise RouteLost(f"{peer.address} has lost all of its {len(peer.successors)} successors")

    def settle(self) -> None:
        """Make every pointer right."""
        order = sorted(self.peers)
        for place, ident in enumerate(order):
            peer = self.peers[ident]
            ahead = [order[(place + step) % len(order)] for step in range(1, SUCCESSORS + 1)]
            peer.predecessor = order[place - 1]
            peer.successors = list(dict.fromkeys(one for one in ahead if one != ident)) or [ident]
            starts = ((ident + (1 << bit)) % RING for bit in range(BITS))
            found = (order[bisect_left(order, start) % len(order)] for start in starts)
            peer.fingers = list(dict.fromkeys(one for one in found if one != ident))

    def owner(self, ident: int) -> Peer:
        """The true successor of an identifier, known to nobody in the ring: for those who check."""
        order = sorted(self.peers)
        return self.peers[order[bisect_left(order, ident) % len(order)]]
