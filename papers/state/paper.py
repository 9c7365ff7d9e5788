"""The published text: Liu, Rundensteiner, "Adapting State-Intensive Non-Blocking Queries over Distributed Environments",
WPI-CS-TR-05-04, March 2005.

The text gives settings, statements and some numbers. The figures' curves are in pictures only and are not here.
"""

from __future__ import annotations

TITLE = "Adapting State-Intensive Non-Blocking Queries (Liu, Rundensteiner; WPI-CS-TR-05-04)"

PARTITIONS = 300
MEMORY_MB = 200
# Section 3.5, Figure 7: minutes until one machine and two are full.
FULL_AFTER = {1: 25, 2: 35}
# Section 4.4: the clean-up after Figure 11, results and milliseconds.
OWED_LOW, OWED_LOW_MS = 194_308, 26_879
OWED_HIGH, OWED_HIGH_MS = 992_893, 359_396
# Section 5.2: adaptations in Figure 14 by the difference that starts them, and in Figure 15 by the seconds between two.
MOVES_BY_SHARE = {0.5: 2, 0.9: 24}
MOVES_BY_SPAN = {15: 31, 30: 27, 45: 24}
# Figure 17: the minute in which the machine with most partitions overflows.
OVERFLOWS_AT = 40
# Section 6.1: seconds of the clean-up after six hours, and its results.
CLEAN_UP_ALONE_S, CLEAN_UP_LAZY_S, CLEAN_UP_RESULTS = 1600, 400, 2_023_781
