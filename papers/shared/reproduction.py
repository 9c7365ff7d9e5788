"""A reproduction as the command line sees it, and the steps that all of them share: choose exhibits, write the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Protocol

from papers.shared.exhibit import Exhibit, Verdict, summarise
from papers.shared.load import Load
from papers.shared.page import write_page
from papers.shared.plots import draw
from watersmeet.errors import UsageError, WatersmeetError

PAGE, FIGURES = "index.html", "figures.json"


class Stopped(WatersmeetError):
    """The run was asked to end before its last batch."""


class Watch(Protocol):
    """Told what is being done, and how far it is."""

    def step(self, text: str) -> None: ...

    def batch(self, done: int, of: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a reproduction: its folders, who watches it, and what stops it.

    `arm` is called when `stop` is listened to.
    """

    data: Path
    scratch: Path
    watch: Watch
    stop: Event
    arm: Callable[[], None]

    def exhibits(
        self, names: Sequence[str], make: Callable[[str], Exhibit], doing: str = "statements"
    ) -> list[Exhibit]:
        """Make exhibits one after the other."""
        found = []
        for name in names:
            if self.stop.is_set():
                raise Stopped("stopped")
            self.watch.step(f"{name}: {doing}")
            found.append(make(name))
        return found


class Reproduction(Protocol):
    """A paper's experiments at one size."""

    @property
    def title(self) -> str: ...

    @property
    def exhibits(self) -> Sequence[str]:
        """Their names, in the paper's order."""

    @property
    def facts(self) -> Sequence[str]:
        """What stands above all exhibits: how figures came about, versions, seed."""

    def require(self, names: Sequence[str]) -> None:
        """Refuse at once if something is not installed that will be needed."""

    def count_steps(self, names: Sequence[str]) -> int:
        """How often `Watch.step` will be called."""

    def run(self, names: Sequence[str], session: Session) -> list[Exhibit]:
        """Make these exhibits; `Stopped` if it was asked to end."""


def choose(only: Sequence[str], exhibits: Iterable[str]) -> list[str]:
    """The exhibits to make, in the paper's order; all of them if none is named."""
    known = list(exhibits)
    for name in only:
        if name not in known:
            raise UsageError(f"--only {name}: there is no such exhibit; use {', '.join(known)}")
    return [name for name in known if not only or name in only]


def write(exhibits: Sequence[Exhibit], reproduction: Reproduction, load: Load, out: Path) -> Path:
    """Pictures, all figures as JSON, and the page, whose path is returned."""
    images = {exhibit.name: draw(exhibit, out) for exhibit in exhibits}
    figures = {
        "summary": summarise(exhibits),
        "load": load.text,
        "quiet": load.quiet,
        "exhibits": [_plain(exhibit) for exhibit in exhibits],
    }
    (out / FIGURES).write_text(json.dumps(figures, indent=1), encoding="utf-8")
    page, facts = out / PAGE, [*reproduction.facts, load.text, f"{summarise(exhibits)}."]
    write_page(page, f"Reproduced: {reproduction.title}", facts, exhibits, images)
    return page


def _plain(exhibit: Exhibit) -> dict[str, object]:
    return {
        "name": exhibit.name,
        "title": exhibit.title,
        "how": exhibit.how,
        "tables": [asdict(table) for table in exhibit.tables],
        "verdicts": [_plain_verdict(verdict) for verdict in exhibit.verdicts],
    }


def _plain_verdict(verdict: Verdict) -> dict[str, object]:
    return {**asdict(verdict), "word": verdict.word, "control": verdict.control, "alike": verdict.alike}
