"""Messages under way, delivered in any order that the caller chooses, also within a channel.

The paper's machines talk through sockets, which keep the order of each pair of sender and receiver. That order is part
of the protocol: the flag after the last row of a group says nothing if a row can come after it. Here it is explicit. A
message has its number in its channel, and a message that comes early waits for those before it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any, Protocol


class Receiver(Protocol):
    name: str

    def receive(self, sender: str, message: Any) -> None: ...


Channel = tuple[str, str]


class Post:
    def __init__(self) -> None:
        self._under_way: list[tuple[Channel, int, Receiver, Any]] = []
        self._numbers: defaultdict[Channel, itertools.count[int]] = defaultdict(itertools.count)
        self._next: defaultdict[Channel, int] = defaultdict(int)
        self._early: dict[Channel, dict[int, Any]] = defaultdict(dict)

    def send(self, sender: str, receiver: Receiver, message: Any) -> None:
        channel = (sender, receiver.name)
        self._under_way.append((channel, next(self._numbers[channel]), receiver, message))

    def __len__(self) -> int:
        return len(self._under_way)

    def deliver(self, place: int) -> None:
        """Take the message at this place off the wire, and hand over whatever of its channel is now complete."""
        channel, number, receiver, message = self._under_way.pop(place)
        for ready in self._in_order(channel, number, message):
            receiver.receive(channel[0], ready)

    def _in_order(self, channel: Channel, number: int, message: Any) -> list[Any]:
        early = self._early[channel]
        early[number] = message
        ready = []
        while self._next[channel] in early:
            ready.append(early.pop(self._next[channel]))
            self._next[channel] += 1
        return ready
