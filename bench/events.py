"""NEXMark events: people, auctions and bids, made by the rules of the public generator, as columns.

Of 50 events one is a person, three are auctions and 46 are bids, in this order. An event's number gives the newest
person and auction that exist at it, so events can be made in any order, and the same numbers give the same events.
The rules, with the generator's defaults: half of the bids go to the first of the last 100 auctions, the others to one of
the last 100 or the 10 to come. Three of four auctions have as seller the first of the last 100 people, the others one of
the last 1,000 or the 10 to come. Prices are spread over six powers of ten. An auction lasts, on average, as long as 100
auctions take to arrive. A person has about 200 bytes, an auction 500, and a bid 100 beside its channel and its address.

Differs: an event's time follows its number at 10,000 events a second, and no event is out of order. Texts are drawn
from letters without spaces. The random numbers are NumPy's. People and auctions carry the start of their window of ten
seconds, which query 8 joins on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

EPOCH_EVENTS, PEOPLE, AUCTIONS = 50, 1, 3
BIDS = EPOCH_EVENTS - PEOPLE - AUCTIONS
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
# After this many people or auctions another one is hot.
HOT_EVERY = 100
# One of this many bids, auctions, bids again goes to somebody who is not hot.
COLD_BIDS, COLD_SELLERS, COLD_BIDDERS = 2, 4, 4
ACTIVE_PEOPLE, OPEN_AUCTIONS, LEAD = 1_000, 100, 10
EVENTS_PER_S = 10_000
# The tumbling window of query 8.
PERIOD_US = 10_000_000
FIRST_EVENT_US = 1_700_000_000_000_000
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100

_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
)  # fmt: skip
_FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_NAMES = tuple(f"{first} {last}" for first in _FIRST for last in _LAST)
_CHANNELS = 10_000
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_SEED_OF_CHANNELS = 1

TIME = pa.timestamp("us", tz="UTC")
PERSON, AUCTION, BID = "person", "auction", "bid"
# As Spark writes them. Names are those of the queries.
SCHEMAS = {
    PERSON: "id bigint, name string, email string, card string, city string, state string, at timestamp, "
    "period timestamp, extra string",
    AUCTION: "id bigint, item string, description string, initial bigint, reserve bigint, at timestamp, "
    "period timestamp, expires timestamp, seller bigint, category bigint, extra string",
    BID: "auction bigint, bidder bigint, price bigint, channel string, url string, at timestamp, extra string",
}


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest person and auction at each event, counted from 0."""

    people: np.ndarray
    auctions: np.ndarray


def make_events(kind: str, first: int, last: int, seed: int) -> pa.Table:
    """The events of one kind among the numbers from `first` up to `last`, which begin and end with an epoch."""
    if first % EPOCH_EVENTS or last % EPOCH_EVENTS:
        raise ValueError(
            f"events {first} to {last}: an epoch has {EPOCH_EVENTS} events, give multiples of that"
        )
    number, (offset, count, make) = list(_KINDS).index(kind), _KINDS[kind]
    epochs = np.arange(first // EPOCH_EVENTS, last // EPOCH_EVENTS, dtype=np.int64)
    events = (epochs[:, None] * EPOCH_EVENTS + offset + np.arange(count)).ravel()
    rng = np.random.default_rng((seed, number, first))
    return pa.table(make(events, rng))


def newest_at(events: np.ndarray) -> _Newest:
    epoch, place = np.divmod(events, EPOCH_EVENTS)
    # Before the auctions of its epoch an event sees those of the epoch before.
    auctions = epoch * AUCTIONS + np.clip(place - PEOPLE, -1, AUCTIONS - 1)
    return _Newest(epoch, auctions)


def _people(events: np.ndarray, rng: np.random.Generator) -> dict[str, pa.Array | np.ndarray]:
    rows = len(events)
    cards = rng.integers(0, 10**16, rows)
    columns = {
        "id": newest_at(events).people + FIRST_ID,
        "name": _chosen(_NAMES, rng, rows),
        "email": _letters(rng, np.full(rows, 12)),
        "card": pa.array(cards).cast(pa.string()),
        "city": _chosen(_CITIES, rng, rows),
        "state": _chosen(_STATES, rng, rows),
        "at": _times(events),
    }
    return columns | {"period": _periods(events), "extra": _extra(columns, PERSON_BYTES, rng)}


def _auctions(events: np.ndarray, rng: np.random.Generator) -> dict[str, pa.Array | np.ndarray]:
    rows, newest = len(events), newest_at(events)
    initial = _prices(rng, rows)
    horizon_us = OPEN_AUCTIONS * EPOCH_EVENTS // AUCTIONS * 1_000_000 // EVENTS_PER_S
    lasts_us = 1_000 * (1 + rng.integers(0, 2 * horizon_us // 1_000, rows))
    columns = {
        "id": newest.auctions + FIRST_ID,
        "item": _letters(rng, rng.integers(3, 20, rows)),
        "description": _letters(rng, rng.integers(3, 100, rows)),
        "initial": initial,
        "reserve": initial + _prices(rng, rows),
        "at": _times(events),
        "expires": pa.array(_micros(events) + lasts_us).cast(TIME),
        "seller": _somebody(newest.people, 0, COLD_SELLERS, rng),
        "category": FIRST_CATEGORY + rng.integers(0, CATEGORIES, rows),
    }
    return columns | {"period": _periods(events), "extra": _extra(columns, AUCTION_BYTES, rng)}


def _bids(events: np.ndarray, rng: np.random.Generator) -> dict[str, pa.Array | np.ndarray]:
    rows, newest = len(events), newest_at(events)
    hot = newest.auctions // HOT_EVERY * HOT_EVERY
    oldest = np.maximum(newest.auctions - OPEN_AUCTIONS, 0)
    any_auction = oldest + rng.integers(0, newest.auctions - oldest + 1 + LEAD)
    channels, urls = _all_channels()
    chosen = np.where(
        rng.integers(0, 2, rows) > 0,
        rng.integers(0, len(_HOT_CHANNELS), rows),
        len(_HOT_CHANNELS) + rng.integers(0, _CHANNELS, rows),
    )
    numbers = {
        "auction": np.where(rng.integers(0, COLD_BIDS, rows) > 0, hot, any_auction) + FIRST_ID,
        "bidder": _somebody(newest.people, 1, COLD_BIDDERS, rng),
        "price": _prices(rng, rows),
    }
    texts = {"channel": channels.take(chosen), "url": urls.take(chosen), "at": _times(events)}
    # The generator leaves channel and address out of the size that it fills up.
    return numbers | texts | {"extra": _extra(numbers, BID_BYTES - 8, rng)}


def _somebody(newest: np.ndarray, place: int, cold: int, rng: np.random.Generator) -> np.ndarray:
    """The hot one, at a place among each hundred, or, once in `cold` times, anybody who is active."""
    active = np.minimum(newest + 1, ACTIVE_PEOPLE)
    anybody = newest + 1 - active + rng.integers(0, active + LEAD)
    hot = newest // HOT_EVERY * HOT_EVERY + place
    return np.where(rng.integers(0, cold, len(newest)) > 0, hot, anybody) + FIRST_ID


def _prices(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.round(10 ** (6 * rng.random(rows)) * 100).astype(np.int64)


def _micros(events: np.ndarray) -> np.ndarray:
    # Milliseconds, as the generator has them.
    return FIRST_EVENT_US + events * 1_000 // EVENTS_PER_S * 1_000


def _times(events: np.ndarray) -> pa.Array:
    return pa.array(_micros(events)).cast(TIME)


def _periods(events: np.ndarray) -> pa.Array:
    """The start of the window of ten seconds that an event lies in."""
    return pa.array(_micros(events) // PERIOD_US * PERIOD_US).cast(TIME)


def _chosen(words: tuple[str, ...], rng: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(words).take(rng.integers(0, len(words), rows))


def _extra(columns: dict[str, pa.Array | np.ndarray], mean_bytes: int, rng: np.random.Generator) -> pa.Array:
    """Letters that bring the mean row to a size, a fifth of them more or less."""
    rows = len(next(iter(columns.values())))
    missing = max(0, mean_bytes - round(sum(_payload(one) for one in columns.values()) / max(1, rows)))
    delta = round(missing * 0.2)
    return _letters(rng, missing - delta + rng.integers(0, max(1, 2 * delta), rows))


def _payload(column: pa.Array | np.ndarray) -> int:
    """Bytes of the values, without offsets."""
    if isinstance(column, np.ndarray) or not pa.types.is_string(column.type):
        return int(column.nbytes)
    return int(column.nbytes) - 4 * (len(column) + 1)


def _letters(rng: np.random.Generator, lengths: np.ndarray) -> pa.Array:
    """Random texts of these lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    # A byte each; 26 does not divide 256, so the first letters are a little more frequent.
    letters = np.frombuffer(rng.bytes(int(offsets[-1])), np.uint8) % 26 + ord("a")
    return pa.StringArray.from_buffers(
        len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters.astype(np.uint8))
    )


def _all_channels() -> tuple[pa.Array, pa.Array]:
    """The names and addresses of all channels, the hot ones first."""
    rng, count = np.random.default_rng(_SEED_OF_CHANNELS), len(_HOT_CHANNELS) + _CHANNELS
    parts = [_letters(rng, rng.integers(3, 5, count)).to_pylist() for _ in range(3)]
    urls = [f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1" for a, b, c in zip(*parts, strict=True)]
    numbered = rng.integers(0, 10, count)
    numbers = rng.integers(0, 1 << 31, count)
    urls = [
        f"{url}&channel_id={number}" if place >= len(_HOT_CHANNELS) and one else url
        for place, (url, one, number) in enumerate(zip(urls, numbered, numbers, strict=True))
    ]
    return pa.array([*_HOT_CHANNELS, *(f"channel-{number}" for number in range(_CHANNELS))]), pa.array(urls)


IN_EPOCH = {PERSON: PEOPLE, AUCTION: AUCTIONS, BID: BIDS}
# Where in an epoch the events of a kind are, how many, and how they are made.
_KINDS = {
    PERSON: (0, PEOPLE, _people),
    AUCTION: (PEOPLE, AUCTIONS, _auctions),
    BID: (PEOPLE + AUCTIONS, BIDS, _bids),
}
