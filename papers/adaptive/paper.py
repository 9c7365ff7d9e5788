"""The published figures: Elseidy, Elguindy, Vitorovic, Koch, "Scalable and Adaptive Online Joins", VLDB 2014.

The text gives Table 2 in full and of Figures 5a to 5l some numbers and statements; the curves themselves are
in pictures only and are not here.
"""

from __future__ import annotations

TITLE = "Scalable and Adaptive Online Joins (Elseidy, Elguindy, Vitorovic, Koch; VLDB 2014)"

# Table 2: seconds on 16 machines, 10 GB, by skew: (SHJ, DYNAMIC, STATICMID).
TABLE2: dict[str, dict[float, tuple[int, int, int]]] = {
    "EQ5": {
        0.0: (79, 168, 838),
        0.25: (79, 176, 851),
        0.5: (2742, 158, 1425),
        0.75: (4268, 212, 2367),
        1.0: (5704, 203, 2849),
    },
    "EQ7": {
        0.0: (98, 192, 210),
        0.25: (159, 183, 301),
        0.5: (191, 369, 462),
        0.75: (5462, 334, 2610),
        1.0: (6385, 415, 3502),
    },
}
# Those of the above that overflowed to disk.
OVERFLOWED: dict[str, dict[float, tuple[bool, bool, bool]]] = {
    "EQ5": {
        0.0: (False, False, True),
        0.25: (False, False, True),
        0.5: (True, False, True),
        0.75: (True, False, True),
        1.0: (True, False, True),
    },
    "EQ7": {
        0.0: (False, False, False),
        0.25: (False, False, False),
        0.5: (False, False, False),
        0.75: (True, False, True),
        1.0: (True, False, True),
    },
}
TABLE2_OPERATORS = ("SHJ", "DYNAMIC", "STATICMID")
TABLE2_MACHINES = 16
HEAP_BYTES = 2 << 30

# Figure 5a: MB more of the largest input-load factor for each 1 % of EQ5's input, 64 machines.
ILF_MB_PER_PERCENT = {"SHJ": 27, "STATICMID": 14, "DYNAMIC": 2}
# Figure 5b: times DYNAMIC's.
ILF_MID_TIMES, ILF_SHJ_TIMES = (3, 7), 13
# Figure 5e: times STATICMID's, except B_CI. Section 5.5: at most.
THROUGHPUT_TIMES, FASTER_TIMES = 2, 4
# Section 5.3: growth of the input-load factor from 20 GB on 32 machines to 40 GB on 64.
GROWTH_B_NCI, GROWTH_OTHERS = 0.42, 0.09
# Figure 5i: the state on disk against the state in memory.
OUT_OF_CORE_TIMES = 10
# Theorem 4.4 and Figure 5k.
RATIO_BOUND = 1.25
# Section 5.4.
FLUCT_FIRST_ROWS = 500_000
