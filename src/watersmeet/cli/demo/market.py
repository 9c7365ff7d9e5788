"""A simulated market: endless buy and sell offers of lots, repeatable by seed.

Trading goes in rounds. A lot belongs to one symbol in one round, and is offered until the round is over. A few symbols
have most of the offers (Zipf's law), so every round has a few hot lots. Some sells are reported a round late, and some
before their round has begun. Most sells ask for more than a buyer gives, and the join must drop them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SYMBOLS = 1_500

# Zipf's exponent of the symbols: the first gets an eighth of the offers, and most of the pairs.
_SYMBOL_SKEW = 1.0
# Offers of a round: about six seconds.
BUYS_A_ROUND, SELLS_A_ROUND = 12_000, 24_000
_LATE_SHARE, _EARLY_SHARE = 0.02, 0.01
# Prices as shares of the symbol's usual one. Sells are far enough above buys that one pair in sixty becomes a deal.
_SPREAD, _ASKED_MORE = 0.01, 0.03

Numbers = npt.NDArray[np.int64]


class Market:
    """The source of offers. The caller chooses the sizes of slices, the seed their content."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)
        self._names = np.array(list(itertools.islice(_symbols(), SYMBOLS)), dtype=object)
        self._rng.shuffle(self._names)
        weights = 1.0 / np.arange(1, SYMBOLS + 1) ** _SYMBOL_SKEW
        self._weights = weights / weights.sum()
        self._prices = self._rng.uniform(5, 500, SYMBOLS)
        self._buys = self._sells = 0

    def next_slice(self, buys: int, sells: int) -> tuple[pa.Table, pa.Table]:
        """The next buys and sells."""
        buy_ids, sell_ids = (
            np.arange(self._buys, self._buys + buys),
            np.arange(self._sells, self._sells + sells),
        )
        self._buys += buys
        self._sells += sells
        drawn = self._rng.random(sells)
        moved = (drawn > 1 - _EARLY_SHARE).astype(np.int64) - (drawn < _LATE_SHARE)
        return (
            self._offers(buy_ids, buy_ids // BUYS_A_ROUND, 1.0),
            self._offers(sell_ids, np.maximum(sell_ids // SELLS_A_ROUND + moved, 0), 1 + _ASKED_MORE),
        )

    def _offers(self, ids: Numbers, rounds: Numbers, level: float) -> pa.Table:
        symbol = self._rng.choice(SYMBOLS, len(ids), p=self._weights)
        px = self._prices[symbol] * self._rng.normal(level, _SPREAD, len(ids))
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "lot": pa.array(self._names[symbol] + "-" + rounds.astype(str).astype(object), pa.string()),
                "px": pa.array(np.round(px, 2)),
                "qty": pa.array(self._rng.integers(1, 100, len(ids)) * 100, pa.int64()),
            }
        )


def _symbols() -> Iterator[str]:
    """Words that look like tickers: consonant, vowel, consonant, vowel, consonant."""
    for letters in itertools.product("BKLMRST", "AEIO", "DGNPVZ", "AO", "LNRSX"):
        yield "".join(letters)
