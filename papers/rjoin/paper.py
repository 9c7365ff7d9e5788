"""The published text: Idreos, Liarou, Koubarakis, "Continuous Multi-Way Joins over Distributed Hash Tables", EDBT 2008.

The figures' curves are in pictures and are not here; these are the numbers of section 8's text.
"""

from __future__ import annotations

TITLE = "Continuous Multi-Way Joins over Distributed Hash Tables (Idreos, Liarou, Koubarakis; EDBT 2008)"

# Figure 2: random choices send this many times the messages; the worst choices one to two orders of magnitude more.
RANDOM_TIMES = (4, 5)
WORST_TIMES = (10, 100)
FIG2_TUPLES = (50, 100, 200, 400)
# Figure 3: nodes that take part in the end.
FIG3_TUPLES, FIG3_WORKING = 2500, 940
FIG4_QUERIES = (2_000, 4_000, 8_000, 16_000, 32_000)
FIG5_THETAS = (0.3, 0.5, 0.7, 0.9)
FIG6_WAYS = (4, 6, 8)
# Figure 9: the fullest node's hits and the nodes that take part, without and with moving identifiers.
FIG9_FULLEST = (4_000, 2_000)
FIG9_WORKING = (700, 900)
