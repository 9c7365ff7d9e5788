"""A benchmark of several parts: runs those that are asked for, prints their verdicts, and writes a section of the document.

What a part found is kept as JSON, so that one part can be measured again and the section has all of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from bench.data import cache_dir
from bench.report import DOCUMENT, NO_TARGET, Finding, replace_section, without_results

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What all parts found, and what they said about their settings."""

    findings: Sequence[Finding]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`measure` runs a part, in full or quickly; `section` is the body of the section `name`, given all parts and a date."""

    name: str
    parts: Sequence[str]
    measure: Callable[[str, bool, Say], list[Finding]]
    section: Callable[[Outcome, str], str]

    def run(self, only: Sequence[str] | None, quick: bool, date: str | None) -> None:
        """Run some parts, or all. Exits with 1 if a demand is not met."""
        if unknown := set(only or ()) - set(self.parts):
            raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
        chosen = [part for part in self.parts if not only or part in only]
        home = cache_dir() / "results" / (f"{self.name}-quick" if quick else self.name)
        home.mkdir(parents=True, exist_ok=True)
        missing = [part for part in self.parts if part not in chosen and not _file(home, part).exists()]
        if date and missing:
            raise typer.BadParameter(without_results(missing))
        console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
        findings: list[Finding] = []
        for part in chosen:
            notes: list[str] = []
            found = self.measure(part, quick, notes.append)
            for note in notes:
                console.print(note)
            findings += found
            stored = {"notes": notes, "findings": [asdict(one) for one in found]}
            _file(home, part).write_text(json.dumps(stored, indent=1))
        console.print(_table(findings))
        if date is not None and not quick:
            body = self.section(stored_outcome(home, self.parts), date)
            DOCUMENT.write_text(replace_section(DOCUMENT.read_text(), self.name, body))
            console.print(f"wrote docs/{DOCUMENT.name}")
        if not all(one.met or one.target == NO_TARGET for one in findings):
            raise typer.Exit(1)


def stored_outcome(home: Path, parts: Sequence[str]) -> Outcome:
    stored = [json.loads(_file(home, part).read_text()) for part in parts]
    return Outcome(
        [Finding(**one) for part in stored for one in part["findings"]],
        [note for part in stored for note in part["notes"]],
    )


def _file(home: Path, part: str) -> Path:
    return home / f"{part}.json"


def _table(findings: Sequence[Finding]) -> Table:
    table = Table("demand", "target", "measured", "verdict")
    for one in findings:
        style = {True: "green", False: "red", None: "yellow"}[one.met]
        table.add_row(one.demand, one.target, one.measured, f"[{style}]{one.verdict}[/]")
    return table
