"""What a scenario is: a function of a unit, which counts what it did, or raises `Wrong`."""

from __future__ import annotations

import random
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.cases import CASES, Case
from tests.chaos.lives import Life
from tests.chaos.processes import Outcome, in_child


class Wrong(Exception):
    """The join did what it must not do; the text says what."""


@dataclass(frozen=True)
class Unit:
    """One run of a scenario. All that is random in it comes from `rng`, made from the seed of all and the index.

    Lives are of the cases whose names begin with `cases`.
    """

    seed: int
    index: int
    rng: random.Random
    folder: Path
    cases: str = ""

    def life(self, *, remote: bool = False, of: Callable[[Case], bool] | None = None, **more: Any) -> Life:
        """A life of a random case that satisfies `of`; one that was not asked for, if no other does."""
        fitting = [name for name, case in CASES.items() if of is None or of(case)]
        names = [name for name in fitting if name.startswith(self.cases)] or fitting
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        state = f"s3://{uuid.uuid4().hex}/state" if remote else str(folder / "state")
        life = Life(
            folder, self.rng.choice(names), self.rng.randrange(1 << 30), state, self.rng.randint(1, 3), **more
        )
        prepared = in_child(life.prepare)
        assert prepared.done, str(prepared)
        return life


@dataclass(frozen=True)
class Scenario:
    """`counts` names what of the counted things `target` is a number of."""

    name: str
    says: str
    counts: str
    target: int
    run: Callable[[Unit], Counter[str]]
    # Of the time, where that is limited.
    share: float = 1.0


def check_life(life: Life, what: str) -> None:
    """All batches are in the sink, and their rows are right."""
    outcome = in_child(life.difference)
    if not outcome.done:
        raise Wrong(f"{describe(life)}, {what}: the sink cannot be compared: {outcome}")
    if outcome.value:
        raise Wrong(f"{describe(life)}, {what}: {outcome.value}")


def finish(life: Life, what: str, **how: Any) -> None:
    """Start the query once more, unharmed: it must process all that is left, rightly."""
    outcome = in_child(lambda: life.drive(**how))
    require_done(life, what, outcome)
    check_life(life, what)


def require_done(life: Life, what: str, outcome: Outcome) -> None:
    if not outcome.done:
        raise Wrong(f"{describe(life)}, {what}: the next start fails: {outcome}")


def describe(life: Life) -> str:
    place = "S3" if life.is_remote else "local directory"
    return f"{life.case_name} with {life.tasks} task(s) on {place}"
