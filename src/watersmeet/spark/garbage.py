"""What a Python worker has loaded, kept out of its garbage collections.

PySpark collects garbage after every task that a worker has done. A collection looks at every object, and nearly
all of them belong to modules (pyarrow, pandas, PySpark): some 50 ms of a core for a task, in which a worker that
the next stage wants is not ready. Frozen objects are not looked at, and modules live as long as the process anyway.

Not guaranteed: cycles that are alive when something is frozen, another function's in the same worker among them,
are never collected if they become garbage later. Freezing happens only as long as modules are added.
"""

from __future__ import annotations

import gc
import sys

_modules_frozen = 0


def keep_modules() -> None:
    """Freeze what there is, if more modules are loaded than ever before. For the beginning of a task.

    By then a worker that is used again has collected, so that little or no garbage is frozen with them.
    """
    global _modules_frozen
    if len(sys.modules) > _modules_frozen:
        gc.freeze()
        _modules_frozen = len(sys.modules)
