"""Nodes of RJoin on a Chord ring, with messages that travel hop by hop and take time.

Every hop takes a delay that the caller draws, so messages overtake each other in any way. The ring is settled after each
change (the assumption of Theorem 1), and a node that leaves or comes hands over or takes over what is stored under
its keys at that moment. A message that finds another node responsible than its sender thought is sent on.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable

from papers.rjoin.chord import Chord, Peer, hash_key
from papers.rjoin.messages import Answer, Message, Outgoing, Send, key_of
from papers.rjoin.node import Node, Settings
from papers.rjoin.query import Key, Query, Row


class Overlay:
    """`sent` counts the messages that each address sends, its own and those that it routes."""

    def __init__(
        self,
        addresses: Iterable[str],
        settings: Settings,
        *,
        delay: Callable[[], int],
        draw: Callable[[int], int],
    ) -> None:
        self.settings, self._delay, self._draw = settings, delay, draw
        self.chord = Chord(addresses)
        self.nodes = {peer.address: self._node(peer.address) for peer in self.chord.peers.values()}
        self.sent: Counter[str] = Counter()
        self.now = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._heirs: dict[str, str] = {}

    def at(self, time: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time, next(self._sequence), action))

    def run(self) -> None:
        """Until nothing is under way any more."""
        while self._agenda:
            self.now, _, action = heapq.heappop(self._agenda)
            action()

    def publish(self, address: str, row: Row) -> None:
        node = self.nodes[self._living(address)]
        self._dispatch(node.address, node.publish(row))

    def submit(self, address: str, query: Query) -> None:
        node = self.nodes[self._living(address)]
        self._dispatch(node.address, node.submit(self.now, query))

    def remove(self, address: str, query: str) -> None:
        self.nodes[self._living(address)].remove(query)

    def answers(self, query: str) -> list[Answer]:
        """All that owners have been given for a query."""
        return [found for node in self.nodes.values() for found in node.answers if found.query == query]

    def join(self, address: str) -> None:
        """A node comes: it takes over from its successor what it is responsible for from now on."""
        peer = self.chord.join(address)
        self.chord.settle()
        self.nodes[address] = self._node(address)
        following = self.nodes[self.chord.peers[peer.successors[0]].address]
        if following.address != address:
            self.nodes[address].take_over(
                following.hand_over(lambda key: self.chord.is_responsible(peer, hash_key(key.text)))
            )

    def leave(self, address: str) -> None:
        """A node goes, and its successor takes over all that it has; messages to its address find the successor."""
        peer = self._peer(address)
        heir = self.chord.peers[peer.successors[0]].address
        self.chord.leave(peer)
        self.chord.settle()
        self.nodes.pop(address).retire(self.nodes[heir])
        self._heirs[address] = heir

    def _node(self, address: str) -> Node:
        return Node(address, self.settings, self._draw)

    def _peer(self, address: str) -> Peer:
        return self.chord.peer(address)

    def _living(self, address: str) -> str:
        while address not in self.nodes:
            address = self._heirs[address]
        return address

    def _dispatch(self, sender: str, messages: Iterable[Outgoing]) -> None:
        for one in messages:
            if isinstance(one, Send):
                self._route(sender, one.message, one.key)
            else:
                self._hop(sender, one.address, one.message, key_of(one.message))

    def _route(self, sender: str, message: Message, key: Key) -> None:
        """One hop nearer to the node of a key, or into it."""
        following = self.chord.next_hop(self._peer(sender), hash_key(key.text))
        if following is None:
            self._deliver(sender, message)
        else:
            self._hop(sender, following.address, message, key)

    def _hop(self, sender: str, to: str, message: Message, key: Key | None) -> None:
        self.sent[sender] += 1

        def arrive() -> None:
            address = self._living(to)
            if key is None:
                self._deliver(address, message)
            else:
                self._route(address, message, key)

        self.at(self.now + self._delay(), arrive)

    def _deliver(self, address: str, message: Message) -> None:
        self._dispatch(address, self.nodes[address].receive(self.now, message))
