"""What nodes send each other, and the two ways of sending: to whoever is responsible for a key, or to an address."""

from __future__ import annotations

from dataclasses import dataclass

from papers.rjoin.query import Key, Query, Row, Value

# The address of the node that asked, and how many requests it had made.
Ticket = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rate:
    """RIC information: how many rows came under a key, when that was learned, and the address of the node."""

    key: Key
    rows: int
    learned: int
    address: str


@dataclass(frozen=True, slots=True)
class NewRow:
    """Procedure 1: a row on its way to one of its keys."""

    row: Row
    key: Key


@dataclass(frozen=True, slots=True)
class Insert:
    """An input query on its way to its pair."""

    query: Query
    key: Key
    rates: tuple[Rate, ...] = ()


@dataclass(frozen=True, slots=True)
class Eval:
    """Procedures 2 and 3: a rewritten query on its way to its key, with what is known of its candidates."""

    query: Query
    key: Key
    rates: tuple[Rate, ...] = ()


@dataclass(frozen=True, slots=True)
class AskRates:
    """A request that visits the nodes of several keys, one after the other, and collects their rates."""

    asker: str
    ticket: Ticket
    keys: tuple[Key, ...]
    found: tuple[Rate, ...] = ()


@dataclass(frozen=True, slots=True)
class Rates:
    """The end of such a request."""

    ticket: Ticket
    found: tuple[Rate, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    query: str
    values: tuple[Value, ...]


Keyed = NewRow | Insert | Eval
Message = Keyed | AskRates | Rates | Answer


@dataclass(frozen=True, slots=True)
class Send:
    """`send(msg, id)`; several of them are the paper's `multiSend(M, I)`."""

    key: Key
    message: Message


@dataclass(frozen=True, slots=True)
class SendDirect:
    """`sendDirect(msg, addr)`."""

    address: str
    message: Message


Outgoing = Send | SendDirect


def key_of(message: Message) -> Key | None:
    """The key whose node should get the message; None for one that is meant for an address."""
    match message:
        case NewRow() | Insert() | Eval():
            return message.key
        case AskRates():
            return message.keys[0]
    return None
