"""Some minutes of `make chaos`, with another seed each time; the seed is in the output and in every failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEED = "WATERSMEET_CHAOS_SEED"
SECONDS = "WATERSMEET_CHAOS_SECONDS"
# Of all scenarios together; what is under way then is finished.
DEFAULT_SECONDS = 60


@pytest.mark.timeout(900)
def test_some_minutes_of_chaos(capsys):
    """In a process of its own: it forks all the time, and pytest's threads and files are not for that."""
    seed = os.environ.get(SEED) or str(int.from_bytes(os.urandom(4), "big"))
    seconds = os.environ.get(SECONDS) or str(DEFAULT_SECONDS)
    with capsys.disabled():
        # Before anything can hang.
        print(f"\nchaos for {seconds} s, {SEED}={seed}")
    command = [sys.executable, "-m", "tests.chaos", "--jobs", "1", "--seconds", seconds, "--seed", seed]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    with capsys.disabled():
        print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
