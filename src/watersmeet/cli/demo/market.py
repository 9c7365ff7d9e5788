"""A made-up market: buy orders and the trades that fill them, endless and repeatable by seed.

Orders come in by ascending id. A trade names the order that it fills and usually comes a little later, but
some are reported before their order. A few symbols have most of the business, a few large orders are filled
in very many trades. Some trades are above the order's limit or carry the wrong symbol: the join must not
let them through.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

SYMBOLS = 300

# Zipf's exponent of the symbols: the first gets about a sixth of the orders.
_SYMBOL_SKEW = 1.0
# Trades look back over this many orders, and ahead over that many: a few seconds of business.
_LOOK_BACK, _LOOK_AHEAD = 60_000, 3_000
# One order in so many is large, and takes this share of all trades.
_LARGE_EVERY, _LARGE_SHARE = 5_000, 0.2
_WRONG_SYMBOL_SHARE = 0.01
# A trade's price against the limit, in cents: mostly at or below it.
_PRICE_MEAN, _PRICE_SPREAD = -1.0, 2.0


class Market:
    """`next_slice` gives what comes in next; the sizes are the caller's, the content is the seed's."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)
        self._names = np.array(list(itertools.islice(_symbols(), SYMBOLS)), dtype=object)
        self._rng.shuffle(self._names)
        weights = 1.0 / np.arange(1, SYMBOLS + 1) ** _SYMBOL_SKEW
        self._weights = weights / weights.sum()
        self._prices = np.round(self._rng.uniform(5, 500, SYMBOLS), 2)
        # What is known of every order so far, by id: trades need its symbol and limit.
        self._symbol = np.empty(0, np.int16)
        self._limit = np.empty(0, np.float64)
        self._sent = 0

    def next_slice(self, orders: int, trades: int) -> tuple[pa.Table, pa.Table]:
        """The next orders, and trades on orders before, among and shortly after them."""
        self._extend(self._sent + orders + _LOOK_AHEAD)
        ids = np.arange(self._sent, self._sent + orders)
        self._sent += orders
        return self._orders(ids), self._trades(self._choose_orders(trades))

    def _extend(self, total: int) -> None:
        missing = total - len(self._symbol)
        symbol = self._rng.choice(SYMBOLS, missing, p=self._weights).astype(np.int16)
        limit = np.round(self._prices[symbol] * self._rng.normal(1, 0.01, missing), 2)
        self._symbol = np.concatenate([self._symbol, symbol])
        self._limit = np.concatenate([self._limit, limit])

    def _choose_orders(self, trades: int) -> np.ndarray:
        low, high = max(0, self._sent - _LOOK_BACK), self._sent + _LOOK_AHEAD
        ids = self._rng.integers(low, high, trades)
        large = self._rng.random(trades) < _LARGE_SHARE
        ids[large] = ids[large] // _LARGE_EVERY * _LARGE_EVERY
        return ids

    def _orders(self, ids: np.ndarray) -> pa.Table:
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "symbol": pa.array(self._names[self._symbol[ids]], pa.string()),
                "px": pa.array(self._limit[ids]),
                "qty": pa.array(self._rng.integers(1, 100, len(ids)) * 100, pa.int64()),
            }
        )

    def _trades(self, ids: np.ndarray) -> pa.Table:
        cents = np.round(self._rng.normal(_PRICE_MEAN, _PRICE_SPREAD, len(ids)))
        symbol = self._symbol[ids].copy()
        wrong = self._rng.random(len(ids)) < _WRONG_SYMBOL_SHARE
        symbol[wrong] = self._rng.integers(0, SYMBOLS, int(wrong.sum()))
        return pa.table(
            {
                "order_id": pa.array(ids, pa.int64()),
                "symbol": pa.array(self._names[symbol], pa.string()),
                "px": pa.array(np.round(self._limit[ids] + cents / 100, 2)),
                "qty": pa.array(self._rng.integers(1, 20, len(ids)) * 100, pa.int64()),
            }
        )


def _symbols() -> Iterator[str]:
    """Words that read like tickers: consonant, vowel, consonant, vowel."""
    for letters in itertools.product("BKLMRST", "AEIO", "DGNPVZ", "AO"):
        yield "".join(letters)
