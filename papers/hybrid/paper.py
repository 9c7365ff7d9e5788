"""The published text: Naeem, Dobbie, Weber, "HYBRIDJOIN for Near Real-time Data Warehousing", Auckland 2010.

The text prints settings, four equations and statements. The figures' values are in pictures only and are not here.
"""

from __future__ import annotations

TITLE = "HYBRIDJOIN for Near Real-time Data Warehousing (Naeem, Dobbie, Weber; TR UoA-SE-2010-2)"

# Table 2.
RELATION_ROWS = (500_000, 8_000_000)
ROW_BYTES = 120
STREAM_ROW_BYTES = 20
NODE_BYTES = 12
ARRIVAL_RATES = (125, 2000)
# Section 4.5: the setting of Figure 6, which Figures 10c and 10d have in common.
BUDGET_BYTES = 50_000_000
ROWS = 2_000_000
# Equation 2: rows that a page answers, in units of hash table x page / relation.
K = 1.36
# Figure 3.
PAGES = 16_000
SEGMENT_PAGES = 20
# Section 5.
SOURCES = 10
SOLD_OFTEN, SOLD_SHARE = 0.20, 0.80
# Section 6.2.1: below this many rows a second HYBRIDJOIN keeps a row waiting for longer than INLJ does.
SLOW_RATE = 150
