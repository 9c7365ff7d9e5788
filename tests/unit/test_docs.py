"""Documents keep their word: examples compile, links lead somewhere, the settings are those that are read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from watersmeet import __version__
from watersmeet.config import (
    read_grid_policy,
    read_keeping,
    read_memory,
    read_pushing,
    read_settings,
    read_sql_settings,
)
from watersmeet.jobs.file import parse_job
from watersmeet.jobs.hub_file import parse_hub_job
from watersmeet.schemes.register import SCHEMES

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])

# Data and results may hold any path; these are texts that people read or run.
TEXTS = {"", ".cfg", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 2}", found[2])
        for path in DOCUMENTS
        for text in [path.read_text()]
        for found in _BLOCK.finditer(text)
        if found[1] == language
    ]


@pytest.mark.parametrize("where, code", [pytest.param(*block, id=block[0]) for block in blocks("python")])
def test_python_examples_compile(where, code):
    compile(code, where, "exec")


@pytest.mark.parametrize("where, text", [pytest.param(*block, id=block[0]) for block in blocks("toml")])
def test_job_files_are_accepted(where, text):
    parse = parse_hub_job if "[deliver]" in text else parse_job
    assert parse(text, ROOT / "job.toml", env={}).inputs


def test_the_readme_has_the_extras_that_texts_and_messages_name():
    """`pip install 'watersmeet[delta]'` is what messages say; the README says what that needs."""
    project = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    extras = set(re.findall(r"^([a-z-]+) = \[", project.partition("[project.scripts]")[0], re.MULTILINE))
    readme = set(re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert readme == extras - {"bench", "dev", "papers"}
    for path in (*DOCUMENTS, *(ROOT / "src").rglob("*.py")):
        for named in re.findall(r"watersmeet\[([a-z,-]+)\]", path.read_text()):
            assert set(named.split(",")) <= readme, path


def test_the_readme_has_its_examples():
    where = [name for name, _ in (*blocks("python"), *blocks("toml")) if name.startswith("README.md")]
    assert len(where) == 3


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path):
    broken = []
    for target in _LINK.findall(path.read_text()):
        file, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", file):
            continue
        place = path.parent / file if file else path
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(target)
    assert not broken


def anchors(path: Path) -> set[str]:
    """The headings of a document, as links spell them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def settings_read() -> set[str]:
    """The settings that config.py asks the session for when none is set."""
    asked: set[str] = set()

    def lookup(key: str) -> str | None:
        asked.add(key)
        # Something must say where the state is, or reading stops there. Last in line, so that all are asked.
        return "state" if key == "spark.sql.streaming.checkpointLocation" else None

    read_settings(lookup, state=None, tasks=None)
    read_grid_policy(lookup)
    read_memory(lookup, None)
    read_pushing(lookup)
    read_keeping(lookup)
    read_sql_settings(lookup)
    return asked


def test_the_architecture_names_what_there_is():
    """Every scheme, every folder and every layer; and the files that it leads a reader to exist."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "src" / "watersmeet"
    schemes = re.search(r"A scheme is one way of sharing a join: (.*)\. It is pure", text)
    assert schemes and set(re.findall(r"`(\w+)`", schemes[1])) == set(SCHEMES)
    folders = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    assert set(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)) == folders
    layers = text.partition("## What may import what")[2].partition("```")[2].partition("```")[0]
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    named = {name for line in layers.splitlines() for name in re.findall(r"\w+", line.partition("  ")[0])}
    assert named | {"testing"} == folders | modules
    for file in re.findall(r"[a-z_]+/[a-z_]+\.(?:py|md)", text):
        assert any((at / file).exists() for at in (package, ROOT / "docs", ROOT / "tests")), file


def test_operations_lists_the_settings_that_are_read():
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.partition("## Settings\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(settings_read())


def test_every_mention_of_a_setting_is_of_one_that_is_read():
    known = settings_read()
    for path in DOCUMENTS:
        mentioned = set(re.findall(r"spark\.watersmeet\.\w+", path.read_text()))
        assert mentioned <= known, path


def test_the_changelog_knows_this_version():
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_summary_of_the_benchmarks_has_the_figures_of_its_sections():
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    anchored = {heading.lower().replace(" ", "-"): body for heading, body in sections.items()}
    rows = re.findall(
        r"^\| .+ \| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) \| \[.+\]\(#(.+)\) \|$", text, re.MULTILINE
    )
    assert rows
    for ours, sparks, ratio, anchor in rows:
        assert f"| {ours} |" in anchored[anchor] and f"| {sparks} |" in anchored[anchor]
        assert float(ratio) == pytest.approx(float(sparks) / float(ours), abs=0.01)


def test_the_readme_has_the_range_of_ratios_of_the_summary():
    """The picture's text for who cannot see it; and the picture itself, which has each ratio as a comment."""
    summary = (ROOT / "docs" / "benchmarks.md").read_text().partition("\n## ")[0]
    ratios = [float(one) for one in re.findall(r"^\| .+ s \| .+ s \| ([\d.]+) \|", summary, re.MULTILINE)]
    said = re.search(r"!\[Ratios .* from ([\d.]+) to ([\d.]+)\]", (ROOT / "README.md").read_text())
    assert said and [float(one) for one in said.groups()] == [round(min(ratios), 1), round(max(ratios), 1)]
    drawn = re.findall(r"<!-- ([\d.]+)x -->", (ROOT / "docs" / "img" / "ratios.svg").read_text())
    assert [float(one) for one in drawn] == pytest.approx(ratios, abs=0.051)


def test_the_list_of_decisions_has_each_with_its_title():
    folder = ROOT / "docs" / "adr"
    listed = re.findall(
        r"^\| \[(\d+)\. (.+)\]\((.+)\) \| .+ \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    titles = [
        re.findall(r"^# (\d+)\. (.+)$", path.read_text(), re.MULTILINE)[0]
        for path in sorted(folder.glob("0*.md"))
    ]
    assert [(number, title) for number, title, _ in listed] == titles
    assert [file for _, _, file in listed] == [path.name for path in sorted(folder.glob("0*.md"))]
    assert "(docs/adr/README.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "adr").glob("0*.md")), ids=lambda path: path.stem)
def test_a_decision_is_a_page(path):
    text = path.read_text()
    assert re.match(rf"# {int(path.name[:3])}\. .+\n\nAccepted\.", text), (
        "its number, and whether it is accepted"
    )
    headings = [one for one in re.findall(r"^## (.+)$", text, re.MULTILINE) if one != "Considered"]
    assert headings == ["Context", "Decision", "Consequences"]
    # About what fits a printed page; measurements belong into docs/benchmarks.md.
    assert len(text.split()) <= 800


def test_the_glossary_has_no_word_twice():
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert words
    assert len(words) == len(set(words))


def test_make_targets_that_documents_name_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in DOCUMENTS:
        named = re.findall(
            r"(?:^|`)(?:HYPOTHESIS_PROFILE=\w+ )?make ([a-z]+)", path.read_text(), re.MULTILINE
        )
        assert set(named) <= targets, path


def is_generated(part: str) -> bool:
    return (part.startswith(".") and part not in (".ci", ".gitignore")) or part in ("out", "__pycache__")


def committed_texts() -> list[Path]:
    """What git has or would add; every file, where this is not a clone."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, capture_output=True, text=True, check=True)
        names = [name for name in done.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [str(path) for path in found if not any(map(is_generated, path.parts))]
    paths = (ROOT / name for name in names)
    return [path for path in paths if path.is_file() and path.suffix in TEXTS]


def test_no_text_names_a_path_of_this_machine():
    # Homes, and where this clone is. Built from pieces, so that this file does not name one itself.
    places = ["/" + home + "/" for home in ("root", "home", "Users")]
    if len(ROOT.parts) > 2:
        places.append(f"{ROOT}/")
    found = [
        f"{path.relative_to(ROOT)}: {place}"
        for path in committed_texts()
        for place in places
        if re.search(rf"(?<![\w.}}~-]){re.escape(place)}", path.read_text(errors="replace"))
    ]
    assert not found, "\n".join(found)


def test_constraints_are_names_and_versions_only():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.]*", line)] == []
    assert lines == sorted(lines)
