"""What the processes of a benchmark share: measure in a scratch folder, and write what was found as JSON."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.data import cache_dir


def write_measured(
    out: Path, competitor: str, workload: str, measure: Callable[[Path], Mapping[str, Any]]
) -> None:
    """Measure one competitor on one workload. The scratch folder is removed, whatever happens."""
    (cache_dir() / "scratch").mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{competitor}-{workload}-", dir=cache_dir() / "scratch"))
    try:
        found = measure(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"competitor": competitor, "workload": workload, **found}, indent=1))
