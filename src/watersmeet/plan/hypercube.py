"""Heavy keys."""

from __future__ import annotations


def listing_floor(rows: int, tasks: int) -> int:
    """From how many rows on a key of a run is listed."""
    return max(32, -(-rows // min(max(64, 16 * tasks), 1024)))
