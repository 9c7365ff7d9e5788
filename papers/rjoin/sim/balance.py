"""Nodes that move on the ring to share load (Karger and Ruhl 2004, which the paper takes for Figure 9).

A node asks random others for their load. If one has far more, it leaves its place, where its successor takes over, and
comes back as that one's predecessor, at the key where half of its load is. A single heavy key cannot be shared out.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
import numpy.typing as npt

from papers.rjoin.sim.ring import Ring

# A node moves to one of more than four times its load, the limit that the proof of Karger and Ruhl needs.
FAR_MORE = 4
# Others that a node asks each time: the logarithm of a thousand nodes.
ASKED = 10


def moved(ring: Ring, load: npt.NDArray[np.float64], rng: np.random.Generator) -> Ring:
    """The ring after every node has asked some others once. `load` is by key."""
    order = np.argsort(ring.keys)
    keys = [int(key) for key in ring.keys[order]]
    sums = np.concatenate([[0.0], np.cumsum(load[order])])
    ids = [int(one) for one in ring.ids]
    places = sorted(ids)

    def arc(place: int) -> tuple[int, int]:
        """The keys of the node at a place, as a range that may wrap around."""
        return bisect_left(keys, places[place - 1] + 1), bisect_left(keys, places[place] + 1)

    def weigh(place: int) -> float:
        low, high = arc(place)
        return float(sums[high] - sums[low] + (sums[-1] if place == 0 else 0))

    for node in rng.permutation(len(ids)).tolist():
        for other in rng.integers(0, len(ids), ASKED).tolist():
            mine = bisect_left(places, ids[node])
            theirs = bisect_left(places, ids[other])
            if node == other or weigh(theirs) <= FAR_MORE * weigh(mine):
                continue
            low, high = arc(theirs)
            if theirs == 0:
                # The arc that wraps: keys after the last node. Only the part before the first node is shared out.
                low = 0
            half = int(np.searchsorted(sums, (sums[low] + sums[high]) / 2))
            if not low < half < high or keys[half - 1] in places:
                continue
            places.pop(mine)
            ids[node] = keys[half - 1]
            insort(places, ids[node])
            break
    return Ring(np.array(ids, np.uint64), ring.keys)
