"""The published text: Qiu, Papadias, Yi, "Streaming HyperCube: A Massively Parallel Stream Join Algorithm", EDBT 2019.

Of Figures 4 to 7 the text has statements only; the curves are in pictures and are not here. Figure 3 has numbers.
"""

from __future__ import annotations

TITLE = "Streaming HyperCube (Qiu, Papadias, Yi; EDBT 2019)"

# Figure 3 and section 3.3: rows of each heavy key in R and S before, and S(b1) afterwards as the arithmetic has it.
EXAMPLE_TASKS, EXAMPLE_ROWS, EXAMPLE_LIGHT = 8, 500, 50
BEFORE = {"b1": (100, 100), "b2": (50, 200)}
AFTER = {"b1": (100, 300), "b2": (50, 200)}
# As the sentence has it: 300 more tuples.
AFTER_AS_SAID = {"b1": (100, 400), "b2": (50, 200)}
OUT_BEFORE, OUT_AFTER = 20_000, 40_000
SHAPES_BEFORE = {"b1": (2, 2), "b2": (1, 4)}
SHAPES_AFTER = {"b1": (2, 4), "b2": (1, 4)}
DESIRED_AFTER = {"b1": (1.414, 4.243), "b2": (0.707, 2.828)}
NEW_TASKS = 4
