"""Keep the modules of a Python worker out of its garbage collections.

PySpark collects garbage after every task of a worker. A collection visits every object, and nearly all of them belong
to modules (pyarrow, pandas, PySpark). That takes about 50 ms of a core for each task, and meanwhile the worker is not
ready for the next stage. Frozen objects are not visited, and modules live as long as the process anyway.

Cycles that are alive at a freeze are never collected if they become garbage later, including those of other functions
in the same worker. Freezing happens only while modules are added.
"""

from __future__ import annotations

import gc
import sys

_modules_frozen = 0


def keep_modules() -> None:
    """Freeze all objects if more modules are loaded than ever before. Call this at the beginning of a task.

    A reused worker has collected by then, so that little garbage is frozen.
    """
    global _modules_frozen
    if len(sys.modules) > _modules_frozen:
        gc.freeze()
        _modules_frozen = len(sys.modules)
