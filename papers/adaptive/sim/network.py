"""Simulated time and messages: asynchronous channels, each first in, first out.

A channel leads from one sender to one receiver. Every message takes a delay that the caller's function gives; it
never overtakes an earlier one of its channel, but may overtake any other. So every order of deliveries that
such channels allow comes out of some delays.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, Protocol


class Receiver(Protocol):
    name: str

    def receive(self, message: Any) -> None: ...


class Network:
    """Delivers messages and runs actions in the order of simulated time; equal times in order of sending."""

    def __init__(self, delay: Callable[[], int]) -> None:
        self.now = 0
        self._delay = delay
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._latest: dict[tuple[str, str], int] = {}

    def send(self, sender: str, receiver: Receiver, message: Any) -> None:
        channel = (sender, receiver.name)
        arrival = max(self.now + self._delay(), self._latest.get(channel, 0))
        self._latest[channel] = arrival
        self._at(arrival, lambda: receiver.receive(message))

    def after(self, duration: int, action: Callable[[], None]) -> None:
        self._at(self.now + duration, action)

    def run(self) -> None:
        """Until nothing is under way any more."""
        while self._agenda:
            self.now, _, action = heapq.heappop(self._agenda)
            action()

    def _at(self, time: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time, next(self._sequence), action))
