"""TPC-H tables as Parquet files, made once by tpchgen-cli and kept. Nothing is downloaded.

A scale factor of 1 is about 1 GB and 6 million lineitems, as in TPC-H itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from watersmeet.errors import UsageError, WatersmeetError

TABLES = ("region", "nation", "supplier", "orders", "lineitem")

_PROGRAM = "tpchgen-cli"
INSTALL = "pip install -e '.[papers]'"


def find_generator() -> str:
    """The generator's program: beside this Python, where pip puts it, or on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(_PROGRAM, path=path)
    if found is None:
        raise UsageError(f"the TPC-H data comes from {_PROGRAM}, which is not installed: {INSTALL}")
    return found


def tables(folder: Path, scale: float, names: Sequence[str] = TABLES) -> Path:
    """The directory of the tables of one scale factor; they are generated unless they are there.

    Callers that need other tables than the papers give a folder of their own.
    """
    home = folder / f"tpch-{scale:g}"
    if home.exists():
        return home
    # Written beside and renamed, so that an interrupted generation is never taken for data.
    draft = home.with_name(f"{home.name}.{os.getpid()}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    command = [find_generator(), "parquet", "--quiet", "--scale-factor", f"{scale:g}"]
    command += ["--tables", ",".join(names), "--output-dir", str(draft)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WatersmeetError(f"{_PROGRAM} failed: {done.stderr.strip()[-500:]}")
        draft.rename(home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return home
